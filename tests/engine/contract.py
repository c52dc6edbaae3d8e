"""What every engine must do, whichever runs the queries: a suite for DuckDB here, and for Spark in `tests/cluster`.

A class of tests that inherits it has a fixture `engine`: an `Engine` over the fixture `storage`.
"""

from __future__ import annotations

import itertools
import random
import uuid
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from crawl_lib.engine import Engine
from crawl_lib.errors import StorageError
from crawl_lib.segment.schema import PAGES_SCHEMA
from crawl_lib.storage import Storage

# Where signed and unsigned bytes, short and long keys, and texts of other orders than their bytes differ.
EDGES = [
    b"",
    b"\0",
    b"\0\0",
    b"\x7f",
    b"\x7f\xff",
    b"\x80",
    b"\x80\0",
    b"\xff",
    b"\xff\xff",
    b"a",
    b"a\0",
    b"ab",
]
WORDS = [
    "",
    "a",
    "A",
    "b",
    "Z",
    "é",
    "z",
    "ß",
    "ss",
    "\uffff",
    "\U0001f600",
    "10",
    "9",
    "a b",
    "a\0",
]


def put(storage: Storage, path: str, table: pa.Table) -> str:
    """Write a Parquet file to a store."""
    with storage.open_write(path) as file:
        pq.write_table(table, file, row_group_size=50)
    return path


class EngineContract:
    """The rules of `crawl_lib.engine.engine.Engine`."""

    @pytest.fixture
    def write_query(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], str]:
        """Takes a query's text and gives its name; names and views are used once, as Spark's outlive a test."""
        monkeypatch.setattr("crawl_lib.engine.engine.SQL_DIRECTORY", tmp_path)

        def write(text: str) -> str:
            name = uuid.uuid4().hex
            (tmp_path / f"{name}.sql").write_text(text)
            return name

        return write

    @staticmethod
    def name() -> str:
        """A name of a table that no other test uses."""
        return f"t{uuid.uuid4().hex}"

    @staticmethod
    def rows(engine: Engine, query: str, rows: int = 64) -> list[dict[str, Any]]:
        """The rows of an answer in order."""
        return [row for batch in engine.stream(query, rows) for row in batch.to_pylist()]

    @pytest.mark.parametrize("seed", range(3))
    def test_binary_columns_are_ordered_by_unsigned_bytes(self, engine, storage, write_query, seed):
        rng = random.Random(seed)
        keys = [
            *EDGES,
            *(rng.randbytes(20) for _ in range(400)),
            *(rng.randbytes(rng.randint(1, 3)) for _ in range(99)),
        ]
        rng.shuffle(keys)
        keys = list(dict.fromkeys(keys))
        table = self.name()
        engine.table(
            table, put(storage, f"{table}.parquet", pa.table({"key": pa.array(keys, pa.binary())}))
        )
        found = self.rows(engine, write_query(f"select key from {table} order by key"))
        assert [row["key"] for row in found] == sorted(keys)

    def test_keys_of_a_fixed_size_keep_their_bytes(self, engine, storage, write_query):
        keys = [bytes([first]) * 20 for first in (0, 1, 127, 128, 255)]
        table = self.name()
        schema = pa.schema([pa.field("key", pa.binary(20), nullable=False)])
        engine.table(
            table,
            put(
                storage,
                f"{table}.parquet",
                pa.Table.from_pylist([{"key": k} for k in keys], schema),
            ),
        )
        found = self.rows(engine, write_query(f"select key from {table} order by key desc"))
        assert [row["key"] for row in found] == keys[::-1]

    def test_texts_are_ordered_by_their_bytes(self, engine, write_query):
        table = self.name()
        engine.values(table, pa.table({"word": WORDS[::-1]}))
        found = self.rows(engine, write_query(f"select word from {table} order by word"))
        assert [row["word"] for row in found] == sorted(WORDS, key=str.encode)

    @pytest.mark.parametrize("count", [0, 1, 63, 64, 65, 1000])
    def test_a_stream_has_every_row_in_batches_of_the_size_asked_for(
        self, engine, storage, write_query, count
    ):
        table = self.name()
        numbers = random.Random(count).sample(range(10 * count + 1), count)
        engine.table(
            table, put(storage, f"{table}.parquet", pa.table({"n": pa.array(numbers, pa.int32())}))
        )
        batches = list(engine.stream(write_query(f"select n from {table} order by n"), 64))
        assert [row["n"] for batch in batches for row in batch.to_pylist()] == sorted(numbers)
        assert [len(batch) for batch in batches] == [64] * (count // 64) + [count % 64] * (
            count % 64 > 0
        )

    def test_rows_of_a_segment_keep_values_types_and_nulls_and_say_which_file_they_are_of(
        self, engine, storage, write_query
    ):
        """Also where a folder looks like a partition, and where names are in another order than places."""
        known = {
            "key": b"k" * 20, "url": "u", "host": "h", "outcome": "ok", "depth": 1, "attempts": 2, "duration_ms": 3,
            "warc_file": "w", "warc_offset": 1 << 40, "warc_length": 5, "digest": b"\xff" * 20, "title": "é\U0001f600",
        }  # fmt: skip
        times = [datetime(2026, 1, 2, 3, 4, 5, 678901, UTC), datetime(1900, 1, 1, tzinfo=UTC)]
        rows = [
            [{**known, "time": time, "status": status}]
            for time, status in zip(times, (200, None), strict=True)
        ]
        table = self.name()
        paths = [
            put(
                storage,
                f"{table}/{folder}/pages.parquet",
                pa.Table.from_pylist(rows[number], PAGES_SCHEMA),
            )
            for number, folder in enumerate(["status=7", "a"])
        ]
        engine.tables(table, paths, PAGES_SCHEMA)
        found = self.rows(engine, write_query(f"select * from {table} order by segment"))
        assert list(found[0]) == [*PAGES_SCHEMA.names, "segment"]
        wanted = pa.Table.from_pylist([*rows[0], *rows[1]], PAGES_SCHEMA).to_pylist()
        assert found == [{**row, "segment": number} for number, row in enumerate(wanted)]

    @pytest.mark.parametrize("newest", [0, 1])
    def test_columns_that_a_file_lacks_are_null(self, engine, storage, write_query, newest):
        table, columns = self.name(), {"n": pa.array([1], pa.int32()), "later": pa.array(["x"])}
        files = [pa.table({"n": columns["n"]}), pa.table({"n": columns["n"]})]
        files[newest] = pa.table(columns)
        paths = [
            put(storage, f"{table}/{place}/pages.parquet", file) for place, file in enumerate(files)
        ]
        schema = pa.schema([("n", pa.int32()), ("later", pa.string()), ("latest", pa.string())])
        engine.tables(table, paths, schema)
        rows = self.rows(engine, write_query(f"select * from {table} order by segment"))
        assert [list(row.values()) for row in rows] == [
            [1, "x" if place == newest else None, None, place] for place in range(2)
        ]

    def test_a_table_without_a_file_has_no_rows_and_keeps_its_place(
        self, engine, storage, write_query
    ):
        table, schema = self.name(), pa.schema([("n", pa.int32())])
        first, last = (
            put(storage, f"{table}/{n}/pages.parquet", pa.table({"n": [n]}, schema)) for n in (1, 3)
        )
        engine.tables(table, [None, first, None, last, None], schema)
        found = self.rows(engine, write_query(f"select * from {table} order by n"))
        assert found == [{"n": 1, "segment": 1}, {"n": 3, "segment": 3}]
        engine.tables(table, [None, None], schema)
        assert self.rows(engine, write_query(f"select * from {table}")) == []

    def test_many_files_keep_their_places(self, engine, storage, write_query):
        table = self.name()
        places = list(range(40))
        random.Random(1).shuffle(places)
        paths = [f"{table}/{place}/pages.parquet" for place in places]
        for path, number in zip(paths, itertools.count(), strict=False):
            put(storage, path, pa.table({"n": pa.array([number] * (number % 3), pa.int32())}))
        engine.tables(table, paths, pa.schema([("n", pa.int32())]))
        query = write_query(f"select n, segment from {table} order by n, segment")
        assert [(r["n"], r["segment"]) for r in self.rows(engine, query)] == [
            (n, n) for n in range(40) for _ in range(n % 3)
        ]

    def test_no_files_are_an_empty_table(self, engine, write_query):
        table = self.name()
        engine.tables(table, [], PAGES_SCHEMA)
        query = write_query(
            f"select key, time, segment from {table} where status = 200 order by key"
        )
        assert self.rows(engine, query) == []
        assert engine.value(write_query(f"select count(*) as n from {table}")) == 0

    def test_values_views_and_small_answers(self, engine, write_query):
        table, view = self.name(), self.name()
        columns = {
            "key": pa.array([b"\xff", b"\0"], pa.binary()),
            "n": pa.array([1, 2], pa.int32()),
        }
        engine.values(table, pa.table(columns))
        engine.view(view, write_query(f"select n + 1 as n from {table} where key > X'7F'"))
        assert engine.column(write_query(f"select n from {view}")) == [2]
        assert engine.value(write_query(f"select sum(n) as n from {table}")) == 3
        engine.values(f"{table}_none", pa.table({"n": pa.array([], pa.int32())}))
        assert engine.column(write_query(f"select n from {table}_none")) == []

    def test_a_file_of_this_machine_is_a_table(self, engine, write_query, tmp_path):
        table, file = self.name(), tmp_path / "own.parquet"
        pq.write_table(pa.table({"n": pa.array([1, 2], pa.int32())}), file)
        engine.local_table(table, file)
        assert engine.value(write_query(f"select sum(n) as n from {table}")) == 3

    def test_progress_is_told_while_an_answer_is_sorted(self, engine, write_query, monkeypatch):
        monkeypatch.setattr("crawl_lib.engine.engine.LOOK_S", 0.0001)
        table = self.name()
        engine.values(table, pa.table({"n": list(range(1000))}))
        told = []
        query = write_query(
            f"select a.n as n, b.n as m from {table} a, {table} b order by a.n * 7919 % 1009, b.n"
        )
        monkeypatch.setattr(
            "crawl_lib.stopping.Work.report", lambda _, **counts: told.append(counts)
        )
        for _ in engine.stream(query, 1 << 20, "some.stage"):
            pass
        assert told
        assert all(event["stage"] == "some.stage" and event["unit"] == "percent" for event in told)
        assert all(0 <= event["done"] <= event["total"] == 100 for event in told)

    def test_a_file_that_is_no_table_is_named(self, engine, storage, write_query):
        table = self.name()
        storage.write_bytes(f"{table}/pages.parquet", b"PAR1 and no more")
        with pytest.raises(StorageError, match=f"{table}/pages.parquet|{table}-0.parquet"):
            self.count(engine, table, write_query)

    def test_a_file_that_is_gone_is_named(self, engine, write_query):
        table = self.name()
        with pytest.raises(StorageError, match=f"{table}/pages.parquet"):
            self.count(engine, table, write_query)

    def count(self, engine, table, write_query):
        """How many rows one file has."""
        engine.tables(table, [f"{table}/pages.parquet"], PAGES_SCHEMA)
        return engine.value(write_query(f"select count(*) as n from {table}"))

    def test_a_query_that_is_wrong_is_our_error(self, engine, write_query):
        with pytest.raises(StorageError, match="no_such_column"):
            self.rows(engine, write_query("select no_such_column order by 1"))
