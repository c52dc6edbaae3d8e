"""Read members of WARC files by their places, as the rows of `pages` name them."""

from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from typing import NamedTuple, Self

from crawl_lib.errors import DamagedFileError
from crawl_lib.storage import Storage

SKIP_BYTES = 1 << 20
"""A gap up to this in a WARC file is read over; a larger one is skipped by opening the file again behind it."""


class WantedRecord(NamedTuple):
    """A record to read: its page's NodeID, its file (path on the storage), offset and length in bytes."""

    node_id: int
    path: str
    offset: int
    length: int

    def damaged(self, problem: str) -> DamagedFileError:
        """Return an error about the file, which names the repair command."""
        return DamagedFileError(f"{self.path}: {problem}; run `krake fsck --repair`")


class Member(NamedTuple):
    """The gzip member of a wanted record."""

    wanted: WantedRecord
    data: bytes

    @classmethod
    def read_all(cls, storage: Storage, wanted: Iterable[WantedRecord]) -> Iterator[Self]:
        """Yield the members of records, sorted by file and offset.

        Each file is opened once and read onward. Raises PathNotFoundError, or DamagedFileError naming file and offset
        where a file is shorter than `pages` says.
        """
        path, at = "", 0
        with ExitStack() as stack:
            for want in wanted:
                gap = want.offset - at
                if want.path != path or gap > SKIP_BYTES:
                    stack.close()
                    file = stack.enter_context(storage.open_read(want.path, want.offset))
                elif gap < 0:
                    raise want.damaged(f"`pages` names records that overlap at offset {at}")
                else:
                    file.read(gap)
                data = file.read(want.length)
                if len(data) != want.length:
                    raise want.damaged(
                        f"ends within the record at offset {want.offset}, which `pages` names"
                    )
                path, at = want.path, want.offset + want.length
                yield cls(want, data)
