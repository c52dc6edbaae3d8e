"""Tables of an export: a bit that flipped is found, wherever it changes a row."""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from crawl_lib.errors import DamagedFileError
from crawl_lib.repair.fsck_export import SCHEMAS, read_table

NAMES = ("pages.parquet", "arcs-out.parquet", "arcs-in.parquet")


@pytest.fixture(scope="module")
def tables(half_done: Path) -> list[Path]:
    return [half_done / "dfs" / "export" / "e" / name for name in NAMES]


def test_a_flipped_bit_is_found_or_changes_no_row(tables: list[Path], tmp_path: Path) -> None:
    rng = random.Random(1)
    found = 0
    for table in tables:
        rows, data = pq.read_table(table), table.read_bytes()
        for _ in range(100):
            damaged = bytearray(data)
            damaged[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
            place = tmp_path / table.name
            place.write_bytes(damaged)
            try:
                read_table(str(place), SCHEMAS[table.name])
            except (DamagedFileError, pa.ArrowException, ValueError, OSError):
                found += 1
            else:
                assert pq.read_table(place).equals(rows)
    assert found > 50
