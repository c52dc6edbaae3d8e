"""Readers of an export's files: memory-mapped, never the whole file in memory.

They take local paths; `crawl_lib.export.show.open_export` brings files from a remote store. Each is closed by `close`
or by a `with` block. A file that is not what its format says raises DamagedFileError naming the file and the byte.
"""

import mmap
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Self

from crawl_lib.errors import DamagedFileError, PathNotFoundError, os_error

KEY_BYTES = 20
OFFSET_BYTES = 12


class MappedFile:
    """A local file as memory. `path`: its place. Raises PathNotFoundError or StorageError naming it."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        try:
            with self.path.open("rb") as file:
                empty = self.path.stat().st_size == 0  # an empty file cannot be mapped
                self._map = None if empty else mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except FileNotFoundError as error:
            raise PathNotFoundError(f"{self.path}: is not there") from error
        except OSError as error:
            raise os_error(error, self.path, "cannot be read") from error
        self.size_bytes = len(self._map) if self._map is not None else 0

    def read(self, start: int, end: int) -> bytes:
        """The bytes from `start` to before `end`. Raises DamagedFileError if the file ends before."""
        if self._map is None or start < 0 or end > self.size_bytes:
            if start == end == 0:
                return b""
            raise self.damaged(start, f"the file ends at byte {self.size_bytes}, and {end - start} bytes are missing")
        return self._map[start:end]

    def int32(self, at: int) -> int:
        """The signed big-endian integer at a byte."""
        return int.from_bytes(self.read(at, at + 4), "big", signed=True)

    def int64(self, at: int) -> int:
        """The signed big-endian long at a byte."""
        return int.from_bytes(self.read(at, at + 8), "big", signed=True)

    def damaged(self, at: int, problem: str) -> DamagedFileError:
        """An error that names the file and a byte of it."""
        return DamagedFileError(f"{self.path}: byte {at}: {problem}")

    def close(self) -> None:
        """Let the file go."""
        if self._map is not None:
            self._map.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class UrlMapping(MappedFile):
    """`urlmapping`: from NodeID to key in one step, from key to NodeID by binary search."""

    def __init__(self, path: Path | str) -> None:
        super().__init__(path)
        self._count = self.int32(0)
        if self._count < 0 or self.size_bytes != 4 + KEY_BYTES * self._count:
            raise self.damaged(0, f"says {self._count} keys, and the file has {self.size_bytes} bytes")

    def __len__(self) -> int:
        return self._count

    def key(self, node_id: int) -> bytes:
        """The key (20 bytes) of a NodeID. Raises IndexError beyond the last."""
        if not 0 <= node_id < self._count:
            raise IndexError(f"NodeID {node_id}: there are {self._count} pages")
        start = 4 + KEY_BYTES * node_id
        return self.read(start, start + KEY_BYTES)

    def node_id(self, key: bytes) -> int | None:
        """The NodeID of a key, None if its page was not crawled."""
        low, high = 0, self._count
        while low < high:
            middle = (low + high) // 2
            if self.key(middle) < key:
                low = middle + 1
            else:
                high = middle
        return low if low < self._count and self.key(low) == key else None

    def __iter__(self) -> Iterator[bytes]:
        """All keys by NodeID. Raises DamagedFileError where they do not ascend."""
        last = b""
        for node_id in range(self._count):
            key = self.key(node_id)
            if key <= last:
                raise self.damaged(4 + KEY_BYTES * node_id, f"the key of NodeID {node_id} is not above the one before")
            last = key
            yield key


class ContentReader(MappedFile):
    """`content`, walked forward and backward, and with `offsets` at random.

    `offsets`: path of the offset file; without it only the walks work.
    """

    def __init__(self, path: Path | str, offsets: Path | str | None = None) -> None:
        super().__init__(path)
        self._offsets = None if offsets is None else MappedFile(offsets)
        if self._offsets is not None and self._offsets.size_bytes % OFFSET_BYTES:
            raise self._offsets.damaged(self._offsets.size_bytes, "the last entry is cut; an entry has 12 bytes")

    def __len__(self) -> int:
        """How many pages there are, by the offset file. Raises TypeError without one."""
        return self._with_offsets().size_bytes // OFFSET_BYTES

    def __iter__(self) -> Iterator[bytes]:
        """The content of all pages by NodeID."""
        at = 0
        while at < self.size_bytes:
            data, at = self._page(at)
            yield self._inflated(data, at)

    def __reversed__(self) -> Iterator[bytes]:
        """The content of all pages from the last to the first; the offset file is not needed."""
        end = self.size_bytes
        while end > 0:
            size = self.int32(end - 4) if end >= 8 else -1
            start = end - size - 8
            if size < 0 or start < 0:
                raise self.damaged(max(0, end - 4), f"a page of {size} bytes cannot end here")
            data, _ = self._page(start)
            yield self._inflated(data, end)
            end = start

    def offset(self, node_id: int) -> int:
        """Where a page's first size field is, in bytes. Raises IndexError beyond the last."""
        if not 0 <= node_id < len(self):
            raise IndexError(f"NodeID {node_id}: there are {len(self)} pages")
        offsets = self._with_offsets()
        at = OFFSET_BYTES * node_id
        if offsets.int32(at) != node_id:
            raise offsets.damaged(at, f"the entry of NodeID {node_id} says {offsets.int32(at)}")
        return offsets.int64(at + 4)

    def compressed(self, node_id: int) -> bytes:
        """The zlib stream of a page. Raises IndexError beyond the last."""
        return self._page(self.offset(node_id))[0]

    def content(self, node_id: int) -> bytes:
        """The content of a page. Raises IndexError beyond the last."""
        data, end = self._page(self.offset(node_id))
        return self._inflated(data, end)

    def close(self) -> None:
        """Let both files go."""
        super().close()
        if self._offsets is not None:
            self._offsets.close()

    def _with_offsets(self) -> MappedFile:
        if self._offsets is None:
            raise TypeError(f"{self.path}: was opened without its offset file")
        return self._offsets

    def _page(self, start: int) -> tuple[bytes, int]:
        size = self.int32(start)
        if size < 0:
            raise self.damaged(start, f"a size of {size}")
        data, end = self.read(start + 4, start + 4 + size), start + size + 8
        if self.int32(end - 4) != size:
            raise self.damaged(end - 4, f"the size before the page is {size}, the one after it {self.int32(end - 4)}")
        return data, end

    def _inflated(self, data: bytes, end: int) -> bytes:
        start = end - len(data) - 8
        try:
            inflater = zlib.decompressobj()
            content = inflater.decompress(data)
        except zlib.error as error:
            raise self.damaged(start + 4, f"not a zlib stream: {error}") from error
        if not inflater.eof or inflater.unused_data:
            raise self.damaged(start + 4, "not one whole zlib stream")
        return content
