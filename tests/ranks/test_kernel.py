"""The sums that ranks are made of: right for every shape of graph, and nothing is read outside of it."""

from __future__ import annotations

from pathlib import Path
from threading import Event

import numpy as np
import pytest

from crawl_lib.errors import StoppedError
from crawl_lib.ranks import Inlinks, kernel, mapped, starts_of
from crawl_lib.stopping import Progress, Work


def progress(stop: Event | None = None) -> Progress:
    return Progress(Work(stop=stop or Event()), "rank", 0, "arcs")


def graph(nodes: int, arcs: int, seed: int = 1) -> Inlinks:
    """Arcs of chance, some nodes without any."""
    chance = np.random.default_rng(seed)
    targets = np.sort(chance.integers(0, nodes, arcs))
    return Inlinks(
        starts_of(np.bincount(targets, minlength=nodes)),
        chance.integers(0, nodes, arcs, dtype=np.int32),
    )


@pytest.mark.parametrize("block", [1, 7, 1 << 24])
def test_each_node_has_the_sum_of_its_inlinks_in_their_order(
    monkeypatch: pytest.MonkeyPatch, block: int
) -> None:
    monkeypatch.setattr(kernel, "BLOCK_ARCS", block)
    inlinks = graph(200, 3000)
    values = np.random.default_rng(2).random(200)
    expected = []
    for start, end in zip(inlinks.starts[:-1], inlinks.starts[1:], strict=True):
        total = 0.0
        for source in inlinks.sources[start:end]:
            total += values[source]
        expected.append(total)
    assert inlinks.sums(values, progress()).tolist() == expected


def test_a_mapped_file_gives_what_memory_gives(tmp_path: Path) -> None:
    inlinks, values = graph(50, 400), np.random.default_rng(3).random(50)
    blocks = [inlinks.sources[:100], inlinks.sources[100:]]
    same = Inlinks(inlinks.starts, mapped(tmp_path / "sources", blocks))
    assert same.sums(values, progress()).tobytes() == inlinks.sums(values, progress()).tobytes()
    assert len(mapped(tmp_path / "none", [])) == 0


def test_graphs_without_nodes_or_arcs_have_sums_too() -> None:
    assert (
        Inlinks(np.zeros(1, np.int64), np.empty(0, np.int32)).sums(np.empty(0), progress()).tolist()
        == []
    )
    assert Inlinks(np.zeros(4, np.int64), np.empty(0, np.int32)).sums(
        np.ones(3), progress()
    ).tolist() == [0, 0, 0]


@pytest.mark.parametrize(
    ("starts", "sources"),
    [([0, 2], [0]), ([1, 1], [0]), ([0, 2, 1], [0]), ([0, 1], [1]), ([0, 1], [-1]), ([], [])],
)
def test_arcs_that_are_no_graph_are_refused(starts: list[int], sources: list[int]) -> None:
    with pytest.raises(ValueError, match=r"do not divide|is outside"):
        Inlinks(np.array(starts, np.int64), np.array(sources, np.int32))


def test_values_of_other_nodes_are_refused() -> None:
    with pytest.raises(ValueError, match="3 values for 2 nodes"):
        graph(2, 4).sums(np.ones(3), progress())


def test_it_stops_between_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel, "BLOCK_ARCS", 10)
    stop = Event()
    counted = progress(stop)
    stop.set()
    with pytest.raises(StoppedError):
        graph(20, 100).sums(np.ones(20), counted)
