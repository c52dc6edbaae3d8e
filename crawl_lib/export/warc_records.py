"""Response records out of WARC files, read once from start to end, and the content of each."""

from collections.abc import Iterable, Iterator
from typing import BinaryIO, NamedTuple

from crawl_lib.errors import DamagedFileError
from crawl_lib.parse import decode_content
from crawl_lib.segment import read_one, split_head
from crawl_lib.storage import Storage

SKIP_BYTES = 1 << 20
"""A gap up to this is read over; a larger one is skipped by opening the file again behind it."""
READ_BYTES = 1 << 20


class Wanted(NamedTuple):
    """A record to read: its page's NodeID, its file (path on the storage), offset and length in bytes."""

    node_id: int
    path: str
    offset: int
    length: int


class Member(NamedTuple):
    """The gzip member of a wanted record."""

    wanted: Wanted
    data: bytes


def read_members(storage: Storage, wanted: Iterable[Wanted]) -> Iterator[Member]:
    """The members of wanted records, which come in order of file and offset: each file is opened once and read onward.

    Raises PathNotFoundError, or DamagedFileError naming file and offset where a file is shorter than `pages` says.
    """
    file: _Forward | None = None
    try:
        for want in wanted:
            if file is None or file.path != want.path:
                if file is not None:
                    file.close()
                file = _Forward(storage, want.path, want.offset)
            yield Member(want, file.read_at(want.offset, want.length))
    finally:
        if file is not None:
            file.close()


def _damaged(path: str, problem: str) -> DamagedFileError:
    """The error of a WARC file `<crawl>/<folder>/<node>/<name>`, with the command that repairs its segment."""
    return DamagedFileError(f"{path}: {problem}; run `krake fsck --repair`")


class _Forward:
    """A file that is read forward only, in large blocks."""

    def __init__(self, storage: Storage, path: str, offset: int) -> None:
        self.path = path
        self._storage = storage
        self._file: BinaryIO = storage.open_read(path, offset)
        self._at = offset  # where the buffer begins in the file
        self._buffer = b""
        self._from = 0  # how much of the buffer is used up

    def read_at(self, offset: int, length: int) -> bytes:
        self._skip(offset - self._at - self._from)
        missing = self._from + length - len(self._buffer)
        if missing > 0:
            self._fill(missing)
        data = self._buffer[self._from : self._from + length]
        self._from += length
        if len(data) != length:
            raise _damaged(self.path, f"ends within the record at offset {offset}, which `pages` names")
        return data

    def close(self) -> None:
        self._file.close()

    def _skip(self, gap: int) -> None:
        if gap < 0:
            raise _damaged(self.path, f"`pages` names records that overlap at offset {self._at + self._from}")
        if self._from + gap <= len(self._buffer) + SKIP_BYTES:
            if self._from + gap > len(self._buffer):
                self._fill(self._from + gap - len(self._buffer))
            self._from += gap
            return
        target = self._at + self._from + gap
        self._file.close()
        self._file = self._storage.open_read(self.path, target)
        self._at, self._buffer, self._from = target, b"", 0

    def _fill(self, missing: int) -> None:
        parts = [self._buffer[self._from :]]
        self._at += self._from
        self._from = 0
        wanted = max(missing, READ_BYTES)
        while wanted > 0 and (block := self._file.read(wanted)):
            parts.append(block)
            wanted -= len(block)
        self._buffer = b"".join(parts)


def content_of(member: Member, max_bytes: int) -> bytes:
    """The content of a page: the body of its response with transfer and content coding undone, else byte for byte.

    `max_bytes`: content beyond is cut. Where a coding is damaged, what could be decoded. Raises DamagedFileError
    naming file and offset where the member is not a whole response record.
    """
    path, offset = member.wanted.path, member.wanted.offset
    try:
        record = read_one(member.data, offset, path)
    except DamagedFileError as error:
        raise _damaged(path, str(error).removeprefix(f"{path}: ")) from error
    if record.type != "response":
        raise _damaged(path, f"byte {offset}: a {record.type or 'nameless'} record, not a response")
    head, body = split_head(record.block)
    return decode_content(head, body, max_bytes=max_bytes).data
