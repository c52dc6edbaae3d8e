"""Real input: two Debian documentation trees, crawled to the end by two nodes, against a walk of the files."""

from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

import pytest

from tests.e2e.crawl import Result, check_cdxj, check_counts, check_warcs, make_config, run_crawl
from tests.web.files import FileServing
from tests.web.walk import Walk, walk

PYTHON = Path("/usr/share/doc/python3.11-doc/html")
POSTGRES = Path("/usr/share/doc/postgresql-doc-15/html")


@dataclass
class Crawled:
    result: Result
    walked: Walk
    counts: dict[str, int]


@pytest.fixture(scope="module")
def crawled(tmp_path_factory: pytest.TempPathFactory) -> Crawled:
    for tree in (PYTHON, POSTGRES):
        if not (tree / "index.html").is_file():
            pytest.skip(
                f"{tree} is not there: the Debian packages python3.11-doc and postgresql-doc-15 are needed"
            )
    config = make_config(
        tmp_path_factory.mktemp("docs"),
        nodes=2,
        fetch={"host_delay_s": 0.0},
    )
    with (
        FileServing(PYTHON, "127.0.9.1") as python,
        FileServing(POSTGRES, "127.0.9.2") as postgres,
        ProcessPoolExecutor(1, get_context("spawn")) as pool,
    ):
        seeds = [python.url("/index.html"), postgres.url("/index.html")]
        # the walk needs as long as the crawl: both at the same time
        walking = pool.submit(walk, {python.url(""): PYTHON, postgres.url(""): POSTGRES}, seeds)
        result = run_crawl(config, seeds)
        counts = {**python.log().counts(), **postgres.log().counts()}
        return Crawled(result, walking.result(), counts)


def test_fetched_set_is_what_links_reach_each_once(crawled: Crawled) -> None:
    assert crawled.result.outcomes() == crawled.walked.outcomes
    assert set(crawled.result.visited().values()) == {1}
    assert crawled.counts == dict.fromkeys(crawled.walked.outcomes, 1)
    assert len(crawled.walked.outcomes) > 1600


def test_web_graph_is_the_arcs_of_the_walk(crawled: Crawled) -> None:
    assert crawled.result.arcs() == crawled.walked.arcs
    assert len(crawled.walked.arcs) > 25_000


def test_both_nodes_worked_or_one_owns_both_hosts(crawled: Crawled) -> None:
    """Every node commits a segment in every iteration, empty or not."""
    per_iteration = {segment.parent: 0 for segment in crawled.result.segments()}
    for segment in crawled.result.segments():
        per_iteration[segment.parent] += 1
    assert set(per_iteration.values()) == {2}


def test_warcs_manifests_and_indexes_hold(crawled: Crawled) -> None:
    counts = check_warcs(crawled.result)
    assert counts["response"] >= len(crawled.walked.outcomes)
    check_counts(crawled.result)
    assert check_cdxj(crawled.result) >= len(crawled.walked.outcomes)
