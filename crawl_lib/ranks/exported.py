"""`krake graph rank`: PageRank of an export's pages, or of their hosts or domains, as a table next to its graph.

Between hosts or domains, links within one do not count, and all links to another count once, as in Common Crawl's web
graphs.
"""

import json
from collections.abc import Iterable
from contextlib import closing, suppress
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from crawl_lib.errors import DamagedFileError, InputError, PathNotFoundError
from crawl_lib.export import ARCS_IN, ARCS_OUT, PAGES, ExportFolder, ExportTable
from crawl_lib.graph import arc_column, both_degrees, grouped
from crawl_lib.ranks.kernel import (
    Floats,
    Inlinks,
    Ints,
    mapped,
    most_rounds,
    page_rank,
    starts_of,
    with_ranks,
)
from crawl_lib.scratch import scratch_folder
from crawl_lib.stopping import Progress
from crawl_lib.stores import Stores
from crawl_lib.urls import domain_of
from crawl_lib.versions import GROUP_ROWS

_COUNTS = ("nodes", "arcs", "rounds", "change")
GRAPHS = ("pages", "hosts", "domains")
_Labels = Iterable[pa.RecordBatch]
_Graph = tuple[Inlinks, Ints, _Labels]
"""Arcs, the out-degree of each node, and the labels of nodes."""
_SAID = b"krake"
"""The key of the table's sources and options in the metadata of the file."""


@dataclass(frozen=True)
class RankReport:
    """Report of a ranking. `nodes`: pages, hosts or domains; `change`: the sum of all changes in the last round;
    `complete_already`: the table existed, with these options."""

    file: str
    nodes: int
    arcs: int
    rounds: int
    change: float
    complete_already: bool


@dataclass(frozen=True)
class RankNote:
    """The note of a table about its making. `made_of`: inputs and options; other fields are those of `RankReport`."""

    made_of: dict[str, Any]
    nodes: int
    arcs: int
    rounds: int
    change: float

    def report(self, file: str, *, complete_already: bool) -> RankReport:
        """Return the report of a ranking. `file`: the table."""
        return RankReport(file, self.nodes, self.arcs, self.rounds, self.change, complete_already)

    def to_text(self) -> str:
        """Return the text in the metadata of the table's file."""
        counts = {name: getattr(self, name) for name in _COUNTS}
        return json.dumps({**self.made_of, **counts}, sort_keys=True)


def rank_table(of: str) -> str:
    """Return the table's name in an export's folder.

    `of`: one of `GRAPHS`.
    """
    return f"pagerank-{of}.parquet"


def rank_export(stores: Stores, *, name: str, of: str = "pages") -> RankReport:
    """Rank the pages, hosts or domains of an export.

    The options are the section `pagerank`. `of`: one of `GRAPHS`. A table with other options is replaced. Memory: 40
    bytes a page, and 16 bytes an arc between hosts or domains; arcs between pages lie in a mapped file, 4 bytes each.
    Raises PathNotFoundError (no such export, or the linker has not run), InputError
    (no pages, or no arcs between them), DamagedFileError naming a table, LockedError, StorageError, StoppedError.
    """
    folder = ExportFolder(stores, name)
    file = folder.file(rank_table(of))
    made_of = {
        "inputs": sha256(folder.read_inputs().to_bytes()).hexdigest(),
        **asdict(stores.config.pagerank),
    }
    folder.require([PAGES, ARCS_OUT, ARCS_IN], "krake graph link")
    with suppress(PathNotFoundError, DamagedFileError):
        said = read_said(folder, of)
        if made_of.items() <= said.made_of.items():
            return said.report(file, complete_already=True)
    with scratch_folder(stores.config, f"export-{name}") as scratch:
        inlinks, out_degrees, labels = (
            _pages(folder, scratch) if of == "pages" else _groups(folder, of)
        )
        if not inlinks.arcs:
            nodes = f"{inlinks.nodes:,} {of if inlinks.nodes != 1 else of.removesuffix('s')}"
            raise InputError(
                f"export {name!r}: has {nodes}, but no link between two of them to rank"
            )
        options = stores.config.pagerank
        progress = Progress(stores, "graph.rank", most_rounds(options) * inlinks.arcs, "arcs")
        ranked = page_rank(inlinks, out_degrees, options, progress)
        progress.end()
        said = RankNote(made_of, inlinks.nodes, inlinks.arcs, ranked.rounds, ranked.change)
        _write(folder, of, said, labels, ranked.ranks)
    return said.report(file, complete_already=False)


def read_said(folder: ExportFolder, of: str = "pages") -> RankNote:
    """Read the metadata of a table.

    Raises PathNotFoundError, DamagedFileError, StorageError.
    """
    ranks = folder.table(rank_table(of))
    with ranks.open() as table:
        said = (table.file.schema_arrow.metadata or {}).get(_SAID)
    try:
        found = json.loads(said or "")
        counts = {name: found.pop(name) for name in _COUNTS}
        return RankNote(found, **counts)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DamagedFileError(
            f"{ranks.path}: does not say how it was made{ranks.remedy}"
        ) from error


def _pages(folder: ExportFolder, scratch: Path) -> _Graph:
    nodes = folder.table(PAGES).rows
    out_degrees, in_degrees = both_degrees(folder, nodes)
    with closing(arc_column(folder.storage, folder.file(ARCS_IN), "source", nodes)) as blocks:
        sources = mapped(scratch / "sources", folder.stores.until_stopped(blocks))
    labels = folder.table(PAGES).batches(["key", "url"])
    return Inlinks(starts_of(in_degrees), sources), out_degrees, labels


def _groups(folder: ExportFolder, of: str) -> _Graph:
    names, _, arcs = grouped(folder, domain_of if of == "domains" else str)
    by_target = np.lexsort((arcs.sources, arcs.targets))
    in_degrees, out_degrees = (
        np.bincount(ends, minlength=len(names)) for ends in (arcs.targets, arcs.sources)
    )
    labels = pa.table({of.removesuffix("s"): names}).to_batches(GROUP_ROWS)
    return Inlinks(starts_of(in_degrees), arcs.sources[by_target]), out_degrees, labels


def _write(folder: ExportFolder, of: str, said: RankNote, labels: _Labels, ranks: Floats) -> None:
    """Write the table, after deleting a table with other options.

    In between, the table is missing.
    """
    file, progress = rank_table(of), Progress(folder.stores, "graph.rank.write", len(ranks), of)
    if folder.has(file):
        folder.storage.delete(folder.file(file))
    schema = ExportTable.SCHEMAS[file].with_metadata({_SAID: said.to_text()})
    tables = (pa.Table.from_batches([batch]) for batch in with_ranks(labels, ranks))
    folder.write_table(file, tables, progress, schema=schema, dictionary=False)
