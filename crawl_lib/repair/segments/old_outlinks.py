"""What can still be read of a damaged file `outlinks`: of each owner's part the lines before the damage, in order."""

from collections.abc import Iterator, Mapping
from typing import Any

from crawl_lib.errors import DamagedFileError, PathNotFoundError
from crawl_lib.frontier import decode_line, part_mapping, read_outlinks
from crawl_lib.segment import OUTLINKS_NAME
from crawl_lib.storage import Storage


class OldOutlinks:
    """The lines of an old file; `is_whole` is known when `lines` has ended."""

    def __init__(self, storage: Storage, path: str, parts: Mapping[str, Any] | None) -> None:
        self._storage, self._where, self._parts = storage, f"{path}/{OUTLINKS_NAME}", parts
        self.is_whole = True

    def lines(self) -> Iterator[tuple[str, bytes]]:
        """Owner ("" where no manifest says it) and line."""
        if self._parts is None:
            yield from self._read("", 0, None, None)
            return
        end = 0
        for owner, value in self._parts.items():
            try:
                part = part_mapping(value, self._where)
            except DamagedFileError:
                self.is_whole = False
                continue
            end = max(end, part.offset + part.length)
            yield from self._read(owner, part.offset, part.length, part.count)
        found = self._storage.stat(self._where)
        if (found.size_bytes if found else -1) != end:
            self.is_whole = False

    def _read(self, owner: str, offset: int, length: int | None, count: int | None) -> Iterator[tuple[str, bytes]]:
        try:
            for line in read_outlinks(self._storage.open_read(self._where, offset, length), self._where, count):
                decode_line(line, self._where)
                yield owner, line
        except (DamagedFileError, PathNotFoundError, ValueError):
            self.is_whole = False


def read_old_outlinks(storage: Storage, path: str, parts: Mapping[str, Any] | None) -> OldOutlinks:
    """The old outlinks of a segment. `parts`: the manifest's ranges by owner, None if nothing says them."""
    return OldOutlinks(storage, path, parts if isinstance(parts, Mapping) else None)
