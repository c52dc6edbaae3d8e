"""Which engine a config opens, and what it says where Spark cannot run."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawl_lib.config import Config
from crawl_lib.engine import Workplace, in_batches, open_engine
from crawl_lib.engine.java import check_java
from crawl_lib.errors import ConfigError
from crawl_lib.storage import LocalStorage

ROOT = Path(__file__).resolve().parents[2]


def with_spark(config: Config) -> Config:
    return replace(config, batch=replace(config.batch, engine="spark"))


@pytest.fixture
def room(tmp_path: Path) -> Workplace:
    (tmp_path / "dfs").mkdir()
    return Workplace(LocalStorage.open(tmp_path / "dfs"), tmp_path, "hidden", 1 << 30)


@pytest.mark.parametrize("name", ["pyspark", "py4j"])
def test_spark_without_its_extra_says_what_to_install(
    config: Config, room: Workplace, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.delitem(sys.modules, "crawl_lib.engine.spark", raising=False)
    for module in [module for module in sys.modules if module.split(".")[0] == name]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, name, None)
    if name == "py4j":  # which PySpark imports first, where it is installed
        monkeypatch.setitem(sys.modules, "pyspark", None)
    with (
        pytest.raises(
            ConfigError,
            match=r"batch\.engine: spark needs the extra `spark`.*make setup-spark.*duckdb",
        ),
        open_engine(with_spark(config), room),
    ):
        pass


def test_nobody_else_loads_spark() -> None:
    """The stages and DuckDB's engine leave PySpark and py4j alone: 0.4 s, and an extra."""
    code = (
        "import sys, crawl_lib.stages, crawl_lib.export, crawl_lib.graph, crawl_lib.engine\n"
        "print([name for name in sys.modules if name.split('.')[0] in ('pyspark', 'py4j')])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


def test_what_a_killed_run_left_in_the_hidden_folder_is_deleted(
    config: Config, room: Workplace
) -> None:
    room.storage.write_bytes("hidden/result-1/part-00000.parquet", b"of another run")
    with open_engine(config, room):
        assert not room.storage.exists("hidden")


def fake_java(folder: Path, said: str) -> None:
    file = folder / "bin" / "java"
    file.parent.mkdir()
    file.write_text(f"#!/bin/sh\ncat >&2 <<'END'\n{said}\nEND\n")
    file.chmod(0o755)


@pytest.mark.parametrize(
    ("said", "problem"),
    [
        ('openjdk version "17.0.15" 2025-04-15\nOpenJDK', None),
        ('openjdk version "21" 2023-09-19', None),
        ('openjdk version "11.0.2" 2019-01-15', "is 11"),
        ('java version "1.8.0_392"', "is 8"),
        ("no such thing", "is of an unknown version"),
    ],
)
def test_spark_needs_java_17(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str, problem: str | None
) -> None:
    fake_java(tmp_path, said)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    if problem is None:
        check_java()
        return
    with pytest.raises(
        ConfigError, match=rf"needs Java 17 or newer: .*{problem}; .*JAVA_HOME.*duckdb"
    ):
        check_java()


def test_no_java_at_all_says_where_it_was_looked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigError, match="needs Java 17 or newer: none is in PATH"):
        check_java()
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "jdk"))
    with pytest.raises(ConfigError, match=r"none is in JAVA_HOME \(.*jdk\)"):
        check_java()


@given(sizes=st.lists(st.integers(0, 9), max_size=12), rows=st.integers(1, 7))
def test_batches_have_the_size_that_was_asked_for(sizes: list[int], rows: int) -> None:
    """However an engine cuts its answer: that is what makes both leave the same bytes."""
    numbers = iter(range(sum(sizes)))
    given_ = [
        pa.RecordBatch.from_pydict({"n": pa.array([next(numbers) for _ in range(k)], pa.int64())})
        for k in sizes
    ]
    found = [batch.column(0).to_pylist() for batch in in_batches(given_, rows)]
    total = sum(sizes)
    assert [number for batch in found for number in batch] == list(range(total))
    assert [len(batch) for batch in found] == [rows] * (total // rows) + [total % rows] * (
        total % rows > 0
    )
