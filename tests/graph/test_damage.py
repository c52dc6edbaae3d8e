"""A damaged table of an export is named by the stage that reads it: what follows from it is not made."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from crawl_lib.config import Config
from crawl_lib.errors import DamagedFileError
from crawl_lib.export import ARCS_IN, ARCS_OUT, CONTENT, PAGES, ExportFolder, export_pages
from crawl_lib.graph import export_graph, finalize_export, link_export
from crawl_lib.ranks import rank_export, update_score
from crawl_lib.stores import Stores
from tests.crawldb.tables import NOW, at, leave_version, row_of
from tests.export.conftest import crawl, storage
from tests.export.crawls import CrawlMaker
from tests.ranks.test_exported import exported
from tests.stores import stores_on

__all__ = ["crawl", "storage"]


def flip(path: Path, column: str) -> None:
    """Flip a bit near the end of a column's data."""
    with pq.ParquetFile(path) as file:
        chunk = file.metadata.row_group(0).column(file.schema_arrow.names.index(column))
    begin = (
        chunk.data_page_offset
        if chunk.dictionary_page_offset is None
        else chunk.dictionary_page_offset
    )
    data = bytearray(path.read_bytes())
    data[begin + chunk.total_compressed_size - 4] ^= 4
    path.write_bytes(data)


@pytest.mark.parametrize(
    ("damaged", "column", "missing"),
    [
        (PAGES, "key", [ARCS_OUT, ARCS_IN]),
        (ARCS_OUT, "target", [ARCS_IN]),
        (PAGES, "warc_offset", [CONTENT]),
    ],
)
def test_a_flipped_bit_is_named(
    storage: Any, config: Config, crawl: CrawlMaker, damaged: str, column: str, missing: list[str]
) -> None:
    stores: Stores = stores_on(storage, config)
    folder: ExportFolder = exported(stores, crawl)
    for name in missing:
        storage.delete(folder.file(name))
    flip(Path(config.dfs_primary) / folder.file(damaged), column)
    stage = partial(export_pages, segments=crawl.segments) if CONTENT in missing else link_export
    with pytest.raises(
        DamagedFileError, match=rf"{damaged}.*; move its folder away and run the export again"
    ):
        stage(stores, name="x")
    assert not folder.has(missing[-1])


READERS: dict[str, tuple[str, str, Callable[[Stores], Any], str]] = {
    "finalize": (
        ARCS_IN,
        "target",
        lambda stores: finalize_export(stores, name="x"),
        "krake graph link",
    ),
    "rank": (ARCS_OUT, "source", lambda stores: rank_export(stores, name="x"), "krake graph link"),
    "rank labels": (
        PAGES,
        "url",
        lambda stores: rank_export(stores, name="x"),
        "run the export again",
    ),
    "rank hosts": (
        PAGES,
        "host",
        lambda stores: rank_export(stores, name="x", of="hosts"),
        "run the export again",
    ),
    "score": (
        "pagerank-pages.parquet",
        "rank",
        lambda stores: update_score(stores, export="x", now=at(NOW)),
        "krake graph rank",
    ),
}
"""Who reads a table of an export by Arrow: the table, a column, the call and the remedy that its error names."""


@pytest.mark.parametrize("reader", READERS)
def test_an_error_names_the_file_and_what_to_do(
    reader: str, storage: Any, config: Config, crawl: CrawlMaker
) -> None:
    name, column, ask, remedy = READERS[reader]
    stores = stores_on(storage, config)
    folder = exported(stores, crawl)
    leave_version(stores, 1, [row_of("http://a.example/")])
    if reader == "score":
        rank_export(stores, name="x")
    flip(Path(config.dfs_primary) / folder.file(name), column)
    with pytest.raises(DamagedFileError, match=rf"{name}.*{remedy}"):
        ask(stores)


def test_a_graph_file_names_a_damaged_table(
    storage: Any, config: Config, crawl: CrawlMaker, tmp_path: Path
) -> None:
    stores = stores_on(storage, config)
    folder = exported(stores, crawl)
    flip(Path(config.dfs_primary) / folder.file(ARCS_OUT), "target")
    with pytest.raises(DamagedFileError, match=rf"{ARCS_OUT}.*krake graph link"):
        export_graph(stores, tmp_path / "graph.tsv", name="x", form="tsv", of="pages")
