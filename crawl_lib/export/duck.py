"""DuckDB for the batch queries: bounded memory, a place to spill, progress, our errors."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import duckdb
import pyarrow as pa

from crawl_lib.errors import StorageError
from crawl_lib.export.places import OnProgress

SQL_DIRECTORY = Path(__file__).resolve().parents[2] / "sql"
LEAST_BYTES = 256 << 20
"""DuckDB keeps a block per thread and file open; with less than this it gives up instead of spilling."""
Result = TypeVar("Result")


def sql_text(name: str) -> str:
    """The query in a file of `sql/`, such as `export/chosen`. Raises StorageError if the installation has lost it."""
    path = SQL_DIRECTORY / f"{name}.sql"
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise StorageError(f"{path}: cannot be read: {error.strerror}") from error


class Duck:
    """One DuckDB connection; made by `open_duck`, used by one thread."""

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self._connection = connection

    def execute(self, statement: str, parameters: Sequence[object] = ()) -> None:
        """Run a statement that answers nothing. Raises StorageError."""
        with _translated():
            self._connection.execute(statement, list(parameters)).fetchall()

    def value(self, query: str) -> int:
        """The one number of a query's answer."""
        with _translated():
            rows = self._connection.execute(query).fetchall()
        return int(rows[0][0])

    def column(self, query: str) -> list[str]:
        """The first column of a small answer."""
        with _translated():
            return [row[0] for row in self._connection.execute(query).fetchall()]

    def stream(
        self, query: str, rows: int, on_progress: OnProgress | None = None, stage: str = ""
    ) -> Iterator[pa.RecordBatch]:
        """A query's answer in batches of about so many rows, in the order of the query.

        Progress is told until the first batch comes, which takes as long as the query's sort.
        """
        with _translated():
            reader = self._connection.sql(query).to_arrow_reader(rows)
            first = self.patiently(lambda: next(reader, None), on_progress, stage)
            if first is not None:
                yield first
                yield from reader

    def copy(self, query: str, target: Path, on_progress: OnProgress | None, stage: str) -> None:
        """Write a query's answer to a local Parquet file, in the order of the query."""
        statement = f"copy ({query.rstrip()}\n) to '{quoted(target)}' (format parquet, compression zstd)"
        self.patiently(lambda: self.execute(statement), on_progress, stage)

    def patiently(self, work: Callable[[], Result], on_progress: OnProgress | None, stage: str) -> Result:
        """Do long work on this connection, and tell its progress in percent twice a second meanwhile."""
        if on_progress is None:
            return work()
        done = threading.Event()
        teller = threading.Thread(target=self._tell, args=(done, on_progress, stage), daemon=True)
        teller.start()
        try:
            return work()
        finally:
            done.set()
            teller.join()

    def _tell(self, done: threading.Event, on_progress: OnProgress, stage: str) -> None:
        while not done.wait(0.5):
            percent = max(0, int(self._connection.query_progress()))
            on_progress({"stage": stage, "done": percent, "total": 100, "unit": "percent"})


@contextmanager
def open_duck(scratch: Path, memory_bytes: int) -> Iterator[Duck]:
    """A DuckDB in memory that spills to `scratch` beyond `memory_bytes`. Raises StorageError."""
    with _translated():
        connection = duckdb.connect()
    try:
        with _translated():
            connection.execute(f"set memory_limit = '{max(memory_bytes, LEAST_BYTES)}B'")
            connection.execute(f"set temp_directory = '{quoted(scratch / 'duckdb')}'")
            connection.execute("set TimeZone = 'UTC'")
            connection.execute("set enable_progress_bar = true; set enable_progress_bar_print = false")
        yield Duck(connection)
    finally:
        connection.close()


def quoted(path: Path) -> str:
    """A path as it stands between quotes in SQL."""
    return str(path).replace("'", "''")


def files_view(duck: Duck, view: str, files: Sequence[Path], empty: pa.Schema) -> None:
    """Make a view over Parquet files with `segment`, the place of a row's file in `files`; `empty`: schema if none."""
    if files:
        names = ", ".join(f"'{quoted(file)}'" for file in files)
        source = f"select *, cast(file_index as integer) as segment from read_parquet([{names}])"
        duck.execute(f"create view {view} as {source}")
        return
    columns = ", ".join(f"{field.name} {_sql_type(field.type)}" for field in empty)
    duck.execute(f"create table {view} ({columns}, segment integer)")


def _sql_type(kind: pa.DataType) -> str:
    names = {"int16": "smallint", "int32": "integer", "int64": "bigint", "string": "varchar", "bool": "boolean"}
    if pa.types.is_timestamp(kind):
        return "timestamptz"
    return names.get(str(kind), "blob")


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except (duckdb.Error, pa.ArrowException) as error:
        raise StorageError(f"DuckDB: {' '.join(str(error).split())}") from error
