"""The linker: from rows of `links` to distinct arcs between NodeIDs, sorted both ways."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from threading import Event
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from crawl_lib.config import Config
from crawl_lib.engine import Engine, in_batches, open_engine
from crawl_lib.export import (
    ARC_SCHEMAS,
    ARCS_IN,
    ARCS_OUT,
    PAGES,
    URL_MAPPING,
    ExportFolder,
    Progress,
    check_segments,
    row_count,
    scratch_folder,
    write_table,
)
from crawl_lib.segment import LINKS_NAME, LINKS_SCHEMA, SegmentReader
from crawl_lib.stopping import OnProgress, until_stopped
from crawl_lib.storage import Storage

GROUP_ROWS = 1 << 20
QUERIES = {ARCS_OUT: "graph/arcs_out", ARCS_IN: "graph/arcs_in"}


@dataclass(frozen=True)
class LinkReport:
    """What the linker left. `arcs`: distinct arcs between crawled pages. `complete_already`: nothing was left to do."""

    name: str
    arcs: int
    complete_already: bool


def link_export(
    storage: Storage,
    config: Config,
    *,
    name: str,
    on_progress: OnProgress | None = None,
    stop: Event | None = None,
) -> LinkReport:
    """Write the arcs of an export: `arcs-out.parquet` (source, target) and `arcs-in.parquet` (target, source).

    Every row of `links`, followed or not, of the captures that the export chose is an arc, if both its ends are crawled
    pages and differ. Both files hold each arc once, sorted. Sorting keeps to `scratch.memory_bytes` and spills to
    `scratch.directory`. Run again, it goes on after the last file that is there. `stop`: when it is set, what is being
    sorted and written is given up within a second or two.

    Raises PathNotFoundError (no such export, or a segment of it is gone), OutputConflictError (a segment has changed),
    LockedError, StorageError, StoppedError.
    """
    folder, stop = ExportFolder(storage, config, name), stop or Event()
    inputs = folder.read_inputs()
    if folder.has(ARCS_OUT, ARCS_IN):
        return LinkReport(name, row_count(storage, folder.file(ARCS_IN)), complete_already=True)
    folder.require([PAGES, URL_MAPPING], "krake export")
    with (
        scratch_folder(config, name) as scratch,
        open_engine(config, folder.room(scratch, config.scratch, stop)) as engine,
    ):
        if not folder.has(ARCS_OUT):
            check_segments(storage, folder, inputs, stop)
            for segment in until_stopped(inputs.segments, stop):
                SegmentReader(storage, segment.path).rows(LINKS_NAME)  # raises where it is damaged
            engine.tables("links", [f"{segment.path}/{LINKS_NAME}" for segment in inputs.segments], LINKS_SCHEMA)
            engine.table("nodes", folder.file(PAGES))
            _write_arcs(engine, folder, ARCS_OUT, on_progress, stop)
        if not folder.has(ARCS_IN):
            engine.table("arcs", folder.file(ARCS_OUT))
            _write_arcs(engine, folder, ARCS_IN, on_progress, stop)
    return LinkReport(name, row_count(storage, folder.file(ARCS_IN)), complete_already=False)


def _write_arcs(engine: Engine, folder: ExportFolder, name: str, on_progress: OnProgress | None, stop: Event) -> None:
    query = QUERIES[name]
    stage = query.replace("/", ".")
    progress = Progress(on_progress, stage, 0, "arcs", stop)
    batches = engine.stream(query, GROUP_ROWS, on_progress, stage)
    if name == ARCS_OUT:
        batches = in_batches(each_once(batches), GROUP_ROWS)
    schema = ARC_SCHEMAS[name]
    # Half of the numbers are all over the place: a dictionary only costs time.
    write_table(folder, name, schema, (pa.Table.from_batches([batch]) for batch in batches), progress, dictionary=False)


def each_once(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Sorted rows of two columns without nulls, each row once; a batch may come out empty.

    Among sorted rows that costs next to nothing; a `distinct` in the query takes a third of its time.
    """
    last: tuple[Any, ...] | None = None
    for batch in batches:
        if not len(batch):
            continue
        columns = batch.columns
        changes = [pc.not_equal(column[1:], column[:-1]) for column in columns]
        first = tuple(column[0].as_py() for column in columns) != last
        last = tuple(column[-1].as_py() for column in columns)
        yield batch.filter(pa.concat_arrays([pa.array([first]), pc.or_(*changes)]))
