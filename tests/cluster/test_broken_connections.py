"""Connections to a datanode that break in the middle: a file is sent again by itself, a stream is an error."""

from __future__ import annotations

import hashlib
import os
from threading import Event

import pytest

from crawl_lib.config.model import DfsConfig
from crawl_lib.errors import StoppedError, StorageError
from crawl_lib.storage.hdfs import HdfsStorage
from tests.cluster.proxy import CuttingRelay, LossyProxy

MB = 1 << 20
DATA = os.urandom(8 * MB)


@pytest.fixture
def cutting(hdfs):
    with CuttingRelay(hdfs.data_ports[1]) as relay:
        yield relay


@pytest.fixture
def reach(hdfs, open_in, cutting):
    """Opens an empty store whose bodies go through the relay."""
    root = open_in(hdfs).name.partition("/krake/")[2]
    with LossyProxy(hdfs.url("nn1"), cutting.netloc) as proxy:
        yield lambda stop=None: HdfsStorage.open(
            f"{proxy.url}/krake/{root}", DfsConfig(timeout_s=30.0), stop
        )


@pytest.fixture
def storage(reach):
    return reach()


def names(storage: HdfsStorage) -> list[str]:
    return [entry.name for entry in storage.list("")]


def stream(storage: HdfsStorage, path: str, then=lambda: None) -> None:
    """Write a file that is not all in memory at once; after its first piece something happens."""
    with storage.open_write(path) as file:
        file.write(DATA)
        then()
        for _ in range(20):
            file.write(DATA)


def digest(storage: HdfsStorage, path: str) -> str:
    with storage.open_read(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@pytest.mark.parametrize("cuts", [[1], [MB], [6 * MB, 3 * MB, 100]])
def test_an_upload_is_sent_again(storage, cutting, tmp_path, cuts):
    (tmp_path / "big").write_bytes(DATA)
    cutting.cuts += cuts
    storage.upload(tmp_path / "big", "big")
    assert cutting.done == cuts
    assert names(storage) == ["big"]
    assert digest(storage, "big") == hashlib.sha256(DATA).hexdigest()


def test_a_small_file_is_sent_again(storage, cutting):
    cutting.cuts.append(1)
    storage.write_bytes("d/small", b"1" * 1000)
    assert cutting.done == [1]
    assert storage.read_bytes("d/small") == b"1" * 1000
    assert [entry.name for entry in storage.list("d")] == ["small"]


def test_a_stream_is_one_error_that_leaves_nothing(storage, cutting):
    """It says to run again, and the next attempt can write the same path."""
    cutting.cuts.append(3 * MB)
    with pytest.raises(
        StorageError,
        match=r"/big: cannot be written: .*a stream cannot be sent again, so run the task",
    ):
        stream(storage, "big")
    assert cutting.done == [3 * MB]
    assert names(storage) == []
    with storage.open_write("big") as file:
        file.write(DATA)
    assert digest(storage, "big") == hashlib.sha256(DATA).hexdigest()


def test_a_stop_ends_an_upload_and_leaves_nothing(reach, tmp_path):
    stop = Event()
    storage = reach(stop)
    (tmp_path / "big").write_bytes(DATA)
    stop.set()
    with pytest.raises(StoppedError):
        storage.upload(tmp_path / "big", "big")
    assert names(storage) == []


def test_a_stop_ends_a_stream_and_leaves_nothing(reach):
    stop = Event()
    storage = reach(stop)
    with pytest.raises(StoppedError):
        stream(storage, "big", stop.set)
    assert names(storage) == []


def test_a_datanode_that_is_late_makes_no_file_after_a_stop(reach, cutting):
    """A connection that is cut before the datanode looks at it makes the file all the same, after it was deleted."""
    stop = Event()
    storage = reach(stop)
    cutting.slow = Event()
    with pytest.raises(StoppedError):
        stream(storage, "big", stop.set)
    cutting.slow.set()
    cutting.end()
    assert names(storage) == []


def test_a_stop_ends_a_read(reach):
    stop = Event()
    storage = reach(stop)
    storage.write_bytes("big", DATA)
    with storage.open_read("big") as file:
        assert file.read(MB)
        stop.set()
        with pytest.raises(StoppedError):
            file.read()
