"""Files of a remote store, as DuckDB reads them: without a copy on the local disk."""

from __future__ import annotations

from datetime import UTC, datetime
from threading import Lock
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
        with self._turn:
            return _InTurn(self._storage.open_seekable(path), self._turn)


class _InTurn:
    """A file whose every read waits for its turn."""

    def __init__(self, file: BinaryIO, turn: Lock) -> None:
        self._file = file
        self._turn = turn

    def read(self, size: int = -1) -> bytes:
        with self._turn:
            return self._file.read(size)

    def seek(self, offset: int, whence: int = 0) -> int:
        with self._turn:
            return self._file.seek(offset, whence)

    def tell(self) -> int:
        return self._file.tell()

    def seekable(self) -> bool:
        return True

    def close(self) -> None:
        self._file.close()
