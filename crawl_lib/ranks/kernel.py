"""A round of a rank: for every node, the sum of the values of its inlinks' sources; and PageRank.

A sum of floats depends on its order, so the order is fixed: the order of a node's inlinks. The loop is in C
(`crawl_lib/parse/native/sums.c`): numpy alone adds up a third as many arcs a second. PageRank has the form of LDBC
Graphalytics: the sum of all ranks is 1, and pages without links give their rank to all pages in equal parts.
"""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from crawl_lib.config import PageRankConfig
from crawl_lib.engine import Ints, column_of
from crawl_lib.errors import os_errors
from crawl_lib.parse import native_library
from crawl_lib.stopping import Progress

BLOCK_ARCS = 1 << 24
"""Arcs between two checks whether to stop: a fraction of a second."""
Floats = npt.NDArray[np.float64]


class Inlinks:
    """The arcs of a graph by target: `sources[starts[i]:starts[i + 1]]` are the sources of the arcs to node i.

    `sources` may be `mapped`. `starts`: one number more than nodes. Raises ValueError if the two do not match.
    """

    def __init__(self, starts: Ints, sources: Ints) -> None:
        self.starts = np.ascontiguousarray(starts, np.int64)
        self.sources = np.ascontiguousarray(sources, np.int32)
        self.nodes, self.arcs = len(self.starts) - 1, len(self.sources)
        is_whole = self.nodes >= 0 and self.starts[0] == 0 and self.starts[-1] == self.arcs
        if not is_whole or (np.diff(self.starts) < 0).any():
            raise ValueError(f"starts of {self.nodes} nodes do not divide {self.arcs} arcs")
        # The loop in C does not check the sources.
        if self.arcs and not 0 <= self.sources.min() <= self.sources.max() < self.nodes:
            raise ValueError(f"a source is outside of 0 to {self.nodes - 1}")

    def sums(self, values: Floats, progress: Progress) -> Floats:
        """Return the sum of `values` over each node's inlinks.

        `progress` counts the inlinks. Raises StoppedError; SetupError without the compiled loop.
        """
        if len(values) != self.nodes:
            raise ValueError(f"{len(values)} values for {self.nodes} nodes")
        values, found = np.ascontiguousarray(values, np.float64), np.empty(self.nodes)
        starts, sources = self.starts, self.sources.ctypes.data
        first = 0
        while first < self.nodes:
            block_end = np.searchsorted(starts, starts[first] + BLOCK_ARCS, side="right") - 1
            end = min(self.nodes, max(first + 1, int(block_end)))
            places = [array.ctypes.data for array in (starts[first:], values, found[first:])]
            native_library().krake_sums(
                places[0], end - first, sources, self.arcs, places[1], places[2]
            )
            progress.add(int(starts[end] - starts[first]))
            first = end
        return found


def starts_of(degrees: Ints) -> Ints:
    """Return where the inlinks of each node begin.

    The last number is the end of the last inlinks. `degrees`: number of inlinks of each node.
    """
    return np.concatenate([[0], np.cumsum(degrees, dtype=np.int64)])


def mapped(path: Path, blocks: Iterable[Ints]) -> Ints:
    """Map numbers of 32 bits from a local file.

    Mapped numbers take no memory. Raises StorageError naming the file.
    """
    with os_errors(path), path.open("wb") as file:
        for block in blocks:
            file.write(np.ascontiguousarray(block, np.int32).data)
        if not file.tell():  # an empty file cannot be mapped
            return np.empty(0, np.int32)
    return np.memmap(path, np.int32, "r")


def with_ranks(batches: Iterable[pa.RecordBatch], ranks: Floats) -> Iterator[pa.RecordBatch]:
    """Yield batches about all nodes, in order, with ranks."""
    first = 0
    for batch in batches:
        yield batch.append_column("rank", column_of(ranks[first : first + len(batch)]))
        first += len(batch)


@dataclass(frozen=True)
class Ranked:
    """Ranks by node. `rounds`: number of rounds; `change`: the sum of all changes in the last round."""

    ranks: Floats
    rounds: int
    change: float


def most_rounds(options: PageRankConfig) -> int:
    """Return the largest possible number of rounds of `page_rank`.

    The sum of all changes is at most 2 in the first round, and each later round has at most `damping` times the sum of
    the round before.
    """
    damping, tolerance = options.damping, options.tolerance
    if not damping > 0 or not 0 < tolerance < 2:
        return options.max_rounds
    return min(options.max_rounds, 1 + math.ceil(math.log(tolerance / 2, damping)))


def page_rank(
    inlinks: Inlinks, out_degrees: Ints, options: PageRankConfig, progress: Progress
) -> Ranked:
    """Rank the nodes of a graph with at least one node.

    `out_degrees`: arcs from each node; `progress`: counts arcs. The last round is the first one with a sum of changes
    of at most `options.tolerance`. The distance to the limit is then at most `damping / (1 - damping)` times the
    tolerance. The same graph gives the same bytes. Raises StoppedError.
    """
    nodes, damping = inlinks.nodes, options.damping
    dangling = np.flatnonzero(out_degrees == 0)
    shares = np.divide(damping, out_degrees, out=np.zeros(nodes), where=out_degrees > 0)
    ranks, change, rounds = np.full(nodes, 1 / nodes), np.inf, 0
    while rounds < options.max_rounds and change > options.tolerance:
        found = inlinks.sums(ranks * shares, progress)
        found += (1 - damping + damping * ranks[dangling].sum()) / nodes
        ranks -= found
        change = float(np.abs(ranks, out=ranks).sum())
        ranks, rounds = found, rounds + 1
    return Ranked(ranks, rounds, change)
