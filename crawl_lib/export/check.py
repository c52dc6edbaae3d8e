"""`krake fsck` of exports: do their files have the right sizes, and do they say the same?

An export that is not finished is no damage. Fast: which files there are, and sizes. Full: mapping ascending, content
and offsets the same both ways, the web graph's lists ascending and symmetric.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from crawl_lib.errors import DamagedFileError, PathNotFoundError, StorageError
from crawl_lib.export.folder import (
    ARC_SCHEMAS,
    ARCS_IN,
    ARCS_OUT,
    CONTENT,
    GRAPH_INDEX,
    INPUTS,
    OFFSETS,
    PAGES,
    URL_MAPPING,
    WEB_GRAPH,
    ExportFolder,
    Inputs,
    row_count,
)
from crawl_lib.export.readers import ContentReader, UrlMapping
from crawl_lib.export.run import EXPORT_SCHEMA
from crawl_lib.export.scratch import local_files
from crawl_lib.export.webgraph import Node, WebGraph
from crawl_lib.findings import Finding, Findings, Severity
from crawl_lib.segment import LATER_FIELDS, parquet_errors, segment_digest
from crawl_lib.stores import Stores

ROOM = "export"
LAST_FILES = (CONTENT, WEB_GRAPH)
BEFORE = {
    URL_MAPPING: (PAGES,),
    CONTENT: (PAGES, URL_MAPPING),
    OFFSETS: (PAGES, URL_MAPPING, CONTENT),
    ARCS_OUT: (PAGES, URL_MAPPING),
    ARCS_IN: (ARCS_OUT,),
    GRAPH_INDEX: (URL_MAPPING, ARCS_OUT, ARCS_IN),
    WEB_GRAPH: (URL_MAPPING, ARCS_OUT, ARCS_IN),
}
"""Which files must be there before a file is written."""
SCHEMAS: dict[str, pa.Schema] = {PAGES: EXPORT_SCHEMA, **ARC_SCHEMAS}
_MIX = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))


def check_export(stores: Stores, name: str, *, full: bool = True) -> list[Finding]:
    """What is wrong with one export; nothing is changed."""
    folder = ExportFolder(stores, name)
    if folder.is_empty():
        return []
    check = _Check(folder)
    check.run(full=full)
    return check.findings.list()


class _Check:
    def __init__(self, folder: ExportFolder) -> None:
        self.storage, self.folder = folder.storage, folder
        self.findings = Findings(ROOM, f"delete the folder {folder.path}, and export again")
        self.sizes = {entry.name: entry.size_bytes for entry in self.storage.list(folder.path)}

    def run(self, *, full: bool) -> None:
        try:
            inputs = self.folder.read_inputs()
        except (DamagedFileError, PathNotFoundError) as error:
            self._add("inputs_damaged", INPUTS, error)
            return
        if self._inputs(inputs):
            self.findings.repair = self._again(inputs)
        self._order()
        pages = self._mapping_count()
        if pages is not None:
            self._sizes(pages)
        if full and pages is not None and all(one.severity is Severity.NOTE for one in self.findings.list()):
            self._contents(pages)

    def _again(self, inputs: Inputs) -> str:
        folders = " ".join(sorted({segment.folder for segment in inputs.segments}, key=int))
        name = self.folder.name
        return (
            f"delete that file, then run `krake export --label {name} --folders {folders}`,"
            f" `krake graph link --export {name}`, `krake graph finalize --export {name}`: they make what is missing"
        )

    def _add(
        self, name: str, file: str, problem: object, *, severity: Severity = Severity.ERROR, repair: str | None = None
    ) -> None:
        self.findings.add(name, self.folder.file(file), str(problem), severity=severity, repair=repair)

    def _tell(self, file: str, done: int, unit: str) -> None:
        if done % 1000 == 0:
            self.folder.stores.report(checking=self.folder.file(file), done=done, unit=unit)

    # Fast

    def _inputs(self, inputs: Inputs) -> bool:
        """An export outlives its segments; but what is not finished needs them, and a change makes it old.

        Whether single files of it can be made again: only of the segments as they were.
        """
        same = True
        finished = all(name in self.sizes for name in LAST_FILES)
        new = f"delete the folder {self.folder.path}, or leave it, and make a new export with another --label"
        for segment, digest in zip(inputs.segments, inputs.manifests, strict=True):
            try:
                now = segment_digest(self.storage, segment.path)
            except PathNotFoundError:
                same = False
                if not finished:
                    self._add("input_gone", INPUTS, f"segment {segment.path} is gone", repair=new)
                continue
            if now != digest:
                same = False
                problem = f"segment {segment.path} has changed since"
                severity = Severity.NOTE if finished else Severity.WARNING
                self._add("input_changed", INPUTS, problem, repair=new, severity=severity)
        return same

    def _order(self) -> None:
        for name, needed in BEFORE.items():
            for missing in needed:
                if name in self.sizes and missing not in self.sizes:
                    self._add("export_file_missing", missing, f"is not there, and {name} is")

    def _mapping_count(self) -> int | None:
        if URL_MAPPING not in self.sizes:
            return None
        place = self.folder.file(URL_MAPPING)
        with self.storage.open_read(place, 0, 4) as file:
            head = file.read()
        count, size = int.from_bytes(head, "big", signed=True), self.sizes[URL_MAPPING]
        if len(head) < 4 or count < 0 or size != 4 + 20 * count:
            self._add("mapping_damaged", URL_MAPPING, f"says {count} keys, and has {size} bytes")
            return None
        return count

    def _sizes(self, pages: int) -> None:
        for name, size, damage in (
            (OFFSETS, 12 * pages, "offsets_damaged"),
            (GRAPH_INDEX, 8 * pages, "graph_damaged"),
        ):
            if name in self.sizes and self.sizes[name] != size:
                self._add(damage, name, f"has {self.sizes[name]} bytes, and {pages} pages need {size}")
        if WEB_GRAPH in self.sizes:
            with self.storage.open_read(self.folder.file(WEB_GRAPH), 0, 4) as file:
                count = int.from_bytes(file.read(), "big", signed=True)
            rest = self.sizes[WEB_GRAPH] - 4 - 8 * pages
            if count != pages or rest < 0 or rest % 8:
                self._add("graph_damaged", WEB_GRAPH, f"is of {count} pages with {rest} bytes of arcs, not of {pages}")
        rows = {name: self._rows(name) for name in (PAGES, ARCS_OUT, ARCS_IN) if name in self.sizes}
        if rows.get(PAGES) not in {None, pages}:
            self._add("export_table_damaged", PAGES, f"has {rows[PAGES]} rows, and the mapping {pages} keys")
        arcs = {rows[name] for name in (ARCS_OUT, ARCS_IN) if rows.get(name) is not None}
        if len(arcs) > 1:
            self._add("export_table_damaged", ARCS_IN, f"has {rows[ARCS_IN]} rows, and {ARCS_OUT} {rows[ARCS_OUT]}")

    def _rows(self, name: str) -> int | None:
        """Rows of a table; None, and a finding, if it is none."""
        try:
            return row_count(self.storage, self.folder.file(name), SCHEMAS[name])
        except DamagedFileError as error:
            self._add("export_table_damaged", name, error)
            return None

    # Full

    def _contents(self, pages: int) -> None:
        with ExitStack() as stack:
            local = local_files(self.folder, stack)
            self._checked("mapping_damaged", URL_MAPPING, lambda: self._mapping(stack, local))
            if {CONTENT, OFFSETS} <= self.sizes.keys():
                self._checked("content_damaged", CONTENT, lambda: self._content(stack, local, pages))
            for name in (PAGES, ARCS_OUT, ARCS_IN):
                if name in self.sizes:
                    self._checked("export_table_damaged", name, partial(read_table, str(local(name)), SCHEMAS[name]))
            if {WEB_GRAPH, GRAPH_INDEX} <= self.sizes.keys():
                self._checked("graph_damaged", WEB_GRAPH, lambda: self._graph(stack, local, pages))

    def _checked(self, name: str, file: str, check: Callable[[], None]) -> None:
        try:
            with parquet_errors(file):
                check()
        except (DamagedFileError, StorageError) as error:
            self._add(name, file, error)

    def _mapping(self, stack: ExitStack, local: Callable[[str], object]) -> None:
        mapping = stack.enter_context(UrlMapping(str(local(URL_MAPPING))))
        keys = iter(mapping)
        if PAGES not in self.sizes:
            for _ in keys:
                pass
            return
        with pq.ParquetFile(str(local(PAGES))) as table:
            for batch in table.iter_batches(columns=["node_id", "key"]):
                for node_id, key in zip(batch.column(0).to_pylist(), batch.column(1).to_pylist(), strict=True):
                    self._tell(URL_MAPPING, int(node_id or 0), "pages")
                    if next(keys, None) != key:
                        raise DamagedFileError(f"the key of NodeID {node_id} is not that of {PAGES}")

    def _content(self, stack: ExitStack, local: Callable[[str], object], pages: int) -> None:
        content = stack.enter_context(ContentReader(str(local(CONTENT)), str(local(OFFSETS))))
        at = 0
        for node_id in range(pages):
            if content.offset(node_id) != at:
                self._add(
                    "offsets_damaged", OFFSETS, f"NodeID {node_id} is at byte {at}, not {content.offset(node_id)}"
                )
                return
            content.content(node_id)
            at += len(content.compressed(node_id)) + 8
            self._tell(CONTENT, node_id, "pages")
        if at != content.size_bytes:
            raise DamagedFileError(f"the last page ends at byte {at}, and the file at {content.size_bytes}")
        # Forward, each size before a page was compared with the one after it: so the walk back finds the same.

    def _graph(self, stack: ExitStack, local: Callable[[str], object], pages: int) -> None:
        graph = stack.enter_context(WebGraph(str(local(WEB_GRAPH)), str(local(GRAPH_INDEX))))
        index = np.fromfile(str(local(GRAPH_INDEX)), ">i8")
        out = into = np.uint64(0)
        at = 4
        for node in graph:
            for problem in _list_problems(node):
                raise DamagedFileError(f"NodeID {node.node_id}: {problem}")
            if int(index[node.node_id]) != at:
                self._add("graph_damaged", GRAPH_INDEX, f"NodeID {node.node_id} is at byte {at}")
                return
            at += 8 + 4 * (len(node.in_neighbours) + len(node.out_neighbours))
            with np.errstate(over="ignore"):
                out += _arc_sum(np.full(len(node.out_neighbours), node.node_id), node.out_neighbours)
                into += _arc_sum(node.in_neighbours, np.full(len(node.in_neighbours), node.node_id))
            self._tell(WEB_GRAPH, node.node_id, "pages")
        if out != into:
            raise DamagedFileError("its in-arcs are not its out-arcs")


def read_table(path: str, schema: pa.Schema) -> None:
    """Read a table of an export to its end.

    Raises DamagedFileError where its columns are others; pa.ArrowException, ValueError (a name that is no UTF-8) or
    OSError where it cannot be read, or a page has not the CRC that was written with it.
    """
    with pq.ParquetFile(path, page_checksum_verification=True) as table:
        before = pa.schema([field for field in schema if field.name not in LATER_FIELDS])
        if not (table.schema_arrow.equals(schema) or table.schema_arrow.equals(before)):
            raise DamagedFileError(f"has the columns {table.schema_arrow.names}, not {schema.names}, or other types")
        # By batches, a column that is too short would not be noticed.
        rows = sum(table.read_row_group(group).num_rows for group in range(table.num_row_groups))
        if rows != table.metadata.num_rows:
            raise DamagedFileError(f"says {table.metadata.num_rows} rows, and has {rows}")


def _list_problems(node: Node) -> Iterator[str]:
    for word, ids in (("in", node.in_neighbours), ("out", node.out_neighbours)):
        if len(ids) > 1 and not bool((ids[1:] > ids[:-1]).all()):
            yield f"its {word}-neighbours do not ascend"
        if bool((ids == node.node_id).any()):
            yield "is its own neighbour"


def _arc_sum(sources: npt.NDArray[np.int32], targets: npt.NDArray[np.int32]) -> np.uint64:
    """A sum that is the same for the same arcs in any order, and for hardly any others (splitmix64)."""
    with np.errstate(over="ignore"):
        mixed = (sources.astype(np.uint64) << np.uint64(32)) | targets.astype(np.uint64)
        mixed += np.uint64(0x9E3779B97F4A7C15)
        mixed = (mixed ^ (mixed >> np.uint64(30))) * _MIX[0]
        mixed = (mixed ^ (mixed >> np.uint64(27))) * _MIX[1]
        return np.uint64((mixed ^ (mixed >> np.uint64(31))).sum(dtype=np.uint64))
