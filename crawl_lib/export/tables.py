"""Parquet files of an export: written from a stream, read where they lie."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain

import pyarrow as pa
import pyarrow.parquet as pq

from crawl_lib.export.folder import ARCS_IN, ARCS_OUT, ExportFolder
from crawl_lib.export.progress import Progress
from crawl_lib.segment import NO_COLUMNS, open_parquet
from crawl_lib.storage import Storage

_ENDS = [pa.field(name, pa.int32(), nullable=False) for name in ("source", "target")]
ARC_SCHEMAS = {ARCS_OUT: pa.schema(_ENDS), ARCS_IN: pa.schema(_ENDS[::-1])}


def write_table(
    folder: ExportFolder,
    name: str,
    schema: pa.Schema,
    rows: Iterable[pa.Table],
    progress: Progress,
    *,
    dictionary: bool = True,
) -> None:
    """Write a Parquet file of an export: each of `rows` becomes a row group. `dictionary`: as Parquet understands it.

    The file is begun when the first rows are there: a server would not wait for it while they are sorted.
    """
    waiting = iter(rows)
    first = next(waiting, None)
    with (
        folder.writing(name) as file,
        pq.ParquetWriter(
            file, schema, compression="zstd", use_dictionary=dictionary, write_page_checksum=True
        ) as writer,
    ):
        for table in chain([] if first is None else [first], waiting):
            writer.write_table(table.cast(schema), row_group_size=max(1, len(table)))
            progress.add(len(table))
    progress.end()


def row_count(storage: Storage, path: str, schema: pa.Schema = NO_COLUMNS) -> int:
    """How many rows a Parquet file of the store has; only its end is read. Raises what `open_parquet` does."""
    with open_parquet(storage, path, schema) as table:
        return table.rows
