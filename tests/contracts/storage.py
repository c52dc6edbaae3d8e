"""The contract of `Storage`, run on every back end: a subclass gives the fixture `storage`."""

from __future__ import annotations

import os

import pytest

from crawl_lib.errors import PathNotFoundError, StorageError, TargetExistsError
from crawl_lib.storage import Entry, Storage


class StorageContract:
    """Subclasses in tests/storage name a back end by the fixture `storage`: an empty store."""

    @pytest.fixture
    def storage(self) -> Storage:
        raise NotImplementedError("a back end gives this fixture")

    def test_what_is_written_is_read(self, storage):
        storage.write_bytes("a/b/c", b"abc")
        assert storage.read_bytes("a/b/c") == b"abc"
        assert storage.stat("a/b/c") == Entry("c", False, 3)

    def test_write_refuses_an_existing_file(self, storage):
        storage.write_bytes("a", b"old")
        with pytest.raises(TargetExistsError, match="a"):
            storage.write_bytes("a", b"new")
        with pytest.raises(TargetExistsError):
            storage.open_write("a")
        assert storage.read_bytes("a") == b"old"
        assert [entry.name for entry in storage.list("")] == ["a"]

    def test_a_write_that_fails_leaves_nothing(self, storage):
        def write():
            with storage.open_write("d/a") as file:
                file.write(b"half")
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            write()
        assert not storage.exists("d/a")
        assert storage.list("d") == []

    @pytest.mark.parametrize(
        ("offset", "length", "expected"),
        [
            (0, None, b"0123456789"),
            (3, None, b"3456789"),
            (3, 4, b"3456"),
            (8, 10, b"89"),
            (10, 5, b""),
            (0, 0, b""),
        ],
    )
    def test_ranged_read(self, storage, offset, length, expected):
        storage.write_bytes("f", b"0123456789")
        with storage.open_read("f", offset, length) as file:
            assert file.read() == expected
        with storage.open_read("f", offset, length) as file:
            assert b"".join(iter(lambda: file.read(3), b"")) == expected

    def test_random_reads(self, storage):
        data = os.urandom(300_000)
        storage.write_bytes("f", data)
        with storage.open_seekable("f") as file:
            assert file.seek(0, os.SEEK_END) == len(data)
            file.seek(-8, os.SEEK_END)
            assert file.read() == data[-8:]
            file.seek(1000)
            assert file.read(500) == data[1000:1500]
            assert file.tell() == 1500

    @pytest.mark.parametrize("act", ["open_read", "read_bytes", "list", "open_seekable"])
    def test_what_is_not_there(self, storage, act):
        with pytest.raises(PathNotFoundError, match="gone"):
            getattr(storage, act)("x/gone")
        assert storage.stat("x/gone") is None
        assert storage.delete("x/gone") is False

    def test_rename_moves_a_file(self, storage):
        storage.write_bytes("a", b"1")
        storage.rename("a", "new/b")
        assert not storage.exists("a")
        assert storage.read_bytes("new/b") == b"1"

    def test_rename_moves_a_folder_with_all_in_it(self, storage):
        storage.write_bytes(".h/x/y", b"1")
        storage.rename(".h", "d")
        assert not storage.exists(".h")
        assert storage.read_bytes("d/x/y") == b"1"

    @pytest.mark.parametrize("source", ["file", "folder"])
    @pytest.mark.parametrize("target", ["file2", "folder2", "empty"])
    def test_rename_refuses_any_existing_target(self, storage, source, target):
        storage.write_bytes("file", b"1")
        storage.write_bytes("file2", b"2")
        storage.write_bytes("folder/x", b"3")
        storage.write_bytes("folder2/x", b"4")
        storage.make_dirs("empty")
        with pytest.raises(TargetExistsError, match=target):
            storage.rename(source, target)
        assert [entry.name for entry in storage.list("")] == [
            "empty",
            "file",
            "file2",
            "folder",
            "folder2",
        ]
        assert [
            storage.read_bytes(path) for path in ("file", "file2", "folder/x", "folder2/x")
        ] == [
            b"1",
            b"2",
            b"3",
            b"4",
        ]
        assert storage.list("empty") == []

    def test_rename_of_nothing(self, storage):
        with pytest.raises(PathNotFoundError, match="nothing"):
            storage.rename("nothing", "b")

    def test_list_is_sorted_and_shows_hidden_names(self, storage):
        storage.write_bytes("d/b", b"12")
        storage.write_bytes("d/.a", b"")
        storage.make_dirs("d/c")
        assert storage.list("d") == [
            Entry(".a", False, 0),
            Entry("b", False, 2),
            Entry("c", True, 0),
        ]

    def test_delete(self, storage):
        storage.write_bytes("d/e/f", b"1")
        storage.write_bytes("g", b"1")
        assert storage.delete("d") is True
        assert storage.delete("g") is True
        assert storage.list("") == []

    def test_a_stamp_differs_once_another_file_is_there(self, storage):
        storage.write_bytes("a/b", b"first")
        stamp = storage.stamp("a/b")
        assert stamp is not None
        assert storage.stamp("a/b") == stamp
        storage.delete("a/b")
        assert storage.stamp("a/b") is None
        storage.write_bytes("a/b", b"another")
        assert storage.stamp("a/b") not in {None, stamp}

    def test_what_is_there_may_be_secured(self, storage):
        storage.write_bytes("a/b/c", b"c")
        for path in ("a/b/c", "a/b", "a"):
            storage.secure(path)
        assert storage.read_bytes("a/b/c") == b"c"

    def test_make_dirs_may_be_repeated(self, storage):
        storage.make_dirs("a/b")
        storage.make_dirs("a/b")
        assert storage.stat("a/b") == Entry("b", True, 0)

    def test_upload_and_download(self, storage, tmp_path):
        data = os.urandom(3_000_000)
        (tmp_path / "source").write_bytes(data)
        storage.upload(tmp_path / "source", "d/f")
        with pytest.raises(TargetExistsError):
            storage.upload(tmp_path / "source", "d/f")
        storage.download("d/f", tmp_path / "copy")
        assert (tmp_path / "copy").read_bytes() == data

    def test_a_final_file_is_there_when_the_local_one_goes(self, storage, tmp_path):
        """Whether it was copied or linked: whole, durable, never over another file."""
        local = tmp_path / "source"
        local.write_bytes(b"1" * 3_000_000)
        storage.upload_final(local, "d/f")
        with pytest.raises(TargetExistsError):
            storage.upload_final(local, "d/f")
        local.unlink()
        assert storage.read_bytes("d/f") == b"1" * 3_000_000
        with pytest.raises(StorageError, match="source"):
            storage.upload_final(local, "d/g")
        assert [entry.name for entry in storage.list("d")] == ["f"]

    @pytest.mark.parametrize("path", ["/abs", "a/../b", "a//b", "./a", "a:b", "a\0b", "..", "a/"])
    def test_paths_leave_the_root_never(self, storage, path):
        with pytest.raises(StorageError):
            storage.write_bytes(path, b"")
        with pytest.raises(StorageError):
            storage.stat(path)

    def test_a_path_below_a_file_is_a_clear_error(self, storage):
        storage.write_bytes("f", b"1")
        with pytest.raises(StorageError, match="f"):
            storage.write_bytes("f/x", b"")
        assert storage.stat("f/x") is None
        with pytest.raises(StorageError, match="regular file") as caught:
            storage.list("f/x")
        assert not isinstance(caught.value, PathNotFoundError)

    def test_a_file_is_no_missing_folder(self, storage):
        storage.write_bytes("f", b"1")
        with pytest.raises(StorageError, match="regular file") as caught:
            storage.list("f")
        assert not isinstance(caught.value, PathNotFoundError)

    def test_free_bytes(self, storage):
        assert storage.free_bytes() > 0
