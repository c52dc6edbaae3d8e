"""One truth: the service and a batch crawl write the same rows of `pages` for the same URLs."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from crawl_lib.config import Config
from crawl_lib.realtime import Client, TokenFile, collect_parts, fetcher_of
from crawl_lib.realtime.places import FETCHER
from crawl_lib.realtime.tokens import RIGHTS
from crawl_lib.segment import PAGES_SCHEMA
from crawl_lib.stores import open_stores
from demo import Serving, SynthWeb
from tests.e2e.crawl import Result, make_config, run_crawl
from tests.realtime.test_service import running

WEB = SynthWeb(seed=42, sites=8, pages_per_site=10)
URLS = 500
OWN = {
    "time",
    "duration_ms",
    "attempts",
    "retry_at",
    "metadata",
    "warc_file",
    "warc_offset",
    "warc_length",
}
"""The columns that may differ: times, durations, attempts, the list, and the place of the record."""
COMPARED = sorted(set(PAGES_SCHEMA.names) - OWN)


def config_of(directory: Path, **sections: Any) -> Config:
    directory.mkdir()
    return make_config(
        directory,
        nodes=1,
        urls={"scope": "any", "max_depth": 0},
        parse={"facts": True},
        realtime={"tokens": str(directory / "tokens.json"), "listen": "127.0.0.1:0"},
        **sections,
    )


def by_service(config: Config, urls: Sequence[str]) -> Result:
    """Submit URLs to a service, wait for all documents, and collect."""
    stores = open_stores(config)
    token = TokenFile(config.realtime.tokens).add("test", RIGHTS)
    with running(stores, fetcher_of(stores)) as service, Client(service, token) as client:
        for start in range(0, len(urls), 300):
            assert {one.decision for one in client.submit(urls[start : start + 300])} <= {
                "new",
                "waiting",
                "known",
            }
        for url in urls:
            page = client.page(url, wait_s=60)
            assert page is not None
            assert page.state == "known", url
    collect_parts(open_stores(config), FETCHER)
    return Result(config)


def rows_of(result: Result) -> dict[str, dict[str, Any]]:
    rows = result.rows("pages", COMPARED)
    found = {row["url"]: row for row in rows}
    assert len(found) == len(rows)
    return found


def test_service_and_batch_crawl_write_the_same_rows(tmp_path: Path) -> None:
    with Serving(WEB) as serving, ThreadPoolExecutor(1) as thread:
        visits = serving.truth().visits
        # Targets of redirects come first, so that both crawls meet these URLs as submitted URLs.
        urls = sorted(visits, key=lambda url: (visits[url].outcome == "redirect", url))[:URLS]
        assert len(urls) == URLS
        crawled = thread.submit(run_crawl, config_of(tmp_path / "batch"), urls, process=False)
        frontier = {"order": "crawldb", "routing": "host"}
        live = rows_of(by_service(config_of(tmp_path / "live", frontier=frontier), urls))
        batch = rows_of(crawled.result())
    assert set(live) == set(batch)
    assert [live[url] for url in sorted(live)] == [batch[url] for url in sorted(batch)]
