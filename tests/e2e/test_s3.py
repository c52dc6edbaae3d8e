"""A crawl in a bucket of a server that often fails leaves what a disk has, with a bounded number of requests."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from crawl_lib.ask import segment_files
from crawl_lib.repair import fsck as check
from crawl_lib.stores import open_stores
from demo import Serving, SynthWeb
from tests.e2e import crawl
from tests.e2e.crawl import make_config, run_crawl, run_iteration
from tests.e2e.moved import SAME, export_digests, in_bucket
from tests.s3 import S3Server, credential_variables, s3_server

WEB = SynthWeb(seed=20, sites=3, pages_per_site=8)
NODES = 2
MOST_REQUESTS = 150
"""Of a node and iteration, with its share of the commit."""
FAULTS = ("500 Internal Server Error", "503 Slow Down", "nothing", "lost")
"""How one request in twenty fails."""


@pytest.fixture
def server(monkeypatch) -> Iterator[S3Server]:
    for name, value in credential_variables().items():
        monkeypatch.setenv(name, value)
    with s3_server() as running:
        yield running


@pytest.fixture
def asked(server, monkeypatch) -> list[int]:
    """How many requests each iteration asked."""
    counts: list[int] = []

    def counted(*given: object) -> dict[str, Any]:
        before = server.requests.total()
        done = run_iteration(*given)
        counts.append(server.requests.total() - before)
        return done

    monkeypatch.setattr(crawl, "run_iteration", counted)
    return counts


def test_a_crawl_in_a_bucket_is_that_on_a_disk(server, asked, tmp_path):
    results = []
    with Serving(WEB) as serving:
        for name in ("disk", "bucket"):
            (tmp_path / name).mkdir()
            config = make_config(tmp_path / name, nodes=NODES, fetch={"max_redirects": 4})
            server.fault = lambda number: (
                FAULTS[number // 20 % len(FAULTS)] if number % 20 == 0 else None
            )
            results.append(
                run_crawl(
                    in_bucket(config, server, "e2e") if name == "bucket" else config, serving.seeds
                )
            )
    digests = list(map(export_digests, results))
    assert len(digests[0]) == len(SAME)
    assert digests[0] == digests[1]
    counts = asked[len(results[0].commits) :]
    assert 0 < sum(counts) <= MOST_REQUESTS * NODES * len(counts), counts
    stores = open_stores(results[1].config)
    tables = [f"{segment.path}/pages.parquet" for segment in stores.crawl.segments()]
    tables = [path for path in tables if stores.storage.exists(path)]
    assert (
        segment_files(stores, "pages") == [f"s3://krake-test/e2e/{path}" for path in tables] != []
    )
    assert check(open_stores(results[1].config)).clean
