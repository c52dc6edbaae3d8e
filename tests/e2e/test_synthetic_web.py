"""A crawl of the synthetic web finds its truth, with 1 and with 3 nodes and with both routings."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from crawl_lib.states import Outcome
from crawl_lib.urls import key_of
from demo import RequestLog, Serving, SynthWeb, Truth, TruthOptions
from tests.e2e.crawl import Result, check_cdxj, check_counts, check_warcs, make_config, run_crawl

WEB = SynthWeb(seed=20, sites=7, pages_per_site=20)
HOST_DELAY_S = 0.02
MAX_REDIRECTS = 4  # fewer than the long chain has, and as few as possible: each costs a round
RETRIED = {Outcome.SERVER_ERROR}
PASSING = {*RETRIED, Outcome.ROBOTS_UNREACHABLE, Outcome.TIMEOUT, Outcome.CONNECT_FAILED}


@dataclass(frozen=True)
class Case:
    """One way to crawl the web."""

    nodes: int
    routing: str
    processes: int = 1
    retries: int = 0
    order: str = "fifo"

    def __str__(self) -> str:
        order = "" if self.order == "fifo" else f"-{self.order}"
        return f"{self.nodes}-{self.routing}{'-retries' if self.retries else ''}{order}"


@dataclass
class Crawled:
    """A finished crawl next to the truth and what the server saw."""

    case: Case
    result: Result
    truth: Truth
    log: RequestLog


QUICK = [
    Case(1, "host", processes=2),
    Case(3, "local", retries=1),
    Case(3, "host", order="crawldb"),
]
SLOW = [
    *(Case(3, "host"), Case(1, "local"), Case(3, "local"), Case(1, "host", retries=2)),
    Case(1, "host", order="crawldb"),
]
CASES = [*QUICK, *(pytest.param(case, marks=pytest.mark.slow, id=str(case)) for case in SLOW)]
HOST_ROUTING = [
    case for case, one in zip(CASES, [*QUICK, *SLOW], strict=True) if one.routing == "host"
]


@pytest.fixture(scope="module", params=CASES, ids=str)
def crawled(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Crawled]:
    case: Case = request.param
    directory: Path = tmp_path_factory.mktemp("crawl")
    fetch = {
        "host_delay_s": HOST_DELAY_S,
        "max_redirects": MAX_REDIRECTS,
        "processes": case.processes,
    }
    with Serving(WEB) as serving:
        retry = {"max": case.retries, "max_wait_s": 0.0}
        frontier = {"routing": case.routing, "order": case.order}
        config = make_config(
            directory, nodes=case.nodes, frontier=frontier, fetch=fetch, retry=retry
        )
        result = run_crawl(config, serving.seeds)
        truth = serving.truth(options=TruthOptions(max_redirects=MAX_REDIRECTS))
        yield Crawled(case, result, truth, serving.log())


def test_every_url_of_the_truth_is_visited_once_and_no_other(crawled: Crawled) -> None:
    """It has one final row, and counts as one."""
    visited = crawled.result.visited()
    assert set(visited) == set(crawled.truth.visits)
    assert set(visited.values()) == {1}
    assert sum(commit["urls"] for commit in crawled.result.commits) == len(visited)


def test_each_other_row_is_a_try_of_a_failure_that_passes(crawled: Crawled) -> None:
    passing = {url for url, visit in crawled.truth.visits.items() if visit.outcome in PASSING}
    assert passing
    assert crawled.result.retried() == Counter(dict.fromkeys(passing, crawled.case.retries))


def test_outcomes_are_the_truth(crawled: Crawled) -> None:
    assert crawled.result.outcomes() == {
        url: str(outcome) for url, outcome in crawled.truth.outcomes().items()
    }
    summed = sum(commit["outcomes"].get("ok", 0) for commit in crawled.result.commits)
    assert summed == crawled.truth.counts()[Outcome.OK]


def test_web_graph_is_the_truth(crawled: Crawled) -> None:
    assert crawled.result.arcs() == crawled.truth.arcs


def test_contents_are_the_truth(crawled: Crawled) -> None:
    assert crawled.result.digests() == crawled.truth.contents()
    assert crawled.result.contents() == crawled.truth.contents()


def test_server_saw_each_url_once_unless_it_failed(crawled: Crawled) -> None:
    counts = crawled.log.counts()
    fetched = {url for url, visit in crawled.truth.visits.items() if visit.status is not None}
    assert {url for url in counts if not url.endswith("/rules/robots.txt")} == fetched
    failing = {url for url, visit in crawled.truth.visits.items() if visit.outcome in RETRIED}
    failing.add(next(url for url in counts if url.endswith("/x/busy-once.html")))
    robots = {url for url in counts if url.endswith("/rules/robots.txt")}
    assert {url for url, count in counts.items() if count != 1} - failing - robots == set()
    assert all(counts[url] > 1 for url in failing)


def test_no_two_requests_to_a_host_are_closer_than_its_delay(crawled: Crawled) -> None:
    """Over all nodes, processes and iterations, robots.txt and retries included."""
    for host in crawled.log.hosts():
        delay_s = max(HOST_DELAY_S, WEB.delay_s(host.partition(":")[0]))
        assert crawled.log.closest_gap_s(host) >= delay_s, host


@pytest.mark.parametrize("crawled", HOST_ROUTING, indirect=True, ids=str)
def test_with_host_routing_a_host_belongs_to_one_node(crawled: Crawled) -> None:
    nodes_of: dict[str, set[str]] = {}
    for segment, manifest in zip(
        crawled.result.segments(), crawled.result.manifests(), strict=True
    ):
        rows = crawled.result.rows("pages", ["host"], segment)
        for row in rows:
            nodes_of.setdefault(row["host"], set()).add(manifest["node"])
    assert {len(nodes) for nodes in nodes_of.values()} == {1}


def test_manifests_count_what_is_there(crawled: Crawled) -> None:
    check_counts(crawled.result)


def test_warcs_are_valid_for_two_readers_and_the_index_hits(crawled: Crawled) -> None:
    counts = check_warcs(crawled.result)
    answered = sum(visit.status is not None for visit in crawled.truth.visits.values())
    assert counts["response"] >= answered
    assert counts["request"] >= answered
    assert counts["metadata"] >= len(crawled.truth.visits)
    assert check_cdxj(crawled.result) >= answered


def test_depth_and_via_follow_the_links(crawled: Crawled) -> None:
    """A page's `via` is a crawled page that leads to it; a link adds one to the depth, a redirect nothing.

    The CrawlDb has no page that led to another: there one of those that link to it has the right depth.
    """
    rows = crawled.result.rows("pages", ["key", "url", "via_key", "depth", "redirect_url"])
    by_key = {row["key"]: row for row in rows}
    links = {
        (row["source"], row["target"]) for row in crawled.result.rows("links", ["source", "target"])
    }
    if crawled.case.order == "crawldb":
        leads = {(target, by_key[source]["depth"] + 1) for source, target in links}
        leads |= {
            (key_of(row["redirect_url"]), row["depth"]) for row in rows if row["redirect_url"]
        }
        assert all(row["via_key"] is None for row in rows)
        assert all((row["key"], row["depth"]) in leads for row in rows if row["depth"])
        return
    for row in rows:
        if row["via_key"] is None:
            assert row["depth"] == 0
            continue
        via = by_key[row["via_key"]]
        redirected = via["redirect_url"] == row["url"]
        assert redirected or (row["via_key"], row["key"]) in links
        assert row["depth"] - via["depth"] == (0 if redirected else 1)
