"""The reader of the web graph: streamed, at random by NodeID, and counted."""

from array import array
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from crawl_lib.export.folder import GRAPH_INDEX, WEB_GRAPH, ExportFolder
from crawl_lib.export.readers import MappedFile
from crawl_lib.export.scratch import local_files
from crawl_lib.stores import Stores

BLOCK_NODES = 1 << 20
Neighbours = npt.NDArray[np.int32]


class Node(NamedTuple):
    """A page of the graph with its neighbours, both lists ascending."""

    node_id: int
    in_neighbours: Neighbours
    out_neighbours: Neighbours


class WebGraph:
    """`webgraph`, memory-mapped. `index`: path of `webgraph-index`; without it the graph is walked once to make it.

    Raises PathNotFoundError, and DamagedFileError naming the file and the byte.
    """

    def __init__(self, path: Path | str, index: Path | str | None = None) -> None:
        self._file = MappedFile(path)
        self._index = None if index is None else MappedFile(index)
        self._computed: npt.NDArray[np.int64] | None = None
        self._nodes = self._file.int32(0)
        if self._nodes < 0:
            raise self._file.damaged(0, f"a count of {self._nodes} pages")
        if self._index is not None and self._index.size_bytes != 8 * self._nodes:
            raise self._index.damaged(self._index.size_bytes, f"should have {self._nodes} entries of 8 bytes")

    def __len__(self) -> int:
        return self._nodes

    @property
    def arcs(self) -> int:
        """How many arcs there are."""
        return (self._file.size_bytes - 4 - 8 * self._nodes) // 8

    def __iter__(self) -> Iterator[Node]:
        """All pages by NodeID; the index is not needed. Raises DamagedFileError where the file contradicts itself."""
        at = 4
        for node_id in range(self._nodes):
            edges, ins = self._head(at)
            yield self._node(node_id, at, edges, ins)
            at += 8 + 4 * edges
        if at != self._file.size_bytes:
            raise self._file.damaged(at, "the last page ends here, and the file goes on")

    def node(self, node_id: int) -> Node:
        """A page and its neighbours. Raises IndexError beyond the last."""
        at = self._offset(node_id)
        return self._node(node_id, at, *self._head(at))

    def in_neighbours(self, node_id: int) -> Neighbours:
        """The pages that link to a page, ascending. Raises IndexError beyond the last."""
        return self.node(node_id).in_neighbours

    def out_neighbours(self, node_id: int) -> Neighbours:
        """The pages that a page links to, ascending. Raises IndexError beyond the last."""
        return self.node(node_id).out_neighbours

    def degrees(self) -> Iterator[tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]]:
        """In- and out-degrees of all pages by NodeID, in blocks."""
        words = np.memmap(self._file.path, dtype=">i4", mode="r")
        for first in range(0, self._nodes, BLOCK_NODES):
            places = self._offsets(first, min(first + BLOCK_NODES, self._nodes)) // 4
            if len(places) and (places.min() < 1 or places.max() + 1 >= len(words)):
                raise self._file.damaged(self._file.size_bytes, "the index points behind the end of the graph")
            edges, ins = words[places].astype(np.int64), words[places + 1].astype(np.int64)
            yield ins, edges - ins

    def stats(self) -> dict[str, Any]:
        """What `krake graph stats` shows.

        `nodes`, `arcs`; `dangling`: pages without an out-arc; `isolated`: pages without any arc; `max_in_degree`,
        `max_out_degree`, `average_degree` (in- and out- are the same); `in_degrees`, `out_degrees`: how many pages have
        a degree of "0", "1", "2-3", "4-7", and so on.
        """
        dangling = isolated = max_in = max_out = arcs = 0
        in_counts, out_counts = np.zeros(33, dtype=np.int64), np.zeros(33, dtype=np.int64)
        for ins, outs in self.degrees():
            dangling += int((outs == 0).sum())
            isolated += int(((outs == 0) & (ins == 0)).sum())
            max_in, max_out = max(max_in, int(ins.max())), max(max_out, int(outs.max()))
            arcs += int(outs.sum())
            in_counts += _by_power(ins)
            out_counts += _by_power(outs)
        return {
            "nodes": self._nodes,
            "arcs": arcs,
            "dangling": dangling,
            "isolated": isolated,
            "max_in_degree": max_in,
            "max_out_degree": max_out,
            "average_degree": round(arcs / self._nodes, 3) if self._nodes else 0.0,
            "in_degrees": _histogram(in_counts),
            "out_degrees": _histogram(out_counts),
        }

    def close(self) -> None:
        """Let the files go."""
        self._file.close()
        if self._index is not None:
            self._index.close()

    def __enter__(self) -> "WebGraph":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _head(self, at: int) -> tuple[int, int]:
        edges, ins = self._file.int32(at), self._file.int32(at + 4)
        if not 0 <= ins <= edges:
            raise self._file.damaged(at, f"a page with {edges} edges, {ins} of them in-edges")
        return edges, ins

    def _node(self, node_id: int, at: int, edges: int, ins: int) -> Node:
        data = self._file.read(at + 8, at + 8 + 4 * edges)
        ids = np.frombuffer(data, dtype=">i4").astype(np.int32)
        if edges and (ids.min() < 0 or ids.max() >= self._nodes):
            raise self._file.damaged(at + 8, f"a neighbour of page {node_id} is outside of 0 to {self._nodes - 1}")
        return Node(node_id, ids[:ins], ids[ins:])

    def _offset(self, node_id: int) -> int:
        if not 0 <= node_id < self._nodes:
            raise IndexError(f"NodeID {node_id}: there are {self._nodes} pages")
        if self._index is not None:
            return self._index.int64(8 * node_id)
        return int(self._walked()[node_id])

    def _offsets(self, first: int, end: int) -> npt.NDArray[np.int64]:
        if self._index is None:
            return self._walked()[first:end]
        return np.frombuffer(self._index.read(8 * first, 8 * end), dtype=">i8").astype(np.int64)

    def _walked(self) -> npt.NDArray[np.int64]:
        if self._computed is None:
            found = array("q")
            at = 4
            for _ in range(self._nodes):
                found.append(at)
                at += 8 + 4 * self._head(at)[0]
            self._computed = np.array(found, dtype=np.int64)
        return self._computed


def _by_power(degrees: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """How many degrees are 0, 1, 2 to 3, 4 to 7..."""
    return np.bincount(np.frexp(degrees.astype(np.float64))[1].clip(0, 32), minlength=33).astype(np.int64)


def _histogram(counts: npt.NDArray[np.int64]) -> dict[str, int]:
    used = np.flatnonzero(counts)
    last = int(used[-1]) if len(used) else -1
    names = ("0", "1", *(f"{1 << (power - 1)}-{(1 << power) - 1}" for power in range(2, last + 1)))
    return {names[power]: int(counts[power]) for power in range(last + 1)}


@contextmanager
def open_web_graph(stores: Stores, *, name: str) -> Iterator[WebGraph]:
    """The web graph of an export, closed at the end of the block; a remote one is copied to scratch first.

    Raises PathNotFoundError where the finalizer has not run.
    """
    folder = ExportFolder(stores, name)
    folder.read_inputs()
    folder.require([GRAPH_INDEX, WEB_GRAPH], "krake graph finalize")
    with ExitStack() as stack:
        local = local_files(folder, stack)
        yield stack.enter_context(WebGraph(local(WEB_GRAPH), local(GRAPH_INDEX)))
