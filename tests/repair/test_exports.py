"""Exports: a bit that flipped is found, wherever it changes a row."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from crawl_lib.errors import DamagedFileError
from crawl_lib.export import ExportTable
from crawl_lib.graph.check import check_table
from crawl_lib.parquet import LATER_FIELDS
from crawl_lib.storage import LocalStorage
from tests.cli.conftest import Krake
from tests.harms import flip_bit
from tests.repair.checked import EXPORT, carry_out, found, newest_folder

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
            place = tmp_path / table.name
            place.write_bytes(data)
            flip_bit(place, rng)
            try:
                check_table(
                    LocalStorage(tmp_path), table.name, ExportTable.SCHEMAS[table.name], full=True
                )
            except DamagedFileError:
                found += 1
            else:
                assert pq.read_table(place).equals(rows)
    assert found > 50


def test_an_export_from_before_a_column_is_whole_but_one_without_another_column_is_not(
    tables: list[Path], tmp_path: Path
) -> None:
    rows = pq.read_table(tables[0])
    before = rows.drop_columns([name for name in LATER_FIELDS if name in rows.column_names])
    pq.write_table(before, tmp_path / "before", write_page_checksum=True)
    check_table(LocalStorage(tmp_path), "before", ExportTable.SCHEMAS["pages.parquet"], full=True)
    pq.write_table(rows.drop_columns(["metadata"]), tmp_path / "other", write_page_checksum=True)
    with pytest.raises(DamagedFileError, match="columns"):
        check_table(
            LocalStorage(tmp_path), "other", ExportTable.SCHEMAS["pages.parquet"], full=True
        )


def test_an_unfinished_export_whose_input_is_gone(copy: Callable[..., Krake]) -> None:
    krake = copy()
    (krake.directory / "dfs/export/e/webgraph").unlink()
    shutil.rmtree(min(krake.directory.glob("dfs/crawl/1*")))
    assert found(krake)["input_gone"] == found(krake, "--fast")["input_gone"] == 1
    carry_out(krake, ("rm", "dfs/export/e"))
    for words in EXPORT:
        krake.ok(*words)
    assert "input_gone" not in found(krake)


def test_damage_of_an_export_is_found_though_its_segments_have_changed(
    copy: Callable[..., Krake],
) -> None:
    """The note of it ended the check, and what is advised must not make files of other segments."""
    krake = copy()
    page = sorted(urls_of(newest_folder(krake.directory) / "node-a"))[0]
    krake.ok("segment", "drop", page, "--yes")
    assert found(krake) == {}
    mapping = krake.directory / "dfs/export/e/urlmapping"
    data = bytearray(mapping.read_bytes())
    data[4:24], data[24:44] = data[24:44], data[4:24]
    mapping.write_bytes(data)
    [finding] = [
        one for one in krake("fsck", "--json").json["findings"] if one["name"] == "mapping_damaged"
    ]
    assert finding["repair"] == "move the folder export/e away, and export again"


def urls_of(segment: Path) -> list[str]:
    """URLs of a segment's pages."""
    return [
        str(url)
        for url in pq.read_table(segment / "pages.parquet", columns=["url"])
        .column("url")
        .to_pylist()
    ]
