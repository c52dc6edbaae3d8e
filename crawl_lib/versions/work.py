"""The place where a version or an answer is made: an engine, and a folder of tables that is deleted afterwards.

Tables of a version are in a hidden folder of the store. `krake sweep` knows the folder by the number of the version. An
answer to people has no number, so tables of an answer are in the scratch of this machine, and the next process there
deletes the tables of a killed process.
"""

import re
import time
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import chain, islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from crawl_lib.engine import Engine, Workplace, open_engine
from crawl_lib.scratch import scratch_folder
from crawl_lib.storage import LocalStorage, Storage
from crawl_lib.stores import Stores
from crawl_lib.versions.version import GROUP_ROWS, Versions

TIME, SCORE = pa.timestamp("us", "UTC"), pa.decimal128(18, 9)
_TYPES: "dict[str, pa.DataType]" = {
    "text": pa.string(),
    "bytes": pa.binary(),
    "flag": pa.bool_(),
    "int32": pa.int32(),
    "int64": pa.int64(),
    "time": TIME,
    "score": SCORE,
    "number": pa.float64(),
    "key": pa.binary(20),
}

_TABLES = "tables"
_ANSWER = re.compile(r"\.read-([0-9]{1,15})-[0-9a-f]{32}")
_LONGEST_ANSWER_S = 7 * 86_400.0
"""No answer takes so long: a hidden folder of an older answer is left over."""


def answer_folder(stores: Stores, now_s: float) -> str:
    """Name a hidden folder of the store for an answer.

    The answer begins now, in POSIX seconds.
    """
    return stores.crawl.at(f".read-{int(now_s)}-{uuid.uuid4().hex}")


def is_answer_over(name: str, now_s: float) -> bool:
    """Say whether a hidden name belongs to an ended answer.

    The answer may have been killed.
    """
    found = _ANSWER.fullmatch(name)
    return found is not None and int(found[1]) + _LONGEST_ANSWER_S < now_s


@dataclass(frozen=True)
class VersionWork:
    """The making of a version, or of an answer.

    `folder`: where its own tables are, relative to the root of `tables`; `scratch`: a folder of this machine.
    """

    stores: Stores
    engine: Engine
    tables: Storage
    folder: str
    scratch: Path

    @classmethod
    @contextmanager
    def of(cls, versions: Versions, number: int) -> "Iterator[VersionWork]":
        """Open the engine for a version of that number.

        Raises as `at` does.
        """
        with cls.at(versions.stores, versions.hidden(number)) as work:
            yield work

    @classmethod
    @contextmanager
    def to_read(cls, stores: Stores) -> "Iterator[VersionWork]":
        """Open the engine for an answer.

        A killed process leaves nothing on the store. Raises as `at` does. Only Spark on many machines (`spark.dfs_url`)
        writes to the store, below a hidden name with the time in it.
        """
        with cls.at(stores, answer_folder(stores, time.time())) as work:
            yield replace(work, tables=LocalStorage(work.scratch), folder=_TABLES)

    @classmethod
    @contextmanager
    def at(cls, stores: Stores, folder: str) -> "Iterator[VersionWork]":
        """Open the engine for a block, with tables.

        Raises ConfigError, StorageError, NoRoomError.
        """
        limits = stores.config.scratch
        try:
            with scratch_folder(stores.config, f"work-{uuid.uuid4().hex}") as scratch:
                room = Workplace(
                    stores.storage,
                    scratch,
                    f"{folder}/engine",
                    limits.memory_bytes,
                    stores,
                    limits.max_bytes,
                )
                with open_engine(stores.secrets.dfs.applied(stores.config), room) as engine:
                    yield cls(stores, engine, stores.storage, folder, scratch)
        finally:
            stores.storage.delete(folder)

    def ask(self, name: str, schema: pa.Schema, query: str, stage: str) -> None:
        """Make a table of a query's answer.

        The query is asked once then, however often the table is read.
        """
        answer = self.engine.stream(query, GROUP_ROWS, stage)
        self.keep(name, schema, (pa.Table.from_batches([batch]) for batch in answer))

    def keep(self, name: str, schema: pa.Schema, tables: Iterable[pa.Table]) -> str | None:
        """Make a table of rows by a file; return its path.

        There may be many rows.
        """
        if path := self.write(name, schema, tables):
            if self.tables is self.stores.storage:
                self.engine.table(name, path)
            else:
                self.engine.local_table(name, self.scratch / path)
        else:
            self.engine.values(name, pa.Table.from_batches([], schema))
        return path

    def keep_rows(self, name: str, schema: pa.Schema, rows: Iterator[dict[str, Any]]) -> str | None:
        """Make a table of rows as `keep` does, in pieces.

        A piece has a bounded number of rows.
        """
        blocks = iter(lambda: list(islice(rows, GROUP_ROWS)), [])
        return self.keep(name, schema, (table_of(some, schema) for some in blocks))

    def write(self, name: str, schema: pa.Schema, tables: Iterable[pa.Table]) -> str | None:
        """Write rows to a file; return its path.

        The store is `self.tables`; None without rows.
        """
        waiting = iter(tables)
        first = list(islice(waiting, 1))
        if not first:
            return None
        path = f"{self.folder}/{name}.parquet"
        # Without dictionaries: most texts are URLs, for which these take twice as long, and more room. Without
        # statistics: where a column has one text and nulls, DuckDB 1.5 takes each row for a null (`is null`).
        options: dict[str, Any] = {
            "compression": "zstd",
            "use_dictionary": False,
            "write_statistics": False,
        }
        with (
            self.tables.open_write(path) as file,
            pq.ParquetWriter(file, schema, **options) as writer,
        ):
            for rows in chain(first, waiting):
                writer.write_table(rows.cast(schema))
        return path


def columns(text: str) -> pa.Schema:
    """Return the columns of a table.

    Such as `key key!, target bytes`; `!`: never null.
    """
    pairs = (words.split() for words in text.split(","))
    fields: list[pa.Field[Any]] = [
        pa.field(name, _TYPES[kind.rstrip("!")], nullable=not kind.endswith("!"))
        for name, kind in pairs
    ]
    return pa.schema(fields)


def table_of(rows: Sequence[dict[str, Any]], schema: pa.Schema) -> pa.Table:
    """Return a small table."""
    return pa.Table.from_pylist(list(rows), schema)
