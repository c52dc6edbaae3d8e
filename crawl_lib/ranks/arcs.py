"""Arcs of numbered nodes, each once, sorted by source or by target on the disk."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from crawl_lib.engine import Ints, count_sorted
from crawl_lib.errors import os_errors
from crawl_lib.ranks.kernel import Inlinks, mapped, starts_of
from crawl_lib.stores import Stores

SORTED_ARCS = 1 << 19
"""Arcs that are sorted in memory at once; a node may have more."""
BLOCK_ARCS = 1 << 18
_END_BITS, _PLACES = 32, 1 << 16  # the second one a power of two


@dataclass(frozen=True)
class Side:
    """The arcs of a graph by source, or by target. `degrees`: of each node; `ends`: the other ends in blocks, by node.

    The ends of a node's arcs are in ascending order, and distinct. `file`: a local file with all ends.
    """

    degrees: Ints
    ends: Callable[[], Iterator[Ints]]
    file: Path | None = None

    @property
    def arcs(self) -> int:
        """The number of arcs."""
        return int(self.degrees.sum(dtype=np.int64))

    def inlinks(self, stores: Stores, file: Path) -> Inlinks:
        """Return the arcs as ranks need them, mapped from a file.

        `file`: a local file. Raises StorageError, StoppedError.
        """
        if self.file is not None and self.arcs:
            return Inlinks(starts_of(self.degrees), np.memmap(self.file, np.int32, "r"))
        return Inlinks(starts_of(self.degrees), mapped(file, stores.until_stopped(self.ends())))


@dataclass(frozen=True)
class Pairs:
    """Arcs in a local file, in any order; arcs may be repeated. One number holds both ends of an arc."""

    stores: Stores
    file: Path
    nodes: int

    @classmethod
    def write(
        cls, stores: Stores, file: Path, nodes: int, blocks: Iterable[tuple[Ints, Ints]]
    ) -> "Pairs":
        """Write arcs (sources, targets) to a file.

        A block has no repetition. Raises StorageError.
        """
        with os_errors(file), file.open("wb") as out:
            for sources, targets in stores.until_stopped(blocks):
                out.write(_distinct(packed(sources, targets)).data)
        return cls(stores, file, nodes)

    def side(self, *, by_target: bool = False) -> Side:
        """Sort the arcs by source, or by target. Raises StorageError, StoppedError."""
        degrees = np.zeros(self.nodes, np.int32)

        def counted() -> Iterator[Ints]:
            for ours, others in self.sorted(by_target=by_target):
                count_sorted(degrees, ours)
                yield others

        path = self.file.with_suffix(".by_target" if by_target else ".by_source")
        with os_errors(path), path.open("wb") as file:
            for others in counted():
                file.write(others.data)
        return Side(degrees, lambda: _read(path, np.int32), path)

    def sorted(self, *, by_target: bool = False) -> Iterator[tuple[Ints, Ints]]:
        """Yield distinct arcs by source, or by target.

        The end to sort by comes first, then the other end. Raises the errors of `side`.
        """
        divided = self.file.with_suffix(".divided")
        yield from self._sorted_ranges(divided, self._divide(divided, by_target))
        divided.unlink()

    def _blocks(self, by_target: bool) -> Iterator[Ints]:
        """Yield the arcs, with the sorted end in the upper bits."""
        for keys in self.stores.until_stopped(_read(self.file, np.int64)):
            yield packed(*reversed(_ends(keys))) if by_target else keys

    def _divide(self, path: Path, by_target: bool) -> Ints:
        """Sort arcs into ranges of nodes; count each range's arcs."""
        counts = np.zeros(self.nodes, np.int64)
        for keys in self._blocks(by_target):
            np.add.at(counts, keys >> _END_BITS, np.int64(1))
        range_of = ((np.cumsum(counts) - counts) // SORTED_ARCS).astype(np.int32)
        sizes = np.bincount(range_of, counts).astype(np.int64)
        cursors = np.cumsum(sizes) - sizes
        with os_errors(path), path.open("wb") as file:
            for keys in self._blocks(by_target):
                keys.sort()
                for number, some in _runs(range_of[keys >> _END_BITS], keys):
                    file.seek(8 * int(cursors[number]))
                    file.write(some.data)
                    cursors[number] += len(some)
        return sizes

    def _sorted_ranges(self, path: Path, sizes: Ints) -> Iterator[tuple[Ints, Ints]]:
        """Sort each range."""
        with os_errors(path), path.open("rb") as file:
            for size in self.stores.until_stopped(sizes.tolist()):
                found, left = np.empty(0, np.int64), size
                while left:  # a node may have many repeated arcs: memory is for distinct arcs
                    more = np.fromfile(file, np.int64, min(left, max(SORTED_ARCS, len(found))))
                    found, left = _distinct(np.concatenate([found, more])), left - len(more)
                if len(found):
                    yield _ends(found)


class Firsts:
    """Marks the first row of each pair of an owner and a group. Rows come in blocks, in order of owners.

    The rows of an owner may go on in the next block. Memory: a byte a group.
    """

    def __init__(self, groups: int) -> None:
        self._owner = -1  # of the last row so far
        self._has = np.zeros(groups, bool)  # groups of the owner's rows so far
        self._noted: list[Ints] = []

    def of(self, owners: Ints, groups: Ints) -> Ints:
        """Mark rows of the next block without an equal earlier row.

        Equal rows have the same owner and the same group.
        """
        starts = range(0, len(owners), _PLACES)
        marks = [
            self._next(owners[start : start + _PLACES], groups[start : start + _PLACES])
            for start in starts
        ]
        return np.concatenate([np.empty(0, bool), *marks])

    def _next(self, owners: Ints, groups: Ints) -> Ints:
        """Mark the first rows of at most `_PLACES`.

        An owner and a row have 16 bits, and a group has 31.
        """
        owner_of = np.append(np.int64(0), np.cumsum(owners[1:] != owners[:-1]))
        keys = owner_of << 47 | groups.astype(np.int64) << 16 | np.arange(len(owners))
        keys.sort()
        marks = np.zeros(len(owners), bool)
        marks[keys[np.append(True, np.diff(keys >> 16) != 0)] & (_PLACES - 1)] = True
        if owners[0] == self._owner:
            end = np.searchsorted(owners, self._owner, "right")
            marks[:end] &= ~self._has[groups[:end]]
        if owners[-1] != self._owner:
            for some in self._noted:
                self._has[some] = False
            self._owner, self._noted = int(owners[-1]), []
        start = np.searchsorted(owners, self._owner)
        self._noted.append(groups[start:][marks[start:]])
        self._has[self._noted[-1]] = True
        return marks


def between(arcs: Iterable[tuple[Ints, Ints]], group_of: Ints) -> Iterator[tuple[Ints, Ints]]:
    """Turn arcs between pages into arcs between groups.

    Arcs within a group are left out.
    """
    for some in arcs:
        sources, targets = (group_of[ends] for ends in some)
        stays = (sources != targets) & (sources >= 0) & (targets >= 0)
        yield sources[stays], targets[stays]


def packed(ours: Ints, others: Ints) -> Ints:
    """Pack pairs of numbers below 2^31 as single numbers.

    The numbers have the order of the pairs.
    """
    pairs: Ints = ours.astype(np.int64) << _END_BITS | others
    return pairs


def _distinct(keys: Ints) -> Ints:
    """Sort numbers in place, and return each once.

    `np.unique` takes 30 times as long to hash them.
    """
    keys.sort()
    found: Ints = keys[np.append(True, keys[1:] != keys[:-1])[: len(keys)]]
    return found


def _ends(packed: Ints) -> tuple[Ints, Ints]:
    return (packed >> _END_BITS).astype(np.int32), packed.astype(
        np.int32
    )  # the smaller type cuts the upper bits off


def _read(path: Path, kind: type[np.generic]) -> Iterator[Ints]:
    """Read numbers of a file in blocks.

    A mapped file would count as memory.
    """
    with os_errors(path), path.open("rb") as file:
        while len(numbers := np.fromfile(file, kind, BLOCK_ARCS)):
            yield numbers


def _runs(numbers: Ints, values: Ints) -> Iterator[tuple[int, Ints]]:
    """Yield each number of a sorted array with its values."""
    begins = np.flatnonzero(np.diff(numbers, prepend=-1))
    for first, end in zip(begins.tolist(), [*begins[1:].tolist(), len(numbers)], strict=True):
        yield int(numbers[first]), values[first:end]
