"""The files of a graph: text with ranks, in Common Crawl's format, and BV graphs.

| file | content |
|---|---|
| `<name>-<kind>-vertices.txt.gz` | a line for each node: number, name, and of a domain the number of hosts |
| `<name>-<kind>-edges.txt.gz` | a line for each arc: the numbers of source and target |
| `<name>-<kind>-ranks.txt.gz` | a head, then the nodes by harmonic centrality, with both ranks and positions |
| `<name>-<kind>.graph`, `.offsets`, `.properties` | the BV graph; `<name>-<kind>-t.*` is its transpose |

`<kind>` is page, host or domain. A node has the same number in all files of a kind; positions begin with 1.
"""

import gzip
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np
import pyarrow as pa
import pyarrow.csv

from crawl_lib.commoncrawl.nodes import Graph
from crawl_lib.graph import BV_SUFFIXES, Neighbours, write_bv
from crawl_lib.ranks import BLOCK_ARCS, Ints, Side, harmonic_centrality, most_rounds, page_rank
from crawl_lib.stopping import Progress
from crawl_lib.stores import Stores

GZIP_LEVEL = 3
BLOCK_ROWS = 1 << 16
FORMATS = ("commoncrawl", "bv")
Open = Callable[[str], AbstractContextManager[BinaryIO]]
"""Opens a new file by its name."""
_LINES = pyarrow.csv.WriteOptions(include_header=False, delimiter="\t", quoting_style="none")


def file_names(stem: str, form: str) -> list[str]:
    """Name the files of a graph in one of `FORMATS`. `stem`: `<name>-<kind>`."""
    if form == "bv":
        return [f"{one}.{suffix}" for one in (stem, f"{stem}-t") for suffix in BV_SUFFIXES]
    return [f"{stem}-{what}.txt.gz" for what in ("vertices", "edges", "ranks")]


@dataclass(frozen=True)
class GraphWriter:
    """Writes the files of graphs. `open_file`: opens a new file; `scratch`: a folder of this machine for arcs."""

    stores: Stores
    open_file: Open
    scratch: Path

    def write(self, graph: Graph, form: str, stem: str) -> None:
        """Write the files of a graph in one of `FORMATS`.

        Raises StorageError, DamagedFileError, SetupError, StoppedError.
        """
        if form == "bv":
            self._bv(graph.out, stem)
            self._bv(graph.into, f"{stem}-t")
            return
        vertices, edges, ranks = file_names(stem, form)
        self._lines(vertices, "", _vertices(graph))
        self._lines(edges, "", _edges(graph.out))
        self._lines(ranks, _head(graph), _ranks(self.stores, graph, self.scratch))

    def _bv(self, side: Side, stem: str) -> None:
        progress = Progress(self.stores, "graph.bv", side.arcs, "arcs")
        with ExitStack() as stack:
            files = {
                suffix: stack.enter_context(self.open_file(f"{stem}.{suffix}"))
                for suffix in BV_SUFFIXES
            }
            write_bv(files, side.degrees, Neighbours(side.ends()), progress)
        progress.end()

    def _lines(self, name: str, head: str, batches: Iterator[pa.RecordBatch]) -> None:
        """Write rows as lines, with tabs between the columns."""
        with _gzipped(self.open_file(name)) as file:
            file.write(head.encode())
            for batch in self.stores.until_stopped(batches):
                pyarrow.csv.write_csv(batch, file, _LINES)


@contextmanager
def _gzipped(opened: AbstractContextManager[BinaryIO]) -> Iterator[BinaryIO]:
    """Write a gzip file without name and time.

    Equal content gives equal bytes.
    """
    with opened as file, gzip.GzipFile("", "wb", GZIP_LEVEL, file, mtime=0) as packed:
        yield cast(BinaryIO, packed)


def _head(graph: Graph) -> str:
    names = [
        "harmonicc_pos",
        "harmonicc_val",
        "pr_pos",
        "pr_val",
        "url" if graph.kind == "page" else "host_rev",
    ]
    names += [] if graph.n_hosts is None else ["n_hosts"]
    return "\t".join(f"#{name}" for name in names) + "\n"


def _vertices(graph: Graph) -> Iterator[pa.RecordBatch]:
    for first in range(0, len(graph.names), BLOCK_ROWS):
        names = graph.names.slice(first, BLOCK_ROWS)
        yield _rows(
            np.arange(first, first + len(names)),
            names,
            *_counts(graph, slice(first, first + BLOCK_ROWS)),
        )


def _counts(graph: Graph, nodes: Any) -> list[Ints]:
    return [] if graph.n_hosts is None else [graph.n_hosts[nodes]]


def _rows(*columns: Any) -> pa.RecordBatch:
    arrays = [column if isinstance(column, pa.Array) else pa.array(column) for column in columns]
    return pa.RecordBatch.from_arrays(arrays, [str(number) for number in range(len(arrays))])


def _edges(side: Side) -> Iterator[pa.RecordBatch]:
    """Read arcs in blocks, which may divide a node's arcs."""
    ends_of_nodes = np.cumsum(side.degrees, dtype=np.int64)
    first = 0
    for targets in side.ends():
        for start in range(0, len(targets), BLOCK_ARCS):
            some = targets[start : start + BLOCK_ARCS]
            places = np.arange(first, first + len(some))
            yield _rows(np.searchsorted(ends_of_nodes, places, side="right"), np.asarray(some))
            first += len(some)


def _ranks(stores: Stores, graph: Graph, scratch: Path) -> Iterator[pa.RecordBatch]:
    """Rank the nodes; yield them by harmonic centrality.

    Nodes with equal values come by number.
    """
    nodes = len(graph.names)
    if not nodes:
        return
    inlinks = graph.into.inlinks(stores, scratch / f"{graph.kind}.inlinks")
    options = stores.config.pagerank
    progress = Progress(stores, "graph.pagerank", most_rounds(options) * inlinks.arcs, "arcs")
    page_ranks = page_rank(inlinks, graph.out.degrees, options, progress).ranks
    progress.end()
    centralities = harmonic_centrality(
        inlinks, Progress(stores, "graph.harmonic", 0, "balls")
    ).values
    order = np.argsort(-centralities, kind="stable")
    positions = np.empty(nodes, np.int64)
    positions[np.argsort(-page_ranks, kind="stable")] = np.arange(1, nodes + 1)
    for first in range(0, nodes, BLOCK_ROWS):
        some = order[first : first + BLOCK_ROWS]
        ranks = (
            np.arange(first + 1, first + len(some) + 1),
            centralities[some],
            positions[some],
            page_ranks[some],
        )
        yield _rows(*ranks, graph.names.take(some), *_counts(graph, some))
