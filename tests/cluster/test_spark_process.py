"""Spark as stages start it: a Java process of its own that ends with the stage, and nothing left behind."""

from __future__ import annotations

import dataclasses
import subprocess
from threading import Event
from typing import Any

import pytest

from crawl_lib.config.model import SparkConfig
from crawl_lib.engine import Workplace, open_engine
from crawl_lib.errors import ConfigError, PathNotFoundError, StoppedError, StorageError
from crawl_lib.export import export_pages
from crawl_lib.graph import finalize_export, link_export
from crawl_lib.storage import open_storage
from tests.cluster import standalone
from tests.cluster.processes import wait_until
from tests.cluster.spark import (
    DEFAULTS,
    LIMIT_S,
    all_stages,
    assert_same_bytes,
    give_defaults,
    in_scratch,
    keep_warm,
    one_page,
    random_crawl,
    spark_url,
    with_spark,
)
from tests.stores import stores_on

pytestmark = [pytest.mark.timeout(LIMIT_S), pytest.mark.usefixtures("many_tasks")]


def test_a_stage_that_is_stopped_ends_its_java_and_goes_on(maker, config, monkeypatch):
    """In one process, as `make crawl` and a worker run stages: the next session is a new one."""
    random_crawl(maker, 7)
    storage = open_storage(config)
    all_stages(storage, config, maker, "whole")
    started = []
    real = subprocess.Popen.__init__

    def watched(self: subprocess.Popen[Any], *arguments: Any, **options: Any) -> None:
        started.append(self)
        real(self, *arguments, **options)

    monkeypatch.setattr(subprocess.Popen, "__init__", watched)
    on_spark = with_spark(config)
    export_pages(stores_on(storage, config), name="stopped", segments=maker.segments)
    stop = Event()

    def on_progress(event: dict[str, Any]) -> None:
        if event["stage"] == "graph.arcs_out":
            stop.set()

    with pytest.raises(StoppedError):
        link_export(
            stores_on(storage, on_spark, on_progress=on_progress, stop=stop), name="stopped"
        )
    assert len(started) >= 2  # java -version, and Spark
    assert [process.poll() is None for process in started] == [False] * len(started)
    assert in_scratch(config) == []
    assert [
        entry.name for entry in storage.list("export/stopped") if entry.name.startswith(".")
    ] == []
    link_export(stores_on(storage, on_spark), name="stopped")
    finalize_export(stores_on(storage, config), name="stopped")
    assert_same_bytes(storage, "whole", "stopped")


def test_executors_that_are_processes_of_a_cluster(hdfs, maker, on_hdfs, tmp_path, monkeypatch):
    """`spark://`: they leave the same bytes, and end with the session; what they spilled goes with them.

    One session serves both stages, which else start one each.
    """
    give_defaults(monkeypatch, tmp_path, DEFAULTS + standalone.DEFAULTS)
    random_crawl(maker, 8)
    config = on_hdfs(maker)
    storage = open_storage(config)
    all_stages(storage, config, maker, "duckdb")
    with standalone.Standalone(tmp_path / "spark") as cluster:
        on_spark = with_spark(config, master=cluster.url, dfs_url=spark_url(hdfs, config))
        with (
            open_engine(on_spark, Workplace(storage, tmp_path, ".engine", 1 << 30)) as running,
            monkeypatch.context() as patch,
        ):
            keep_warm(running, patch)
            all_stages(storage, on_spark, maker, "spark")
            assert cluster.executors()
        wait_until(
            "no executor is left", lambda: not (cluster.executors() or cluster.spilled()), LIMIT_S
        )
    assert_same_bytes(storage, "duckdb", "spark")
    assert in_scratch(config) == []


def test_other_machines_cannot_read_this_disk(config, maker):
    config = with_spark(config)
    config = dataclasses.replace(config, spark=SparkConfig(master="spark://127.0.0.1:1"))
    with pytest.raises(
        ConfigError, match=r"spark\.dfs_url: is not set.*spark://127\.0\.0\.1:1.*local\[\*\]"
    ):
        export_pages(stores_on(open_storage(config), config), name="x", segments=[])


def test_a_wrong_dfs_url_is_named(hdfs, maker, on_hdfs):
    one_page(maker)
    config = on_hdfs(maker)
    wrong = with_spark(config, dfs_url=f"hdfs://127.0.0.1:{hdfs.rpc['nn1']}/krake/elsewhere")
    with pytest.raises(
        PathNotFoundError, match=r"is spark\.dfs_url \(hdfs:.*/krake/elsewhere\) the root"
    ):
        export_pages(stores_on(open_storage(config), wrong), name="x", segments=maker.segments)
    assert in_scratch(config) == []


def test_after_a_failure_nothing_is_left_and_it_goes_on_when_mended(
    hdfs, maker, on_hdfs, monkeypatch
):
    """Not in scratch, not in HDFS, and no Java process; the leavings of a killed run are deleted too."""
    random_crawl(maker, 6)
    config = on_hdfs(maker)
    storage = open_storage(config)
    on_spark = with_spark(config, dfs_url=spark_url(hdfs, config))
    all_stages(storage, config, maker, "duckdb")
    export_pages(stores_on(storage, config), name="spark", segments=maker.segments)
    broken = "crawl/10/node-a/links.parquet"
    whole = storage.read_bytes(broken)
    storage.delete(broken)
    storage.write_bytes(broken, whole[:4] + bytes(len(whole) // 2) + whole[4 + len(whole) // 2 :])
    storage.write_bytes(
        "export/spark/.engine/result-1/part-00000-killed.zstd.parquet", b"of a killed run"
    )
    started = []
    real = subprocess.Popen.__init__

    def watched(self: subprocess.Popen[Any], *arguments: Any, **options: Any) -> None:
        started.append(self)
        real(self, *arguments, **options)

    monkeypatch.setattr(subprocess.Popen, "__init__", watched)
    with pytest.raises(StorageError, match=r"^Spark: (?s:.*)links\.parquet"):
        link_export(stores_on(storage, on_spark), name="spark")
    assert [process.poll() is None for process in started] == [False] * len(started)
    assert len(started) >= 2  # java -version, and Spark
    assert in_scratch(config) == []
    assert not storage.exists("export/spark/.engine")
    storage.delete(broken)
    storage.write_bytes(broken, whole)
    link_export(stores_on(storage, on_spark), name="spark")
    finalize_export(stores_on(storage, on_spark), name="spark")
    assert_same_bytes(storage, "duckdb", "spark")
