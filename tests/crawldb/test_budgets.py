"""Budgets of hosts and domains, and the rules for traps, where lists are made from the CrawlDb."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from crawl_lib.config import Config
from crawl_lib.crawldb import explain
from crawl_lib.crawldir import FileName
from crawl_lib.stores import open_stores
from crawl_lib.urls import host_of
from tests.crawldb.tables import NOW, leave_version, row_of
from tests.crawldb.test_generate import config_of, make, urls_of, with_generate

VISITED = {"fetched_time": NOW - 9000, "status": "fetched"}


def farm(count: int, domain: str = "farm.example", **fields: Any) -> list[dict[str, Any]]:
    return [
        row_of(f"http://x{number}.{domain}/", **{"depth": 1, **fields}) for number in range(count)
    ]


def listed(
    config: Config, rows: list[dict[str, Any]], number: int = 1
) -> tuple[dict[str, int], set[str]]:
    """What the list of a version with these rows says, and its URLs."""
    leave_version(open_stores(config), number, rows)
    made = make(config, number)
    return made.counts, urls_of(config, made.list) if made.listed else set()


def test_a_domain_has_so_many_hosts_by_default_and_private_suffixes_are_their_own(
    tmp_path: Path,
) -> None:
    config = config_of(tmp_path, 2)
    rows = [*farm(300), *farm(300, "github.io"), row_of("http://good.test/", depth=1)]
    counts, _ = listed(config, rows)
    assert counts == {"domain_hosts": 100, "listed": 501}
    assert open_stores(config).crawl.inbox.manifest("1-1", FileName.LISTS).said["over_budget"] == {
        "domain_hosts farm.example": 100
    }


def test_what_was_visited_or_listed_counts_first_and_is_visited_again(tmp_path: Path) -> None:
    config = config_of(tmp_path, urls={"max_hosts_per_domain": 3})
    old = [row_of(f"http://old{number}.farm.example/", depth=9, **VISITED) for number in range(4)]
    rows = [*farm(4, depth=1), *old, row_of("http://old1.farm.example/new", depth=2)]
    counts, urls = listed(config, rows)
    assert counts == {"domain_hosts": 4, "listed": 5}
    assert urls == {row["url"] for row in (*old, rows[-1])}
    counts, urls = listed(
        config, [*rows, *farm(2, "other.example"), *farm(5, "seeds.example", depth=0)], 2
    )
    assert counts == {"leased": 5, "domain_hosts": 4, "listed": 7}, "seeds are never refused"


def test_a_domain_has_so_many_urls_and_exceptions_are_by_domain(tmp_path: Path) -> None:
    urls = {
        "max_pages_per_domain": 4,
        "domains": [{"kind": "domain", "value": "large.example", "max_pages": 6}],
    }
    config = config_of(tmp_path, urls=urls)
    rows = [
        row_of(f"http://{host}.{domain}.example/{page}", depth=page + 1)
        for domain in ("small", "large")
        for host in ("a", "b")
        for page in range(4)
    ]
    counts, found = listed(config, rows)
    assert counts == {"listed": 10, "domain_pages": 6}
    assert Counter(url[-1] for url in found if "small" in url) == {"0": 2, "1": 2}, "the best ones"
    [refused] = (
        {row["url"] for row in rows if "b.large" in row["url"]}
        - found
        - {"http://b.large.example/2"}
    )
    assert explain(open_stores(config), refused).reason == "domain_pages"


def test_a_host_has_so_many_urls_in_the_whole_crawl(tmp_path: Path) -> None:
    config = config_of(tmp_path, 2, urls={"max_pages_per_host": 3})
    rows = [row_of(f"http://a.test/{page}", depth=page) for page in range(5)]
    rows += [row_of(f"http://b.test/{page}", depth=page) for page in range(2)]
    counts, found = listed(config, rows)
    assert counts == {"listed": 5, "host_pages": 2}
    assert Counter(map(host_of, found)) == {"a.test": 3, "b.test": 2}
    manifest = open_stores(config).crawl.inbox.manifest("1-1", FileName.LISTS)
    assert manifest.said["over_budget"] == {"host_limit a.test": 2}


@pytest.mark.parametrize(
    ("urls", "few"),
    [
        ([f"http://a.test/?month={number}" for number in range(9)], 3),
        ([f"http://a.test/{'b/' * number}" for number in range(2, 9)], 2),
        (
            [f"http://a.test/x;jsessionid={'0123456789abcdef' * 2}{number}" for number in range(5)],
            1,
        ),
        (
            [
                f"http://a.test/?x={number % 3}&y={number // 3 % 3}&z={number // 9}"
                for number in range(27)
            ],
            8,
        ),
    ],
)
def test_of_a_trap_as_many_are_listed_as_a_queue_takes(
    tmp_path: Path, urls: list[str], few: int
) -> None:
    traps = {"max_repeated": 2, "max_dates": 3, "max_sessions": 1, "max_combined": 2}
    config = config_of(tmp_path, traps=traps)
    rows = [row_of(url, depth=1) for url in urls]
    counts, found = listed(config, [*rows, row_of("http://a.test/", depth=1)])
    assert counts["trap"] + counts["listed"] == len(urls) + 1
    assert 1 < counts["listed"] <= few + 1
    visited = [
        {**row, **row_of(row["url"], depth=1, **VISITED)} if row["url"] in found else row
        for row in rows
    ]
    again, _ = listed(config, visited, 2)
    assert again["listed"] == counts["listed"] - 1, (
        "what was visited is visited again, and nothing else"
    )


def test_a_domain_has_a_share_while_others_are_due(tmp_path: Path) -> None:
    config = config_of(tmp_path, batch={"size": 40})
    rows = farm(100, depth=0) + [row_of(f"http://good.test/{page}", depth=1) for page in range(63)]
    _, found = listed(config, rows)
    assert Counter(host_of(url) == "good.test" for url in found) == {True: 20, False: 20}, (
        "the farm is better"
    )
    for name in ("alone", "hard"):
        (tmp_path / name).mkdir()
    _, alone = listed(config_of(tmp_path / "alone", batch={"size": 40}), farm(100, depth=0))
    assert len(alone) == 40
    hard = with_generate(config_of(tmp_path / "hard", batch={"size": 40}), max_per_domain=7)
    counts, _ = listed(hard, farm(100, depth=0))
    assert counts == {"listed": 7, "domain_limit": 93}
