"""Rows sorted on the disk: in order however they come, in bounded memory however long they are."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from threading import Event

import pyarrow as pa
import pytest

from crawl_lib.commoncrawl import sorting
from crawl_lib.commoncrawl.sorting import DiskSort, in_pieces, joined
from crawl_lib.config import Config
from crawl_lib.errors import NoRoomError, StoppedError
from crawl_lib.storage import Storage
from tests.stores import stores_on

BY = ("key", "time")
KB, MB = 1 << 10, 1 << 20


def sort_on(storage: Storage, config: Config, scratch: Path, stop: Event | None = None) -> DiskSort:
    return DiskSort(stores_on(storage, config, stop=stop or Event()), scratch, BY)


def small_sizes(monkeypatch: pytest.MonkeyPatch, run: int, piece: int, runs: int) -> None:
    for name, value in (("RUN_BYTES", run), ("PIECE_BYTES", piece), ("MOST_RUNS", runs)):
        monkeypatch.setattr(sorting, name, value)


def rows_of(count: int, key_bytes: int, seed: int = 1) -> Iterator[pa.Table]:
    """Rows with keys of so many bytes, which differ at the end, in tables of 100."""
    chance = random.Random(seed)
    for _ in range(0, count, 100):
        keys = [f"{'x' * (key_bytes - 8)}{chance.getrandbits(32):08x}" for _ in range(100)]
        yield pa.table({"key": keys, "time": pa.array(range(100), pa.timestamp("ms", "UTC"))})


@pytest.mark.parametrize(
    ("run", "piece", "runs"), [(40, 1, 3), (300, 100, 2), (2 * KB, 64, 3), (MB, KB, 64)]
)
def test_rows_come_in_order_whatever_the_sizes(
    monkeypatch: pytest.MonkeyPatch,
    storage: Storage,
    config: Config,
    tmp_path: Path,
    run: int,
    piece: int,
    runs: int,
) -> None:
    small_sizes(monkeypatch, run, piece, runs)
    chance = random.Random(run)
    words = ["", "a", "a\0", "b", "\u00e9", "\uffff", "\U0001f600", "long" * 90]
    rows = [(chance.choice(words), chance.randrange(9), number) for number in range(300)]
    schema = pa.schema({"key": pa.string(), "time": pa.timestamp("ms", "UTC"), "n": pa.int32()})
    parts = (rows[first : first + 40] for first in range(0, 300, 40))
    tables = (pa.table([*zip(*some, strict=True)], schema=schema) for some in parts)
    found = pa.Table.from_batches(sort_on(storage, config, tmp_path).sorted(tables), schema)
    keys = zip(found["key"].to_pylist(), found["time"].cast(pa.int64()).to_pylist(), strict=True)
    assert list(keys) == sorted(
        ((key, time) for key, time, _ in rows), key=lambda row: (row[0].encode(), row[1])
    )
    assert sorted(found["n"].to_pylist()) == list(range(300))
    assert list(tmp_path.glob("*.arrow")) == []


def test_no_rows_are_no_batches(storage: Storage, config: Config, tmp_path: Path) -> None:
    assert list(sort_on(storage, config, tmp_path).sorted(iter(()))) == []


@pytest.mark.parametrize("key_bytes", [200, 1500, 60_000])
def test_memory_is_bounded_in_bytes_however_long_rows_are(
    monkeypatch: pytest.MonkeyPatch,
    storage: Storage,
    config: Config,
    tmp_path: Path,
    key_bytes: int,
) -> None:
    small_sizes(monkeypatch, MB, 32 * KB, 4)
    before = pa.default_memory_pool()
    pool = pa.proxy_memory_pool(before)
    pa.set_memory_pool(pool)
    try:
        rows = 10 * MB // (key_bytes + 8) // 100 * 100
        sizes = [
            batch.nbytes
            for batch in sort_on(storage, config, tmp_path).sorted(rows_of(rows, key_bytes))
        ]
        assert sum(sizes) > 5 * MB
        assert pool.max_memory() < 6 * MB + 200 * key_bytes
        assert max(sizes) <= 4 * max(32 * KB, 2 * key_bytes)
    finally:
        pa.set_memory_pool(before)


def test_pieces_and_groups_keep_to_their_bytes_and_rows() -> None:
    table = pa.concat_tables([*rows_of(100, 10), *rows_of(100, 900)]).combine_chunks()
    [batch] = table.to_batches()
    pieces = list(in_pieces(batch, 2000))
    assert pa.Table.from_batches(pieces) == table
    assert max(piece.nbytes for piece in pieces) <= 2000
    for most_bytes, most_rows in ((5000, 1000), (5000, 7), (1 << 30, 64)):
        groups = list(joined(pieces, most_bytes, most_rows))
        assert pa.Table.from_batches(groups) == table
        assert max(len(group) for group in groups) <= most_rows
        assert max(group.nbytes for group in groups) <= most_bytes
    assert list(joined([], 1)) == []


def test_more_room_than_allowed_is_refused_and_a_stop_is_heard(
    monkeypatch: pytest.MonkeyPatch, storage: Storage, config: Config, tmp_path: Path
) -> None:
    small_sizes(monkeypatch, 10 * KB, KB, 4)
    little = replace(config, scratch=replace(config.scratch, max_bytes=20 * KB))
    with pytest.raises(NoRoomError, match=r"scratch\.max_bytes"):
        list(sort_on(storage, little, tmp_path).sorted(rows_of(1000, 500)))
    stop = Event()
    found = sort_on(storage, config, tmp_path, stop).sorted(rows_of(1000, 50))
    next(found)
    stop.set()
    with pytest.raises(StoppedError):
        list(found)
