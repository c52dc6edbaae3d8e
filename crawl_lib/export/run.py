"""The export stage: from segments to `pages.parquet`, `urlmapping`, `content` and `offsets`."""

import fnmatch
import itertools
import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from crawl_lib.dataclass import dataclass
from crawl_lib.engine import Engine, column_of
from crawl_lib.errors import DamagedFileError, InputError, PathNotFoundError
from crawl_lib.export.choice import Inputs, SegmentInput, gather_inputs
from crawl_lib.export.content import Buckets, content_sizes, write_content, write_offsets
from crawl_lib.export.folder import ExportFolder
from crawl_lib.export.tables import (
    CONTENT,
    EXPORT_SCHEMA,
    OFFSETS,
    PAGES,
    URL_MAPPING,
    checked_table,
)
from crawl_lib.export.visits import view_visits
from crawl_lib.scratch import scratch_folder
from crawl_lib.segment import PAGES_SCHEMA, DroppedLists, Manifest, SegmentReader, WantedRecord
from crawl_lib.stopping import Progress
from crawl_lib.stores import Stores

log = logging.getLogger(__name__)
MAX_PAGES = (1 << 31) - 1
BATCH_ROWS = 1 << 14
STATUSES = pa.schema([PAGES_SCHEMA.field("key"), pa.field("status", pa.string())])
"""Columns read from the CrawlDb."""
OUTPUTS = (PAGES, URL_MAPPING, CONTENT, OFFSETS)


@dataclass(frozen=True)
class ExportReport:
    """Counts of an export. `bytes`: of the content file. `complete_already`: nothing was left to do.

    `late_segments`: how many came after the export was begun: they are not in it, but will be in the next one.
    """

    name: str
    pages: int
    bytes: int
    complete_already: bool
    late_segments: int = 0


def export_pages(
    stores: Stores,
    *,
    name: str,
    segments: Sequence[SegmentInput],
    crawldb: Sequence[str] = (),
    with_requisites: bool = False,
) -> ExportReport:
    """Export the crawled pages of some segments to `<export.directory>/<name>/`.

    A crawled page is a key with a capture of status 200 whose detected type `export.mime_types` accepts. If the crawl
    visits pages again (`frontier.order: crawldb`), the export leaves out pages that are gone or have moved. The option
    `export.duplicates: drop` also leaves out duplicates, by the parts of the version `crawldb`. The export has no
    requisites that no followed link names, unless `with_requisites`. A second run of an unfinished export keeps the
    finished files and the inputs of the first run. The log names the segments of late nodes (`crawl.min_nodes`) that
    came since; the next export takes these. Equal inputs give equal bytes. Steps, each durable before the next:
    `inputs`, `pages.parquet`, `urlmapping`, `content`, `offsets`. Once `stores` is to stop, the export stops within a
    second or two, and keeps finished files only.

    Raises OutputConflictError (an export of that name has other inputs), PathNotFoundError (a segment is gone),
    InputError (a bad name, or more pages than a NodeID can count), DamagedFileError (a WARC file is not what `pages`
    says), LockedError, StorageError, StoppedError.
    """
    folder = ExportFolder(stores, name)
    inputs, late = folder.begun(
        replace(gather_inputs(stores, segments, crawldb), requisites=with_requisites)
    )
    if late:
        log.warning(
            "export %s was begun before %s came; the next export, or one with another label, has them",
            name,
            ", ".join(segment.path for segment in late),
        )
    complete = folder.has(*OUTPUTS)
    if not complete:
        with scratch_folder(stores.config, f"export-{name}") as scratch:
            _Export(folder, inputs, scratch).run()
    sizes = folder.sizes()
    return ExportReport(name, (sizes[URL_MAPPING] - 4) // 20, sizes[CONTENT], complete, len(late))


@dataclass
class _Export:
    folder: ExportFolder
    inputs: Inputs
    scratch: Path

    def run(self) -> None:
        with self.folder.engine(self.scratch) as engine:
            if not self.folder.has(PAGES):
                self.prepare(engine)
                self.folder.check_segments(self.inputs)  # what was read is what `inputs` says
                self.folder.claim(self.inputs)
                self.choose(engine)
            if not self.folder.has(CONTENT):
                self.folder.check_segments(self.inputs)
            if not self.folder.has(URL_MAPPING):
                write_mapping(self.folder)
            self.write_content(engine)

    def prepare(self, engine: Engine) -> None:
        """Make tables of the inputs, and check the number of NodeIDs.

        The view `captures` has the rows of the segments' `pages`, but for those that were dropped.
        """
        storage, segments, patterns = (
            self.folder.storage,
            self.inputs.segments,
            self.inputs.mime_types,
        )
        rows, paths = 0, list[str | None]()
        keys: list[bytes] = []
        numbers: list[int] = []
        for number, segment in enumerate(self.folder.stores.until_stopped(segments)):
            reader = SegmentReader(storage, segment.path)
            rows += reader.rows(Manifest.PAGES_NAME)
            paths.append(reader.verified(Manifest.PAGES_NAME, self.folder.stores))
            if DroppedLists(storage, segment.path).names():
                keys += sorted(reader.dropped)
                numbers += [number] * len(reader.dropped)
        engine.tables("pages", paths, PAGES_SCHEMA)
        dropped = [bytes_array(keys, pa.binary()), column_of(np.array(numbers, dtype=np.int32))]
        engine.values("dropped", pa.table(dropped, names=["key", "segment"]))
        self.leave_out(engine)
        names = [f"{segment.folder}/{segment.node}".encode() for segment in segments]
        columns = [
            column_of(np.arange(len(names), dtype=np.int32)),
            bytes_array(names, pa.string()),
        ]
        engine.values("segments", pa.table(columns, names=["segment", "name"]))
        engine.view(
            "captures", "export/captures_of_lists" if self.inputs.revisited else "export/captures"
        )
        accepted = [
            mime.encode()
            for mime in engine.column("export/types")
            if patterns is None or any(fnmatch.fnmatchcase(mime, pattern) for pattern in patterns)
        ]
        engine.values("accepted", pa.table([bytes_array(accepted, pa.string())], names=["mime"]))
        if rows > MAX_PAGES and (pages := engine.value("export/count")) > MAX_PAGES:
            raise InputError(
                f"export {self.folder.name!r}: {pages} crawled pages, and a NodeID counts {MAX_PAGES} at most; export"
                " some of the iterations only (folders), or narrow export.mime_types, or crawl in several directories"
            )

    def leave_out(self, engine: Engine) -> None:
        """Make the view `visits` of exportable pages.

        It lacks dropped pages, and duplicates and requisites that are not exported.
        """
        links = None if self.inputs.requisites else self.links
        if self.inputs.duplicates == "keep":
            view_visits(engine, "export/visits", links)
            return
        for path in self.inputs.crawldb:
            if not self.folder.storage.exists(path):
                raise PathNotFoundError(
                    f"export {self.folder.name!r} was begun with {path}, which was deleted since; move"
                    f" {self.folder.path} away, and export again"
                )
        stores, repair = (
            self.folder.stores,
            "run `krake fsck --repair`, and export under another label",
        )
        paths = [
            checked_table(stores, path, STATUSES, STATUSES.names, repair)
            for path in self.inputs.crawldb
        ]
        engine.tables("crawldb", paths, STATUSES)
        view_visits(engine, "export/visits_but_duplicates", links)

    def links(self) -> list[str | None]:
        """Return the paths of the checked tables of links.

        None: a table without rows.
        """
        storage, stores = self.folder.storage, self.folder.stores
        segments = stores.until_stopped(self.inputs.segments)
        return [
            SegmentReader(storage, segment.path).verified(Manifest.LINKS_NAME, stores)
            for segment in segments
        ]

    def choose(self, engine: Engine) -> None:
        """Write `pages.parquet`."""
        progress = Progress(self.folder.stores, "export.choose", 0, "pages")
        batches = self.numbered(engine.stream("export/chosen", BATCH_ROWS, "export.choose"))
        self.folder.write_table(PAGES, batches, progress)

    def numbered(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
        """Yield rows of `pages.parquet`: chosen captures with their NodeIDs."""
        paths = bytes_array(
            [segment.path.encode() for segment in self.inputs.segments], pa.string()
        )
        count = 0
        for batch in batches:
            numbers = column_of(np.arange(count, count + len(batch), dtype=np.int32))
            added = {"node_id": numbers, "segment_path": paths.take(batch.column("segment"))}
            columns = [
                added[name] if name in added else batch.column(name) for name in EXPORT_SCHEMA.names
            ]
            yield pa.table(columns, names=EXPORT_SCHEMA.names)
            count += len(batch)

    def write_content(self, engine: Engine) -> None:
        """Write `content` and `offsets`, what of them is missing."""
        folder, sizes = self.folder, None
        count = folder.table(PAGES).rows
        progress = Progress(self.folder.stores, "export.content", count, "pages")
        if folder.has(OFFSETS) and not folder.has(
            CONTENT
        ):  # asked in this order: content comes first
            self.folder.storage.delete(
                folder.file(OFFSETS)
            )  # of a content file that somebody deleted
        if not folder.has(CONTENT):
            places = ("node_id", "segment", "warc_file", "warc_offset", "warc_length")
            engine.table("nodes", folder.table(PAGES).checked(folder.stores, places))
            buckets = Buckets(
                self.scratch, count, engine.value("export/size"), self.folder.stores.config.scratch
            )
            sizes = write_content(folder, buckets, self.wanted(engine), self.inputs, progress)
        if not folder.has(OFFSETS):
            sizes = content_sizes(folder, count, progress) if sizes is None else sizes
            with folder.writing(OFFSETS) as file:
                write_offsets(file, sizes, progress)
        progress.end()

    def wanted(self, engine: Engine) -> Iterator[WantedRecord]:
        """Yield the records to read, by file and offset."""
        paths = [segment.path for segment in self.inputs.segments]
        for batch in engine.stream("export/reading_order", BATCH_ROWS, "export.order"):
            columns = (column.to_pylist() for column in batch.columns)
            for node_id, segment, file, offset, length in zip(*columns, strict=True):
                yield WantedRecord(node_id, f"{paths[segment]}/{file}", offset, length)


def write_mapping(folder: ExportFolder) -> None:
    """Write `urlmapping`, the keys of `pages.parquet`.

    Raises DamagedFileError where they do not ascend.
    """
    pages = folder.table(PAGES)
    with (
        pages.open() as table,
        folder.writing(URL_MAPPING) as file,
    ):
        file.write(table.rows.to_bytes(4, "big", signed=True))
        last = b""
        for batch in folder.stores.until_stopped(table.batches(BATCH_ROWS, ["key"])):
            keys: list[bytes] = batch.column(0).to_pylist()  # type: ignore[assignment]
            if any(a >= b for a, b in itertools.pairwise([last, *keys])):
                raise DamagedFileError(
                    f"{pages.path}: its keys are not in ascending order{pages.remedy}"
                )
            last = keys[-1] if keys else last
            file.write(b"".join(keys))


def bytes_array(values: Sequence[bytes], kind: pa.DataType) -> "pa.Array[Any]":
    """Return keys or texts as an Arrow array, without pandas.

    Texts are in UTF-8.
    """
    ends = np.cumsum([0, *map(len, values)], dtype=np.int32)
    return pa.Array.from_buffers(
        kind, len(values), [None, pa.py_buffer(ends.data), pa.py_buffer(b"".join(values))]
    )
