"""Readers of an export's files: memory-mapped, never the whole file in memory.

They take local paths; `scratch.local_files` brings files from a remote store. Each is closed by `close` or by a `with`
block. A file that is not what its format says raises DamagedFileError naming the file and the byte.
"""

import mmap
import zlib
from bisect import bisect_left
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, Self

import numpy as np
import numpy.typing as npt

from crawl_lib.dataclass import dataclass
from crawl_lib.errors import DamagedFileError, PathNotFoundError, os_errors

KEY_BYTES = 20
OFFSET_BYTES = 12
BLOCK_NODES = 1 << 20
Neighbours = npt.NDArray[np.int32]


class MappedFile:
    """A local file as memory, and another one that says where its pages are, where it is opened with that.

    Raises PathNotFoundError or StorageError naming the file.
    """

    def __init__(self, path: Path | str, index: Path | str | None = None) -> None:
        self.path = Path(path)
        self._index = None if index is None else MappedFile(index)
        if not self.path.exists():
            raise PathNotFoundError(f"{self.path}: is not there")
        with os_errors(self.path, "cannot be read"), self.path.open("rb") as file:
            self.size_bytes = self.path.stat().st_size  # an empty file cannot be mapped
            self._map = (
                mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if self.size_bytes else None
            )

    def read(self, start: int, end: int) -> bytes:
        """Return the bytes from `start` to before `end`.

        Raises DamagedFileError if the file ends before.
        """
        if start < 0 or end > self.size_bytes:
            raise self.damaged(
                start,
                f"the file ends at byte {self.size_bytes}, and {end - start} bytes are missing",
            )
        return b"" if self._map is None else self._map[start:end]

    def int32(self, at: int) -> int:
        """Return the signed big-endian integer at a byte."""
        return int.from_bytes(self.read(at, at + 4), "big", signed=True)

    def int64(self, at: int) -> int:
        """Return the signed big-endian long at a byte."""
        return int.from_bytes(self.read(at, at + 8), "big", signed=True)

    @property
    def index(self) -> "MappedFile":
        """Index file.

        Raises TypeError without one: then the pages can only be read one after the other.
        """
        if self._index is None:
            raise TypeError(f"{self.path}: was opened without its offset file")
        return self._index

    def damaged(self, at: int, problem: str) -> DamagedFileError:
        """Return an error that names the file and a byte."""
        return DamagedFileError(f"{self.path}: byte {at}: {problem}")

    def close(self) -> None:
        """Let the files go."""
        for file in (self._map, self._index):
            if file is not None:
                file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _require_page(node_id: int, pages: int) -> None:
    if not 0 <= node_id < pages:
        raise IndexError(f"NodeID {node_id}: there are {pages} pages")


class UrlMapping(MappedFile):
    """`urlmapping`: from NodeID to key in one step, from key to NodeID by binary search."""

    def __init__(self, path: Path | str) -> None:
        super().__init__(path)
        self._count = self.int32(0)
        if self._count < 0 or self.size_bytes != 4 + KEY_BYTES * self._count:
            raise self.damaged(
                0, f"says {self._count} keys, and the file has {self.size_bytes} bytes"
            )

    def __len__(self) -> int:
        return self._count

    def key(self, node_id: int) -> bytes:
        """Return the key (20 bytes) of a NodeID.

        Raises IndexError beyond the last.
        """
        _require_page(node_id, self._count)
        start = 4 + KEY_BYTES * node_id
        return self.read(start, start + KEY_BYTES)

    def node_id(self, key: bytes) -> int | None:
        """Return the NodeID of a key, or None."""
        place = bisect_left(range(self._count), key, key=self.key)
        return place if place < self._count and self.key(place) == key else None

    def __iter__(self) -> Iterator[bytes]:
        """Yield all keys by NodeID.

        Raises DamagedFileError where they do not ascend.
        """
        last = b""
        for node_id in range(self._count):
            key = self.key(node_id)
            if key <= last:
                raise self.damaged(
                    4 + KEY_BYTES * node_id,
                    f"the key of NodeID {node_id} is not above the one before",
                )
            last = key
            yield key


class ContentReader(MappedFile):
    """`content`, walked forward and backward, and with `offsets` at random."""

    def __init__(self, path: Path | str, offsets: Path | str | None = None) -> None:
        super().__init__(path, offsets)
        if self._index is not None and self._index.size_bytes % OFFSET_BYTES:
            raise self._index.damaged(
                self._index.size_bytes, "the last entry is cut; an entry has 12 bytes"
            )

    def __len__(self) -> int:
        """Return the number of pages, by the offset file.

        Raises TypeError without one.
        """
        return self.index.size_bytes // OFFSET_BYTES

    def __iter__(self) -> Iterator[bytes]:
        """Yield the content of all pages by NodeID."""
        at = 0
        while at < self.size_bytes:
            data = self._stream(at)
            yield self._inflated(data, at)
            at += len(data) + 8

    def __reversed__(self) -> Iterator[bytes]:
        """Yield all contents from the last page to the first.

        This needs no offset file.
        """
        end = self.size_bytes
        while end > 0:
            size = self.int32(end - 4) if end >= 8 else -1
            start = end - size - 8
            if size < 0 or start < 0:
                raise self.damaged(max(0, end - 4), f"a page of {size} bytes cannot end here")
            yield self._inflated(self._stream(start), start)
            end = start

    def content(self, node_id: int) -> bytes:
        """Return the content of a page.

        Raises IndexError beyond the last.
        """
        start = self._offset(node_id)
        return self._inflated(self._stream(start), start)

    def compressed(self, node_id: int) -> bytes:
        """Return the zlib stream of a page.

        Raises IndexError beyond the last.
        """
        return self._stream(self._offset(node_id))

    def _offset(self, node_id: int) -> int:
        _require_page(node_id, len(self))
        at = OFFSET_BYTES * node_id
        if self.index.int32(at) != node_id:
            raise self.index.damaged(
                at, f"the entry of NodeID {node_id} says {self.index.int32(at)}"
            )
        return self.index.int64(at + 4)

    def _stream(self, start: int) -> bytes:
        size = self.int32(start)
        if size < 0:
            raise self.damaged(start, f"a size of {size}")
        end = start + 4 + size
        data, after = self.read(start + 4, end), self.int32(end)
        if after != size:
            raise self.damaged(end, f"the size before the page is {size}, the one after it {after}")
        return data

    def _inflated(self, data: bytes, start: int) -> bytes:
        try:
            inflater = zlib.decompressobj()
            content = inflater.decompress(data)
        except zlib.error as error:
            raise self.damaged(start + 4, f"not a zlib stream: {error}") from error
        if not inflater.eof or inflater.unused_data:
            raise self.damaged(start + 4, "not one whole zlib stream")
        return content


class Node(NamedTuple):
    """A page of the graph with its neighbours, both lists ascending."""

    node_id: int
    in_neighbours: Neighbours
    out_neighbours: Neighbours


@dataclass(frozen=True)
class GraphStats:
    """The figures of a web graph. `dangling`: pages without an out-arc; `isolated`: pages without any arc.

    `average_degree`: in- and out- are the same; `in_degrees`, `out_degrees`: how many pages have a degree of "0", "1",
    "2-3", "4-7", and so on.
    """

    nodes: int
    arcs: int
    dangling: int
    isolated: int
    max_in_degree: int
    max_out_degree: int
    average_degree: float
    in_degrees: dict[str, int]
    out_degrees: dict[str, int]


class WebGraph(MappedFile):
    """`webgraph`, streamed, and with `webgraph-index` at random and counted."""

    def __init__(self, path: Path | str, index: Path | str | None = None) -> None:
        super().__init__(path, index)
        self._nodes = self.int32(0)
        if self._nodes < 0:
            raise self.damaged(0, f"a count of {self._nodes} pages")
        if self._index is not None and self._index.size_bytes != 8 * self._nodes:
            raise self._index.damaged(
                self._index.size_bytes, f"should have {self._nodes} entries of 8 bytes"
            )

    def __len__(self) -> int:
        return self._nodes

    def __iter__(self) -> Iterator[Node]:
        """Yield all pages by NodeID, without the index.

        Raises DamagedFileError where the file contradicts itself.
        """
        at = 4
        for node_id in range(self._nodes):
            node = self._entry(node_id, at)
            yield node
            at += 8 + 4 * (len(node.in_neighbours) + len(node.out_neighbours))
        if at != self.size_bytes:
            raise self.damaged(at, "the last page ends here, and the file goes on")

    def node(self, node_id: int) -> Node:
        """Return a page and its neighbours.

        Raises IndexError beyond the last.
        """
        _require_page(node_id, self._nodes)
        return self._entry(node_id, self.index.int64(8 * node_id))

    def degrees(self) -> Iterator[tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]]:
        """Yield in- and out-degrees by NodeID, in blocks."""
        words = np.memmap(self.path, dtype=">i4", mode="r")
        for first in range(0, self._nodes, BLOCK_NODES):
            entries = self.index.read(8 * first, 8 * min(first + BLOCK_NODES, self._nodes))
            places = np.frombuffer(entries, dtype=">i8").astype(np.int64) // 4
            if places.min() < 1 or places.max() + 1 >= len(words):
                raise self.damaged(self.size_bytes, "the index points behind the end of the graph")
            edges, ins = words[places].astype(np.int64), words[places + 1].astype(np.int64)
            yield ins, edges - ins

    def stats(self) -> GraphStats:
        """Return the figures of `krake graph stats`."""
        dangling = isolated = max_in = max_out = arcs = 0
        in_degrees, out_degrees = PowerCounts(), PowerCounts()
        for ins, outs in self.degrees():
            dangling += int((outs == 0).sum())
            isolated += int(((outs == 0) & (ins == 0)).sum())
            max_in, max_out = max(max_in, int(ins.max())), max(max_out, int(outs.max()))
            arcs += int(outs.sum())
            in_degrees.add(ins)
            out_degrees.add(outs)
        return GraphStats(
            nodes=self._nodes,
            arcs=arcs,
            dangling=dangling,
            isolated=isolated,
            max_in_degree=max_in,
            max_out_degree=max_out,
            average_degree=round(arcs / self._nodes, 3) if self._nodes else 0.0,
            in_degrees=in_degrees.by_range(),
            out_degrees=out_degrees.by_range(),
        )

    def _entry(self, node_id: int, at: int) -> Node:
        edges, ins = self.int32(at), self.int32(at + 4)
        if not 0 <= ins <= edges:
            raise self.damaged(at, f"a page with {edges} edges, {ins} of them in-edges")
        ids = np.frombuffer(self.read(at + 8, at + 8 + 4 * edges), dtype=">i4").astype(np.int32)
        if edges and (ids.min() < 0 or ids.max() >= self._nodes):
            raise self.damaged(
                at + 8, f"a neighbour of page {node_id} is outside of 0 to {self._nodes - 1}"
            )
        return Node(node_id, ids[:ins], ids[ins:])


class PowerCounts:
    """How many numbers are 0, 1, 2 to 3, 4 to 7, and so on."""

    def __init__(self) -> None:
        self._counts = np.zeros(33, dtype=np.int64)

    def add(self, numbers: npt.NDArray[np.int64]) -> None:
        """Count some more."""
        self._counts += np.bincount(
            np.frexp(numbers.astype(np.float64))[1].clip(0, 32), minlength=33
        )

    def by_range(self) -> dict[str, int]:
        """Return counts by range, such as "4-7"."""
        names = ("0", "1", *(f"{1 << (power - 1)}-{(1 << power) - 1}" for power in range(2, 33)))
        return dict(zip(names, np.trim_zeros(self._counts, "b").tolist(), strict=False))
