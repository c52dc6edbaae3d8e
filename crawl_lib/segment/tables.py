"""Rows of `pages` and `links`: plain lists while a page is handled, Arrow when enough are there, Parquet at the end.

A part's rows are an Arrow stream on the disk (cheap, LZ4); `build` reads the streams of all parts and writes each
table as Parquet once. Memory is bounded by one block of rows, whatever the segment's size.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from crawl_lib.durable import fsync_file
from crawl_lib.errors import DamagedFileError, os_error
from crawl_lib.segment.schema import LATER_FIELDS, LINKS_SCHEMA, PAGES_SCHEMA, LinkColumns, PageRow, with_later_fields
from crawl_lib.storage import Storage

if TYPE_CHECKING:
    import pyarrow.parquet as pq

GROUP_ROWS = 50_000
NO_COLUMNS: pa.Schema = pa.schema([])
LINK_BLOCK_ROWS = 16_384
PAGE_BLOCK_ROWS = 4_096
KEY_BYTES = 20
_KEY = pa.binary(KEY_BYTES)
PAGE_FIELDS = tuple("time" if field == "time_us" else field for field in PageRow._fields)
LINK_FIELDS = tuple(LINKS_SCHEMA.names[1:])
DICTIONARY_COLUMNS = {
    "pages": ["host", "ip", "outcome", "mime_declared", "mime_detected", "charset", "truncated", "warc_file"],
    "links": ["source", "target", "target_url", "anchor", "rel", "element", "rule"],
}


@contextmanager
def _translated(path: Path) -> Iterator[None]:
    """Arrow's and the system's errors become ours, naming the file."""
    try:
        yield
    except pa.ArrowException as error:
        raise DamagedFileError(f"{path}: not a table of this version: {error}") from error
    except OSError as error:
        raise os_error(error, path) from error


class RowSpool:
    """An Arrow stream file that grows by blocks."""

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        self._path, self._schema = path, schema
        self.rows = 0
        with _translated(path):
            self._file = path.open("wb")
            options = pa.ipc.IpcWriteOptions(compression="lz4")
            self._stream = pa.ipc.new_stream(self._file, schema, options=options)

    def write(self, arrays: Sequence[pa.Array[Any]]) -> None:
        """Add a block, one array a column of the schema."""
        batch = pa.RecordBatch.from_arrays(list(arrays), schema=self._schema)
        with _translated(self._path):
            self._stream.write_batch(batch)
        self.rows += batch.num_rows

    def close(self, sync: bool = True) -> None:
        """End the stream; durable if `sync`."""
        with _translated(self._path):
            self._stream.close()
            if sync:
                fsync_file(self._file)
            self._file.close()


class PageTable:
    """Collects rows of `pages`."""

    def __init__(self, path: Path) -> None:
        self._spool = RowSpool(path, PAGES_SCHEMA)
        self._rows: list[PageRow] = []

    @property
    def rows(self) -> int:
        """Rows added so far."""
        return self._spool.rows + len(self._rows)

    def add(self, row: PageRow) -> None:
        """One row."""
        self._rows.append(row)
        if len(self._rows) >= PAGE_BLOCK_ROWS:
            self._flush()

    def close(self, sync: bool = True) -> None:
        """Write what is left and end the file."""
        self._flush()
        self._spool.close(sync)

    def _flush(self) -> None:
        if self._rows:
            columns = dict(zip(PAGE_FIELDS, zip(*self._rows, strict=True), strict=True))
            self._rows = []
            self._spool.write([column(columns[field.name], field.type) for field in PAGES_SCHEMA])


class LinkTable:
    """Collects rows of `links`."""

    def __init__(self, path: Path) -> None:
        self._spool = RowSpool(path, LINKS_SCHEMA)
        self._columns: list[list[Any]] = [[] for _ in LINK_FIELDS]
        self._sources: list[bytes] = []

    @property
    def rows(self) -> int:
        """Rows added so far."""
        return self._spool.rows + len(self._columns[0])

    def add(self, links: LinkColumns) -> None:
        """The links of one page."""
        for values, more in zip(self._columns, links[1:], strict=True):
            values.extend(more)
        self._sources.append(links.source * len(links.target))
        if len(self._columns[0]) >= LINK_BLOCK_ROWS:
            self._flush()

    def close(self, sync: bool = True) -> None:
        """Write what is left and end the file."""
        self._flush()
        self._spool.close(sync)

    def _flush(self) -> None:
        columns, self._columns = self._columns, [[] for _ in LINK_FIELDS]
        sources, self._sources = self._sources, []
        if columns[0]:
            rest = [
                column(values, LINKS_SCHEMA.field(name).type) for name, values in zip(LINK_FIELDS, columns, strict=True)
            ]
            self._spool.write([_keys(sources, len(columns[0])), *rest])


def column(values: Sequence[Any], kind: pa.DataType) -> pa.Array[Any]:
    """An Arrow array. Text that is not Unicode (lone surrogates out of a page) is written with `?` in its place."""
    if kind == _KEY and None not in values and set(map(len, values)) <= {KEY_BYTES}:
        return _keys(values, len(values))
    try:
        return pa.array(values, kind)
    except UnicodeEncodeError:
        clean = [None if v is None else v.encode("utf-8", "replace").decode() for v in values]
        return pa.array(clean, kind)


def _keys(values: Iterable[bytes], count: int) -> pa.Array[Any]:
    """An Arrow array of keys that follow each other in `values`: a sixth of the cost of turning each."""
    return pa.FixedSizeBinaryArray.from_buffers(_KEY, count, [None, pa.py_buffer(b"".join(values))])


@contextmanager
def open_parquet(
    storage: Storage, path: str, schema: pa.Schema = NO_COLUMNS, remedy: str = ""
) -> Iterator[ParquetTable]:
    """A Parquet file of the store, read in place. It has these columns and perhaps more; those of `LATER_FIELDS` may be
    missing. `remedy`: ends its errors.

    Raises PathNotFoundError, StorageError; DamagedFileError, since what its footer says is not believed.
    """
    import pyarrow.parquet as pq  # noqa: PLC0415 - not for fetching processes

    with storage.open_seekable(path) as file:
        with parquet_errors(path, remedy):
            table = pq.ParquetFile(file, page_checksum_verification=True)
        with table:
            with parquet_errors(path, remedy):
                there = table.schema_arrow
                for field in schema:
                    if field.name not in there.names and field.name not in LATER_FIELDS:
                        raise pa.ArrowInvalid(f"has no column {field.name}: it is another table")
                    if field.name in there.names and there.field(field.name).type != field.type:
                        raise pa.ArrowInvalid(f"its column {there.field(field.name)} should be {field}")
            yield ParquetTable(table, path, remedy, frozenset(field.name for field in schema if not field.nullable))


@dataclass(frozen=True)
class ParquetTable:
    """An open Parquet file, see `open_parquet`. Raises DamagedFileError."""

    file: pq.ParquetFile
    where: str
    remedy: str
    never_null: frozenset[str]

    @property
    def rows(self) -> int:
        """How many rows it says it has."""
        return int(self.file.metadata.num_rows)

    @property
    def names(self) -> list[str]:
        """Names of its columns."""
        return self.file.schema_arrow.names

    def batches(self, rows: int, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        """All rows in batches, all columns or some; text is Unicode, and as many rows as it says."""
        read = 0
        batches = self.file.iter_batches(rows, columns=None if columns is None else list(columns))
        while True:
            with parquet_errors(self.where, self.remedy):
                batch = next(batches, None)
                if batch is None:
                    break
                batch.validate(full=True)
                for column in self.never_null.intersection(batch.schema.names):
                    if batch.column(column).null_count:
                        raise pa.ArrowInvalid(f"column {column} has nulls")
            read += batch.num_rows
            yield batch
        if read != self.rows:
            raise DamagedFileError(f"{self.where}: says {self.rows} rows, and has {read}{self.remedy}")


@contextmanager
def parquet_errors(where: str, remedy: str = "") -> Iterator[None]:
    """What Arrow says of a file that is no table, in one of its many kinds of errors, becomes DamagedFileError."""
    try:
        yield
    except OSError as error:
        if error.errno is not None:
            raise os_error(error, where, "cannot be read") from error
        raise DamagedFileError(f"{where}: cannot be read as a table: {error}{remedy}") from error
    except (pa.ArrowException, ValueError, LookupError, TypeError, OverflowError, MemoryError) as error:
        raise DamagedFileError(f"{where}: cannot be read as a table: {error}{remedy}") from error


def read_blocks(path: Path) -> Iterator[pa.RecordBatch]:
    """The blocks of a part's Arrow stream. Raises DamagedFileError naming the file."""
    with _translated(path), path.open("rb") as file, pa.ipc.open_stream(file) as stream:
        yield from stream


def write_parquet(path: Path, schema: pa.Schema, blocks: Iterable[pa.RecordBatch]) -> int:
    """Write one table of all these rows, in row groups of about 50,000; durable. Returns the number of rows."""
    import pyarrow.parquet as pq  # noqa: PLC0415 - only the process that builds the segment needs it

    rows = 0
    dictionary = DICTIONARY_COLUMNS["links" if schema is LINKS_SCHEMA else "pages"]
    with _translated(path), path.open("wb") as file:
        writer = pq.ParquetWriter(
            file,
            schema,
            compression="zstd",
            use_dictionary=dictionary,  # type: ignore[arg-type]
            write_page_checksum=True,
        )
        with writer:
            for group in _groups(blocks, schema):
                rows += group.num_rows
                writer.write_table(group, row_group_size=group.num_rows)
        fsync_file(file)
    return rows


def _groups(blocks: Iterable[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.Table]:
    """Blocks put together to row groups; those of a spool that an older version left have all columns too."""
    held: list[pa.RecordBatch] = []
    rows = 0
    for block in blocks:
        held.append(with_later_fields(block, schema.names))
        rows += block.num_rows
        if rows >= GROUP_ROWS:
            yield pa.Table.from_batches(held)
            held, rows = [], 0
    if rows:  # blocks may have none
        yield pa.Table.from_batches(held)
