"""Numbers for keys: as a dictionary gives them, whatever the keys are."""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from crawl_lib.engine import numbers
from crawl_lib.engine.numbers import (
    KeyNumbers,
    column_of,
    count_sorted,
    hosts_of,
    keys_of,
    numbered_names,
    values_of,
)
from crawl_lib.urls import host_of
from tests.pythons import ROOT

LEAST, MOST = bytes(20), b"\xff" * 20


def keys_column(keys: Iterable[bytes | None]) -> pa.Array:
    return pa.array(list(keys), pa.binary(20))


def table_of(path: Path, keys: list[bytes], block: int = 7) -> KeyNumbers:
    blocks = [keys[start : start + block] for start in range(0, len(keys), block)]
    return KeyNumbers(path / "keys", (keys_of(keys_column(some)) for some in blocks))


def spread(chance: random.Random) -> bytes:
    return chance.randbytes(20)


def twin(chance: random.Random) -> bytes:
    """One of few keys that share 8 bytes with many others."""
    return bytes([chance.randrange(3)]) * 8 + chance.randbytes(12)


def ending(chance: random.Random) -> bytes:
    """One that differs from others in its last byte alone, or in the byte behind the first 8."""
    return (
        b"12345678" + chance.choice([b"\0", b"\xff"]) + bytes(10) + bytes([chance.randrange(256)])
    )


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
    others = [
        LEAST[:-1] + b"\1",
        MOST[:-1] + b"\xfe",
        *(kind(chance) for _ in range(count)),
        chance.randbytes(20),
    ]
    keys = sorted(known)
    table, places = table_of(tmp_path, keys), {key: place for place, key in enumerate(keys)}
    asked = [*keys, *others, *keys]
    chance.shuffle(asked)
    assert len(table) == len(keys)
    assert table.of(keys_of(keys_column(asked))).tolist() == [places.get(key, -1) for key in asked]


def test_an_empty_table_has_no_key(tmp_path: Path) -> None:
    table = table_of(tmp_path, [])
    assert len(table) == 0
    assert table.of(keys_of(keys_column([LEAST, MOST]))).tolist() == [-1, -1]
    assert table_of(tmp_path, [LEAST]).of(keys_of(keys_column([]))).tolist() == []


def test_keys_of_a_part_of_a_column_with_nulls(tmp_path: Path) -> None:
    keys = [bytes([number]) * 20 for number in range(9)]
    column = keys_column([None, *keys, None])
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
    assert [names[number] if number >= 0 else None for number in numbers] == [
        name_of(host) for host in hosts
    ]
    assert numbered_names([pa.array(["b", "a", "b"])])[1].tolist() == [1, 0, 1]
    assert [len(found) for found in numbered_names([])] == [0, 0]


@pytest.mark.parametrize("kind", [np.int32, np.int64, np.float64, np.uint8, np.bool_])
@pytest.mark.parametrize("size", [0, 1, 9, 100])
def test_values_pass_to_a_column_and_back(kind: type[np.generic], size: int) -> None:
    values = np.random.default_rng(size).integers(0, 2, 2 * size).astype(kind)
    for some in (values, values[::2], values[size // 2 :]):
        column = column_of(some)
        assert column.to_pylist() == some.tolist()
        assert values_of(column).dtype == kind
        assert values_of(column[size // 3 :]).tolist() == some[size // 3 :].tolist()


def test_columns_of_numbers_load_no_pandas() -> None:
    """pandas takes a process 0.3 s."""
    code = "values_of(column_of(np.arange(3))); values_of(column_of(np.zeros(3, bool))); print('pandas' in sys.modules)"
    lines = (
        "import sys",
        "import numpy as np",
        "from crawl_lib.engine.numbers import column_of, values_of",
        code,
    )
    done = subprocess.run(
        [sys.executable, "-c", "\n".join(lines)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == ["False"]


@pytest.mark.parametrize("numbers", [[], [0], [3, 3, 3], [0, 2, 2, 9], [9]])
def test_sorted_numbers_are_counted_on_top(numbers: list[int]) -> None:
    counts = np.ones(10, np.int32)
    count_sorted(counts, np.array(numbers, np.int32))
    assert counts.tolist() == [1 + numbers.count(number) for number in range(10)]


def test_the_hosts_of_columns_are_those_of_urls() -> None:
    urls = [
        "http://a.example/",
        "https://a.example:8443/x:9/",
        "http://[::1]/",
        "http://[::1]:80/y",
        "http://1.2.3.4/",
    ]
    assert hosts_of(pa.array(urls)).to_pylist() == [host_of(url) for url in urls]
