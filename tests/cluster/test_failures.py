"""Servers that die, return or change places while the store is used."""

from __future__ import annotations

import hashlib
import os
import re
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from crawl_lib.config.model import DfsConfig
from crawl_lib.errors import StorageError
from crawl_lib.storage.hdfs import HdfsStorage
from tests.cluster.hdfs import BLOCK

MB = 1 << 20
LIMIT_S = 600
PIECES = 4 * BLOCK // MB  # several blocks, so that the namenode is needed in the middle
EARLY = BLOCK // MB // 2
"""In the middle of the first block."""
PIECE = os.urandom(MB)


def write_with(storage: HdfsStorage, path: str, at: int, happens) -> None:
    """Write `PIECES` pieces; before number `at` something happens."""
    with storage.open_write(path) as file:
        for number in range(PIECES):
            if number == at:
                happens()
            file.write(PIECE)


def read_with(storage: HdfsStorage, path: str, at: int, happens) -> None:
    """Read them back and compare."""
    with storage.open_read(path) as file:
        for number in range(PIECES):
            if number == at:
                happens()
            assert file.read(MB) == PIECE
        assert file.read(1) == b""


def test_fail_over_in_the_middle_of_a_write(pair, open_in):
    storage = open_in(pair)
    write_with(storage, "big", EARLY, pair.fail_over)
    assert storage.stat("big").size_bytes == PIECES * MB
    assert storage._hdfs.namenodes[0] == pair.url(
        "nn2"
    )  # the one that answered is asked first from now on
    storage.rename("big", "d/renamed")
    read_with(storage, "d/renamed", EARLY, lambda: None)


def test_fail_over_in_the_middle_of_a_read_and_beside_small_requests(pair, open_in):
    storage = open_in(pair)
    write_with(storage, "big", 0, lambda: None)
    read_with(storage, "big", EARLY, pair.fail_over)
    storage.write_bytes("small", b"1")
    assert storage.delete("big") is True
    assert [entry.name for entry in storage.list("")] == ["small"]


def test_requests_wait_while_no_namenode_is_active(pair, open_in):
    """nn1 is dead, nn2 a standby: what is begun then ends after the fail-over."""
    storage = open_in(pair)
    storage.write_bytes("a", b"1")
    pair.kill("nn1")
    with pytest.raises(StorageError) as caught:
        HdfsStorage.open(storage.name, DfsConfig(wait_s=0.5))
    for text in (
        pair.url("nn1")[7:],
        "Connection refused",
        pair.url("nn2")[7:],
        "StandbyException",
    ):
        assert text in str(caught.value)
    with ThreadPoolExecutor(1) as other:
        renamed = other.submit(storage.rename, "a", "b")
        with pytest.raises(TimeoutError):
            renamed.result(timeout=1.0)
        pair.make_active("nn2", "--forceactive")
        renamed.result(LIMIT_S)
    assert storage.read_bytes("b") == b"1"


def restart(cluster, name: str) -> None:
    cluster.kill(name)
    cluster.start(name)


@pytest.fixture
def storage(breakable, open_in):
    breakable.wait_ready()
    return open_in(breakable)


def upload_with(storage: HdfsStorage, local, happens) -> None:
    """Upload a big file; when it has begun something happens."""
    local.write_bytes(PIECE * PIECES)
    with ThreadPoolExecutor(1) as other:
        uploaded = other.submit(storage.upload, local, "big")
        while not uploaded.done() and not any(
            entry.name.startswith(".big") for entry in storage.list("")
        ):
            pass
        happens()
        uploaded.result(LIMIT_S)


def test_namenode_restarts_in_the_middle_of_an_upload_and_of_a_read(breakable, storage, tmp_path):
    """Its safe mode after the start is waited for, too."""
    upload_with(storage, tmp_path / "big", lambda: restart(breakable, "nn1"))
    read_with(storage, "big", EARLY, lambda: restart(breakable, "nn1"))
    storage.rename("big", "b")
    assert [entry.name for entry in storage.list("")] == ["b"]


def test_namenode_restarts_in_the_middle_of_a_stream(breakable, storage):
    """There is no other namenode to go on with, so the datanode may give up: then it is an error, and no half file."""
    problems = []
    try:
        write_with(storage, "big", EARLY, lambda: restart(breakable, "nn1"))
    except StorageError as error:
        problems.append(str(error))
    assert all("big: cannot be written: " in problem for problem in problems)
    assert storage.exists("big") == (not problems)
    if not problems:
        read_with(storage, "big", 0, lambda: None)


def test_namenode_restarts_beside_many_small_requests(breakable, storage):
    restarted = threading.Event()

    def work() -> int:
        number = 0
        while not restarted.is_set() or number < 5:
            storage.write_bytes(f".h/{number}", b"1")
            storage.rename(f".h/{number}", f"d/{number}")
            number += 1
        return number

    with ThreadPoolExecutor(1) as other:
        done = other.submit(work)
        restart(breakable, "nn1")
        restarted.set()
        number = done.result(LIMIT_S)
    assert len(storage.list("d")) == number
    assert storage.list(".h") == []


def test_datanode_restarts_in_the_middle_of_a_read(breakable, storage):
    write_with(storage, "big", 0, lambda: None)
    read_with(storage, "big", EARLY, lambda: restart(breakable, "dn"))


def test_datanode_restarts_in_the_middle_of_an_upload(breakable, storage, tmp_path):
    """The file is sent again under another hidden name, and nothing else stays."""
    upload_with(storage, tmp_path / "big", lambda: restart(breakable, "dn"))
    breakable.wait_ready()
    assert [entry.name for entry in storage.list("")] == ["big"]
    digest = hashlib.sha256()
    with storage.open_read("big") as file:
        while block := file.read(MB):
            digest.update(block)
    assert digest.digest() == hashlib.sha256(PIECE * PIECES).digest()


def test_datanode_dies_in_the_middle_of_a_write(breakable, storage):
    """A stream cannot be sent again: one clear error that names path and datanode, and no half file."""
    datanode = re.escape(f"127.0.0.1:{breakable.data_ports[1]}")
    with pytest.raises(StorageError, match=rf"big: cannot be written: {datanode}: "):
        write_with(storage, "big", EARLY, lambda: breakable.kill("dn"))
    breakable.start("dn")
    breakable.wait_ready()
    assert not storage.exists("big")
    storage.write_bytes("big", b"1")
    assert storage.read_bytes("big") == b"1"


def test_small_writes_wait_for_a_datanode_that_restarts(breakable, storage):
    breakable.kill("dn")
    with ThreadPoolExecutor(1) as other:
        written = other.submit(storage.write_bytes, "a", b"1")
        with pytest.raises(TimeoutError):
            written.result(timeout=1.0)
        breakable.start("dn")
        written.result(LIMIT_S)
    assert storage.read_bytes("a") == b"1"
    assert [entry.name for entry in storage.list("")] == ["a"]
