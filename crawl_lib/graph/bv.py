"""BV graphs for WebGraph: `<name>.graph`, `<name>.offsets`, `<name>.properties`.

The format (https://webgraph.di.unimi.it/docs/it/unimi/dsi/webgraph/BVGraph.html), without references and intervals: for
each node the outdegree in gamma code, then the successors in zeta code (k = 3): the distance of the first successor
from the node, and the distance of each other successor from its predecessor. The offsets are the lengths of the nodes'
lists in bits, in gamma code. Numbers are coded in blocks, so memory does not grow with the degree of a node.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import BinaryIO, NamedTuple

import numpy as np
import numpy.typing as npt

from crawl_lib.engine import Ints
from crawl_lib.graph.finalizer import Neighbours
from crawl_lib.stopping import Progress

ZETA_K = 3
BLOCK_ITEMS = 1 << 18
"""Numbers of one block of the code."""
WORD_BITS = 64
BV_SUFFIXES = ("graph", "offsets", "properties")
"""The suffixes of the files of a BV graph."""
_Words = npt.NDArray[np.uint64]


class Codes(NamedTuple):
    """Bit strings: the lowest `lengths` bits of each value, at most 64; all higher bits are zero."""

    values: _Words
    lengths: Ints


@dataclass
class BitWriter:
    """A file of bits, whose first bit is the highest of the first byte. `written`: bits so far."""

    file: BinaryIO
    written: int = 0
    _rest: int = 0

    def add(self, codes: Codes) -> Ints:
        """Append bit strings; return where each begins.

        Places are in bits from the start of the file.
        """
        held = self.written % WORD_BITS
        ends = np.cumsum(codes.lengths, dtype=np.int64) + held
        end = int(ends[-1]) if len(ends) else held
        starts = ends - codes.lengths
        words = _packed(codes, starts, end // WORD_BITS + 2)
        words[0] |= np.uint64(self._rest)
        whole = end // WORD_BITS
        self.file.write(words[:whole].byteswap().tobytes())
        self._rest = int(words[whole])
        begins: Ints = starts + (self.written - held)
        self.written += end - held
        return begins

    def end(self) -> None:
        """Write the remaining bits, and zeros up to a whole byte."""
        left = self.written % WORD_BITS
        self.file.write(self._rest.to_bytes(8, "big")[: (left + 7) // 8])


def _packed(codes: Codes, starts: Ints, words: int) -> _Words:
    """Put bit strings at their places in words.

    Bit strings do not overlap, so a sum is a union.
    """
    found = np.zeros(words, np.uint64)
    word, room = starts // WORD_BITS, WORD_BITS - starts % WORD_BITS
    over = codes.lengths - room  # bits that go to the next word, if positive
    left, right = (np.maximum(shift, 0).astype(np.uint64) for shift in (-over, over))
    head = np.where(over > 0, codes.values >> right, codes.values << left)
    if len(word):
        begins = np.flatnonzero(np.diff(word, prepend=-1))
        found[word[begins]] += np.add.reduceat(head, begins)
    split = over > 0
    found[word[split] + 1] += codes.values[split] << (np.uint64(WORD_BITS) - right[split])
    return found


def _exponents(values: _Words) -> Ints:
    """Return the place of the highest bit of each value.

    Values are from 1 to 2^53.
    """
    return np.frexp(values.astype(np.float64))[1].astype(np.int64) - 1


def gamma(numbers: Ints) -> Codes:
    """Code natural numbers below 2^32 - 1 in Elias' gamma code."""
    values = numbers.astype(np.uint64) + np.uint64(1)
    return Codes(values, 2 * _exponents(values) + 1)


def _long_gamma(numbers: Ints) -> Codes:
    """Code natural numbers below 2^53 in gamma code.

    The zeros at the start of each code are a bit string of their own.
    """
    values, lengths = np.zeros((len(numbers), 2), np.uint64), np.empty((len(numbers), 2), np.int64)
    values[:, 1] = numbers.astype(np.uint64) + np.uint64(1)
    lengths[:, 0] = _exponents(values[:, 1])
    lengths[:, 1] = lengths[:, 0] + 1
    return Codes(values.ravel(), lengths.ravel())


def zeta(numbers: Ints) -> Codes:
    """Code natural numbers below 2^53 in zeta code, k = 3.

    The power of 8 is in unary, the rest in minimal binary.
    """
    values = numbers.astype(np.uint64) + np.uint64(1)
    power = _exponents(values) // ZETA_K
    least = np.uint64(1) << (power * ZETA_K).astype(np.uint64)
    is_short = values - least < least
    tail = power * ZETA_K + ZETA_K - is_short
    rest = np.where(is_short, values - least, values)
    return Codes(rest + (np.uint64(1) << tail.astype(np.uint64)), power + 1 + tail)


def write_bv(
    files: Mapping[str, BinaryIO], degrees: Ints, successors: Neighbours, progress: Progress
) -> None:
    """Write a BV graph.

    `files`: one for each of `BV_SUFFIXES`; `progress` counts arcs.

    `degrees`: of each node; `successors`: of all nodes, in order of nodes, ascending and distinct for each node. Raises
    ValueError for another order, DamagedFileError for missing successors, StoppedError.
    """
    graph, offsets = BitWriter(files["graph"]), BitWriter(files["offsets"])
    last = 0
    for block in _blocks(degrees, successors):
        begins = graph.add(block.codes)[block.lists]
        offsets.add(_long_gamma(np.diff(begins, prepend=last)))
        last = int(begins[-1]) if len(begins) else last
        progress.add(len(block.codes.lengths) - len(begins))
    offsets.add(_long_gamma(np.array([graph.written - last])))
    graph.end()
    offsets.end()
    files["properties"].write(
        _properties(len(degrees), int(degrees.sum(dtype=np.int64)), graph.written).encode()
    )


class _Block(NamedTuple):
    """Some numbers of a graph, coded. `lists`: the places of outdegrees among them."""

    codes: Codes
    lists: Ints


def _blocks(degrees: Ints, successors: Neighbours) -> Iterator[_Block]:
    """Code a graph in blocks.

    Each node has its outdegree, then its successors. A block may begin or end within a node's list.
    """
    starts = np.cumsum(degrees, dtype=np.int64) - degrees
    lists = starts + np.arange(len(degrees))
    taken, before = 0, 0
    for low in range(0, len(degrees) + int(degrees.sum(dtype=np.int64)), BLOCK_ITEMS):
        high = min(low + BLOCK_ITEMS, len(degrees) + int(degrees.sum(dtype=np.int64)))
        first, end = np.searchsorted(lists, [low, high])
        found = successors.take(high - low - int(end - first)).astype(np.int64)
        gaps = np.diff(found, prepend=before) - 1
        first_owner, end_owner = np.searchsorted(lists, [low - 1, high - 1])
        owners = np.arange(first_owner, end_owner)[degrees[first_owner:end_owner] > 0]
        places = starts[owners] - taken
        distances = found[places] - owners
        gaps[places] = np.where(distances >= 0, 2 * distances, -2 * distances - 1)
        if len(gaps) and gaps.min() < 0:
            raise ValueError("successors of a node are not in ascending order, or not distinct")
        yield _coded(high - low, lists[first:end] - low, degrees[first:end], gaps)
        taken += len(found)
        before = int(found[-1]) if len(found) else before


def _coded(items: int, lists: Ints, degrees: Ints, gaps: Ints) -> _Block:
    is_list = np.zeros(items, bool)
    is_list[lists] = True
    codes = Codes(np.empty(items, np.uint64), np.empty(items, np.int64))
    for chosen, some in ((is_list, gamma(degrees)), (~is_list, zeta(gaps))):
        codes.values[chosen], codes.lengths[chosen] = some
    return _Block(codes, lists)


def _properties(nodes: int, arcs: int, bits: int) -> str:
    return "\n".join(
        (
            "#BVGraph properties",
            "graphclass=it.unimi.dsi.webgraph.BVGraph",
            "version=0",
            f"nodes={nodes}",
            f"arcs={arcs}",
            "windowsize=0",
            "maxrefcount=0",
            "minintervallength=0",
            f"zetak={ZETA_K}",
            "compressionflags=",
            "endianness=big",
            f"bitsperlink={bits / max(1, arcs):.3f}",
            f"length={bits}",
            "",
        )
    )
