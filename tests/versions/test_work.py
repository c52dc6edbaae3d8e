"""Where an answer has its tables: a process that is killed while it answers leaves nothing on the store."""

from __future__ import annotations

from pathlib import Path

import pytest

from crawl_lib.scratch import scratch_folder
from crawl_lib.stores import open_stores
from crawl_lib.versions import VersionWork, columns
from tests.e2e.crawl import make_config

NUMBERS = columns("n int64!")


def test_tables_of_an_answer_are_in_the_scratch_of_this_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hidden folder on the store outlived a killed `graph export --of links`, and no sweep knew of the folder."""
    config = make_config(tmp_path, nodes=1)
    stores = open_stores(config)
    monkeypatch.setattr("crawl_lib.engine.engine.SQL_DIRECTORY", tmp_path)
    (tmp_path / "sum.sql").write_text("select sum(n) as n from numbers")
    before = sorted(Path(config.dfs_primary).rglob("*"))
    with VersionWork.to_read(stores) as work:
        path = work.keep_rows("numbers", NUMBERS, ({"n": number} for number in range(4)))
        assert work.engine.value("sum") == 6
        assert path is not None
        assert work.tables.exists(path)
        assert sorted(Path(config.dfs_primary).rglob("*")) == before
        assert list(work.scratch.rglob("numbers.parquet"))
    with scratch_folder(config, "work-next") as scratch:
        assert [one for one in scratch.parent.iterdir() if one.is_dir()] == [scratch]
