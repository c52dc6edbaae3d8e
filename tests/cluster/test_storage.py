"""The contract of storage on a real HDFS, and what only HDFS can do."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import subprocess
import sys
import time

import pytest
import requests

from crawl_lib.config.model import DfsConfig
from crawl_lib.errors import PathNotFoundError, StorageError, StorageRightsError, TargetExistsError
from crawl_lib.storage.filestore import Entry
from crawl_lib.storage.hdfs import HdfsStorage
from crawl_lib.stores import Secrets
from crawl_lib.usable import shared_problems
from tests.cluster.conftest import QUICK
from tests.cluster.httpfs import HttpFs
from tests.cluster.proxy import LossyProxy
from tests.contracts.storage import StorageContract
from tests.ports import free_port

MB = 1 << 20
LIMIT_S = 600


class TestHdfsStorage(StorageContract):
    @pytest.fixture
    def storage(self, hdfs, open_in):
        return open_in(hdfs)


class TestAnswersAreLost(StorageContract):
    """The whole contract where the first answer to each changing request is lost."""

    @pytest.fixture
    def storage(self, hdfs, open_in):
        path = open_in(hdfs).name.partition("/krake/")[2]
        with LossyProxy(hdfs.url("nn1")) as proxy:
            storage = HdfsStorage.open(f"{proxy.url}/krake/{path}", DfsConfig(timeout_s=20))
            proxy.lose += ["RENAME", "MKDIRS", "DELETE"]
            yield storage


@pytest.fixture(scope="module")
def httpfs(hdfs, tmp_path_factory):
    with HttpFs(hdfs, tmp_path_factory.mktemp("httpfs") / "run") as gateway:
        yield gateway


class TestHttpFs(StorageContract):
    """The gateway, which has its own ways: an old rename, and files that go through it."""

    @pytest.fixture
    def storage(self, hdfs, httpfs, open_in):
        direct = open_in(hdfs)
        return HdfsStorage.open(
            direct.name.replace(hdfs.url("nn1"), httpfs.url), DfsConfig(wait_s=30.0)
        )


@pytest.mark.parametrize("what", ["file", "folder"])
def test_a_rename_whose_answer_was_lost_is_recognised(hdfs, open_in, what):
    with LossyProxy(hdfs.url("nn1")) as proxy:
        storage = HdfsStorage.open(f"{proxy.url}/krake/lost-{what}", DfsConfig())
        storage.write_bytes("a" if what == "file" else "a/x", b"1")
        proxy.lose.append("RENAME")
        storage.rename("a", "b")
        assert proxy.lose == []
        assert proxy.seen.count("RENAME") >= 3  # of write_bytes, lost, refused
        assert not storage.exists("a")
        assert storage.read_bytes("b" if what == "file" else "b/x") == b"1"


@pytest.mark.parametrize("source", ["file", "folder"])
@pytest.mark.parametrize("target", ["file", "folder"])
@pytest.mark.parametrize("server", ["namenode", "httpfs"])
def test_a_target_that_appears_at_the_last_moment_is_refused(
    hdfs, httpfs, open_in, source, target, server
):
    """It has the same length; its id tells that it is not ours. HDFS's own way is to move into a folder."""
    url = hdfs.url("nn1") if server == "namenode" else httpfs.url
    direct = open_in(hdfs)
    direct.write_bytes("a" if source == "file" else "a/x", b"1")
    with LossyProxy(url) as proxy:
        storage = HdfsStorage.open(
            direct.name.replace(hdfs.url("nn1"), proxy.url), DfsConfig(wait_s=1.0)
        )
        proxy.before["RENAME"] = lambda: direct.write_bytes(
            "b" if target == "file" else "b/y", b"2"
        )
        with pytest.raises(TargetExistsError, match="b"):
            storage.rename("a", "b")
        assert proxy.before == {}
    assert direct.read_bytes("a" if source == "file" else "a/x") == b"1"
    assert direct.read_bytes("b" if target == "file" else "b/y") == b"2"
    assert not direct.exists("b/a")


STREAM = """
import hashlib, os, resource, sys, time
from crawl_lib.config.model import DfsConfig
from crawl_lib.storage.hdfs import HdfsStorage

storage = HdfsStorage.open(sys.argv[1], DfsConfig())
storage.write_bytes("warm", b"1")
piece = os.urandom(1 << 20)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
def cpu():
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime
begun, used = time.monotonic(), cpu()
with storage.open_write("big") as file:
    for _ in range(300):
        file.write(piece)
print("open_write", 300 / (time.monotonic() - begun), (cpu() - used) / 300 * 1000)
begun, used = time.monotonic(), cpu()
total = 0
with storage.open_read("big") as file:
    while data := file.read(1 << 20):
        total += len(data)
print("open_read", 300 / (time.monotonic() - begun), (cpu() - used) / 300 * 1000)
print("total", total, 0)
print("grown", resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before, 0)
"""


def test_300_mb_are_written_and_read_in_constant_memory(hdfs, open_in):
    """In a process of its own, whose largest resident size is looked at."""
    storage = open_in(hdfs)
    done = subprocess.run(
        [sys.executable, "-c", STREAM, storage.name],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
    )
    assert done.returncode == 0, done.stderr
    figures = {
        line.split()[0]: [float(word) for word in line.split()[1:]]
        for line in done.stdout.splitlines()
    }
    for name in ("open_write", "open_read"):
        print(f"{name}: {figures[name][0]:.0f} MB/s, {figures[name][1]:.2f} ms CPU a MB")
    assert figures["total"][0] == 300 * MB
    assert figures["grown"][0] < 32 * 1024  # KiB
    assert storage.stat("big").size_bytes == 300 * MB


def test_upload_and_ranged_reads_of_a_big_file(hdfs, open_in, tmp_path):
    storage = open_in(hdfs)
    data = os.urandom(8 * MB)
    local = tmp_path / "big"
    local.write_bytes(data * 25)
    begun, used = time.monotonic(), time.process_time()
    storage.upload(local, "d/big")
    seconds, cpu = time.monotonic() - begun, time.process_time() - used
    print(f"upload: {200 / seconds:.0f} MB/s, {cpu / 200 * 1000:.2f} ms CPU a MB")
    assert [entry.name for entry in storage.list("d")] == ["big"]
    begun = time.monotonic()
    for number in range(100):
        offset = number * (2 * MB - 7)
        with storage.open_read("d/big", offset, 5000) as file:
            assert file.read() == (data * 2)[offset % len(data) :][:5000]
    print(f"ranged reads of 5 kB: {100 / (time.monotonic() - begun):.0f}/s")
    storage.download("d/big", tmp_path / "copy")
    assert (
        hashlib.sha256((tmp_path / "copy").read_bytes()).digest()
        == hashlib.sha256(data * 25).digest()
    )


def test_a_stream_may_be_left_in_the_middle(hdfs, open_in):
    """Its connection is dropped; the next requests are not harmed."""
    storage = open_in(hdfs)
    storage.write_bytes("f", os.urandom(20 * MB))
    for _ in range(12):  # more than the pool has connections
        with storage.open_read("f") as file:
            file.read(10)
    assert storage.stat("f").size_bytes == 20 * MB


def test_many_files_at_once(hdfs, open_in):
    storage = open_in(hdfs)
    files = [storage.open_write(f"f{number}") for number in range(12)]
    for round_number in range(3):
        for number, file in enumerate(files):
            file.write(bytes([number, round_number]) * MB)
    for file in files:
        file.close()
    for number in range(12):
        wanted = b"".join(bytes([number, round_number]) * MB for round_number in range(3))
        assert storage.read_bytes(f"f{number}") == wanted


def test_names_that_need_quoting(hdfs, open_in):
    storage = open_in(hdfs)
    for name in ("a b", "ä%41+?&=#LATEST", "x;y", "q'\"", "日本"):
        storage.write_bytes(f"{name}/{name}", name.encode())
        storage.rename(name, f"{name}2")
        assert storage.read_bytes(f"{name}2/{name}") == name.encode()
        assert [entry.name for entry in storage.list(f"{name}2")] == [name]
    assert len(storage.list("")) == 5


def test_what_is_no_file_or_folder(hdfs, open_in):
    storage = open_in(hdfs)
    storage.write_bytes("d/f", b"1")
    with pytest.raises(StorageError, match="d/f: cannot be listed: is a regular file"):
        storage.list("d/f")
    with pytest.raises(StorageError, match="d/f"):
        storage.make_dirs("d/f")
    with pytest.raises(StorageError, match="d"):
        storage.open_read("d")
    with pytest.raises(StorageError, match="inside itself"):
        storage.rename("d", "d/e")
    with pytest.raises(StorageError, match="root"):
        storage.delete("")
    with pytest.raises(PathNotFoundError):
        storage.open_read("d/f/x")
    assert storage.delete("d/f/x") is False


def test_no_permission_names_path_and_user(hdfs):
    """The root path is not the user's, and cannot be made by it."""
    with pytest.raises(
        StorageError,
        match=r"/not-mine: cannot be made: no permission: .*hdfs dfs -chown krake /not-mine",
    ):
        HdfsStorage.open(f"{hdfs.address}/not-mine", DfsConfig())


@pytest.mark.parametrize("gateway", ["hdfs", "httpfs"])
def test_rights_are_known_before_anything_is_written(request, hdfs, open_in, gateway):
    """Of the root, of a folder in it that belongs to another user, and of a root that is yet to be made."""
    ours = open_in(hdfs)
    url = hdfs.url("nn1") if gateway == "hdfs" else request.getfixturevalue(gateway).url
    address = ours.name.replace(hdfs.url("nn1"), url)
    ours.make_dirs("exports")
    mine, theirs = (
        HdfsStorage.open(address, DfsConfig(user=user), make=False) for user in ("krake", "other")
    )
    for path in ("", "exports", "exports/not/there"):
        mine.require_writable(path)
        with pytest.raises(StorageRightsError, match=r"no permission: .*; let dfs.user own /krake"):
            theirs.require_writable(path)
    for user in ("krake", "other"):
        new = HdfsStorage.open(f"{address}/new", DfsConfig(user=user), make=False)
        if user == "krake":
            new.require_writable("any")
        else:
            with pytest.raises(
                StorageRightsError, match=r"hdfs dfs -mkdir -p /krake/.*/new; hdfs dfs -chown other"
            ):
                new.require_writable("any")
    assert ours.list("") == [Entry("exports", is_dir=True, size_bytes=0)]


def test_a_root_without_rights_is_enough_where_crawl_and_exports_are_ours(hdfs, open_in, config):
    storage = open_in(hdfs)
    for folder in (config.crawl.directory, config.export.directory):
        storage.make_dirs(folder)
    path = storage.name.removeprefix(hdfs.url("nn1"))
    url = f"{hdfs.url('nn1')}/webhdfs/v1{path}?op=SETPERMISSION&permission=555&user.name=krake"
    requests.put(url, timeout=30).raise_for_status()
    with pytest.raises(StorageRightsError):
        storage.require_writable("")
    config = dataclasses.replace(config, dfs_primary=storage.name, dfs=QUICK)
    assert not [
        one for one in shared_problems(config, Secrets()) if isinstance(one, StorageRightsError)
    ]


def test_namenode_down_is_a_clear_error_after_the_wait():
    address = f"http://127.0.0.1:{free_port()}"
    with pytest.raises(
        StorageError, match=rf"{address}/krake: .*Connection refused; asked again for 1 s"
    ):
        HdfsStorage.open(f"{address}/krake", DfsConfig(wait_s=1.0))


def test_local_file_that_is_missing_or_grows_short(hdfs, open_in, tmp_path):
    storage = open_in(hdfs)
    with pytest.raises(StorageError, match="gone: cannot be read"):
        storage.upload(tmp_path / "gone", "x")
    assert storage.list("") == []
