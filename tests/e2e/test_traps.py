"""Eleven servers that make URLs without end, crawled to the end with the limits that are there by default."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.e2e.crawl import Result, check_counts, make_config, run_crawl
from tests.web.traps import EQUAL, PAGES, SITES, TrapServing, address

RULES = {
    "segments": "repeated_segment",
    "depth": "path_depth",
    "calendar": "calendar",
    "sessions": "session_id",
    "facets": "query_explosion",
    "refreshes": "redirect_limit",
    "offers": "similar",
    **dict.fromkeys(EQUAL, "similar"),
}
MOST = 1000


@dataclass
class Crawled:
    result: Result
    fetched: Counter[str]
    requested: Counter[str]


@pytest.fixture(scope="module")
def crawled(tmp_path_factory: pytest.TempPathFactory) -> Crawled:
    config = make_config(
        tmp_path_factory.mktemp("traps"),
        nodes=2,
        crawl={"max_iterations": 60},
        fetch={"host_delay_s": 0.0, "connections_per_host": 8},
    )
    with TrapServing() as traps:
        result = run_crawl(config, [traps.url(site) for site in SITES], process=False)
        requests = traps.log().counts()
    names = {address(site): site for site in SITES}
    rows = result.rows("pages", ["host", "outcome"])
    fetched = Counter(names[row["host"]] for row in rows if row["outcome"] != "filtered")
    requested: Counter[str] = Counter()
    for url, count in requests.items():
        requested[names[url.split("/")[2].partition(":")[0]]] += count
    return Crawled(result, fetched, requested)


@pytest.mark.parametrize("site", SITES)
def test_a_trap_ends_and_with_it_the_crawl(crawled: Crawled, site: str) -> None:
    assert 10 < crawled.fetched[site] < MOST
    assert crawled.requested[site] == crawled.fetched[site]


def test_a_site_is_fetched_as_far_as_its_rule_says(crawled: Crawled) -> None:
    fetched = crawled.fetched
    assert fetched["sessions"] == 2 * PAGES + 1
    assert fetched["calendar"] == 2 * 300 + 1, "months and days"
    assert fetched["depth"] == 2 * 20 + 1, "folders and pages"
    assert fetched["refreshes"] == 1 + 10
    assert fetched["offers"] == 1 + 20 + 400 + 100, (
        "the third round finds a large pattern, the fourth compares"
    )


def test_each_rule_has_its_counter_and_nothing_else_was_rejected(crawled: Crawled) -> None:
    check_counts(crawled.result)
    rejected: Counter[str] = Counter()
    for manifest in crawled.result.manifests():
        rejected.update(manifest["counts"]["rejections"])
        rejected.update(manifest["intake"]["rejected"])
    assert {rule for rule, count in rejected.items() if count} == set(RULES.values())


def test_what_is_too_deep_or_a_refresh_too_many_is_said_in_the_table_of_links(
    crawled: Crawled,
) -> None:
    links = crawled.result.rows("links", ["element", "target_url", "followed", "rule"])
    rules = {link["rule"] for link in links if not link["followed"]}
    assert rules == {"path_depth", "redirect_limit", "similar"}
    last = [link for link in links if link["rule"] == "redirect_limit"]
    assert [link["element"] for link in last] == ["meta", "a"]
    assert {link["target_url"].partition("?")[2] for link in last} == {"n=11"}


def test_equal_pages_end_with_a_crawldb_too(tmp_path: Path) -> None:
    """Its lists do not say where a URL was found."""
    config = make_config(
        tmp_path,
        nodes=1,
        frontier={"order": "crawldb"},
        batch={"size": 500},
        fetch={"host_delay_s": 0.0, "connections_per_host": 8},
    )
    with TrapServing() as traps:
        result = run_crawl(config, [traps.url("folders")], 4, process=False)
    outcomes = Counter(row["outcome"] for row in result.rows("pages", ["outcome"]))
    assert 300 <= outcomes["ok"] < 500
    assert outcomes["filtered"]
