"""Files of a remote store under DuckDB's threads."""

from __future__ import annotations

import io
import random
import threading
from pathlib import Path

import pytest

from crawl_lib.engine import remote
from crawl_lib.engine.remote import StoreFiles
from crawl_lib.errors import PathNotFoundError
from crawl_lib.storage import LocalStorage
from tests.export.test_remote import Elsewhere


def _address(path: str) -> str:
    return f"{remote.SCHEME}://{path}"


DATA = bytes(range(256)) * 64


@pytest.fixture
def files(tmp_path: Path) -> StoreFiles:
    store = LocalStorage.open(tmp_path)
    store.write_bytes("a/file", DATA)
    return StoreFiles(Elsewhere(store))


def test_a_thread_reads_where_it_sought_whatever_others_do_in_between(files: StoreFiles) -> None:
    """DuckDB shares a handle between threads, and an offset read is a `seek` and a `read`."""
    found: list[bytes] = []

    def other() -> None:
        file.seek(7000)
        found.append(file.read(10))

    file = files.open(_address("a/file"))
    file.seek(300)
    thread = threading.Thread(target=other)
    thread.start()
    thread.join()
    assert file.tell() == 300
    assert file.read(10) == DATA[300:310]
    assert file.read(5) == DATA[310:315]
    file.close()
    assert found == [DATA[7000:7010]]


def test_a_file_that_is_not_there_is_an_error_when_it_is_opened(files: StoreFiles) -> None:
    with pytest.raises(PathNotFoundError):
        files.open(_address("a/none"))


def test_reads_of_any_place_and_size_are_the_files_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Within a block, across blocks, larger than one, at and beyond the end."""
    monkeypatch.setattr(remote, "BLOCK_BYTES", 1000)
    store = LocalStorage.open(tmp_path)
    data = random.Random(1).randbytes(10_000)
    store.write_bytes("a", data)
    files = StoreFiles(Elsewhere(store))
    file = files.open(_address("a"))
    rng = random.Random(2)
    for _ in range(3000):
        offset, size = rng.randrange(10_100), rng.choice([0, 1, 8, 100, 999, 1000, 1001, 5000])
        assert file.seek(offset) == offset
        assert file.read(size) == data[offset : offset + size]
        assert file.tell() == max(offset, min(offset + size, 10_000))
    assert file.seek(-4, io.SEEK_END) == 9996
    assert file.read() == data[-4:]
    assert file.seek(-10, io.SEEK_CUR) == 9990


def test_memory_does_not_grow_with_files_and_threads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is kept of what was read is a few blocks in all, and a file's small reads are one request."""
    monkeypatch.setattr(remote, "BLOCK_BYTES", 1000)
    inner = LocalStorage.open(tmp_path)
    for number in range(40):
        inner.write_bytes(f"{number}", bytes(3000))
    store = Elsewhere(inner)
    files = StoreFiles(store)
    handles = [files.open(_address(f"{number}")) for number in range(40)]

    def read_all() -> None:
        for handle in handles:
            for offset in (0, 400, 900):
                handle.seek(offset)
                assert handle.read(50) == bytes(50)

    for _ in range(4):
        thread = threading.Thread(target=read_all)
        thread.start()
        thread.join()
    assert len(store.opened) == 4 * 40
    assert files._block.cache_info().currsize <= remote.MAX_BLOCKS
