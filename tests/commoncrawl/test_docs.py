"""What docs/field-tools.md asks in SQL is answered, on an index and ranks whose content is known."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from crawl_lib.commoncrawl import export_graph_files
from crawl_lib.commoncrawl.columns import CAPTURE_SCHEMA, index_rows
from crawl_lib.config import Config
from crawl_lib.export import export_pages
from crawl_lib.graph import link_export
from crawl_lib.segment import surt
from crawl_lib.storage import Storage
from crawl_lib.urls import host_of
from tests.commoncrawl.webs import node_of, random_web
from tests.export.crawls import Capture, CrawlMaker
from tests.stores import stores_on
from tests.test_readme import ROOT, fences

BLOCKS = fences((ROOT / "docs" / "field-tools.md").read_text(), "sql")
VIEWS, LITTLE, ROBOTS, LANGUAGES, SCRIPTS, DOMAINS = BLOCKS
LINKS = random_web(seed=5)
STATUS = {url: (200, 200, 301, 404, 503)[number % 5] for number, url in enumerate(LINKS)}
LANGUAGE = {url: ("eng", "deu", None)[number % 3] for number, url in enumerate(LINKS)}
HAS_TEXT = {url: number % 7 < 3 for number, url in enumerate(LINKS)}
LENGTH = {url: 100 + number for number, url in enumerate(LINKS)}
ROBOTS_TXT = {
    host_of(url): (200, 404)[number % 2] for number, url in enumerate(LINKS) if url.endswith("/")
}
Ask = Callable[[str], list[dict[str, Any]]]


def capture(subset: str, url: str, status: int, length: int = 1) -> dict[str, Any]:
    is_page = subset != "robotstxt"
    return {
        **dict.fromkeys(CAPTURE_SCHEMA.names),
        "subset": subset,
        "url": url,
        "host": host_of(url),
        "url_surtkey": surt(url),
        "fetch_status": status,
        "fetch_time": datetime(2026, 1, 2, tzinfo=UTC),
        "warc_filename": "x.warc.gz",
        "warc_segment": "1/node-a",
        "warc_record_offset": 0,
        "warc_record_length": length,
        "content_languages": LANGUAGE[url] if is_page else None,
        "wet_filename": "x.warc.wet.gz" if is_page and HAS_TEXT[url] else None,
    }


@pytest.fixture
def ask(
    storage: Storage,
    config: Config,
    crawl: CrawlMaker,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Ask:
    """A function that answers a query of the page, in a folder with its files."""
    subsets = {
        url: "warc" if status == 200 else "crawldiagnostics" for url, status in STATUS.items()
    }
    rows = [capture(subsets[url], url, STATUS[url], LENGTH[url]) for url in LINKS]
    rows += [
        capture("robotstxt", f"http://{host}/robots.txt", status)
        for host, status in ROBOTS_TXT.items()
    ]
    for subset in {row["subset"] for row in rows}:
        folder = tmp_path / "data" / "dfs" / "cc-index" / "crawl=krake-1" / f"subset={subset}"
        folder.mkdir(parents=True)
        some = pa.RecordBatch.from_pylist(
            [row for row in rows if row["subset"] == subset], CAPTURE_SCHEMA
        )
        pq.write_table(pa.Table.from_batches([index_rows(some)]), folder / "part-00000.gz.parquet")
    crawl.segment(
        "1", "node-a", [Capture(url, b"page", links=links) for url, links in LINKS.items()]
    )
    stores = stores_on(storage, config)
    export_pages(stores, name="1", segments=crawl.segments)
    link_export(stores, name="1")
    graphs = tmp_path / "data" / "dfs" / "graphs" / "1"
    graphs.mkdir(parents=True)
    now = datetime(2026, 1, 2, tzinfo=UTC)
    export_graph_files(
        stores, graphs / "krake-1", form="commoncrawl", of="hosts", name="1", now=now
    )
    monkeypatch.chdir(tmp_path)
    connection = duckdb.connect()
    connection.execute(VIEWS)

    def answer(query: str) -> list[dict[str, Any]]:
        found = connection.execute(query)
        names = [column[0] for column in found.description or ()]
        return [dict(zip(names, row, strict=True)) for row in found.fetchall()]

    return answer


def counted(wanted: Callable[[str], object]) -> Counter[str]:
    """How many pages of each host are wanted."""
    return Counter(host_of(url) for url in LINKS if wanted(url))


PAGES = counted(lambda url: STATUS[url] == 200)
OTHERS = counted(lambda url: STATUS[url] == 200 and LANGUAGE[url] == "deu")
ERRORS = counted(lambda url: STATUS[url] >= 400)


def test_hosts_with_few_pages_come_by_their_rank(ask: Ask) -> None:
    found = ask(LITTLE.replace("limit 20", ""))
    expected = {
        host
        for host in {host_of(url) for url in LINKS}
        if PAGES[host] < 3 and node_of(f"http://{host}/", "hosts")
    }
    assert {row["host"] for row in found} == expected
    assert len(expected) > 3
    assert [row["hcrank_pos"] for row in found] == sorted(row["hcrank_pos"] for row in found)
    assert all(row["fetch_200"] == PAGES[row["host"]] for row in found)


def test_hosts_without_robots_txt_and_with_errors(ask: Ask) -> None:
    found = {
        row["host"]: (row["no_robots_txt"], row["errors"], row["fetch_200"]) for row in ask(ROBOTS)
    }
    hosts = {host_of(url) for url in LINKS}
    expected = {host: (ROBOTS_TXT.get(host) == 404, ERRORS[host], PAGES[host]) for host in hosts}
    assert found == {host: row for host, row in expected.items() if row[0] or row[1] > row[2]}
    assert len(found) > 3


def test_hosts_in_other_languages(ask: Ask) -> None:
    found = ask(LANGUAGES)
    assert {row["host"]: row["fetch_200_lote"] for row in found} == dict(OTHERS)
    for row in found:
        lengths = [
            LENGTH[url] for url in LINKS if host_of(url) == row["host"] and STATUS[url] == 200
        ]
        assert row["warc_record_length_median"] == median(lengths)
        assert row["share"] == pytest.approx(OTHERS[row["host"]] / len(lengths), abs=0.006)


def test_hosts_whose_pages_have_no_text(ask: Ask) -> None:
    empty = counted(lambda url: STATUS[url] == 200 and not HAS_TEXT[url])
    found = {row["host"]: row["fetch_200_no_text"] for row in ask(SCRIPTS)}
    assert found == {host: count for host, count in empty.items() if count > PAGES[host] / 2}
    assert len(found) > 3


def test_domains_with_their_hosts_and_pages(ask: Ask) -> None:
    found = {row["domain"]: (row["hosts"], row["pages"]) for row in ask(DOMAINS)}
    assert sum(pages for _, pages in found.values()) == sum(PAGES.values())
    inside = [
        host
        for host in {host_of(url) for url in LINKS}
        if re.fullmatch(r"(.*\.)?example\.org", host)
    ]
    assert found["example.org"] == (len(inside), sum(PAGES[host] for host in inside))
    assert sum(row["errors"] for row in ask(DOMAINS)) == sum(ERRORS.values())
