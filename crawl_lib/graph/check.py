"""`krake fsck` of exports: do their files have the right sizes, and the content that the stages would write?

An unfinished export is no damage. Fast: existence and sizes of files. Full: every table and every page of the content
is read; mapping, offsets and web graph are made again, and compared with the files.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO, cast

import pyarrow as pa

from crawl_lib.errors import (
    NOT_ABOUT_FILES,
    DamagedFileError,
    InputError,
    PathNotFoundError,
    StorageError,
)
from crawl_lib.export import (
    ARCS_IN,
    ARCS_OUT,
    CONTENT,
    GRAPH_INDEX,
    OFFSETS,
    PAGES,
    URL_MAPPING,
    WEB_GRAPH,
    ContentReader,
    ExportFolder,
    ExportTable,
    Inputs,
    content_sizes,
    write_mapping,
    write_offsets,
)
from crawl_lib.findings import Finding, Findings, Severity
from crawl_lib.graph.finalizer import both_degrees, write_graph, write_index
from crawl_lib.parquet import LATER_FIELDS, open_parquet, parquet_errors
from crawl_lib.stopping import Progress
from crawl_lib.storage import Storage
from crawl_lib.stores import Stores

BEFORE = {
    URL_MAPPING: (PAGES,),
    CONTENT: (PAGES, URL_MAPPING),
    OFFSETS: (PAGES, URL_MAPPING, CONTENT),
    ARCS_OUT: (PAGES, URL_MAPPING),
    ARCS_IN: (ARCS_OUT,),
    GRAPH_INDEX: (URL_MAPPING, ARCS_OUT, ARCS_IN),
    WEB_GRAPH: (URL_MAPPING, ARCS_OUT, ARCS_IN),
}
"""The files that a stage needs before it writes a file."""
DAMAGE = {
    ExportFolder.INPUTS: "inputs_damaged",
    URL_MAPPING: "mapping_damaged",
    CONTENT: "content_damaged",
    OFFSETS: "offsets_damaged",
    GRAPH_INDEX: "graph_damaged",
    WEB_GRAPH: "graph_damaged",
}
"""The name of the damage of a file; damage of a table is `export_table_damaged`."""


def check_export(stores: Stores, name: str, *, full: bool = True) -> list[Finding]:
    """Check one export; return its damage, and change nothing.

    Raises ScratchError, NoRoomError or StorageAccessError if this machine cannot look.
    """
    folder = _Compared(stores, name)
    if folder.is_empty():
        return []
    check = _GraphCheck(folder)
    try:
        inputs = folder.read_inputs()
    except (DamagedFileError, PathNotFoundError) as error:
        check.add(folder.INPUTS, error)
    else:
        check.inputs(inputs)
        check.run(full=full)
    return check.findings.list()


class _Compared(ExportFolder):
    """A complete export: bytes that would be written to a file are compared with the file."""

    @contextmanager
    def writing(self, name: str) -> Iterator[BinaryIO]:
        """Open a file for comparison with the bytes written.

        Raises DamagedFileError if the file has other bytes.
        """
        with self.storage.open_read(self.file(name)) as file:
            yield cast(BinaryIO, _Comparison(file))
            if file.read(1):
                raise DamagedFileError("goes on after its last page")


class _Comparison:
    def __init__(self, file: BinaryIO) -> None:
        self.file, self.at = file, 0

    def write(self, data: bytes) -> None:
        there = self.file.read(len(data))
        if there != data:
            pairs = enumerate(zip(there, data, strict=False))
            same = next((at for at, (one, other) in pairs if one != other), len(there))
            raise DamagedFileError(
                f"byte {self.at + same} is not what the other files of the export make it"
            )
        self.at += len(data)


class _GraphCheck:
    def __init__(self, folder: ExportFolder) -> None:
        self.storage, self.folder = folder.storage, folder
        self.findings = Findings("export", f"move the folder {folder.path} away, and export again")
        self.sizes = folder.sizes()

    def add(self, file: str, problem: object) -> None:
        self.findings.add(
            DAMAGE.get(file, "export_table_damaged"), self.folder.file(file), str(problem)
        )

    @contextmanager
    def noting(self, file: str) -> Iterator[None]:
        """Report a damaged file as a finding."""
        try:
            with parquet_errors(file):
                yield
        except NOT_ABOUT_FILES:
            raise
        except (DamagedFileError, InputError, StorageError) as error:
            self.add(file, error)

    def inputs(self, inputs: Inputs) -> None:
        """Check an export's segments.

        A finished export outlives its segments. An unfinished export needs its segments, and a change of these makes
        the export old. Single files of the export can be made again only from unchanged segments.
        """
        finished = CONTENT in self.sizes and WEB_GRAPH in self.sizes
        where = self.folder.file(ExportFolder.INPUTS)
        new = f"leave it, or move the folder {self.folder.path} away; make a new export with another --label"
        folders = " ".join(dict.fromkeys(segment.folder for segment in inputs.segments))
        name = self.folder.name
        again = (
            f"move that file away (of the web graph: {ARCS_OUT} and {ARCS_IN}, too), then run"
            f" `krake export --label {name} --folders {folders}`, `krake graph link --export {name}`,"
            f" `krake graph finalize --export {name}`: they make what is missing, and `krake graph rank` makes ranks"
        )
        for segment, is_gone in self.folder.changed_segments(inputs):
            again = self.findings.repair
            if not is_gone:
                severity = Severity.NOTE if finished else Severity.WARNING
                problem = f"segment {segment.path} has changed since"
                self.findings.add("input_changed", where, problem, repair=new, severity=severity)
            elif not finished:
                self.findings.add(
                    "input_gone", where, f"segment {segment.path} is gone", repair=new
                )
        self.findings.repair = again

    def run(self, *, full: bool) -> None:
        for name, needed in BEFORE.items():
            for missing in needed:
                if name in self.sizes and missing not in self.sizes:
                    where = self.folder.file(missing)
                    self.findings.add("export_file_missing", where, f"is not there, and {name} is")
        rows: dict[str, int] = {}
        for name, schema in ExportTable.SCHEMAS.items():
            if name in self.sizes:
                with self.noting(name):
                    rows[name] = check_table(
                        self.storage, self.folder.file(name), schema, full=full
                    )
        if PAGES in rows:
            self.compare_sizes(rows)
        if (
            full
            and PAGES in rows
            and all(one.severity is Severity.NOTE for one in self.findings.list())
        ):
            self.contents(rows)

    def compare_sizes(self, rows: dict[str, int]) -> None:
        pages, arcs = rows[PAGES], rows.get(ARCS_OUT)
        sizes = {URL_MAPPING: 4 + 20 * pages, OFFSETS: 12 * pages, GRAPH_INDEX: 8 * pages}
        if arcs is not None and rows.get(ARCS_IN) == arcs:
            sizes[WEB_GRAPH] = 4 + 8 * (pages + arcs)
        elif arcs is not None and ARCS_IN in rows:
            self.add(ARCS_IN, f"has {rows[ARCS_IN]} rows, and {ARCS_OUT} {arcs}")
        for name, size in sizes.items():
            if self.sizes.get(name, size) != size:
                of_arcs = f" with {arcs} arcs" if name == WEB_GRAPH else ""
                self.add(
                    name, f"has {self.sizes[name]} bytes, and {pages} pages{of_arcs} need {size}"
                )

    def contents(self, rows: dict[str, int]) -> None:
        """Check all bytes of files that have the right sizes."""
        folder, pages = self.folder, rows[PAGES]
        if URL_MAPPING in self.sizes:
            with self.noting(URL_MAPPING):
                write_mapping(folder)
        if CONTENT in self.sizes:
            progress = Progress(folder.stores, "check.content", pages, "pages")
            with (
                self.noting(CONTENT),
                folder.local_files() as local,
                ContentReader(local(CONTENT)) as content,
            ):
                for _ in content:
                    progress.add(1)
                sizes = content_sizes(folder, pages, progress)
                if OFFSETS in self.sizes:
                    with self.noting(OFFSETS), folder.writing(OFFSETS) as file:
                        write_offsets(file, sizes, progress)
        if GRAPH_INDEX in self.sizes or WEB_GRAPH in self.sizes:
            with self.noting(ARCS_OUT):
                degrees = both_degrees(folder, pages)
                for name, write in ((GRAPH_INDEX, write_index), (WEB_GRAPH, write_graph)):
                    if name in self.sizes:
                        with self.noting(name):
                            write(folder, *degrees)


def check_table(storage: Storage, path: str, schema: pa.Schema, *, full: bool) -> int:
    """Check a table of an export; return its number of rows.

    `full`: read the table to its end. Raises DamagedFileError for wrong columns, an unreadable table, or a page with a
    wrong CRC.
    """
    with open_parquet(storage, path) as table, parquet_errors(path):
        there = [
            field for field in schema if field.name in table.names or field.name not in LATER_FIELDS
        ]
        if not table.file.schema_arrow.equals(pa.schema(there)):
            raise DamagedFileError(
                f"has the columns {table.names}, not {schema.names}, or other types"
            )
        # Batches would hide a column that is too short.
        groups = range(table.file.num_row_groups) if full else ()
        if (
            full
            and sum(table.file.read_row_group(group).num_rows for group in groups) != table.rows
        ):
            raise DamagedFileError(f"does not have the {table.rows} rows that it says")
        return table.rows
