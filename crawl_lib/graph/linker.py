"""The linker: from rows of `links` to distinct arcs between NodeIDs, sorted both ways."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from crawl_lib.config import Config
from crawl_lib.export.duck import Duck, files_view, open_duck, quoted, sql_text
from crawl_lib.export.places import ARCS_IN, ARCS_OUT, PAGES, URL_MAPPING, ExportFolder, OnProgress, check_segments
from crawl_lib.export.scratch import local_copy, scratch_folder
from crawl_lib.segment.schema import LINKS_SCHEMA
from crawl_lib.storage import Storage


@dataclass(frozen=True)
class LinkReport:
    """What the linker left. `arcs`: distinct arcs between crawled pages. `complete_already`: nothing was left to do."""

    name: str
    arcs: int
    complete_already: bool

    def to_mapping(self) -> dict[str, Any]:
        """The same as plain values."""
        return asdict(self)


def link_export(storage: Storage, config: Config, *, name: str, on_progress: OnProgress | None = None) -> LinkReport:
    """Write the arcs of an export: `arcs-out.parquet` (source, target) and `arcs-in.parquet` (target, source).

    Every row of `links`, followed or not, of the captures that the export chose is an arc, if both its ends are crawled
    pages and differ. Both files hold each arc once, sorted. DuckDB keeps to `scratch.memory_bytes` and spills to
    `scratch.directory`. Run again, it goes on after the last file that stands.

    Raises PathNotFoundError (no such export, or a segment of it is gone), OutputConflictError (a segment has changed),
    LockedError, StorageError.
    """
    folder = ExportFolder(storage, config, name)
    inputs = folder.read_inputs()
    if folder.has(ARCS_OUT, ARCS_IN):
        return LinkReport(name, _arcs(storage, folder), complete_already=True)
    folder.require([PAGES, URL_MAPPING], "krake export")
    with scratch_folder(config, name) as scratch, open_duck(scratch, config.scratch.memory_bytes) as duck:
        results = scratch / "results"
        results.mkdir()
        if not folder.has(ARCS_OUT):
            check_segments(storage, folder, inputs)
            links = [
                local_copy(storage, f"{segment.path}/links.parquet", scratch, f"links-{number}.parquet")
                for number, segment in enumerate(inputs.segments)
            ]
            nodes = local_copy(storage, folder.file(PAGES), scratch, PAGES)
            files_view(duck, "links", links, LINKS_SCHEMA)
            _view(duck, "nodes", nodes)
            _query(duck, folder, results / ARCS_OUT, "graph/arcs_out", on_progress)
        if not folder.has(ARCS_IN):
            _view(duck, "arcs", local_copy(storage, folder.file(ARCS_OUT), scratch, ARCS_OUT))
            _query(duck, folder, results / ARCS_IN, "graph/arcs_in", on_progress)
    return LinkReport(name, _arcs(storage, folder), complete_already=False)


def _view(duck: Duck, name: str, file: Path) -> None:
    duck.execute(f"create view {name} as select * from read_parquet('{quoted(file)}')")


def _query(duck: Duck, folder: ExportFolder, result: Path, query: str, on_progress: OnProgress | None) -> None:
    duck.copy(sql_text(query), result, on_progress, query.replace("/", "."))
    folder.publish(result, result.name)
    result.unlink()


def _arcs(storage: Storage, folder: ExportFolder) -> int:
    with storage.open_seekable(folder.file(ARCS_IN)) as file:
        return int(pq.read_metadata(file).num_rows)
