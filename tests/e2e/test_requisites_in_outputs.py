"""Which outputs have requisites: those that say where each URL is, and no output that is about pages or links."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from crawl_lib import stages
from crawl_lib.crawldb import newest_version
from crawl_lib.curate import merge_indexes
from crawl_lib.derived import Output
from crawl_lib.duplicates import find_near
from crawl_lib.outputs import OUTPUTS
from crawl_lib.ranks import update_linkrank
from crawl_lib.stores import open_stores
from crawl_lib.terms import update_terms
from crawl_lib.urls import key_of
from tests.e2e.crawl import Result, make_config, run_crawl
from tests.e2e.shown import HOPS, running_pages

NOW = datetime(2026, 1, 2, tzinfo=UTC)
OPTIONS: dict[str, dict[str, Any]] = {
    "parse": {"requisites": "all"},
    "frontier": {"order": "crawldb"},
    "linkdb": {"within_host": True},
    "linkrank": {"within_host": True, "one_per_domain": False},
    "scoring": {"plugins": ["opic"]},
    "commoncrawl": {"make": ["index", "wet"]},
    "graphs": {"make": ["hosts", "bv"]},
    "fetch": {"host_delay_s": 0.0},
}
OF_EACH_URL = {"crawldb", "captures", "cdxj"}
"""Outputs that have requisites: the state of each URL, and where its record is."""
OF_SEGMENTS = {"text"}
"""Tables of segments have the texts of all pages in them, since a link that comes later makes a page of a frame."""
WITHOUT_FILES = {"push", "statistics"}
"""Outputs without files in a batch crawl: the one is in a server, the other counts what was fetched in real time."""
FRAME = "/frame"
"""A link too, which scope refuses: links to such URLs count."""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Result:
    """A crawl with requisites, and every output of it."""
    config = make_config(tmp_path_factory.mktemp("made"), nodes=1, **OPTIONS)
    with running_pages() as site:
        result = run_crawl(config, [f"http://127.0.0.1:{site.server_address[1]}/"])
    stores = open_stores(config)
    stages.invert_links(stores)
    update_linkrank(stores, now=NOW)
    find_near(stores, now=NOW)
    update_terms(stores, now=NOW)
    stages.mark_duplicates(stores)
    merge_indexes(stores)
    stages.rank_export(stores, export=result.export)
    for output in ("captures", "index", "commoncrawl", "graphs"):
        stages.make_output(stores, output=output)
    return result


def requisites_of(result: Result, *but: str) -> dict[str, bytes]:
    """URLs and keys of the requisites."""
    paths = {path for path, hop in HOPS.items() if hop == "E" and path not in but}
    urls = {"/" + row["url"].split("/", 3)[3]: row["url"] for row in result.rows("pages", ["url"])}
    return {urls[path]: key_of(urls[path]) for path in paths}


def leaves(value: Any) -> Iterator[Any]:
    """Yield the texts, bytes and numbers in rows."""
    if isinstance(value, dict | list | tuple):
        for one in value.values() if isinstance(value, dict) else value:
            yield from leaves(one)
    else:
        yield value


def named_in(file: Path, urls: dict[str, bytes]) -> set[str]:
    """Return the URLs of which a file has the key, the URL as a value, or a record."""
    if file.suffix == ".parquet":
        values = {*leaves(pq.ParquetFile(file).read().to_pylist())}
        return {url for url, key in urls.items() if url in values or key in values}
    data = file.read_bytes()
    data = gzip.decompress(data) if file.suffix == ".gz" else data
    return {
        url
        for url, key in urls.items()
        if key in data or b"WARC-Target-URI: %s\r" % url.encode() in data
    }


def holding(result: Result, output: Output, urls: dict[str, bytes]) -> set[str]:
    """Return the URLs that any file of an output has."""
    stores, found = open_stores(result.config), set[str]()
    for path in output.paths(stores):
        place = stores.storage.local_path(path)
        assert place is not None
        for file in [place] if place.is_file() else place.rglob("*"):
            found |= named_in(file, urls) if file.is_file() else set()
    return found


@pytest.mark.parametrize(
    "output",
    [one for one in OUTPUTS if one.name not in OF_EACH_URL | OF_SEGMENTS | WITHOUT_FILES],
    ids=lambda one: str(one.name),
)
def test_no_output_about_pages_or_links_has_a_requisite(output: Output, made: Result) -> None:
    """Only the frame is there, as what a link leads to."""
    but = (FRAME,) if output.name in {"outlinks", "linkdb", "linkrank"} else ()
    assert output.paths(open_stores(made.config))
    assert holding(made, output, requisites_of(made, *but)) == set()


@pytest.mark.parametrize("name", ["crawldb", "captures"])
def test_an_output_of_each_url_has_requisites(name: str, made: Result) -> None:
    output = next(one for one in OUTPUTS if one.name == name)
    urls = requisites_of(made)
    assert holding(made, output, urls) == {*urls}


def test_the_index_of_all_records_has_requisites(made: Result) -> None:
    lines = (made.crawl_dir / "index.cdxj").read_text()
    assert all(f'"{url}"' in lines for url in requisites_of(made))


def test_a_requisite_is_no_duplicate_of_a_page_and_hands_no_score_on(made: Result) -> None:
    """Most images of the site have the same bytes as one that is linked to."""
    version = newest_version(open_stores(made.config))
    assert version is not None
    assert version.manifest["statuses"] == {"fetched": 3, "requisite": len(HOPS) - 3}
    rows = [
        row
        for path in version.paths
        for row in pq.ParquetFile(made.config.dfs_primary + "/" + path).read().to_pylist()
    ]
    urls = requisites_of(made)
    assert {float(row["given"]) for row in rows if row["url"] in urls and "given" in row} <= {0.0}
    assert {row["inlinks"] for row in rows if row["url"] in urls} == {0}


def test_links_of_the_graph_are_those_of_a_crawl_without_requisites(made: Result) -> None:
    paths = {tuple("/" + url.split("/", 3)[3] for url in arc) for arc in made.arcs()}
    assert paths == {("/", "/page"), ("/", "/i2.png")}
