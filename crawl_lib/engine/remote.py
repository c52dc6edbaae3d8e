"""Files of a remote store, as DuckDB reads them: without a copy on the local disk."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from io import SEEK_SET
from threading import Lock, get_ident
from typing import Any, BinaryIO

from fsspec.spec import AbstractFileSystem

from crawl_lib.storage import Storage

SCHEME = "krake"
LONG_AGO = datetime(2000, 1, 1, tzinfo=UTC)


class StoreFiles(AbstractFileSystem):  # type: ignore[misc]
    """The files of a store under addresses `krake://<path>`, to be read at random.

    DuckDB reads from several threads, and a store serves one at a time: each read waits for its turn.
    """

    protocol = SCHEME
    cachable = False

    def __init__(self, storage: Storage) -> None:
        super().__init__()
        self._storage = storage
        self._turn = Lock()
        self._sizes: dict[str, int] = {}

    @staticmethod
    def address(path: str) -> str:
        """What DuckDB calls a file of the store."""
        return f"{SCHEME}://{path}"

    def glob(self, path: str, **_: object) -> list[str]:
        """The path itself: in names of segments nothing is a pattern."""
        return [path]

    def exists(self, path: str, **_: object) -> bool:
        """Whether a file is there."""
        with self._turn:
            return self._storage.exists(self._strip_protocol(path))

    def info(self, path: str, **_: object) -> dict[str, Any]:
        """Name, size and type of a file."""
        name = self._strip_protocol(path)
        if name not in self._sizes:
            with self._turn:
                entry = self._storage.stat(name)
            if entry is None:
                raise FileNotFoundError(name)
            self._sizes[name] = entry.size_bytes
        return {"name": path, "size": self._sizes[name], "type": "file"}

    def modified(self, path: str) -> datetime:
        """Files of a store are never changed."""
        return LONG_AGO

    def _open(self, path: str, mode: str = "rb", **_: object) -> Any:
        return _PerThread(lambda: self._storage.open_seekable(path), self._turn)


class _PerThread:
    """A file that several threads read, each at a place of its own: each has it opened for itself.

    DuckDB shares one handle between its threads, and reads at an offset by a `seek` and a `read`, between which another
    thread may run: one place for all would give a thread the bytes of another one's place. Threads are told apart by
    their number, as variables of DuckDB's threads (`threading.local`) do not last from one call to the next.
    """

    def __init__(self, opened: Callable[[], BinaryIO], turn: Lock) -> None:
        self._opened = opened
        self._turn = turn
        self._files: dict[int, BinaryIO] = {}
        self.seek(0)  # a file that is not there is an error at once

    def read(self, size: int = -1) -> bytes:
        with self._turn:
            return self._mine().read(size)

    def seek(self, offset: int, whence: int = SEEK_SET) -> int:
        with self._turn:
            return self._mine().seek(offset, whence)

    def tell(self) -> int:
        with self._turn:
            return self._mine().tell()

    def seekable(self) -> bool:
        return True

    def close(self) -> None:
        for file in self._files.values():
            file.close()

    def _mine(self) -> BinaryIO:
        thread = get_ident()
        if thread not in self._files:
            self._files[thread] = self._opened()
        return self._files[thread]
