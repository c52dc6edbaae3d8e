"""BV graphs: what is written is read again, whatever the graph's shape and however it is cut into blocks."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest

from crawl_lib.errors import DamagedFileError
from crawl_lib.graph import BV_SUFFIXES, Neighbours, bv, write_bv
from crawl_lib.stopping import Progress, Work
from tests.commoncrawl.bvreader import Bits, properties, read_bv


def written(stem: Path, lists: list[list[int]], degrees: list[int] | None = None) -> Path:
    """A graph by its lists of successors, which come in blocks of three."""
    successors = np.array([node for some in lists for node in some], np.int32)
    blocks = (successors[first : first + 3] for first in range(0, len(successors), 3))
    with ExitStack() as stack:
        files = {
            name: stack.enter_context(Path(f"{stem}.{name}").open("wb")) for name in BV_SUFFIXES
        }
        counts = np.array([len(some) for some in lists] if degrees is None else degrees, np.int32)
        write_bv(files, counts, Neighbours(blocks), Progress(Work(), "bv", 0, "arcs"))
    return stem


def random_lists(nodes: int, arcs: int, seed: int) -> list[list[int]]:
    chance = np.random.default_rng(seed)
    keys = np.unique(chance.integers(0, nodes * nodes, arcs))
    return [(keys[keys // nodes == node] % nodes).tolist() for node in range(nodes)]


@pytest.mark.parametrize("items", [1, 2, 7, 64, 1 << 19])
def test_a_graph_is_read_as_it_was_written(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, items: int
) -> None:
    monkeypatch.setattr(bv, "BLOCK_ITEMS", items)
    lists = random_lists(60, 500, seed=1)
    lists[5], lists[6], lists[59] = [], list(range(60)), [0, 59]
    stem = written(tmp_path / "graph", lists)
    assert read_bv(stem) == lists
    again = written(tmp_path / "again", lists)
    assert [Path(f"{stem}.{name}").read_bytes() for name in BV_SUFFIXES] == [
        Path(f"{again}.{name}").read_bytes() for name in BV_SUFFIXES
    ]


@pytest.mark.parametrize(
    "lists", [[], [[]], [[0]], [[]] * 9, [[1], []], [[], [0]], [[0, 1 << 20, (1 << 31) - 2]]]
)
def test_graphs_of_few_nodes_and_arcs(tmp_path: Path, lists: list[list[int]]) -> None:
    stem = written(tmp_path / "graph", lists)
    assert read_bv(stem) == lists
    assert properties(stem)["graphclass"] == "it.unimi.dsi.webgraph.BVGraph"


@pytest.mark.parametrize(
    "numbers", [[0], [1, 2, 3], [7, 8, 62, 63, 64, 511, 512], [2**31, 2**32 - 3, 2**32 + 5, 2**40]]
)
def test_codes_of_large_numbers(tmp_path: Path, numbers: list[int]) -> None:
    for code, is_long in ((bv.zeta, False), (bv._long_gamma, True), (bv.gamma, False)):
        fitting = [number for number in numbers if is_long or code is bv.zeta or number < 2**32 - 2]
        with (tmp_path / "bits").open("wb") as file:
            writer = bv.BitWriter(file)
            for number in fitting:
                writer.add(code(np.array([number], np.int64)))
            writer.end()
        bits = Bits((tmp_path / "bits").read_bytes())
        assert [bits.zeta(3) if code is bv.zeta else bits.gamma() for _ in fitting] == fitting


def test_what_is_not_in_order_or_too_short_is_refused(tmp_path: Path) -> None:
    for lists in ([[1, 0]], [[1, 1]]):
        with pytest.raises(ValueError, match="not in ascending order"):
            written(tmp_path / "graph", lists)
    with pytest.raises(DamagedFileError, match="before its end"):
        written(tmp_path / "graph", [[1]], degrees=[2])
