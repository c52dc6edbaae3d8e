"""A damaged table of an export is named by the stage that reads it: what follows from it is not made."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from crawl_lib.config import Config
from crawl_lib.errors import DamagedFileError
from crawl_lib.export import ARCS_IN, ARCS_OUT, CONTENT, PAGES, ExportFolder, export_pages
from crawl_lib.graph import link_export
from crawl_lib.stores import Stores
from tests.export.conftest import crawl, storage
from tests.export.crawls import CrawlMaker
from tests.ranks.test_exported import exported
from tests.stores import stores_on

__all__ = ["crawl", "storage"]


def flip(path: Path, column: str) -> None:
    """Flip a bit near the end of a column's data."""
    with pq.ParquetFile(path) as file:
        chunk = file.metadata.row_group(0).column(file.schema_arrow.names.index(column))
    begin = chunk.data_page_offset if chunk.dictionary_page_offset is None else chunk.dictionary_page_offset
    data = bytearray(path.read_bytes())
    data[begin + chunk.total_compressed_size - 4] ^= 4
    path.write_bytes(data)


@pytest.mark.parametrize(
    ("damaged", "column", "missing"),
    [(PAGES, "key", [ARCS_OUT, ARCS_IN]), (ARCS_OUT, "target", [ARCS_IN]), (PAGES, "warc_offset", [CONTENT])],
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
    with pytest.raises(DamagedFileError, match=rf"{damaged}.*; move its folder away and run the export again"):
        stage(stores, name="x")
    assert not folder.has(missing[-1])
