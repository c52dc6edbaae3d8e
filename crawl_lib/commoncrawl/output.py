"""The outputs: graphs of exports, and Common Crawl's index and WET files."""

import uuid
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import BinaryIO

from crawl_lib.commoncrawl.folders import Files, FolderOutput, MadeOnce, Said
from crawl_lib.commoncrawl.graphs import GraphWriter, file_names
from crawl_lib.commoncrawl.index import (
    AGAIN,
    INDEX_FOLDER,
    WET_FOLDER,
    CommonCrawlReports,
    make_commoncrawl,
)
from crawl_lib.commoncrawl.nodes import (
    KINDS,
    ExportPages,
    Graph,
    NumberedPages,
    graph_of,
    linked_pages,
)
from crawl_lib.derived import SEGMENTS
from crawl_lib.export import ARCS_IN, ARCS_OUT, ExportFolder, newest_export
from crawl_lib.graph import require_new, whole_file
from crawl_lib.scratch import scratch_folder
from crawl_lib.stores import Stores

REVISION = 1
"""Raised with each change of the files' content for equal exports."""
_AGAIN = "delete the folder; the task `graphs` makes it again, of the newest export"


@dataclass(frozen=True)
class GraphsReport:
    """The graphs of an export. `path`: the folder; `counts`: nodes and arcs of each graph, by names."""

    export: str
    path: str
    counts: dict[str, int]
    complete_already: bool


def make_graphs(stores: Stores, *, name: str) -> GraphsReport:
    """Make or find the graphs in `graphs.make` of an export.

    The folder is `<graphs.directory>/<export>/`. Raises PathNotFoundError without the export or its arcs,
    OutputConflictError where the folder has other inputs, DamagedFileError, LockedError, StorageError, StoppedError.
    """
    export, config = ExportFolder(stores, name), stores.config
    pages = ExportPages(export)
    made = set(config.graphs.make)

    def fill(files: Files) -> Said:
        counts: dict[str, int] = {}
        for of, forms in _forms(made).items():
            with scratch_folder(config, f"work-{uuid.uuid4().hex}") as scratch:
                graph = graph_of(pages, of, scratch)
                for form in forms:
                    writer = GraphWriter(stores, files.open, scratch)
                    writer.write(graph, form, f"{config.crawl.name}-{name}-{graph.kind}")
                counts |= _counts(graph)
        return counts

    folder = MadeOnce(stores, f"{_directory(stores)}/{name}", _AGAIN)
    options = {
        "export": name,
        "make": sorted(made),
        "pagerank": asdict(config.pagerank),
        "revision": REVISION,
    }
    said, is_there = folder.make(export.read_inputs().segments, options, fill)
    return GraphsReport(name, folder.path, said["counts"], is_there)


def _forms(made: set[str]) -> dict[str, list[str]]:
    """Return the formats of each graph.

    `made`: `graphs.make`; `bv` is for pages, and for the other graphs named.
    """
    bv = ["bv"] if "bv" in made else []
    groups = {of: ["commoncrawl", *bv] for of in KINDS if of in made}
    return {"pages": bv, **groups} if bv else groups


def _counts(graph: Graph) -> dict[str, int]:
    return {f"{graph.kind}_nodes": len(graph.names), f"{graph.kind}_arcs": graph.out.arcs}


def _directory(stores: Stores) -> str:
    return stores.config.graphs.directory.strip("/")


@dataclass(frozen=True)
class GraphFilesReport:
    """The files on this machine, and the numbers of nodes and arcs of the graph."""

    files: tuple[str, ...]
    format: str
    graph: str
    nodes: int
    arcs: int


def export_graph_files(
    stores: Stores, prefix: Path, *, form: str, of: str, name: str | None, now: datetime
) -> GraphFilesReport:
    """Write a graph to new files of this machine.

    In one of `FORMATS`. `prefix`: begins the names of the files.

    `of`: pages, hosts or domains; `name`: of the export, None for all ends of links; then new segments are taken into
    the table of links (`now`: for the manifest). Raises InputError if a file is there, PathNotFoundError without the
    export or its arcs, DamagedFileError, StorageError, StoppedError: then nothing is left.
    """
    stem = f"{prefix}-{KINDS[of]}"
    files = [Path(one) for one in file_names(stem, form)]
    for file in files:
        require_new(file)
    with ExitStack() as stack:
        pages: NumberedPages
        if name is None:
            pages = stack.enter_context(linked_pages(stores, now))
        else:
            pages = ExportPages(ExportFolder(stores, name))
        scratch = stack.enter_context(scratch_folder(stores.config, f"read-{uuid.uuid4().hex}"))
        graph = graph_of(pages, of, scratch)

        def opened(file: str) -> AbstractContextManager[BinaryIO]:
            return nullcontext(stack.enter_context(whole_file(Path(file))))

        GraphWriter(stores, opened, scratch).write(graph, form, stem)
    return GraphFilesReport(tuple(map(str, files)), form, of, len(graph.names), graph.out.arcs)


class GraphsOutput(FolderOutput):
    """Graphs of exports."""

    def directories(self, stores: Stores) -> list[str]:
        """Name the directory of graphs."""
        return [_directory(stores)]

    def make(self, stores: Stores, *, now: datetime) -> GraphsReport:
        """Make or find the graphs of the newest linked export.

        Raises NoExportError.
        """
        return make_graphs(stores, name=newest_export(stores, having=(ARCS_OUT, ARCS_IN)))


class CommonCrawlOutput(FolderOutput):
    """Common Crawl's index, and WET files, of the iterations that a label names."""

    def directories(self, stores: Stores) -> list[str]:
        """Name the directories of indexes and of WET files."""
        return [INDEX_FOLDER, WET_FOLDER]

    def make(self, stores: Stores, *, now: datetime) -> CommonCrawlReports:
        """Make or find the index and WET files of all iterations."""
        return make_commoncrawl(stores)


COMMONCRAWL_OUTPUT = CommonCrawlOutput("commoncrawl", (SEGMENTS, "text"), AGAIN)
GRAPHS_OUTPUT = GraphsOutput("graphs", ("exports",), _AGAIN)
