"""DuckDB for the batch queries: bounded memory, a place to spill, progress, our errors."""

import re
import shutil
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from itertools import chain, count, pairwise
from pathlib import Path
from typing import Any, TypeVar

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from crawl_lib.engine.engine import Engine, Workplace, in_batches, patiently, sql_text
from crawl_lib.engine.numbers import KEY_BYTES, keys_of
from crawl_lib.errors import DamagedFileError, NoRoomError, StoppedError, StorageError, os_errors
from crawl_lib.parquet import open_parquet
from crawl_lib.stopping import Work

_T = TypeVar("_T")
LEAST_SHARES, MOST_SHARES = 16, 64
"""The least and most shares of the keys: a kept table has a file for each share, all open at once."""
MOST_BLOCK_BYTES = 128 << 20
_READ = re.compile(r"--.*|\b(?:from|join)\s+(\w+)")
"""The tables of a query, without comments."""
BLAME_ROWS, BLOCK_ROWS = 1 << 14, 1 << 16
LEAST_BYTES = 256 << 20
"""DuckDB keeps a block per thread and file open; with less memory DuckDB gives up instead of spilling."""


class Duck(Engine):
    """One DuckDB connection in memory; made by `open_duck`."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, room: Workplace) -> None:
        self._connection, self._storage, self._work = connection, room.storage, room.work
        self._scratch, self._memory_bytes = room.scratch, room.memory_bytes
        self._are_remote = False
        self._shares = 0  # of the keys, by which tables are kept; 0: they are not divided
        self._given: dict[
            str, None
        ] = {}  # files of the store, in the order in which they were given
        self._views: dict[
            str, str
        ] = {}  # by name: part of each statement that reads them, so they are planned once
        self._numbers = count(1)
        self._thread = ThreadPoolExecutor(
            1
        )  # one for all queries: to start one takes longer than a small query

    def execute(self, statement: str) -> None:
        """Run a statement that answers nothing. Raises StorageError, StoppedError."""
        self._do(lambda: self._connection.execute(statement).fetchall())

    def tables(self, name: str, paths: Sequence[str | None], schema: pa.Schema) -> None:
        columns = pa.Table.from_batches([], schema.append(pa.field("segment", pa.int32())))
        there = {number: path for number, path in enumerate(paths) if path is not None}
        if not there:
            self.values(name, columns)
            return
        self.values(f"{name}_columns", columns)
        files = self._files([*there.values()], "union_by_name=true")
        number = "cast(file_index as integer)"
        place = (
            number if len(there) == len(paths) else f"{[*there]}[{number} + 1]"
        )  # lists begin with 1
        source = f"select *, {place} as segment from {files}"
        self.define(name, f"from {name}_columns union all by name {source}")

    def table(self, name: str, path: str) -> None:
        self.define(name, f"select * from {self._files([path])}")

    def values(self, name: str, rows: pa.Table) -> None:
        """Make a table of given rows, by a file.

        Giving DuckDB an Arrow table would load pandas, which takes 0.2 s of CPU.
        """
        place = (
            self._scratch / "values" / f"{name}-{next(self._numbers)}.parquet"
        )  # no name twice: DuckDB may cache
        with os_errors(place, "cannot be written"):
            place.parent.mkdir(exist_ok=True)
            pq.write_table(rows, place)
        self.local_table(name, place)

    def local_table(self, name: str, path: Path) -> None:
        self.define(name, f"from read_parquet('{quoted(path)}')")

    def define(self, name: str, text: str) -> None:
        self._views[name] = text

    def column(self, query: str) -> list[Any]:
        rows = self._do(lambda: self._connection.execute(self._whole(query)).fetchall())
        return [row[0] for row in rows]

    def stream(self, query: str, rows: int, stage: str = "") -> Iterator[pa.RecordBatch]:
        reader = self._do(
            lambda: self._connection.sql(self._whole(query)).to_arrow_reader(rows), stage
        )
        first = self._do(lambda: next(reader, None), stage)
        rest = iter(lambda: self._do(lambda: next(reader, None)), None)
        yield from in_batches(chain([first] if first is not None else [], rest), rows)

    def keep(self, name: str, query: str, stage: str = "", *, more: bool = False) -> None:
        folder, text = self._scratch / "kept" / name, self._whole(query)
        if not more:
            shutil.rmtree(folder, ignore_errors=True)
            if self._shares:  # where there are no rows, there is no file
                self.execute(
                    f"create or replace table {name}_none as select * from ({text}) limit 0"
                )
        number = sum(1 for _ in folder.iterdir()) if more else 0
        with os_errors(folder, "cannot be made"):
            folder.mkdir(parents=True, exist_ok=True)
        if self._shares:
            self._divide(folder, number, text, stage)
        else:
            copy = f"copy ({text}) to '{quoted(folder / f'{number}.parquet')}' (format parquet, compression snappy)"
            self._do(lambda: self._connection.execute(copy).fetchall(), stage)
        files = f"read_parquet('{quoted(folder)}/*.parquet')"
        self.define(name, f"from {files if any(folder.iterdir()) else f'{name}_none'}")

    def _divide(self, folder: Path, number: int, text: str, stage: str) -> None:
        """Write an answer to a file for each share of the keys.

        DuckDB's `partition_by` holds the whole answer first, and spills it.
        """
        reader = self._do(lambda: self._connection.sql(text).to_arrow_reader(BLOCK_ROWS), stage)
        batches = iter(lambda: self._do(lambda: next(reader, None), stage), None)
        with _translated(self._work), os_errors(folder, "cannot be written"), ExitStack() as opened:
            writers: dict[int, pq.ParquetWriter] = {}
            for rows in _blocks(batches, min(self._memory_bytes // 16, MOST_BLOCK_BYTES)):
                first_bytes = keys_of(rows.column("key").cast(pa.binary(KEY_BYTES))).view(np.uint8)[
                    ::KEY_BYTES
                ]
                shares = (first_bytes.astype(np.int32) * self._shares >> 8).astype(np.uint8)
                rows_by_share = rows.take(np.argsort(shares, kind="stable"))
                counts = np.bincount(shares, minlength=self._shares)
                for share, (count, end) in enumerate(
                    zip(counts.tolist(), np.cumsum(counts).tolist(), strict=True)
                ):
                    if count and share not in writers:
                        path = folder / f"{number}-{share}.parquet"
                        writer = pq.ParquetWriter(path, rows.schema, compression="lz4")
                        writers[share] = opened.enter_context(writer)
                    if count:
                        writers[share].write_batch(rows_by_share.slice(end - count, count))

    def shares(self, size_bytes: int) -> list[str]:
        self._shares = 0
        if size_bytes <= self._memory_bytes:
            return ["true"]
        count = LEAST_SHARES
        while size_bytes / count > self._memory_bytes / 2 and count < MOST_SHARES:
            count *= 2
        self._shares = count
        ends = [f"unhex('{256 // count * number:02X}')" for number in range(count)]
        return [f"key >= {first} and key < {end}" for first, end in pairwise(ends)] + [
            f"key >= {ends[-1]}"
        ]

    def interrupt(self) -> None:
        self._connection.interrupt()

    def close(self) -> None:
        self._connection.close()
        self._thread.shutdown()

    def _whole(self, query: str) -> str:
        """Return a query's text after those of its views.

        A view follows the views that it reads.
        """
        text = sql_text(query)
        views: dict[str, str] = {}
        self._collect(text, views)
        parts = [f"{name} as not materialized (\n{view}\n)" for name, view in views.items()]
        return f"with {', '.join(parts)}\n{text}" if parts else text

    def _collect(self, text: str, views: dict[str, str]) -> None:
        for name in _READ.findall(text):
            if name in self._views and name not in views:
                self._collect(self._views[name], views)
                views[name] = self._views[name]

    def _percent(self) -> int:
        return max(0, int(self._connection.query_progress()))

    def _files(self, paths: Sequence[str], *options: str) -> str:
        """Return the store's files for DuckDB.

        Files are on the local disk, or read over the store.
        """
        self._given |= dict.fromkeys(paths)
        names = ", ".join(
            f"'{quoted(self._storage.local_path(path) or self._remote(path))}'" for path in paths
        )
        return f"read_parquet({', '.join([f'[{names}]', *options])})"

    def _remote(self, path: str) -> str:
        from crawl_lib.engine.remote import SCHEME, StoreFiles  # noqa: PLC0415 - fsspec takes 50 ms

        if not self._are_remote:
            with _translated(self._work):
                self._connection.register_filesystem(StoreFiles(self._storage))
            self._are_remote = True
        return f"{SCHEME}://{path}"

    def _do(self, ask: Callable[[], _T], stage: str = "") -> _T:
        """Ask DuckDB a question that may take long."""
        try:
            with _translated(self._work):
                return patiently(
                    self._thread,
                    ask,
                    self._work,
                    self._connection.interrupt,
                    stage=stage,
                    percent=self._percent,
                )
        except StorageError as error:
            if type(error) is StorageError and not isinstance(
                error.__cause__, duckdb.OutOfMemoryException
            ):
                self._blame(error)
            raise

    def _blame(self, error: StorageError) -> None:
        """Raise an error with the damaged file's name, if found.

        Arrow finds the name: DuckDB does not always name the file.
        """
        for path in self._work.until_stopped(self._given):
            try:
                with open_parquet(self._storage, path) as table:
                    deque(table.batches(BLAME_ROWS), maxlen=0)
            except DamagedFileError as damage:
                raise StorageError(
                    f"{damage}; run this again, and if it stays `krake fsck` ({error})"
                ) from error
        if isinstance(error.__cause__, duckdb.IOException):
            raise StorageError(
                f"{error}; run this again, and if it stays `krake fsck`"
            ) from error.__cause__


def _blocks(batches: Iterable[pa.RecordBatch], most_bytes: int) -> Iterator[pa.RecordBatch]:
    """Join batches to blocks of about this many bytes."""
    held, size = list[pa.RecordBatch](), 0
    for batch in chain(batches, [None]):
        if batch is not None:
            held.append(batch)
            size += batch.nbytes
        if held and (batch is None or size >= most_bytes):
            yield pa.Table.from_batches(held).combine_chunks().to_batches()[0]
            held, size = [], 0


def open_duck(room: Workplace) -> Duck:
    """Open a DuckDB in memory that spills to disk.

    DuckDB spills to `room.scratch` beyond `room.memory_bytes`. Raises StorageError. Queries raise NoRoomError if
    spilling would need more than `room.max_bytes`, or more than the disk has.
    """
    with _translated(room.work):
        connection = duckdb.connect()
        connection.execute(f"set memory_limit = '{max(room.memory_bytes, LEAST_BYTES)}B'")
        connection.execute(f"set temp_directory = '{quoted(room.scratch / 'duckdb')}'")
        if room.max_bytes is not None:
            connection.execute(f"set max_temp_directory_size = '{room.max_bytes}B'")
        connection.execute("set TimeZone = 'UTC'")
        connection.execute("set enable_progress_bar = true; set enable_progress_bar_print = false")
    return Duck(connection, room)


def quoted(text: Path | str) -> str:
    """Quote a path for SQL."""
    return str(text).replace("'", "''")


@contextmanager
def _translated(work: Work) -> Iterator[None]:
    try:
        yield
    except (duckdb.Error, pa.ArrowException) as error:
        text = " ".join(str(error).split())
        if work.stop.is_set():  # a file of a remote store that is read no further, for one
            raise StoppedError(f"DuckDB: stopped as asked: {text}") from error
        if "max_temp_directory_size" in text:
            raise NoRoomError(
                "scratch.directory: sorting needs more room than scratch.max_bytes, or the disk, gives; give it more,"
                f" and run the stage again (DuckDB: {text.partition(' This limit')[0]})"
            ) from error
        raise StorageError(f"DuckDB: {text}") from error
