"""The contract of a file store, and code shared by every back end."""

import io
import shutil
import uuid
from abc import ABC, abstractmethod
from builtins import list as list_of
from pathlib import Path
from typing import BinaryIO, NamedTuple, cast

from crawl_lib.errors import ScratchError, StorageError, os_errors

COPY_BYTES = 1 << 20


class Entry(NamedTuple):
    """A file or folder: last name, whether the entry is a folder, size in bytes (0 for a folder)."""

    name: str
    is_dir: bool
    size_bytes: int


def check_path(path: str) -> str:
    """Return a path after a check of its form.

    A path is relative to the root, POSIX, without `.`, `..`, `:` or an empty part; "" is the root. Raises StorageError
    naming the path: the caller made it wrong (HDFS refuses `:` in names).
    """
    if path and ("\0" in path or ":" in path or not {"", ".", ".."}.isdisjoint(path.split("/"))):
        raise StorageError(f"{path!r}: not a path below the root of the file store")
    return path


def hidden_next_to(path: str) -> str:
    """Return a new hidden name in the same folder.

    A leftover of a broken try may still be open in HDFS.
    """
    folder, slash, name = check_path(path).rpartition("/")
    return f"{folder}{slash}.{name}.{uuid.uuid4().hex}"


class Storage(ABC):
    """Files and folders below one root (`dfs_primary`). Paths are POSIX strings relative to it.

    * Every method raises only StorageError and its children, naming the path.
    * A file is written once, from start to end, never changed; `open_write` refuses an existing path.
    * `rename` moves a file or a folder in one step. An existing target is refused, and both stay unchanged.
    * Results of `open_write`, `write_bytes`, `upload`, `rename`, `make_dirs` survive a crash after the return.
    * A crash inside `open_write` or `upload` leaves a part of the file under its name: write into a hidden folder,
      then rename. `write_bytes` and `rename` leave all or nothing.
    * Missing parent folders are made by everything that writes.
    * Safe to use from several processes; only one thread at a time uses an object.
    """

    @property
    @abstractmethod
    def name(self) -> str:
        """Name of this store in messages: its directory or address, without secrets."""

    @abstractmethod
    def open_read(self, path: str, offset: int = 0, length: int | None = None) -> BinaryIO:
        """Stream a file from byte `offset`.

        `length`: None for all that is left. A shorter file gives fewer bytes. Raises PathNotFoundError if there is no
        such file.
        """

    @abstractmethod
    def open_write(self, path: str) -> BinaryIO:
        """Create a file that is durable after `close`.

        As a context manager, an exception deletes the file. Raises TargetExistsError if the path is taken.
        """

    @abstractmethod
    def rename(self, source: str, target: str) -> None:
        """Move a file or folder, durably.

        Raises TargetExistsError for any existing target, PathNotFoundError.
        """

    @abstractmethod
    def list(self, path: str) -> list[Entry]:
        """Return a folder's entries sorted by name, hidden ones too.

        Raises PathNotFoundError.
        """

    @abstractmethod
    def stat(self, path: str) -> Entry | None:
        """Return the entry of a path, or None.

        A path below a regular file has no entry.
        """

    @abstractmethod
    def stamp(self, path: str) -> str | None:
        """Return a text that identifies the file at a path.

        None: there is no file. Another file at the path has another text. The text is made of the size and the time, or
        of a digest or number of the file.
        """

    @abstractmethod
    def delete(self, path: str) -> bool:
        """Delete a file or folder; False if nothing was there.

        Readers see all of a folder or nothing.
        """

    @abstractmethod
    def make_dirs(self, path: str) -> None:
        """Make a folder and its parents; nothing happens if the folder exists."""

    @abstractmethod
    def free_bytes(self) -> int:
        """Return the number of bytes left for writes."""

    def require_writable(self, path: str) -> None:  # noqa: B027 - a local directory is tried, where it matters
        """Check that a directory below the root may be written.

        Raises StorageRightsError if writing is known to be refused. A missing folder would be made in its parent.
        Nothing is changed. Raises StorageError.
        """

    def secure(self, path: str) -> None:
        """Make durable that a path exists.

        The renaming process may have been killed before. Called before any act on a found path. All answers of a
        namenode are durable.
        """
        check_path(path)

    def sweep(self, *, dry_run: bool = False) -> list_of[str]:
        """Delete leftovers outside of all folders; return a line each.

        `dry_run`: only look. A directory and HDFS have nothing of this kind. Raises StorageError.
        """
        return []

    def local_path(self, path: str) -> Path | None:
        """Return a file's place on this machine's disk, if any."""
        return None

    def exists(self, path: str) -> bool:
        """Say whether a file or folder exists."""
        return self.stat(path) is not None

    def read_bytes(self, path: str) -> bytes:
        """Return a whole small file.

        Raises PathNotFoundError.
        """
        with self.open_read(path) as file:
            return file.read()

    def write_bytes(self, path: str, data: bytes) -> None:
        """Create a small file, completely or not at all.

        Raises TargetExistsError if the path is taken.
        """
        hidden = hidden_next_to(path)
        with self._open_hidden(hidden) as file:
            file.write(data)
        try:
            self.rename(hidden, path)
        except StorageError:
            self.delete(hidden)
            raise

    def _open_hidden(self, path: str) -> BinaryIO:
        """Open a new file that is renamed next.

        A store may let the rename make the name durable.
        """
        return self.open_write(path)

    def upload(self, local: Path, path: str) -> None:
        """Copy a local file to a new file.

        Raises TargetExistsError if the path is taken.
        """
        with (
            os_errors(local, "cannot be read"),
            local.open("rb") as source,
            self.open_write(path) as target,
        ):
            shutil.copyfileobj(source, target, COPY_BYTES)

    def upload_final(self, local: Path, path: str) -> None:
        """Upload a final file.

        A store on the same disk links the file instead of copying.
        """
        self.upload(local, path)

    def download(self, path: str, local: Path) -> None:
        """Copy a file to a local path in a scratch folder.

        An existing local file is replaced. Raises PathNotFoundError. Raises ScratchError if this machine's disk
        refuses.
        """
        refused = os_errors(local, "cannot be written", ScratchError)
        with self.open_read(path) as source, refused, local.open("wb") as target:
            shutil.copyfileobj(source, target, COPY_BYTES)

    def open_seekable(self, path: str) -> BinaryIO:
        """Open a file for random reads, as Parquet needs them.

        Raises PathNotFoundError.
        """
        return cast(BinaryIO, io.BufferedReader(_RangedFile(self, path), COPY_BYTES))


class _RangedFile(io.RawIOBase):
    """Random access over `Storage.open_read`: each read is one ranged read."""

    def __init__(self, storage: Storage, path: str) -> None:
        entry = storage.stat(path)
        if entry is None or entry.is_dir:
            storage.open_read(path).close()  # raises the back end's own clear error
        self._storage, self._path, self._at = storage, path, 0
        self._size = entry.size_bytes if entry else 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        self._at = max(0, start + offset)
        return self._at

    def readinto(self, buffer: object) -> int:
        view = memoryview(buffer).cast("B")  # type: ignore[arg-type]
        wanted = min(len(view), self._size - self._at)
        if wanted <= 0:
            return 0
        with self._storage.open_read(self._path, self._at, wanted) as file:
            data = file.read()
        view[: len(data)] = data
        self._at += len(data)
        return len(data)
