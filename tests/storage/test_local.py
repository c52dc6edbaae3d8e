"""The local back end: the contract, and what only a local disk can do wrong."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path

import pytest

from crawl_lib.config import Config
from crawl_lib.errors import ConfigError, StorageError, TargetExistsError
from crawl_lib.storage import Entry, LocalStorage, Storage, open_storage
from crawl_lib.storage import local as local_module
from tests.contracts.storage import StorageContract


class TestLocalStorage(StorageContract):
    @pytest.fixture
    def storage(self, tmp_path):
        return LocalStorage.open(tmp_path / "root")


class TestWithoutNoReplace(TestLocalStorage):
    """File systems that know no RENAME_NOREPLACE keep the same contract."""

    @pytest.fixture(autouse=True)
    def _old_file_system(self, monkeypatch):
        monkeypatch.setattr(local_module, "_renameat2", lambda source, target: errno.EINVAL)


def config(address: str) -> Config:
    return Config(servers=("a",), dfs_primary=address)


def test_missing_root_is_made_if_its_parent_is_there(tmp_path):
    storage = open_storage(config(str(tmp_path / "dfs")))
    storage.write_bytes("x", b"1")
    assert (tmp_path / "dfs" / "x").read_bytes() == b"1"
    with pytest.raises(ConfigError, match=r"no/dfs: the parent directory is not there"):
        open_storage(config(str(tmp_path / "no" / "dfs")))


def test_root_that_is_a_file_or_below_one(tmp_path):
    (tmp_path / "f").write_bytes(b"")
    with pytest.raises(ConfigError, match="is a file"):
        open_storage(config(str(tmp_path / "f")))
    with pytest.raises(ConfigError, match="parent directory"):
        open_storage(config(str(tmp_path / "f" / "x")))


def test_a_folder_that_another_process_makes_meanwhile_is_used(tmp_path, monkeypatch):
    storage = open_storage(config(str(tmp_path / "dfs")))
    is_dir, looks = Path.is_dir, []

    def missing_then_made(place: Path) -> bool:
        found = is_dir(place)
        looks.append(place.name)
        if looks.count("started") == 1 and not found:  # the last look before it is made
            os.mkdir(place)  # noqa: PTH102 - that of Path asks `is_dir`
        return found

    monkeypatch.setattr(Path, "is_dir", missing_then_made)
    storage.write_bytes("started/x", b"1")
    assert storage.read_bytes("started/x") == b"1"


@pytest.mark.parametrize("length", [None, 10])
def test_a_disk_that_cannot_be_read_is_an_error_of_the_store(length):
    """Also in the middle of a file, and however it is read. The kernel lets no one read the memory at address 0."""
    storage = LocalStorage(Path("/proc/self"))
    for read in (
        lambda file: file.read(),
        lambda file: file.read(10),
        lambda file: file.readinto(bytearray(10)),
    ):
        with (
            storage.open_read("mem", 0, length) as file,
            pytest.raises(StorageError, match="/proc/self/mem: cannot be"),
        ):
            read(file)


def test_a_local_file_that_cannot_be_read_on_is_named_and_nothing_is_left(tmp_path: Path) -> None:
    storage = LocalStorage.open(tmp_path / "root")
    with pytest.raises(StorageError, match="/proc/self/mem: cannot be read"):
        storage.upload(Path("/proc/self/mem"), "f")
    assert storage.list("") == []


def test_a_file_that_goes_while_its_folder_is_listed_does_not_take_the_folder_with_it(
    tmp_path: Path,
) -> None:
    """Readers take a folder that is not there for an empty one. Here a link that leads nowhere is such a file."""
    storage = LocalStorage.open(tmp_path / "root")
    storage.write_bytes("d/a", b"1")
    (tmp_path / "root/d/gone").symlink_to("nowhere")
    assert storage.list("d") == [Entry("a", False, 1)]


def test_what_another_process_deletes_first_was_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = LocalStorage.open(tmp_path / "root")
    monkeypatch.setattr(storage, "stat", lambda path: Entry("f", False, 1))
    assert storage.delete("f") is False


def test_a_name_that_is_too_long_is_an_error_of_the_store(tmp_path: Path) -> None:
    name = "x" * 300
    with pytest.raises(StorageError, match="File name too long"):
        LocalStorage.open(tmp_path / name)
    with pytest.raises(StorageError, match="File name too long"):
        LocalStorage.open(tmp_path / "root").write_bytes(f"{name}/f", b"")


def test_errors_name_path_and_reason(tmp_path, monkeypatch):
    storage = LocalStorage.open(tmp_path / "root")
    storage.write_bytes("f", b"1")
    with pytest.raises(StorageError, match=r"root/f: cannot be made: .*regular file"):
        storage.write_bytes("f/x", b"")

    def refuse(*args, **more):
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(os, "scandir", refuse)
    with pytest.raises(StorageError, match=r"root: cannot be listed: no permission"):
        storage.list("")


def test_full_disk_leaves_no_file(tmp_path, monkeypatch):
    storage = LocalStorage.open(tmp_path / "root")

    def full(file):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(local_module, "fsync_file", full)
    with pytest.raises(StorageError, match=r"root/.f\..*No space left"):
        storage.write_bytes("f", b"x")
    assert storage.list("") == []


def test_folder_is_not_renamed_into_itself(tmp_path):
    storage = LocalStorage.open(tmp_path / "root")
    storage.write_bytes("d/x", b"1")
    with pytest.raises(StorageError):
        storage.rename("d", "d/e")
    assert storage.read_bytes("d/x") == b"1"


def test_two_writers_of_one_path(tmp_path):
    storage = LocalStorage.open(tmp_path / "root")
    with storage.open_write("f") as first:
        with pytest.raises(TargetExistsError):
            storage.open_write("f")
        first.write(b"1")
    assert storage.read_bytes("f") == b"1"


def test_ranged_file_reads_as_a_file_does(tmp_path):
    storage = LocalStorage.open(tmp_path / "root")
    storage.write_bytes("f", bytes(range(100)))
    with Storage.open_seekable(storage, "f") as file:
        file.seek(90)
        assert file.read(20) == bytes(range(90, 100))
        assert file.read(1) == b""


def test_a_final_file_takes_no_second_room(tmp_path):
    storage = LocalStorage.open(tmp_path / "root")
    (tmp_path / "source").write_bytes(b"1")
    storage.upload_final(tmp_path / "source", "d/f")
    assert (tmp_path / "root/d/f").samefile(tmp_path / "source")


def test_a_final_file_is_copied_where_it_cannot_be_linked(tmp_path, monkeypatch):
    """Another disk, or a file system without hard links."""

    def refuse(target, source):
        raise OSError(errno.EXDEV, "Invalid cross-device link")

    monkeypatch.setattr(Path, "hardlink_to", refuse)
    storage = LocalStorage.open(tmp_path / "root")
    (tmp_path / "source").write_bytes(b"1")
    storage.upload_final(tmp_path / "source", "d/f")
    assert storage.read_bytes("d/f") == b"1"
    assert not (tmp_path / "root/d/f").samefile(tmp_path / "source")


def test_a_folder_that_two_delete_at_once_is_gone_for_both(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sweep takes what a killed attempt was deleting, and cannot know that it was killed."""
    store = LocalStorage.open(tmp_path / "store")
    store.write_bytes("folder/a", b"")
    store.write_bytes("folder/below/b", b"")
    real = os.unlink

    def unlink(path: str, *, dir_fd: int | None = None) -> None:
        monkeypatch.undo()
        [rubbish] = (tmp_path / "store").glob(".deleted.*")
        shutil.rmtree(rubbish)
        real(path, dir_fd=dir_fd)

    monkeypatch.setattr(os, "unlink", unlink)
    assert store.delete("folder")
    assert list(tmp_path.glob("store/*")) == []
