"""Numbers for keys: as a dictionary gives them, whatever the keys are."""

from __future__ import annotations

import random
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from crawl_lib.engine import numbers
from crawl_lib.engine.numbers import KeyNumbers, keys_of, numbered_names

LEAST, MOST = bytes(20), b"\xff" * 20


def column_of(keys: Iterable[bytes | None]) -> pa.Array:
    return pa.array(list(keys), pa.binary(20))


def table_of(path: Path, keys: list[bytes], block: int = 7) -> KeyNumbers:
    blocks = [keys[start : start + block] for start in range(0, len(keys), block)]
    return KeyNumbers(path / "keys", (keys_of(column_of(some)) for some in blocks))


def spread(chance: random.Random) -> bytes:
    return chance.randbytes(20)


def twin(chance: random.Random) -> bytes:
    """One of few keys that share 8 bytes with many others."""
    return bytes([chance.randrange(3)]) * 8 + chance.randbytes(12)


def ending(chance: random.Random) -> bytes:
    """One that differs from others in its last byte alone, or in the byte behind the first 8."""
    return b"12345678" + chance.choice([b"\0", b"\xff"]) + bytes(10) + bytes([chance.randrange(256)])


def crowded(chance: random.Random) -> bytes:
    """One whose first bits are those of all others."""
    return bytes(5) + chance.randbytes(15)


@pytest.mark.parametrize("kind", [spread, twin, ending, crowded])
@pytest.mark.parametrize("count", [1, 2, 3, 300, 3000])
def test_each_key_has_its_place_and_others_have_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: object, count: int
) -> None:
    monkeypatch.setattr(numbers, "_BLOCK", 64)
    chance = random.Random(count)
    assert callable(kind)
    known = {LEAST, MOST, *(kind(chance) for _ in range(count))}
    others = [LEAST[:-1] + b"\1", MOST[:-1] + b"\xfe", *(kind(chance) for _ in range(count)), chance.randbytes(20)]
    keys = sorted(known)
    table, places = table_of(tmp_path, keys), {key: place for place, key in enumerate(keys)}
    asked = [*keys, *others, *keys]
    chance.shuffle(asked)
    assert len(table) == len(keys)
    assert table.of(keys_of(column_of(asked))).tolist() == [places.get(key, -1) for key in asked]


def test_an_empty_table_has_no_key(tmp_path: Path) -> None:
    table = table_of(tmp_path, [])
    assert len(table) == 0
    assert table.of(keys_of(column_of([LEAST, MOST]))).tolist() == [-1, -1]
    assert table_of(tmp_path, [LEAST]).of(keys_of(column_of([]))).tolist() == []


def test_keys_of_a_part_of_a_column_with_nulls(tmp_path: Path) -> None:
    keys = [bytes([number]) * 20 for number in range(9)]
    column = column_of([None, *keys, None])
    assert keys_of(column[3:8]).tolist() == keys[2:7]
    assert len(keys_of(pa.nulls(4, pa.binary(20)))) == 4
    assert table_of(tmp_path, keys).of(keys_of(column))[1:-1].tolist() == list(range(9))


def test_keys_that_share_their_bytes_cost_no_more_than_a_search(tmp_path: Path) -> None:
    """A loop over all keys with the same 8 bytes would take 4,000 times as long as for other keys."""
    words = np.arange(1 << 16, dtype=">u4").view(np.uint8).reshape(-1, 4)
    rows = np.zeros((len(words), 20), np.uint8)
    rows[:, 16:] = words
    keys = rows.view("S20").ravel()
    table = KeyNumbers(tmp_path / "keys", [keys])
    assert (table.of(keys) == np.arange(len(keys))).all()


@pytest.mark.parametrize("size", [1, 3, 1000])
def test_names_are_numbered_in_their_order_however_they_come_in_columns(size: int) -> None:
    choose = random.Random(size)
    hosts = choose.choices(["b.example", "a.example", "ä.example", "x", "www.b.example"], k=100)
    columns = [pa.array(hosts[start : start + size]) for start in range(0, len(hosts), size)]

    def name_of(host: str) -> str | None:
        return host.removeprefix("www.") if "." in host else None

    names, numbers = numbered_names([pa.array([], pa.string()), *columns], name_of)
    assert names == sorted({name for host in hosts if (name := name_of(host))})
    assert [names[number] if number >= 0 else None for number in numbers] == [name_of(host) for host in hosts]
    assert numbered_names([pa.array(["b", "a", "b"])])[1].tolist() == [1, 0, 1]
    assert [len(found) for found in numbered_names([])] == [0, 0]
