"""The linker: from rows of `links` to distinct arcs between NodeIDs, sorted both ways."""

import pyarrow as pa

from crawl_lib.dataclass import dataclass
from crawl_lib.engine import Engine, first_of_each, in_batches
from crawl_lib.export import ARCS_IN, ARCS_OUT, PAGES, URL_MAPPING, ExportFolder
from crawl_lib.scratch import scratch_folder
from crawl_lib.segment import LINKS_SCHEMA, Manifest, SegmentReader
from crawl_lib.stopping import Progress
from crawl_lib.stores import Stores

GROUP_ROWS = 1 << 20


@dataclass(frozen=True)
class LinkReport:
    """The results of the linker. `arcs`: distinct arcs between crawled pages. `complete_already`: both files
    existed.
    """

    name: str
    arcs: int
    complete_already: bool


def link_export(stores: Stores, *, name: str) -> LinkReport:
    """Write the arcs of an export.

    `arcs-out.parquet` has (source, target), `arcs-in.parquet` has (target, source). A row of `links` of the export's
    captures, followed or not, is an arc if its ends are two different crawled pages. Both files have each arc once,
    sorted. Sorting keeps to `scratch.memory_bytes` and spills to `scratch.directory`. A second run keeps finished
    files.

    Raises PathNotFoundError (no such export, or one of its segments is gone), OutputConflictError (a segment changed),
    LockedError, StorageError, StoppedError.
    """
    folder = ExportFolder(stores, name)
    inputs = folder.read_inputs()
    complete = folder.has(ARCS_OUT, ARCS_IN)
    if not complete:
        folder.require([PAGES, URL_MAPPING], "krake export")
        with (
            scratch_folder(stores.config, f"export-{name}") as scratch,
            folder.engine(scratch) as engine,
        ):
            if not folder.has(ARCS_OUT):
                folder.check_segments(inputs)
                readers = [
                    SegmentReader(stores.storage, segment.path) for segment in inputs.segments
                ]
                for reader in stores.until_stopped(readers):
                    reader.rows(Manifest.LINKS_NAME)  # raises if the table is damaged
                paths = [reader.verified(Manifest.LINKS_NAME, stores) for reader in readers]
                engine.tables("links", paths, LINKS_SCHEMA)
                ends = ("node_id", "key", "segment")
                engine.table("nodes", folder.table(PAGES).checked(stores, ends))
                _write_arcs(engine, folder, ARCS_OUT, "graph/arcs_out")
            if not folder.has(ARCS_IN):
                engine.table("arcs", folder.table(ARCS_OUT).checked(stores, ("source", "target")))
                _write_arcs(engine, folder, ARCS_IN, "graph/arcs_in")
    return LinkReport(name, folder.table(ARCS_IN).rows, complete)


def _write_arcs(engine: Engine, folder: ExportFolder, name: str, query: str) -> None:
    stage = query.replace("/", ".")
    total = 0 if name == ARCS_OUT else folder.table(ARCS_OUT).rows
    progress = Progress(folder.stores, stage, total, "arcs")
    batches = engine.stream(query, GROUP_ROWS, stage)
    if name == ARCS_OUT:
        batches = in_batches(first_of_each(batches, ["source", "target"], 1), GROUP_ROWS)
    tables = (pa.Table.from_batches([batch]) for batch in batches)
    # Half of the numbers have no order: a dictionary only costs time.
    folder.write_table(name, tables, progress, dictionary=False)
