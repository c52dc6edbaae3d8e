"""Arcs of numbered nodes, each once, sorted by source or by target on the disk."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from crawl_lib.errors import os_errors
from crawl_lib.ranks import Inlinks, mapped, starts_of
from crawl_lib.stores import Stores

Ints = npt.NDArray[Any]
SORTED_ARCS = 1 << 19
"""Sorted in memory at a time; a node may have more."""
BLOCK_ARCS = 1 << 18


@dataclass(frozen=True)
class Side:
    """The arcs of a graph by source, or by target. `degrees`: of each node; `ends`: the other ends in blocks, by node.

    The ends of a node's arcs are in ascending order, and distinct. `file`: of this machine, with all ends.
    """

    degrees: Ints
    ends: Callable[[], Iterator[Ints]]
    file: Path | None = None

    @property
    def arcs(self) -> int:
        """The number of arcs."""
        return int(self.degrees.sum(dtype=np.int64))

    def inlinks(self, stores: Stores, file: Path) -> Inlinks:
        """Return the arcs as ranks need them, mapped from a file of this machine. Raises StorageError, StoppedError."""
        if self.file is not None and self.arcs:
            return Inlinks(starts_of(self.degrees), np.memmap(self.file, np.int32, "r"))
        return Inlinks(starts_of(self.degrees), mapped(file, stores.until_stopped(self.ends())))


@dataclass(frozen=True)
class Pairs:
    """Arcs in a file of this machine, in any order; some may be repeated."""

    stores: Stores
    file: Path
    nodes: int

    @classmethod
    def write(cls, stores: Stores, file: Path, nodes: int, blocks: Iterable[tuple[Ints, Ints]]) -> "Pairs":
        """Write arcs (sources, targets) to a file, each block's without repetition. Raises StorageError."""
        with os_errors(file), file.open("wb") as out:
            for sources, targets in stores.until_stopped(blocks):
                keys = np.unique(sources.astype(np.int64) * nodes + targets)
                out.write(keys.data)
        return cls(stores, file, nodes)

    def side(self, *, by_target: bool = False) -> Side:
        """Sort the arcs by source, or by target. Raises StorageError, StoppedError."""
        counts = np.zeros(self.nodes, np.int64)
        for ends, _ in self._blocks(by_target):
            counts += np.bincount(ends, minlength=self.nodes)
        range_of = (np.cumsum(counts) - counts) // SORTED_ARCS
        sizes = np.bincount(range_of, counts).astype(np.int64)
        divided = self.file.with_suffix(".divided")
        self._divide(divided, range_of, sizes, by_target)
        degrees = np.zeros(self.nodes, np.int32)
        path = self.file.with_suffix(".by_target" if by_target else ".by_source")
        with os_errors(path), path.open("wb") as file:
            for others in self._counted(divided, sizes, degrees):
                file.write(others.astype(np.int32).data)
        divided.unlink()
        return Side(degrees, lambda: _read(path, np.int32), path)

    def _blocks(self, by_target: bool) -> Iterator[tuple[Ints, Ints]]:
        """Read the arcs: the end to sort by, and the other one."""
        for keys in self.stores.until_stopped(_read(self.file, np.int64)):
            sources, targets = np.divmod(keys, self.nodes)
            yield (targets, sources) if by_target else (sources, targets)

    def _divide(self, path: Path, range_of: Ints, sizes: Ints, by_target: bool) -> None:
        """Write the arcs again, as keys, in the order of ranges of nodes. `sizes`: of the ranges, in arcs."""
        cursors = np.cumsum(sizes) - sizes
        with os_errors(path), path.open("wb") as file:
            for ours, others in self._blocks(by_target):
                places = range_of[ours]
                order = np.argsort(places, kind="stable")
                keys = (ours * self.nodes + others)[order]
                for number, some in _runs(places[order], keys):
                    file.seek(8 * int(cursors[number]))
                    file.write(some.data)
                    cursors[number] += len(some)

    def _counted(self, path: Path, sizes: Ints, degrees: Ints) -> Iterator[Ints]:
        """Sort each range, count the degrees of its nodes, and yield the other ends."""
        with os_errors(path), path.open("rb") as file:
            for size in self.stores.until_stopped(sizes.tolist()):
                found = np.empty(0, np.int64)
                for first in range(0, size, SORTED_ARCS):
                    more = np.fromfile(file, np.int64, min(SORTED_ARCS, size - first))
                    found = np.unique(np.concatenate([found, more]))
                if len(found):
                    ours, others = np.divmod(found, self.nodes)
                    least = int(ours[0])
                    counts = np.bincount(ours - least)
                    degrees[least : least + len(counts)] += counts.astype(np.int32)
                    yield others


def _read(path: Path, kind: type[np.generic]) -> Iterator[Ints]:
    """Read numbers of a file in blocks; a mapped file would count as memory."""
    with os_errors(path), path.open("rb") as file:
        while len(numbers := np.fromfile(file, kind, BLOCK_ARCS)):
            yield numbers


def _runs(numbers: Ints, values: Ints) -> Iterator[tuple[int, Ints]]:
    """Yield each number of a sorted array with the values at its places."""
    begins = np.flatnonzero(np.diff(numbers, prepend=-1))
    for first, end in zip(begins.tolist(), [*begins[1:].tolist(), len(numbers)], strict=True):
        yield int(numbers[first]), values[first:end]
