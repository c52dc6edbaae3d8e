"""Export and linker on Spark (local mode) leave the same bytes as on DuckDB: on HDFS, by copies, and on a local disk.

Spark is started once for all of them: that takes longer than a small export. `test_spark_process` starts it each time.
"""

from __future__ import annotations

import dataclasses
import random
from pathlib import Path

import pyarrow as pa
import pytest

from crawl_lib import stages
from crawl_lib.config.model import DfsConfig
from crawl_lib.engine import Workplace, open_engine
from crawl_lib.errors import LockedError
from crawl_lib.export import export_pages
from crawl_lib.graph import finalize_export, link_export
from crawl_lib.storage import open_storage
from crawl_lib.storage.hdfs import HdfsStorage
from crawl_lib.stores import open_stores
from demo import Serving, SynthWeb
from tests.cluster.spark import (
    LIMIT_S,
    all_stages,
    assert_same_bytes,
    in_scratch,
    never,
    no_page,
    no_segment,
    one_page,
    random_crawl,
    spark_url,
    with_spark,
)
from tests.e2e.crawl import make_config, run_crawl
from tests.engine.contract import EngineContract, put
from tests.export.crawls import CrawlMaker
from tests.stores import stores_on

pytestmark = pytest.mark.timeout(LIMIT_S)
DOWNLOAD = HdfsStorage.download


CRAWLS = [
    pytest.param(lambda maker: random_crawl(maker, 1), id="seed-1"),
    pytest.param(lambda maker: random_crawl(maker, 2), id="seed-2"),
    pytest.param(one_page, id="one-page"),
    pytest.param(no_page, id="no-page"),
]


@pytest.mark.parametrize("make", CRAWLS)
def test_on_hdfs_both_engines_leave_the_same_bytes(make, warm, hdfs, maker, on_hdfs, monkeypatch):
    """Spark reads hdfs:// itself, writes there, and leaves nothing behind; nothing is copied to this machine."""
    make(maker)
    config = on_hdfs(maker)
    storage = open_storage(config)
    monkeypatch.setattr(HdfsStorage, "download", never)
    all_stages(storage, config, maker, "duckdb")
    all_stages(storage, with_spark(config, dfs_url=spark_url(hdfs, config)), maker, "spark")
    assert_same_bytes(storage, "duckdb", "spark")
    assert in_scratch(config) == []


def test_by_copies_in_scratch_both_engines_leave_the_same_bytes(warm, maker, on_hdfs, monkeypatch):
    """Without spark.dfs_url Spark reads copies of what lies in HDFS."""
    random_crawl(maker, 3)
    config = on_hdfs(maker)
    storage = open_storage(config)
    copied = []
    monkeypatch.setattr(
        HdfsStorage,
        "download",
        lambda self, path, local: (copied.append(path), DOWNLOAD(self, path, local)),
    )
    all_stages(storage, config, maker, "duckdb")
    assert copied == []
    all_stages(storage, with_spark(config), maker, "spark")
    assert {path.rsplit("/", 1)[1] for path in copied} == {
        "pages.parquet",
        "links.parquet",
        "arcs-out.parquet",
    }
    assert_same_bytes(storage, "duckdb", "spark")
    assert in_scratch(config) == []


@pytest.mark.parametrize(
    ("make", "order"),
    [
        pytest.param(lambda maker: random_crawl(maker, 4), "fifo", id="seed-4"),
        pytest.param(lambda maker: random_crawl(maker, 5), "crawldb", id="visited-again"),
        pytest.param(no_segment, "fifo", id="nothing"),
    ],
)
def test_on_a_local_disk_both_engines_leave_the_same_bytes(make, order, warm, tmp_path):
    """Also where paths have blanks, brackets, percent signs, and look like partitions."""
    base = tmp_path / "we [i]r*d %20 a=b é"
    base.mkdir()
    config = make_config(base, nodes=2, frontier={"order": order})
    Path(config.dfs_primary).mkdir()
    maker = CrawlMaker(Path(config.dfs_primary))
    make(maker)
    storage = open_storage(config)
    narrowed = dataclasses.replace(
        config, export=dataclasses.replace(config.export, mime_types=("text/*",))
    )
    all_stages(storage, narrowed, maker, "duckdb")
    all_stages(storage, with_spark(narrowed), maker, "spark")
    assert_same_bytes(storage, "duckdb", "spark")
    assert in_scratch(config) == []


def test_a_real_crawl_on_hdfs_is_exported_to_the_same_bytes(warm, hdfs, tmp_path):
    """Segments as nodes leave them: every column, nulls, WARC files, redirects, errors."""
    with Serving(SynthWeb(seed=31, sites=5, pages_per_site=20)) as serving:
        local = make_config(tmp_path, nodes=2)
        config = dataclasses.replace(
            local, dfs_primary=f"{hdfs.address}/krake/spark-crawl", dfs=DfsConfig(wait_s=30.0)
        )
        done = run_crawl(config, serving.seeds)
    on_spark = with_spark(config, dfs_url=spark_url(hdfs, config))
    label = stages.export_pages(open_stores(on_spark), run_id="run-1", label="spark")["export"]
    arcs = stages.link_export(open_stores(on_spark), export=label)["arcs"]
    stages.finalize_export(open_stores(on_spark), export=label)
    assert arcs > 100
    assert_same_bytes(open_storage(config), done.export, label)


def test_what_duckdb_began_spark_ends(warm, maker, config):
    """The engine is no input of an export: a stage that one began goes on with the other."""
    random_crawl(maker, 5)
    storage = open_storage(config)
    all_stages(storage, config, maker, "whole")
    export_pages(stores_on(storage, config), name="mixed", segments=maker.segments)
    for name in ("content", "offsets", "urlmapping"):
        storage.delete(f"export/mixed/{name}")
    on_spark = with_spark(config)
    export_pages(stores_on(storage, on_spark), name="mixed", segments=maker.segments)
    link_export(stores_on(storage, config), name="mixed")
    storage.delete("export/mixed/arcs-in.parquet")
    link_export(stores_on(storage, on_spark), name="mixed")
    finalize_export(stores_on(storage, on_spark), name="mixed")
    assert_same_bytes(storage, "whole", "mixed")


class TestSpark(EngineContract):
    """The contract, in one session."""

    @pytest.fixture
    def storage(self, running):
        return running._room.storage

    @pytest.fixture
    def engine(self, running):
        return running

    def test_an_answer_is_sorted_by_many_tasks(self, engine, storage, write_query):
        """Else the other tests would not see it if parts were read in a wrong order."""
        table = self.name()
        numbers = random.Random(1).sample(range(100_000), 5000)
        engine.table(table, put(storage, f"{table}.parquet", pa.table({"n": numbers})))
        stream = engine.stream(write_query(f"select n from {table} order by n"), 64)
        first = next(stream)
        [folder] = [
            path for path in engine._room.scratch.iterdir() if path.name.startswith("result-")
        ]
        assert len([path for path in folder.iterdir() if path.name.startswith("part-")]) == 3
        rest = [number for batch in stream for number in batch.column(0).to_pylist()]
        assert [*first.column(0).to_pylist(), *rest] == sorted(numbers)
        assert not folder.exists()

    def test_a_second_session_in_this_process_is_refused(self, engine, storage, tmp_path, config):
        with (
            pytest.raises(LockedError, match="runs a Spark session already"),
            open_engine(with_spark(config), Workplace(storage, tmp_path, "other", 1 << 30)),
        ):
            pass
        assert engine._session.sql("select 1").collect()[0][0] == 1
