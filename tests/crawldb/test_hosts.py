"""What is known of each host, counted by hand; and the same whatever the threads."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from crawl_lib.config import Config
from crawl_lib.crawldb import HostStatistics, host_statistics, newest_version, update
from crawl_lib.stores import open_stores
from tests.crawldb.crawls import Crawl, Visit
from tests.crawldb.tables import NOW, at, leave_version, row_of
from tests.crawldb.test_determinism import grow
from tests.crawldb.test_generate import config_of, make, with_generate
from tests.engine.threads import use_threads

A, B = "http://a.example", "http://b.example"


def crawl_of(config: Config) -> Crawl:
    """Two rounds: a page of each host changes, one fails, one is gone, one was only found."""
    crawl = Crawl(open_stores(config))
    crawl.seeds(f"{A}/\n{B}/")
    slow: dict[str, Any] = {"duration_ms": 201, "length": 1001}
    first = [
        Visit(
            f"{A}/", links=[f"{A}/1", f"{A}/2", f"{A}/3"], more={"duration_ms": 100, "length": 1000}
        ),
        Visit(f"{B}/", "timeout", retry_s=60, more={"duration_ms": 9999}),
    ]
    second = [
        Visit(f"{A}/1", more=slow),
        Visit(f"{A}/2", "gone", more={"duration_ms": 0, "length": 5}),
    ]
    crawl.segment(NOW - 3000, first)
    crawl.segment(NOW - 2000, second, "node-b")
    return crawl


def found(config: Config) -> list[HostStatistics]:
    stores = open_stores(config)
    version = newest_version(stores)
    assert version is not None
    return list(host_statistics(stores, version, now=at(NOW)))


def test_each_host_is_counted_and_those_with_most_urls_come_first(tmp_path: Path) -> None:
    config = config_of(tmp_path)
    crawl = crawl_of(config)
    update(crawl.stores, now=at(NOW))
    none = {"redirected": 0, "duplicates": 0}
    a = {"urls": 4, "unfetched": 1, "fetched": 2, "gone": 1, "failing": 0, "due": 1, **none}
    b = {"urls": 1, "unfetched": 1, "fetched": 0, "gone": 0, "failing": 1, "due": 1, **none}
    assert [asdict(one) for one in found(config)] == [
        {"host": "a.example", **a, "visits": 3, "answers": 3, "mean_ms": 100, "mean_bytes": 668},
        {"host": "b.example", **b, "visits": 1, "answers": 0, "mean_ms": None, "mean_bytes": None},
    ]
    assert [path.name for path in crawl.root.iterdir() if path.name.startswith(".read")] == []


def test_visits_count_whose_segments_are_there(tmp_path: Path) -> None:
    config = config_of(tmp_path)
    crawl = crawl_of(config)
    update(crawl.stores, now=at(NOW))
    crawl.stores.storage.delete(crawl.stores.crawl.segment(str(NOW - 2000), "node-b").path)
    crawl.segment(NOW - 1000, [Visit(f"{A}/3")])  # is not taken in yet
    assert [(one.visits, one.mean_bytes) for one in found(config)] == [(1, 1000), (1, None)]


def test_the_same_comes_with_one_thread_and_with_two(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    crawl = Crawl(open_stores(config_of(tmp_path)))
    grow(crawl, 2, pages=2000)
    update(crawl.stores, now=at(NOW))
    answers = []
    for threads in (1, 2):
        use_threads(monkeypatch, threads)
        answers.append(found(config_of(tmp_path)))
    assert answers[0] == answers[1]
    assert len(answers[0]) > 5
    names = [(-one.urls, one.host) for one in answers[0]]
    assert names == sorted(names)


@pytest.mark.parametrize(("failing", "most", "listed"), [(6, 2, 2), (5, 2, 10), (6, None, 10)])
def test_a_failing_host_has_a_smaller_share_until_half_of_its_urls_are_fetched(
    tmp_path: Path, failing: int, most: int | None, listed: int
) -> None:
    config = with_generate(config_of(tmp_path), max_per_failing_host=most)
    rows = [
        row_of(f"{A}/{page}", retries=int(page < failing), fetched_time=NOW - 9)
        for page in range(10)
    ]
    leave_version(open_stores(config), 1, [*rows, *(row_of(f"{B}/{page}") for page in range(10))])
    made = make(config)
    assert Counter(made.counts) == Counter({"listed": 10 + listed, "host_limit": 10 - listed})
