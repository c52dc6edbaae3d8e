"""PageRank: what LDBC and igraph have, at their numbers of rounds and at the end; dangling pages; the same bytes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from crawl_lib.config import PageRankConfig
from crawl_lib.ranks import Ranked, page_rank
from tests.ranks.graphs import adjacency, cnr_2000, counting, inlinks_of

HERE = Path(__file__).parent


def ranked(arcs: np.ndarray, nodes: int, **options: float) -> Ranked:
    return page_rank(*inlinks_of(arcs, nodes), PageRankConfig(**options), counting())  # type: ignore[arg-type]


def expected_of(path: Path) -> np.ndarray:
    return np.array([float(line.split()[1]) for line in path.read_text().splitlines()])


@pytest.mark.parametrize(
    ("name", "rounds", "apart"), [("ldbc-dir", 14, 2e-6), ("ldbc-undir", 26, 1e-7)]
)
def test_ldbc_has_the_same_ranks_after_its_rounds(
    testdata: Path, name: str, rounds: int, apart: float
) -> None:
    """LDBC accepts a relative difference of 1e-4. Rounds bring its values, as rounds before them do not."""
    graph = adjacency(testdata / "graphs" / f"{name}-input")
    expected = expected_of(testdata / "graphs" / f"{name}-output")
    for done, is_near in ((rounds, True), (rounds - 1, False)):
        found = ranked(*graph, tolerance=0, max_rounds=done)
        assert found.rounds == done
        assert (np.abs(found.ranks / expected - 1).max() < apart) == is_near


def test_ldbc_has_the_limit_of_the_directed_graph(testdata: Path) -> None:
    found = ranked(*adjacency(testdata / "graphs" / "ldbc-dir-input"), tolerance=1e-16)
    np.testing.assert_allclose(
        found.ranks, expected_of(testdata / "graphs" / "ldbc-dir-output"), rtol=1e-13
    )


def test_ldbc_example(testdata: Path) -> None:
    lines = (testdata / "graphs" / "ldbc-example-directed.e").read_text().splitlines()
    arcs = np.array([[int(word) - 1 for word in line.split()[:2]] for line in lines])
    expected = expected_of(testdata / "graphs" / "ldbc-example-directed-PR")
    np.testing.assert_allclose(
        ranked(arcs, 10, tolerance=0, max_rounds=2).ranks, expected, rtol=1e-12
    )


def test_igraph_has_the_same_ranks_of_a_real_web_graph_at_the_end(testdata: Path) -> None:
    found = ranked(*cnr_2000(testdata))
    assert found.change <= PageRankConfig().tolerance
    lines = (HERE / "cnr-2000.pagerank.tsv").read_text().splitlines()
    pairs = [line.split("\t") for line in lines if not line.startswith("#")]
    nodes, expected = (
        np.array([int(node) for node, _ in pairs]),
        np.array([float(rank) for _, rank in pairs]),
    )
    assert len(nodes) == 200
    assert np.abs(found.ranks[nodes] - expected).max() < 1e-8
    assert abs(found.ranks.sum() - 1) < 1e-12


def test_what_dangling_pages_have_goes_to_all() -> None:
    """Of 0 -> 1 the limit is known: 1 gets all that 0 has, and what it has itself goes to both."""
    found = ranked(np.array([[0, 1]]), 2, damping=0.5, tolerance=1e-15)
    np.testing.assert_allclose(found.ranks, [0.4, 0.6], rtol=1e-14)


def test_rounds_end_at_the_tolerance_or_at_the_most(testdata: Path) -> None:
    arcs, nodes = adjacency(testdata / "graphs" / "ldbc-dir-input")
    coarse, fine = ranked(arcs, nodes, tolerance=1e-3), ranked(arcs, nodes, tolerance=1e-12)
    assert coarse.rounds < fine.rounds < 200
    assert fine.change <= 1e-12 < coarse.change <= 1e-3
    assert ranked(arcs, nodes, tolerance=0, max_rounds=5).rounds == 5


def test_each_time_the_same_bytes() -> None:
    arcs = np.random.default_rng(4).integers(0, 3000, (40_000, 2))
    assert len({ranked(arcs, 3000).ranks.tobytes() for _ in range(3)}) == 1
