"""One HDFS for all tests of a session that do it no harm; those that kill servers have their own."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator

import pytest

from crawl_lib.config.model import DfsConfig
from crawl_lib.storage.hdfs import HdfsStorage
from tests.cluster.hdfs import Hdfs, resolve_jars, why_not
from tests.contracts.mariadb import three_mariadbs

__all__ = ["three_mariadbs"]
QUICK = DfsConfig(connect_timeout_s=5.0, timeout_s=30.0, wait_s=60.0)


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
