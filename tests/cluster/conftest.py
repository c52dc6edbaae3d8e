"""One HDFS for all tests of a session that do it no harm; those that kill servers have their own."""

from __future__ import annotations

import dataclasses
import fcntl
import os
import shutil
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from krake_airflow.database import DatabaseMark
from krake_airflow.settings import DATABASE_FILE, PROJECT, environment

from crawl_lib.config import Config
from crawl_lib.config.model import DfsConfig
from crawl_lib.engine import Engine, Workplace, open_engine
from crawl_lib.engine.spark import Spark
from crawl_lib.storage import LocalStorage, open_storage
from crawl_lib.storage.hdfs import HdfsStorage
from tests.cluster.hdfs import Hdfs, resolve_jars, why_not
from tests.cluster.spark import DEFAULTS, give_defaults, keep_warm, make_archive, with_spark
from tests.contracts.mariadb import three_mariadbs
from tests.e2e.crawl import make_config
from tests.export.crawls import CrawlMaker

__all__ = ["three_mariadbs"]
QUICK = DfsConfig(connect_timeout_s=5.0, timeout_s=30.0, wait_s=240.0)
LIMIT_S = 1200
"""For a test that says nothing of its own: the first one of all waits for Maven, too."""


LONGEST_FIRST = (
    "test_opensearch.py",
    "test_edge.py",
    "ui/test_running_airflow.py",
    "test_s3.py",
    "ui/test_page.py",
    "search/test_hostile_pages.py",
    "test_spark_tables.py",
    "ui/test_several_crawls.py",
    "test_spark_process.py",
    "test_kerberos.py",
    "test_make_cluster.py",
    "test_failures.py",
    "test_key_servers.py",
    "test_spark.py",
    "ui/test_make_crawl_in_ui.py",
    "ui/test_browser.py",
    "test_existing_airflow.py",
    "ui/test_ctrl_c.py",
    "ui/test_log_lines.py",
    "test_sealing.py",
    "test_storage.py",
)
"""A process takes its next file when two tests are left of the last one: what follows a file of two tests waits for
it, so it is not among the longest."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give the tests of this folder more time than others, and processes that share them the longest files first."""
    for item in items:
        if Path(__file__).parent not in item.path.parents:
            continue
        item.add_marker(pytest.mark.slow)
        if item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(LIMIT_S))
    order = {Path(__file__).parent / name: number for number, name in enumerate(LONGEST_FIRST)}
    items.sort(key=lambda item: order.get(item.path, len(order)))


@pytest.fixture(scope="session")
def jars() -> None:
    """Hadoop's jars."""
    if missing := why_not():
        pytest.fail(f"the tests of HDFS cannot run: {missing}")
    resolve_jars()


@pytest.fixture(scope="session")
def hdfs(jars: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hdfs]:
    """A namenode and a datanode."""
    with Hdfs(tmp_path_factory.mktemp("hdfs")) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def airflow_database(
    tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Callable[[Path], Path]:
    """Gives a new `KRAKE_AIRFLOW_HOME` a copy of one database, which Airflow takes six seconds of CPU to make.

    Not for settings that go into it when it is made, such as the slots of the default pool.
    """
    folder = tmp_path_factory.getbasetemp()
    if hasattr(request.config, "workerinput"):
        folder = folder.parent  # which processes of tests share
    made = folder / "airflow-database"
    mark = DatabaseMark(made, made / DATABASE_FILE)

    def given(home: Path) -> Path:
        with (folder / "airflow-database.lock").open("w") as one_at_a_time:
            fcntl.flock(one_at_a_time, fcntl.LOCK_EX)
            if not mark.is_set():
                variables = {**os.environ, **environment(made, PROJECT / "config" / "demo.yml")}
                subprocess.run(
                    [sys.executable, "-m", "airflow", "db", "migrate"], env=variables, check=True
                )
                mark.set()
        shutil.copytree(made, home / "ui", ignore=shutil.ignore_patterns("airflow.cfg"))
        return home

    return given


@pytest.fixture(scope="module")
def breakable(jars: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hdfs]:
    """A namenode and a datanode that tests may kill, and start again before they end."""
    with Hdfs(tmp_path_factory.mktemp("breakable")) as cluster:
        yield cluster


@pytest.fixture
def pair(jars: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hdfs]:
    """Two namenodes, of which nn1 is active, and a datanode: for one fail-over."""
    with Hdfs(tmp_path_factory.mktemp("pair"), namenodes=2) as cluster:
        yield cluster


@pytest.fixture
def open_in() -> Callable[[Hdfs], HdfsStorage]:
    """An empty store in a cluster: a root path of its own."""

    def opened(cluster: Hdfs, config: DfsConfig = QUICK) -> HdfsStorage:
        return HdfsStorage.open(f"{cluster.address}/krake/{uuid.uuid4().hex}", config)

    return opened


@pytest.fixture(scope="session")
def many_tasks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Spark has defaults for small tables, and its executors have no Python."""
    folder = tmp_path_factory.mktemp("spark-conf")
    make_archive(tmp_path_factory.mktemp("spark-archive"))
    with pytest.MonkeyPatch.context() as patched:
        give_defaults(patched, folder, DEFAULTS)
        patched.setenv("PYSPARK_PYTHON", str(folder / "no-python"))
        yield


@pytest.fixture(scope="module")
def running(many_tasks: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    """An engine over a store on the local disk."""
    scratch = tmp_path_factory.mktemp("room")
    config = with_spark(make_config(tmp_path_factory.mktemp("config"), nodes=1))
    room = Workplace(LocalStorage.open(tmp_path_factory.mktemp("dfs")), scratch, "hidden", 1 << 30)
    with open_engine(config, room) as engine:
        yield engine
    assert [path for path in scratch.iterdir() if path.name.startswith("result-")] == []


@pytest.fixture
def warm(running: Spark, monkeypatch: pytest.MonkeyPatch) -> None:
    keep_warm(running, monkeypatch)


@pytest.fixture
def maker(config: Config) -> CrawlMaker:
    """A crawl on the local disk."""
    Path(config.dfs_primary).mkdir()
    return CrawlMaker(Path(config.dfs_primary))


@pytest.fixture
def on_hdfs(
    hdfs: Hdfs, config: Config, request: pytest.FixtureRequest
) -> Callable[[CrawlMaker], Config]:
    """Puts a crawl into HDFS, and gives a config for it there."""

    def put_there(maker: CrawlMaker) -> Config:
        folder = "".join(letter if letter.isalnum() else "-" for letter in request.node.name)
        far = dataclasses.replace(
            config, dfs_primary=f"{hdfs.address}/krake/{folder}", dfs=DfsConfig(wait_s=30.0)
        )
        storage = open_storage(far)
        if maker.segments:
            from tests.cluster.test_crawl import copy_of  # noqa: PLC0415 - a module of tests, which pytest loads itself

            copy_of(LocalStorage.open(maker.root), "crawl", storage)
        return far

    return put_there
