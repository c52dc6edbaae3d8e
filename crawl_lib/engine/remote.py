"""Files of a remote store for DuckDB, without a copy on the local disk."""

from datetime import UTC, datetime
from functools import cache, lru_cache
from io import SEEK_CUR, SEEK_END, SEEK_SET
from threading import Lock, get_ident
from typing import Any

from fsspec.spec import AbstractFileSystem

from crawl_lib.storage import Storage

SCHEME = "krake"
LONG_AGO = datetime(2000, 1, 1, tzinfo=UTC)
BLOCK_BYTES = 1 << 20
"""Small reads are answered from blocks of this size."""
MAX_BLOCKS = 16
"""The number of kept blocks: a bound of the memory, whatever the number of files and threads."""


class StoreFiles(AbstractFileSystem):  # type: ignore[misc]
    """The files of a store under addresses `krake://<path>`, to be read at random.

    DuckDB reads from several threads, and a store serves one at a time: each read waits for its turn.
    """

    protocol = SCHEME
    cachable = False

    def __init__(self, storage: Storage) -> None:
        super().__init__()
        self._storage, self._turn = storage, Lock()
        self.size_of = cache(self._size_of)
        self._block = lru_cache(MAX_BLOCKS)(
            lambda path, number: self._read(path, number * BLOCK_BYTES, BLOCK_BYTES)
        )

    def glob(self, path: str, **_: object) -> list[str]:
        """Return the path itself.

        In names of segments nothing is a pattern.
        """
        return [path]

    def info(self, path: str, **_: object) -> dict[str, str | int]:
        """Return name, size and type of a file."""
        return {"name": path, "size": self.size_of(self._strip_protocol(path)), "type": "file"}

    def modified(self, path: str) -> datetime:
        """Return a constant time.

        Files of a store are never changed.
        """
        return LONG_AGO

    def read_at(self, path: str, offset: int, size: int) -> bytes:
        """Return bytes of a file, fewer at its end."""
        first, start = divmod(offset, BLOCK_BYTES)
        with self._turn:
            if size > BLOCK_BYTES:
                return self._read(path, offset, size)
            last = (offset + size - 1) // BLOCK_BYTES
            blocks = [self._block(path, number) for number in range(first, last + 1)]
        return b"".join(blocks)[start : start + size]

    def _read(self, path: str, offset: int, size: int) -> bytes:
        with self._storage.open_read(path, offset, size) as file:
            return file.read()

    def _open(self, path: str, mode: str = "rb", **_: object) -> Any:
        return _Handle(self, path)

    def _size_of(self, path: str) -> int:
        with self._turn, self._storage.open_seekable(path) as file:
            return file.seek(0, SEEK_END)


class _Handle:
    """A file that several threads read, each at its own place.

    DuckDB shares one handle between its threads, and reads at an offset by a `seek` and a `read`, between which another
    thread may run: with a shared place a thread would get bytes from another thread's place. Threads are told apart by
    their number, as variables of DuckDB's threads (`threading.local`) do not last from one call to the next.
    """

    def __init__(self, files: StoreFiles, path: str) -> None:
        self._files, self._path, self._size = files, path, files.size_of(path)
        self._places: dict[int, int] = {}

    def read(self, size: int = -1) -> bytes:
        at = self.tell()
        left = max(0, self._size - at)
        data = self._files.read_at(self._path, at, left if size < 0 else min(size, left))
        self.seek(at + len(data))
        return data

    def seek(self, offset: int, whence: int = SEEK_SET) -> int:
        place: int = {SEEK_SET: 0, SEEK_CUR: self.tell(), SEEK_END: self._size}[whence] + offset
        self._places[get_ident()] = place
        return place

    def tell(self) -> int:
        return self._places.get(get_ident(), 0)

    def seekable(self) -> bool:
        return True

    def close(self) -> None:
        self._places.clear()
