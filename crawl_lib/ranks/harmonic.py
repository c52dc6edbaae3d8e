"""Harmonic centrality of a node: the sum of 1 / distance over all nodes with a path to the node.

HyperBall (Boldi and Vigna, "In-core computation of geometric centralities with HyperBall", 2013): the ball of a node in
round t are all nodes with a path of at most t arcs to the node. A counter (HyperLogLog) of each ball is the union of
the node's own counter and the counters of all sources of its arcs, in the round before. The growth of a ball in round t
is the number of nodes at distance t. Only balls with a change in the last round are merged, so late rounds cost little.
The merging loop is in C (`sums.c`).
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from crawl_lib.parse import native_library
from crawl_lib.ranks.kernel import Floats, Inlinks, Ints
from crawl_lib.stopping import Progress

MOST_BYTES = 1 << 26
"""The memory limit for the counters of all nodes; twice as many are in memory."""
LEAST_REGISTERS, MOST_REGISTERS = 64, 512
BLOCK_BYTES = 1 << 22
"""The size of the counters that are merged or measured at once."""
_Counters = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class Harmonic:
    """Harmonic centralities by node. `rounds`: number of rounds, about the longest finite distance."""

    values: Floats
    rounds: int
    registers: int


def harmonic_centrality(inlinks: Inlinks, progress: Progress) -> Harmonic:
    """Estimate the harmonic centrality of a graph's nodes.

    The graph has no loops. `progress` counts merged balls. A counter has 64 to 512 registers of a byte, as many as
    `MOST_BYTES` allow for all nodes. The standard error of a ball's size is 13 % with 64 registers and 5 % with 512,
    and less for balls of nearly the whole graph (`_Sizes`). The same graph gives the same bytes. Raises StoppedError;
    SetupError without the compiled loop.
    """
    registers = registers_for(inlinks.nodes)
    before = _counters(inlinks.nodes, registers)
    sizes_of = _Sizes(before)
    values = np.diff(inlinks.starts).astype(np.float64)  # the first round needs no estimate
    sizes = values + 1
    changed, rounds = np.ones(inlinks.nodes, bool), 0
    while changed.any():
        rounds += 1
        after = before.copy()
        changed = _merge(inlinks, before, changed, after, progress)
        for block in _blocks(np.flatnonzero(changed), registers) if rounds > 1 else ():
            found = sizes_of(after[block])
            values[block] += np.maximum(found - sizes[block], 0) / rounds
            sizes[block] = np.maximum(found, sizes[block])
        before = after
    return Harmonic(values, rounds, registers)


def registers_for(nodes: int) -> int:
    """Return a counter's number of registers for some nodes.

    The number is a power of two.
    """
    registers = MOST_REGISTERS
    while registers > LEAST_REGISTERS and registers * nodes > MOST_BYTES:
        registers //= 2
    return registers


def _counters(nodes: int, registers: int) -> _Counters:
    """Make a counter for each node with just the node itself.

    Numbers are hashed by splitmix64.
    """
    counters = np.zeros((nodes, registers), np.uint8)
    hashes = np.arange(1, nodes + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB), (31, 1)):
        hashes ^= hashes >> np.uint64(shift)
        hashes *= np.uint64(factor)
    bits = registers.bit_length() - 1
    rest = (hashes >> np.uint64(bits)) | (np.uint64(1) << np.uint64(63 - bits))  # never 0
    lowest = rest & (~rest + np.uint64(1))
    places = (hashes & np.uint64(registers - 1)).astype(np.int64)
    counters[np.arange(nodes), places] = np.frexp(lowest.astype(np.float64))[
        1
    ]  # 1 + number of zeros at the end
    return counters


def _merge(
    inlinks: Inlinks, before: _Counters, changed: Ints, after: _Counters, progress: Progress
) -> Ints:
    """Merge the counters of changed sources into each node's counter.

    Returns the marks of changed nodes.
    """
    width, native, starts, grown = (
        before.shape[1],
        native_library(),
        inlinks.starts,
        np.zeros(inlinks.nodes, bool),
    )
    most = max(1, BLOCK_BYTES // width)  # arcs
    first = 0
    while first < inlinks.nodes:
        block_end = int(np.searchsorted(starts, starts[first] + most, side="right")) - 1
        end = min(inlinks.nodes, max(first + 1, block_end))
        arrays = (starts[first:], inlinks.sources, changed, before, after[first:])
        rows, sources, marks, others, balls = (array.ctypes.data for array in arrays)
        progress.add(native.krake_unions(rows, end - first, sources, marks, width, others, balls))
        for some in _blocks(np.arange(first, end), width):
            grown[some] = (after[some] != before[some]).any(axis=1)
        first = end
    return grown


def _blocks(nodes: Ints, registers: int) -> list[Ints]:
    size = max(1, BLOCK_BYTES // registers)
    return [nodes[first : first + size] for first in range(0, len(nodes), size)]


class _Sizes:
    """Estimates the numbers of nodes in counters (Flajolet and others, "HyperLogLog", 2007).

    The union of all counters has counted every node, and the number of nodes is known. A ball of nearly the whole
    graph has the error of the union's estimate, so each estimate is corrected by that error, less for small balls.
    """

    def __init__(self, counters: _Counters) -> None:
        self._registers = counters.shape[1]
        self._alpha = 0.709 if self._registers == 64 else 0.7213 / (1 + 1.079 / self._registers)
        self._powers = np.exp2(-np.arange(256, dtype=np.float32))
        self._whole = float(self._raw(counters.max(axis=0, keepdims=True, initial=0))[0])
        self._nodes = len(counters)

    def __call__(self, counters: _Counters) -> Floats:
        sizes = self._raw(counters)
        if self._whole:
            sizes *= 1 + (self._nodes / self._whole - 1) * np.minimum(1, sizes / self._whole)
        return sizes

    def _raw(self, counters: _Counters) -> Floats:
        """Estimate without the correction.

        For few nodes, the registers of value zero give the estimate.
        """
        count = self._registers
        sizes = self._alpha * count * count / self._powers[counters].sum(axis=1, dtype=np.float64)
        zeros = (counters == 0).sum(axis=1)
        few: Floats = count * np.log(count / np.maximum(zeros, 1))
        return np.asarray(np.where((sizes <= 2.5 * count) & (zeros > 0), few, sizes))
