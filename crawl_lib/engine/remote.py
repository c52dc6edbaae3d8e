"""Files of a remote store, as DuckDB reads them: without a copy on the local disk."""

from collections import deque
from datetime import UTC, datetime
from io import SEEK_CUR, SEEK_END, SEEK_SET
from threading import Lock, get_ident
from typing import Any, NamedTuple

from fsspec.spec import AbstractFileSystem

from crawl_lib.storage import Storage

SCHEME = "krake"
LONG_AGO = datetime(2000, 1, 1, tzinfo=UTC)
BLOCK_BYTES = 1 << 20
"""Small reads are answered from blocks of this size."""
TAIL_BYTES = 1 << 17
"""The end of a file is read at once: a table is looked up from there."""
MAX_BLOCKS = 16
"""So many blocks are kept: what is in memory, however many files are read by however many threads."""


class _Block(NamedTuple):
    path: str
    start: int
    data: bytes


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
        self._blocks: deque[_Block] = deque(maxlen=MAX_BLOCKS)

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
        return {"name": path, "size": self._size(self._strip_protocol(path)), "type": "file"}

    def modified(self, path: str) -> datetime:
        """Files of a store are never changed."""
        return LONG_AGO

    def read_at(self, path: str, offset: int, size: int) -> bytes:
        """Bytes of a file, fewer at its end."""
        with self._turn:
            for block in reversed(self._blocks):
                if block.path == path and block.start <= offset and offset + size <= block.start + len(block.data):
                    break
            else:
                block = self._read(path, offset, size)
            return block.data[offset - block.start : offset - block.start + size]

    def _read(self, path: str, offset: int, size: int) -> _Block:
        end = self._sizes[path]
        start = min(offset, max(0, end - TAIL_BYTES))
        wanted = min(max(offset + size, start + BLOCK_BYTES), end) - start
        with self._storage.open_read(path, start, wanted) as file:
            block = _Block(path, start, file.read())
        if wanted <= BLOCK_BYTES:
            self._blocks.append(block)
        return block

    def _open(self, path: str, mode: str = "rb", **_: object) -> Any:
        return _Handle(self, path, self._size(path))

    def _size(self, path: str) -> int:
        if path not in self._sizes:
            with self._turn:
                entry = self._storage.stat(path)
                if entry is None or entry.is_dir:
                    self._storage.open_read(path).close()  # raises the back end's own clear error
                    raise FileNotFoundError(path)
            self._sizes[path] = entry.size_bytes
        return self._sizes[path]


class _Handle:
    """A file that several threads read, each at a place of its own.

    DuckDB shares one handle between its threads, and reads at an offset by a `seek` and a `read`, between which another
    thread may run: one place for all would give a thread the bytes of another one's place. Threads are told apart by
    their number, as variables of DuckDB's threads (`threading.local`) do not last from one call to the next.
    """

    def __init__(self, files: StoreFiles, path: str, size: int) -> None:
        self._files, self._path, self._size = files, path, size
        self._places: dict[int, int] = {}

    def read(self, size: int = -1) -> bytes:
        at = self.tell()
        left = max(0, self._size - at)
        size = left if size < 0 else min(size, left)
        if not size:
            return b""
        data = self._files.read_at(self._path, at, size)
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
