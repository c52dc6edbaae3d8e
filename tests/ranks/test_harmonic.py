"""Harmonic centrality: near the exact one on graphs of any shape, and the same bytes each time."""

from __future__ import annotations

from threading import Event

import numpy as np
import pytest

from crawl_lib.errors import StoppedError
from crawl_lib.ranks import Inlinks, harmonic, harmonic_centrality
from crawl_lib.stopping import Progress, Work
from tests.ranks.graphs import counting, inlinks_of


def exact(inlinks: Inlinks) -> np.ndarray:
    """The sum of 1 / distance over all nodes that reach a node, by one breadth-first search for each node."""
    found = np.zeros(inlinks.nodes)
    for node in range(inlinks.nodes):
        seen, layer, distance = {node}, {node}, 0
        while layer:
            distance += 1
            nearer = {
                int(one)
                for at in layer
                for one in inlinks.sources[inlinks.starts[at] : inlinks.starts[at + 1]]
            }
            layer = nearer - seen
            seen |= layer
            found[node] += len(layer) / distance
    return found


def random_graph(nodes: int, arcs: int, seed: int) -> Inlinks:
    """Some nodes link to many, and nodes of a row link to the next one, so that distances are long."""
    chance = np.random.default_rng(seed)
    pairs = np.stack([chance.zipf(1.7, arcs) % nodes, chance.integers(0, nodes, arcs)], axis=1)
    row = np.arange(nodes // 4)
    pairs = np.unique(np.concatenate([pairs, np.stack([row, row + 1], axis=1)]), axis=0)
    return inlinks_of(pairs[pairs[:, 0] != pairs[:, 1]], nodes)[0]


@pytest.mark.parametrize(
    ("nodes", "arcs", "registers"), [(400, 900, 512), (900, 2500, 512), (900, 1200, 256)]
)
def test_most_nodes_are_within_15_percent_of_the_exact_value(
    monkeypatch: pytest.MonkeyPatch, nodes: int, arcs: int, registers: int
) -> None:
    monkeypatch.setattr(harmonic, "MOST_REGISTERS", registers)
    inlinks = random_graph(nodes, arcs, seed=nodes)
    found, truth = harmonic_centrality(inlinks, counting()), exact(inlinks)
    assert found.registers == registers
    assert (found.values[truth == 0] == 0).all()
    differences = np.abs(found.values - truth)[truth > 0] / truth[truth > 0]
    assert np.quantile(differences, 0.95) < 0.15
    assert np.median(differences) < 0.03


def test_small_graphs_are_exact() -> None:
    path = inlinks_of(np.array([[0, 1], [1, 2], [2, 3]]), 4)[0]
    assert harmonic_centrality(path, counting()).values == pytest.approx(
        [0, 1, 1.5, 1 + 1 / 2 + 1 / 3], rel=0.01
    )
    for nodes in (0, 1, 3):
        empty = Inlinks(np.zeros(nodes + 1, np.int64), np.empty(0, np.int32))
        assert harmonic_centrality(empty, counting()).values.tolist() == [0.0] * nodes


def test_the_registers_of_all_nodes_keep_to_their_room() -> None:
    assert [harmonic.registers_for(nodes) for nodes in (1, 50_000, 300_000, 10**6, 10**9)] == [
        512,
        512,
        128,
        64,
        64,
    ]


@pytest.mark.parametrize("block", [1, 1 << 12])
def test_blocks_and_runs_make_no_difference(monkeypatch: pytest.MonkeyPatch, block: int) -> None:
    inlinks = random_graph(300, 700, seed=3)
    whole = harmonic_centrality(inlinks, counting())
    monkeypatch.setattr(harmonic, "BLOCK_BYTES", block)
    again = harmonic_centrality(inlinks, counting())
    assert (again.values.tobytes(), again.rounds) == (whole.values.tobytes(), whole.rounds)


def test_only_balls_that_changed_are_merged() -> None:
    """On a path of n nodes the ball of the k-th one grows in k rounds: half of n * n merges, not all."""
    nodes, reports = 64, []
    path = inlinks_of(np.stack([np.arange(nodes - 1), np.arange(1, nodes)], axis=1), nodes)[0]
    progress = Progress(Work(on_progress=reports.append), "harmonic", 0, "balls")
    found = harmonic_centrality(path, progress)
    progress.end()
    assert found.rounds <= nodes
    assert reports[-1]["done"] < 0.6 * nodes * nodes


def test_it_stops_between_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    stop = Event()
    progress = Progress(Work(stop=stop), "harmonic", 0, "balls")
    stop.set()
    with pytest.raises(StoppedError):
        harmonic_centrality(random_graph(50, 100, seed=1), progress)
