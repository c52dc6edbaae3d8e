"""`krake graph export`: the arcs of an export between pages, hosts or domains, as a file for other programs.

| format | content |
|---|---|
| `tsv` | a line for each arc: the two URLs, or hosts, with a tab between; for hosts, also the number of arcs of pages |
| `graphml` | nodes `n0`, `n1`... with their `label`, then the arcs |
| `npz` | the matrix as `scipy.sparse.load_npz` reads it, and `labels`: the bytes of all labels, each with a newline |

Pages have the numbers of the export. Hosts are in the order of their names; arcs within a host are left out, and the
weight of an arc is the number of arcs from pages of one host to pages of the other. The same applies to domains. Labels
lie in a mapped file in `scratch.directory`. Memory: 12 bytes a page; for hosts also 16 bytes an arc.
"""

import mmap
import uuid
import zipfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple
from xml.sax.saxutils import escape

import numpy as np
import pyarrow as pa

from crawl_lib.durable import fsync_file, rename_durable
from crawl_lib.engine import Ints, numbered_names
from crawl_lib.errors import DamagedFileError, InputError, os_errors
from crawl_lib.export import ARCS_OUT, PAGES, ExportFolder
from crawl_lib.scratch import scratch_folder
from crawl_lib.stopping import Progress
from crawl_lib.stores import Stores
from crawl_lib.urls import domain_of

BATCH_ROWS = 1 << 18
MERGE_ARCS = 1 << 22
"""Arcs of hosts that are counted at once, before all counts are added up."""


class Arcs(NamedTuple):
    """Some arcs, sorted by source, then target. `weights`: None: all are 1."""

    sources: Ints
    targets: Ints
    weights: Ints | None = None


@dataclass(frozen=True)
class GraphFileReport:
    """The written `file`, its format, the kind of its nodes, and the numbers of its nodes and arcs."""

    file: str
    format: str
    graph: str
    nodes: int
    arcs: int


class _Graph(NamedTuple):
    """A graph to write. `labels`: of all nodes, a newline after each; `ends`: the end of each label with its newline.

    `pages`: number of pages of each host; None: nodes are pages. `arcs`: each call yields all arcs; `size`: the number
    of arcs.
    """

    labels: mmap.mmap | bytes
    ends: Ints
    pages: Ints | None
    arcs: Callable[[], Iterable[Arcs]]
    size: int

    def label(self, number: int) -> bytes:
        """Return the label of a node."""
        return self.labels[int(self.ends[number - 1]) if number else 0 : int(self.ends[number]) - 1]


def export_graph(stores: Stores, path: Path, *, name: str, form: str, of: str) -> GraphFileReport:
    """Write the arcs of an export to a local file.

    The file must not exist.

    `form`: one of `FORMATS`; `of`: pages, hosts or domains. Raises InputError if the file exists, PathNotFoundError
    without the export or its arcs, DamagedFileError naming a table, StorageError naming the path, StoppedError. An
    error leaves no file.
    """
    folder = ExportFolder(stores, name)
    folder.read_inputs()
    folder.require([PAGES, ARCS_OUT], "krake graph link")
    require_new(path)
    room = f"read-{name}-{uuid.uuid4().hex}"
    with scratch_folder(stores.config, room) as scratch, (scratch / "labels").open("w+b") as labels:
        graph = _pages(folder, labels) if of == "pages" else _groups(folder, labels, of)
        with whole_file(path) as file:
            FORMATS[form](file, graph)
    return GraphFileReport(str(path), form, of, len(graph.ends), graph.size)


def require_new(path: Path) -> None:
    """Raise InputError if a local file exists already."""
    if path.exists():
        raise InputError(f"{path}: is there already: choose another name, or delete it")


@contextmanager
def whole_file(path: Path) -> Iterator[BinaryIO]:
    """Write a local file under a hidden name first.

    The file takes its name once all bytes are durable. Raises StorageError.
    """
    hidden = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    with os_errors(path, "cannot be written"):
        try:
            with hidden.open("wb") as file:
                yield file
                fsync_file(file)
            rename_durable(hidden, path)
        finally:
            hidden.unlink(missing_ok=True)


def _column(folder: ExportFolder, name: str) -> "Iterator[pa.Array[Any]]":
    """Read a column of `pages.parquet`, by NodeID."""
    with folder.table(PAGES).open() as table:
        for batch in folder.stores.until_stopped(table.batches(BATCH_ROWS, [name])):
            yield batch.column(0)


def _written(file: BinaryIO, labels: Iterable[str], lengths: list[Ints]) -> None:
    lines = [f"{label}\n".encode() for label in labels]
    file.write(b"".join(lines))
    lengths.append(np.fromiter(map(len, lines), np.int64, len(lines)))


def _mapped(file: BinaryIO) -> mmap.mmap | bytes:
    """Map the labels; an empty file cannot be mapped."""
    file.flush()
    return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if file.tell() else b""


def _pages(folder: ExportFolder, file: BinaryIO) -> _Graph:
    lengths = [np.empty(0, np.int64)]
    for urls in _column(folder, "url"):
        _written(file, map(str, urls.to_pylist()), lengths)
    count = folder.table(ARCS_OUT).rows
    return _Graph(
        _mapped(file), np.cumsum(np.concatenate(lengths)), None, lambda: page_arcs(folder), count
    )


def page_arcs(folder: ExportFolder) -> Iterator[Arcs]:
    """Read the arcs between pages of an export.

    Raises DamagedFileError for an arc with an unknown page.
    """
    arcs_out, pages = folder.table(ARCS_OUT), folder.table(PAGES).rows
    progress = Progress(folder.stores, "graph.export", arcs_out.rows, "arcs")
    with arcs_out.open() as table:
        for batch in table.batches(BATCH_ROWS):
            arcs = Arcs(*(np.from_dlpack(batch.column(end)) for end in ("source", "target")))
            if any(len(ends) and not 0 <= ends.min() <= ends.max() < pages for ends in arcs[:2]):
                raise DamagedFileError(
                    f"{arcs_out.path}: has a NodeID outside of 0 to {pages - 1}{arcs_out.remedy}"
                )
            yield arcs
            progress.add(batch.num_rows)
    progress.end()


def _groups(folder: ExportFolder, file: BinaryIO, of: str) -> _Graph:
    names, group_of, arcs = grouped(folder, domain_of if of == "domains" else str)
    lengths = [np.empty(0, np.int64)]
    _written(file, names, lengths)
    pages = np.bincount(group_of, minlength=len(names))
    return _Graph(_mapped(file), np.cumsum(lengths[1]), pages, lambda: [arcs], len(arcs.sources))


def grouped(folder: ExportFolder, name_of: Callable[[str], str]) -> tuple[list[str], Ints, Arcs]:
    """Return the graph between groups of pages.

    The graph has the sorted names of the groups, the group of each page, and arcs with weights.

    `name_of`: a group's name from a page's host. Arcs within a group are left out. Raises the errors of `export_graph`.
    """
    names, group_of = numbered_names(_column(folder, "host"), name_of)
    arcs = _between_groups(page_arcs(folder), group_of, len(names))
    return names, group_of, arcs


def _between_groups(pages: Iterable[Arcs], group_of: Ints, groups: int) -> Arcs:
    """Return the arcs between groups with their weights."""
    keys, counts = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    waiting = 0
    for arcs in pages:
        sources, targets = (group_of[ends].astype(np.int64) for ends in arcs[:2])
        apart = sources != targets
        found, times = np.unique(sources[apart] * groups + targets[apart], return_counts=True)
        keys.append(found)
        counts.append(times)
        waiting += len(found)
        if waiting > MERGE_ARCS:
            merged = _merged(keys, counts)
            keys, counts, waiting = [merged[0]], [merged[1]], 0
    key, weights = _merged(keys, counts)
    return Arcs(key // max(1, groups), key % max(1, groups), weights)


def _merged(keys: list[Ints], counts: list[Ints]) -> tuple[Ints, Ints]:
    key, places = np.unique(np.concatenate(keys), return_inverse=True)
    sums = np.zeros(len(key), np.int64)
    np.add.at(sums, places, np.concatenate(counts))
    return key, sums


def _rows(arcs: Arcs) -> Iterator[tuple[int, int, int]]:
    weights = np.ones(len(arcs.sources), np.int64) if arcs.weights is None else arcs.weights
    return zip(arcs.sources.tolist(), arcs.targets.tolist(), weights.tolist(), strict=True)


def _tsv(file: BinaryIO, graph: _Graph) -> None:
    for arcs in graph.arcs():
        for source, target, weight in _rows(arcs):
            more = b"" if arcs.weights is None else b"\t%d" % weight
            file.write(b"%b\t%b%b\n" % (graph.label(source), graph.label(target), more))


_KEY = '<key id="%s" for="%s" attr.name="%s" attr.type="%s"/>\n'


def _graphml(file: BinaryIO, graph: _Graph) -> None:
    keys = _KEY % ("label", "node", "label", "string")
    if graph.pages is not None:
        keys += _KEY % ("pages", "node", "pages", "long") + _KEY % (
            "weight",
            "edge",
            "weight",
            "long",
        )
    head = '<?xml version="1.0" encoding="UTF-8"?>\n<graphml xmlns="http://graphml.graphdrawing.org/xmlns">\n'
    file.write(f'{head}{keys}<graph edgedefault="directed">\n'.encode())
    for number in range(len(graph.ends)):
        pages = "" if graph.pages is None else f'<data key="pages">{graph.pages[number]}</data>'
        label = escape(graph.label(number).decode())
        file.write(
            f'<node id="n{number}"><data key="label">{label}</data>{pages}</node>\n'.encode()
        )
    for arcs in graph.arcs():
        for source, target, weight in _rows(arcs):
            inner = "/>" if arcs.weights is None else f'><data key="weight">{weight}</data></edge>'
            file.write(f'<edge source="n{source}" target="n{target}"{inner}\n'.encode())
    file.write(b"</graph>\n</graphml>\n")


def _npz(file: BinaryIO, graph: _Graph) -> None:
    nodes = len(graph.ends)
    degrees = np.zeros(nodes, np.int64)

    def targets() -> Iterator[Ints]:
        for arcs in graph.arcs():
            degrees[:] += np.bincount(arcs.sources, minlength=nodes)
            yield arcs.targets.astype(np.int64)

    def weights() -> Iterator[Ints]:
        for arcs in graph.arcs():
            yield np.ones(len(arcs.sources), np.int64) if arcs.weights is None else arcs.weights

    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        _array(archive, "indices", np.int64, graph.size, targets())
        _array(archive, "data", np.int64, graph.size, weights())
        _array(archive, "indptr", np.int64, nodes + 1, [np.concatenate([[0], np.cumsum(degrees)])])
        _array(archive, "shape", np.int64, 2, [np.array([nodes, nodes])])
        with archive.open("format.npy", "w") as out:
            np.lib.format.write_array(out, np.array(b"csr"))
        _array(archive, "labels", np.uint8, len(graph.labels), _bytes(graph.labels))


def _array(
    archive: zipfile.ZipFile, name: str, kind: type[np.generic], size: int, blocks: Iterable[Ints]
) -> None:
    """Write an array of the archive, a block at a time."""
    with archive.open(f"{name}.npy", "w", force_zip64=True) as out:
        header = {"descr": np.dtype(kind).str, "fortran_order": False, "shape": (size,)}
        np.lib.format.write_array_header_1_0(out, header)
        for block in blocks:
            out.write(block.astype(kind).tobytes())


def _bytes(labels: mmap.mmap | bytes) -> Iterator[Ints]:
    for start in range(0, len(labels), BATCH_ROWS):
        yield np.frombuffer(labels[start : start + BATCH_ROWS], np.uint8)


FORMATS: dict[str, Callable[[BinaryIO, _Graph], None]] = {
    "tsv": _tsv,
    "graphml": _graphml,
    "npz": _npz,
}
"""The writer of each format."""
