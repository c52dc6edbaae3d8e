"""Files of a remote store under DuckDB's threads."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from crawl_lib.engine.remote import StoreFiles
from crawl_lib.errors import PathNotFoundError
from crawl_lib.storage import LocalStorage
from tests.export.test_remote import Elsewhere

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

    file = files.open(files.address("a/file"))
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
        files.open(files.address("a/none"))
