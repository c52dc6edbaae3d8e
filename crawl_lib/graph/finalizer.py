"""The finalizer: from two sorted arc files to the web graph, streamed in blocks of nodes."""

from collections.abc import Generator, Iterator
from contextlib import closing

import numpy as np

from crawl_lib.dataclass import dataclass
from crawl_lib.engine import Ints, count_sorted, values_of
from crawl_lib.errors import DamagedFileError, InputError
from crawl_lib.export import (
    ARCS_IN,
    ARCS_OUT,
    GRAPH_INDEX,
    URL_MAPPING,
    WEB_GRAPH,
    ExportFolder,
    ExportTable,
)
from crawl_lib.scratch import scratch_folder
from crawl_lib.stopping import Progress
from crawl_lib.storage import Storage
from crawl_lib.stores import Stores

MAX_EDGES = (1 << 31) - 1
BLOCK_WORDS = 1 << 22
"""Numbers of the graph file in one block: 16 MiB as int32, several times as much while the block is made."""
BATCH_ROWS = 1 << 18
AGAIN = "move it away and run `krake graph link`"


@dataclass(frozen=True)
class FinalizeReport:
    """The size of the web graph. `complete_already`: all files existed."""

    name: str
    nodes: int
    arcs: int
    complete_already: bool


def finalize_export(stores: Stores, *, name: str) -> FinalizeReport:
    """Write `webgraph-index` and then `webgraph` of a linked export.

    The index is Krake's own format: int64 big-endian, for each NodeID the first byte of its entry in `webgraph`.
    Memory: 8 bytes a node (both degrees), and a block. The finalizer reads only files of the export, so its segments
    may be gone.

    Raises PathNotFoundError (no such export, or the linker has not run), InputError (a node with too many edges for 32
    bits), DamagedFileError (an arc file names missing pages), LockedError, StorageError, StoppedError.
    """
    folder = ExportFolder(stores, name)
    folder.read_inputs()
    folder.require([URL_MAPPING, ARCS_OUT, ARCS_IN], "krake graph link")
    nodes = (folder.sizes()[URL_MAPPING] - 4) // 20
    complete = folder.has(GRAPH_INDEX, WEB_GRAPH)
    if not complete:
        with scratch_folder(stores.config, f"export-{name}"):  # for its lock; it stays empty
            out_degrees, in_degrees = both_degrees(folder, nodes)
            if not folder.has(GRAPH_INDEX):
                write_index(folder, out_degrees, in_degrees)
            write_graph(folder, out_degrees, in_degrees)
    arcs = (folder.sizes()[WEB_GRAPH] - 4 - 8 * nodes) // 8
    return FinalizeReport(name, nodes, arcs, complete_already=complete)


def both_degrees(folder: ExportFolder, nodes: int) -> tuple[Ints, Ints]:
    """Return the out- and in-degrees of all pages.

    Raises DamagedFileError naming an impossible arc file.
    """
    arcs_out, arcs_in = folder.file(ARCS_OUT), folder.file(ARCS_IN)
    progress = Progress(folder.stores, "graph.degrees", 2 * folder.table(ARCS_OUT).rows, "arcs")
    out_degrees = _degrees(folder.storage, arcs_out, "source", nodes, progress)
    in_degrees = _degrees(folder.storage, arcs_in, "target", nodes, progress)
    progress.end()
    if out_degrees.sum(dtype=np.int64) != in_degrees.sum(dtype=np.int64):
        raise DamagedFileError(
            f"{arcs_in}: does not hold as many arcs as {arcs_out}; move both away and run `krake graph link`"
        )
    return out_degrees, in_degrees


def write_index(folder: ExportFolder, out_degrees: Ints, in_degrees: Ints) -> None:
    """Write `webgraph-index`.

    Raises InputError if a page has too many edges for the web graph.
    """
    start = 4
    with folder.writing(GRAPH_INDEX) as file:
        for first in range(0, len(out_degrees), BLOCK_WORDS):
            folder.stores.go_on()
            block = slice(first, first + BLOCK_WORDS)
            edges = out_degrees[block].astype(np.int64) + in_degrees[block]
            if edges.max() > MAX_EDGES:
                raise InputError(
                    f"export {folder.name!r}: page {first + int(edges.argmax())} has {edges.max()} edges, and the web"
                    f" graph counts {MAX_EDGES} at most; export some of the iterations only (folders), or read the arcs"
                    " from arcs-out.parquet"
                )
            ends = np.cumsum(8 + 4 * edges) + start
            file.write((ends - 8 - 4 * edges).astype(">i8").tobytes())
            start = int(ends[-1])


def write_graph(folder: ExportFolder, out_degrees: Ints, in_degrees: Ints) -> None:
    """Write `webgraph`. Raises DamagedFileError naming an arc file."""
    storage, nodes = folder.storage, len(out_degrees)
    progress = Progress(folder.stores, "graph.write", nodes, "pages")
    with (
        folder.writing(WEB_GRAPH) as file,
        closing(arc_column(storage, folder.file(ARCS_IN), "source", nodes)) as sources,
        closing(arc_column(storage, folder.file(ARCS_OUT), "target", nodes)) as targets,
    ):
        for words, count in graph_words(
            in_degrees, out_degrees, Neighbours(sources), Neighbours(targets)
        ):
            file.write(words.astype(">i4").tobytes())
            progress.add(count)
    progress.end()


def _degrees(storage: Storage, path: str, column: str, nodes: int, progress: Progress) -> Ints:
    """Count each NodeID in a column of an arc file.

    Raises DamagedFileError, also for a wrong order.
    """
    counts = np.zeros(nodes, dtype=np.int32)
    last = 0
    for ids in arc_column(storage, path, column, nodes):
        first = int(ids[0])
        if first < last or (np.diff(ids) < 0).any():
            raise DamagedFileError(f"{path}: is not sorted by {column}; {AGAIN}")
        last = int(ids[-1])
        count_sorted(counts, ids)
        progress.add(len(ids))
    return counts


def arc_column(storage: Storage, path: str, column: str, nodes: int) -> Generator[Ints, None, None]:
    """Yield a column of an arc file in blocks.

    No block is empty. Raises DamagedFileError naming the file.
    """
    with ExportTable(storage, path).open() as table:
        for batch in table.batches(BATCH_ROWS, [column]):
            ids = values_of(batch.column(0))
            if len(ids) and (ids.min() < 0 or ids.max() >= nodes):
                raise DamagedFileError(
                    f"{path}: {column} has a NodeID outside of 0 to {nodes - 1}; {AGAIN}"
                )
            if len(ids):
                yield ids


class Neighbours:
    """The other column of an arc file, taken in pieces of any size. `blocks`: the column's, as from `arc_column`."""

    def __init__(self, blocks: Iterator[Ints]) -> None:
        self._blocks = blocks
        self._block: Ints = np.empty(0, dtype=np.int32)

    def take(self, count: int) -> Ints:
        """Return the next `count` NodeIDs.

        Raises DamagedFileError if fewer are left.
        """
        parts = []
        while count > len(self._block):
            parts.append(self._block)
            count -= len(self._block)
            block = next(self._blocks, None)
            if block is None:
                raise DamagedFileError(
                    f"{ARCS_IN} or {ARCS_OUT} ends {count} arcs before its end; {AGAIN}"
                )
            self._block = block
        parts.append(self._block[:count])
        self._block = self._block[count:]
        return parts[0] if len(parts) == 1 else np.concatenate(parts)


def graph_words(
    in_degrees: Ints,
    out_degrees: Ints,
    sources: Neighbours,
    targets: Neighbours,
    block_words: int = BLOCK_WORDS,
) -> Iterator[tuple[Ints, int]]:
    """Yield the numbers of the graph file in order.

    Each block comes with the count of nodes that end there.

    `in_degrees`, `out_degrees`: arcs of each NodeID; `sources`, `targets`: the other ends of a NodeID's arcs, by
    NodeID; `block_words`: about the numbers of a block.
    """
    yield np.array([len(in_degrees)], dtype=np.int32), 0
    for first, end in _node_blocks(in_degrees, out_degrees, block_words):
        ins, outs = in_degrees[first:end].astype(np.int64), out_degrees[first:end].astype(np.int64)
        if end - first == 1 and ins[0] + outs[0] > block_words:
            yield np.array([ins[0] + outs[0], ins[0]], dtype=np.int32), 0
            for side, count in ((sources, int(ins[0])), (targets, int(outs[0]))):
                for start in range(0, count, block_words):
                    yield side.take(min(block_words, count - start)), 0
            yield np.empty(0, dtype=np.int32), 1
        else:
            yield (
                _entries(ins, outs, sources.take(int(ins.sum())), targets.take(int(outs.sum()))),
                end - first,
            )


def _node_blocks(
    in_degrees: Ints, out_degrees: Ints, block_words: int
) -> Iterator[tuple[int, int]]:
    """Yield ranges of nodes of at most `block_words` numbers.

    A single node may have more.
    """
    first = 0
    while first < len(in_degrees):
        window = slice(first, first + max(1, block_words // 2))
        ends = np.cumsum(in_degrees[window].astype(np.int64) + out_degrees[window] + 2)
        end = first + max(1, int(np.searchsorted(ends, block_words, side="right")))
        yield first, end
        first = end


def _entries(ins: Ints, outs: Ints, sources: Ints, targets: Ints) -> Ints:
    """Return the entries of some nodes.

    An entry has N, I, in-neighbours and out-neighbours; degrees are int64.
    """
    sizes = ins + outs
    starts = np.cumsum(sizes + 2) - (sizes + 2)
    words = np.empty(int((sizes + 2).sum()), dtype=np.int32)
    words[starts] = sizes
    words[starts + 1] = ins
    # The target of each neighbour is its place in the column, shifted by the shift of its node's list.
    moved_in = starts + 2 - (np.cumsum(ins) - ins)
    words[np.repeat(moved_in, ins) + np.arange(len(sources))] = sources
    moved_out = starts + 2 + ins - (np.cumsum(outs) - outs)
    words[np.repeat(moved_out, outs) + np.arange(len(targets))] = targets
    return words
