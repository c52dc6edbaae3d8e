"""Parquet files of the DFS, read in place: columns are compared with a schema, and damage is one error."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from crawl_lib.dataclass import dataclass
from crawl_lib.errors import DamagedFileError, PathNotFoundError, os_error
from crawl_lib.storage import Storage

if TYPE_CHECKING:
    import pyarrow.parquet as pq

NO_COLUMNS: pa.Schema = pa.schema([])
BATCH_ROWS = 1 << 16
LATER_FIELDS = (
    *("error", "parse_error", "retry_at", "refers_to", "payload_digest"),
    *("image_url", "author", "published", "modified", "language", "hop"),
)
"""Columns of `pages` that files of older versions lack: there each value is null."""


@contextmanager
def open_parquet(
    storage: Storage, path: str, schema: pa.Schema = NO_COLUMNS, remedy: str = ""
) -> Iterator[ParquetTable]:
    """Open a Parquet file of the store, read in place.

    The file has the columns of `schema` and perhaps more; columns of `LATER_FIELDS` may be missing. `remedy`: the end
    of error messages. Raises PathNotFoundError, StorageError; DamagedFileError, since the footer is not trusted.
    """
    import pyarrow.parquet as pq  # noqa: PLC0415 - not for fetching processes

    try:
        opened = storage.open_seekable(path)
    except PathNotFoundError as error:
        raise PathNotFoundError(f"{path}: is not there{remedy}") from error
    with opened as file:
        with parquet_errors(path, remedy):
            table = pq.ParquetFile(file, page_checksum_verification=True)
        with table:
            with parquet_errors(path, remedy):
                there = table.schema_arrow
                for field in schema:
                    if field.name not in there.names and field.name not in LATER_FIELDS:
                        raise pa.ArrowInvalid(f"has no column {field.name}: it is another table")
                    if field.name in there.names and there.field(field.name).type != field.type:
                        raise pa.ArrowInvalid(
                            f"its column {there.field(field.name)} should be {field}"
                        )
            yield ParquetTable(
                table, path, remedy, frozenset(field.name for field in schema if not field.nullable)
            )


def parquet_batches(
    storage: Storage, path: str, schema: pa.Schema, columns: Sequence[str], remedy: str = ""
) -> Iterator[pa.RecordBatch]:
    """Yield some columns of a Parquet file.

    Batches have `BATCH_ROWS`. Raises as `open_parquet` does.
    """
    with open_parquet(storage, path, schema, remedy) as table:
        yield from table.batches(BATCH_ROWS, columns)


@dataclass(frozen=True)
class ParquetTable:
    """An open Parquet file, see `open_parquet`. Raises DamagedFileError."""

    file: pq.ParquetFile
    where: str
    remedy: str
    never_null: frozenset[str]

    @property
    def rows(self) -> int:
        """The number of rows by the footer."""
        return int(self.file.metadata.num_rows)

    @property
    def names(self) -> list[str]:
        """Names of the columns."""
        return self.file.schema_arrow.names

    @property
    def groups(self) -> int:
        """The number of row groups."""
        return int(self.file.num_row_groups)

    def last_key(self, number: int) -> bytes | None:
        """Return a row group's largest `key`, as the footer says.

        None: the footer has no such value. No checksum protects the footer: a reader has to compare with keys.
        """
        with parquet_errors(self.where, self.remedy):
            found = self.file.metadata.row_group(number).column(self.names.index("key")).statistics
            largest = found.max if found is not None and found.has_min_max else None
        return largest if isinstance(largest, bytes) else None

    def group(self, number: int, columns: Sequence[str] | None = None) -> pa.Table:
        """Read one row group with the checksums of its pages.

        `columns`: the columns to read; None: all.
        """
        with parquet_errors(self.where, self.remedy):
            group = self.file.read_row_group(
                number, None if columns is None else list(columns), use_threads=False
            )
            group.validate(full=True)
            self._require_values(group)
        return group

    def _require_values(self, rows: pa.Table | pa.RecordBatch) -> None:
        for column in self.never_null.intersection(rows.schema.names):
            if rows.column(column).null_count:
                raise pa.ArrowInvalid(f"column {column} has nulls")

    def batches(self, rows: int, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        """Yield all rows in batches, all columns or some.

        Every batch is validated. Raises DamagedFileError if the footer promises another number of rows.
        """
        read = 0
        # Arrow's threads would wait for each other, since Python reads the file: a fifth more CPU, and no time saved.
        batches = self.file.iter_batches(
            rows, columns=None if columns is None else list(columns), use_threads=False
        )
        while True:
            with parquet_errors(self.where, self.remedy):
                batch = next(batches, None)
                if batch is None:
                    break
                batch.validate(full=True)
                self._require_values(batch)
            read += batch.num_rows
            yield batch
        if read != self.rows:
            raise DamagedFileError(
                f"{self.where}: says {self.rows} rows, and has {read}{self.remedy}"
            )


@contextmanager
def parquet_errors(where: str, remedy: str = "") -> Iterator[None]:
    """Turn Arrow's many errors about malformed files into DamagedFileError."""
    try:
        yield
    except OSError as error:
        if error.errno is not None:
            raise os_error(error, where, "cannot be read") from error
        raise DamagedFileError(f"{where}: cannot be read as a table: {error}{remedy}") from error
    except (
        pa.ArrowException,
        ValueError,
        LookupError,
        TypeError,
        OverflowError,
        MemoryError,
    ) as error:
        raise DamagedFileError(f"{where}: cannot be read as a table: {error}{remedy}") from error


def plain_row(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row for JSON.

    Keys are in hex, times in ISO 8601.
    """
    return {column: _plain(value) for column, value in row.items()}


def _plain(value: object) -> object:
    if isinstance(value, bytes):
        return value.hex()
    return value.isoformat() if isinstance(value, datetime) else value
