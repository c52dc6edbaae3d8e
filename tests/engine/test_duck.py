"""DuckDB as an engine: the contract, on a local directory and over a remote store; room on the disk."""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow as pa
import pytest

from crawl_lib.config import Config
from crawl_lib.engine import Room, base, open_engine
from crawl_lib.storage import LocalStorage
from tests.engine.contract import EngineContract, put
from tests.export.test_remote import Elsewhere


class NoCopies(Elsewhere):
    """A remote store of which nothing may be copied to the disk."""

    def download(self, path: str, local: Path) -> None:
        raise AssertionError(f"{path} is copied")


class Duck(EngineContract):
    @pytest.fixture
    def engine(self, config, storage, tmp_path):
        scratch = tmp_path / "room"
        scratch.mkdir()
        with open_engine(config, Room(storage, scratch, "hidden", 1 << 30)) as engine:
            yield engine


class TestDuckOnLocalDirectory(Duck):
    @pytest.fixture
    def storage(self, tmp_path):
        (tmp_path / "dfs").mkdir()
        return LocalStorage.open(tmp_path / "dfs")


class TestDuckOverRemoteStore(Duck):
    @pytest.fixture
    def storage(self, tmp_path):
        (tmp_path / "dfs").mkdir()
        return NoCopies(LocalStorage.open(tmp_path / "dfs"))


def test_sorting_keeps_to_its_memory_and_leaves_no_file(
    config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Twice as much as the memory goes through scratch, and is deleted there."""
    monkeypatch.setattr(base, "SQL_DIRECTORY", tmp_path)
    (tmp_path / "q.sql").write_text("select key, repeat(hex(key), 9) as more from t order by key")
    (tmp_path / "dfs").mkdir()
    scratch = tmp_path / "room"
    scratch.mkdir()
    storage = LocalStorage.open(tmp_path / "dfs")
    rng = random.Random(1)
    keys = [rng.randbytes(20) for _ in range(700_000)]
    put(storage, "t.parquet", pa.table({"key": pa.array(keys, pa.binary())}))
    with open_engine(config, Room(storage, scratch, "hidden", 1)) as engine:
        engine.table("t", "t.parquet")
        stream = engine.stream("q", 1 << 14)
        first = next(stream)
        assert sum(file.stat().st_size for file in scratch.rglob("*") if file.is_file()) > 10 << 20
        found = [*first.column(0).to_pylist(), *(key for batch in stream for key in batch.column(0).to_pylist())]
    assert found == sorted(keys)
    assert [file for file in scratch.rglob("*") if file.is_file()] == []
