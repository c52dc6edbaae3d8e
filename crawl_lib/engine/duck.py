"""DuckDB for the batch queries: bounded memory, a place to spill, progress, our errors."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import duckdb
import pyarrow as pa

from crawl_lib.engine.engine import Engine, Room, in_batches, patiently, percent_of, sql_text
from crawl_lib.errors import NoRoomError, StoppedError, StorageError

_T = TypeVar("_T")
LEAST_BYTES = 256 << 20
"""DuckDB keeps a block per thread and file open; with less than this it gives up instead of spilling."""


class Duck(Engine):
    """One DuckDB connection in memory; made by `open_duck`."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, room: Room) -> None:
        self._connection = connection
        self._storage = room.storage
        self._work = room.work
        self._remote: Any = None

    def execute(self, statement: str) -> None:
        """Run a statement that answers nothing. Raises StorageError, StoppedError."""
        self._do(lambda: self._connection.execute(statement).fetchall())

    def tables(self, name: str, paths: Sequence[str], schema: pa.Schema) -> None:
        columns = schema.append(pa.field("segment", pa.int32())).empty_table()
        if not paths:
            self.values(name, columns)
            return
        self.values(f"{name}_columns", columns)
        files = self._files(paths, "union_by_name=true")
        source = f"select *, cast(file_index as integer) as segment from {files}"
        self.execute(f"create view {name} as from {name}_columns union all by name {source}")

    def table(self, name: str, path: str) -> None:
        self.execute(f"create view {name} as select * from {self._files([path])}")

    def values(self, name: str, rows: pa.Table) -> None:
        with self._translated():
            self._connection.register(f"{name}_given", rows)
        self.execute(f"create table {name} as select * from {name}_given")

    def view(self, name: str, query: str) -> None:
        self.execute(f"create view {name} as {sql_text(query)}")

    def column(self, query: str) -> list[Any]:
        return [row[0] for row in self._do(lambda: self._connection.execute(sql_text(query)).fetchall())]

    def stream(self, query: str, rows: int, stage: str = "") -> Iterator[pa.RecordBatch]:
        tell = percent_of(self._work, stage, self._percent)
        reader = self._do(lambda: self._connection.sql(sql_text(query)).to_arrow_reader(rows), tell)
        first = self._do(lambda: next(reader, None), tell)
        yield from in_batches(self._after(first, reader), rows)

    def interrupt(self) -> None:
        self._connection.interrupt()

    def close(self) -> None:
        self._connection.close()

    def _percent(self) -> int:
        return max(0, int(self._connection.query_progress()))

    def _files(self, paths: Sequence[str], *options: str) -> str:
        """Files of the store as DuckDB reads them: from the local disk, else over the store."""
        names = ", ".join(f"'{quoted(self._address(path))}'" for path in paths)
        return f"read_parquet({', '.join([f'[{names}]', *options])})"

    def _address(self, path: str) -> str:
        local = self._storage.local_path(path)
        if local is not None:
            return str(local)
        if self._remote is None:
            from crawl_lib.engine.remote import StoreFiles  # noqa: PLC0415 - fsspec takes 50 ms

            self._remote = StoreFiles(self._storage)
            with self._translated():
                self._connection.register_filesystem(self._remote)
        return str(self._remote.address(path))

    def _after(self, batch: pa.RecordBatch | None, reader: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
        while batch is not None:
            yield batch
            batch = self._do(lambda: next(reader, None))

    def _do(self, ask: Callable[[], _T], tell: Callable[[], None] | None = None) -> _T:
        """Ask DuckDB something that may take its time."""
        with self._translated():
            return patiently(ask, self._work, self._connection.interrupt, tell)

    @contextmanager
    def _translated(self) -> Iterator[None]:
        with _translated():
            try:
                yield
            except (duckdb.Error, pa.ArrowException) as error:
                if self._work.stop.is_set():  # a file of a remote store that is read no further, for one
                    raise StoppedError(f"DuckDB: stopped as asked: {' '.join(str(error).split())}") from error
                raise


def open_duck(room: Room) -> Duck:
    """A DuckDB in memory that spills to `room.scratch` beyond `room.memory_bytes`. Raises StorageError.

    Its queries raise NoRoomError once they would spill more than `room.max_bytes`, or than the disk has.
    """
    with _translated():
        connection = duckdb.connect()
    try:
        with _translated():
            connection.execute(f"set memory_limit = '{max(room.memory_bytes, LEAST_BYTES)}B'")
            connection.execute(f"set temp_directory = '{quoted(room.scratch / 'duckdb')}'")
            if room.max_bytes is not None:
                connection.execute(f"set max_temp_directory_size = '{room.max_bytes}B'")
            connection.execute("set TimeZone = 'UTC'")
            connection.execute("set enable_progress_bar = true; set enable_progress_bar_print = false")
    except BaseException:
        connection.close()
        raise
    return Duck(connection, room)


def quoted(text: Path | str) -> str:
    """A path as it is written between quotes in SQL."""
    return str(text).replace("'", "''")


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except (duckdb.Error, pa.ArrowException) as error:
        text = " ".join(str(error).split())
        if "max_temp_directory_size" in text:
            raise NoRoomError(
                "scratch.directory: sorting needs more room than scratch.max_bytes, or the disk, gives; give it more,"
                f" and run the stage again (DuckDB: {text.partition(' This limit')[0]})"
            ) from error
        raise StorageError(f"DuckDB: {text}") from error
