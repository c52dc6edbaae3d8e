"""A file store in a local directory."""

import ctypes
import errno
import io
import os
import shutil
import stat
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, cast

from crawl_lib.durable import fsync_dir, fsync_file
from crawl_lib.errors import (
    ConfigError,
    PathNotFoundError,
    StorageError,
    TargetExistsError,
    os_error,
)
from crawl_lib.storage.filestore import COPY_BYTES, Entry, Storage, check_path

AT_FDCWD = -100
RENAME_NOREPLACE = 1  # renameat2(2)
DELETED = "deleted"
"""A folder that is being deleted is called `.deleted.<id>`."""
NOT_SUPPORTED = frozenset({errno.EINVAL, errno.ENOSYS, errno.ENOTSUP})


class LocalStorage(Storage):
    """Files below the existing folder `root`. `open` also makes it."""

    def __init__(self, root: Path) -> None:
        self.root = root

    @classmethod
    def open(cls, root: Path, *, make: bool = True) -> "LocalStorage":
        """Open the store in a directory.

        The directory is made if its parent exists (and `make`). Raises ConfigError if the parent is missing or `root`
        is a file, StorageError if the directory cannot be made.
        """
        with _translated(root, "cannot be made"):
            if not root.exists() and not root.parent.is_dir():
                raise ConfigError(
                    f"dfs_primary: {root}: the parent directory is not there; create it, or correct the path"
                )
            if root.exists() and not root.is_dir():
                raise ConfigError(f"dfs_primary: {root}: is a file, not a directory")
            if make:
                root.mkdir(exist_ok=True)
                fsync_dir(root.parent)
        return cls(root)

    @property
    def name(self) -> str:
        """The directory."""
        return str(self.root)

    def local_path(self, path: str) -> Path:
        """Return a file's place on the disk."""
        return self.root / check_path(path) if path else self.root

    def open_read(self, path: str, offset: int = 0, length: int | None = None) -> BinaryIO:
        place = self.local_path(path)
        with _translated(place, "cannot be read"):
            file = _OldFile(place, length)
            file.seek(offset)
        return cast(BinaryIO, io.BufferedReader(file))

    def open_seekable(self, path: str) -> BinaryIO:
        return self.open_read(path)

    def open_write(self, path: str) -> BinaryIO:
        return self._new_file(path)

    def _new_file(self, path: str, *, sync_folder: bool = True) -> BinaryIO:
        place = self.local_path(path)
        self._make_dir(place.parent)
        with _translated(place, "cannot be created"):
            return _NewFile(place, sync_folder=sync_folder)

    def _open_hidden(self, path: str) -> BinaryIO:
        return self._new_file(path, sync_folder=False)

    def upload_final(self, local: Path, path: str) -> None:
        """Link a file on the same file system, else copy it."""
        place = self.local_path(path)
        self._make_dir(place.parent)
        try:
            with local.open("rb") as file:
                os.fsync(file.fileno())
            place.hardlink_to(local)
        except OSError:  # the copy says what is wrong, if something is
            self.upload(local, path)
            return
        with _translated(place, "cannot be created"):
            fsync_dir(place.parent)

    def rename(self, source: str, target: str) -> None:
        here, there = self.local_path(source), self.local_path(target)
        if not os.path.lexists(here):
            raise PathNotFoundError(f"{here}: is not there, so it cannot be renamed to {there}")
        self._make_dir(there.parent)
        with _translated(there, f"{here} cannot be renamed to it"):
            rename_exclusive(here, there)
            fsync_dir(there.parent)
            if here.parent != there.parent:
                fsync_dir(here.parent)

    def secure(self, path: str) -> None:
        """Sync all folders above a path.

        An earlier one may be new too.
        """
        place = self.local_path(path)
        with _translated(place, "cannot be made durable"):
            while place != self.root:
                place = place.parent
                fsync_dir(place)

    def list(self, path: str) -> list[Entry]:
        place, found = self.local_path(path), []
        with _translated(place, "cannot be listed"), os.scandir(place) as entries:
            for entry in entries:
                with suppress(
                    FileNotFoundError
                ):  # it went meanwhile, which does not mean that the folder is not there
                    found.append(
                        Entry(
                            entry.name,
                            entry.is_dir(),
                            0 if entry.is_dir() else entry.stat().st_size,
                        )
                    )
        return sorted(found)

    def stat(self, path: str) -> Entry | None:
        status = self._status(path)
        if status is None:
            return None
        is_dir = stat.S_ISDIR(status.st_mode)
        return Entry(path.rpartition("/")[2], is_dir, 0 if is_dir else status.st_size)

    def stamp(self, path: str) -> str | None:
        status = self._status(path)
        return None if status is None else f"{status.st_size} {status.st_mtime_ns} {status.st_ino}"

    def _status(self, path: str) -> os.stat_result | None:
        """Return the disk's status of a path, or None."""
        place = self.local_path(path)
        try:
            return place.stat()
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise os_error(error, place, "cannot be looked at") from error

    def delete(self, path: str) -> bool:
        """Delete a path.

        A folder first gets a hidden name, so that no reader sees half of the folder.
        """
        if not path:
            raise StorageError(f"{self.root}: the root of the file store is not deleted")
        place = self.local_path(path)
        if self.stat(path) is None:
            return False
        with (
            suppress(PathNotFoundError),
            _translated(place, "cannot be deleted"),
        ):  # another one may have been faster
            if place.is_dir() and not place.is_symlink():
                rubbish = place.with_name(f".{DELETED}.{uuid.uuid4().hex}")
                place.rename(rubbish)
                fsync_dir(place.parent)
                while rubbish.exists():
                    with suppress(FileNotFoundError):  # another one deletes it too
                        shutil.rmtree(rubbish)
            else:
                place.unlink()
            fsync_dir(place.parent)
            return True
        return False

    def make_dirs(self, path: str) -> None:
        self._make_dir(self.local_path(path))

    def free_bytes(self) -> int:
        with _translated(self.root, "cannot be looked at"):
            return shutil.disk_usage(self.root).free

    def _make_dir(self, place: Path) -> None:
        with _translated(place, "cannot be made"):
            if place == self.root or place.is_dir():
                return
            self._make_dir(place.parent)
            try:
                place.mkdir(exist_ok=True)  # another process may make it meanwhile
            except FileExistsError:
                raise NotADirectoryError(errno.ENOTDIR, "is a file") from None
            fsync_dir(place.parent)


class _NewFile(io.BufferedWriter):
    """A new file; durable on close, deleted when its `with` ends by an exception.

    `sync_folder`: whether its name is durable on close, too.
    """

    def __init__(self, place: Path, *, sync_folder: bool = True) -> None:
        super().__init__(io.FileIO(place, "xb"), COPY_BYTES)
        self._place, self._sync_folder = place, sync_folder

    def write(self, data: Any) -> int:
        with _translated(self._place, "cannot be written"):
            return super().write(data)

    def close(self) -> None:
        if self.closed:
            return
        try:
            with _translated(self._place, "cannot be written"):
                fsync_file(self)
                super().close()
                if self._sync_folder:
                    fsync_dir(self._place.parent)
        except StorageError:
            self._discard()
            raise

    def _discard(self) -> None:
        with suppress(OSError):
            super().close()
        self._place.unlink(missing_ok=True)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None:
            self.close()
            return
        self._discard()


class _OldFile(io.FileIO):
    """A file to read, `length` bytes or to the end; what the disk says on the way is a StorageError."""

    def __init__(self, place: Path, length: int | None) -> None:
        super().__init__(place, "rb")
        self._place, self._left = place, length

    def readinto(self, buffer: object) -> int:
        view = memoryview(buffer).cast("B")[: self._left]  # type: ignore[arg-type]
        with _translated(self._place, "cannot be read"):
            count = super().readinto(view)
        if self._left is not None:
            self._left -= count
        return count

    def readall(self) -> bytes:
        return b"".join(iter(lambda: io.RawIOBase.read(self, COPY_BYTES) or b"", b""))


def rename_exclusive(source: Path, target: Path) -> None:
    """Rename a path, refusing an existing target in one step.

    By renameat2 with RENAME_NOREPLACE. Raises OSError; FileExistsError for an existing target.
    """
    code = _renameat2(source, target)
    if code in NOT_SUPPORTED and not target.is_relative_to(
        source
    ):  # a folder into itself is EINVAL too
        _rename_by_claim(source, target)
    elif code:
        raise OSError(code, os.strerror(code), str(source), None, str(target))


def _renameat2(source: Path, target: Path) -> int:
    """Call renameat2; return 0 or the error number.

    ENOSYS: the C library has no such call.
    """
    try:
        call = ctypes.CDLL(None, use_errno=True).renameat2
    except AttributeError:
        return errno.ENOSYS
    done: int = call(AT_FDCWD, os.fsencode(source), AT_FDCWD, os.fsencode(target), RENAME_NOREPLACE)
    return ctypes.get_errno() if done != 0 else 0


def _rename_by_claim(source: Path, target: Path) -> None:
    """Rename without RENAME_NOREPLACE, by a claim on the target.

    `link` and `mkdir` refuse an existing target. A reader may see the folder empty for a moment; a crash in that moment
    leaves an empty folder.
    """
    if not source.is_dir():
        target.hardlink_to(source)
        source.unlink()
        return
    target.mkdir()
    try:
        source.rename(target)
    except OSError:
        with suppress(OSError):
            target.rmdir()
        raise


@contextmanager
def _translated(place: Path, what: str) -> Iterator[None]:
    """OSError becomes StorageError, naming the path."""
    try:
        yield
    except OSError as error:
        kind, reason = _MEANINGS.get(type(error), (StorageError, error.strerror or str(error)))
        raise kind(f"{place}: {what}: {reason}") from error


_MEANINGS: dict[type[OSError], tuple[type[StorageError], str]] = {
    FileNotFoundError: (PathNotFoundError, "is not there"),
    NotADirectoryError: (StorageError, "a part of this path is a regular file, not a directory"),
    FileExistsError: (TargetExistsError, "is there already, and was not touched"),
    PermissionError: (StorageError, "no permission; look at the owner and mode of its directory"),
}
