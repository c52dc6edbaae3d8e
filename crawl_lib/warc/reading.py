"""Reading WARC files: Krake's own, a gzip member a record, and archives of any writer. Damage never raises here.

`scan` and `walk` read Krake's own files. `scan` reads on past damage and keeps the bytes of each record for copies;
`walk` ends at the first damage. `read_archive` reads WARC 1.0 and 1.1 of any writer, compressed record by record, as a
whole, or not at all, and ARC; the function reads on past damage too.

After damage in a compressed file the next gzip member that opens with `WARC/` is looked for, in a plain one the next
line that begins so. A hostile server can put such members into a body, so `scan` says of each record whether the record
carries the id of its file (`FileId`), which no server can know.

Reading takes time linear in the file's bytes and in those they inflate to, whatever a stranger put into the file:
`_Effort` limits how often bytes are inflated again where members lie within each other. A record is held in memory
whole; `max_record_bytes` bounds it.
"""

import gzip
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from typing import BinaryIO, NamedTuple, cast

from isal import isal_zlib

from crawl_lib.errors import DamagedFileError
from crawl_lib.records import MAX_RECORD_BYTES

BLOCK_BYTES = 1 << 18
PROBE_BYTES = 1 << 10
"""The length of a place where a member may begin: enough for its header and the first lines of its record."""
PROBED_BYTES = 1 << 8
"""The bytes of the record to inflate in a probe: enough for `WARC-Warcinfo-ID`, the fourth line of a record of ours."""
TIMES_INFLATED = 8
"""How many bytes are inflated at most, for each byte up to the last one that was looked at."""
MAX_HEAD_BYTES = 1 << 17
"""The length of a record's own head: a URL of ours may have 65,535 characters."""
MAX_ARC_LINE_BYTES = 1 << 19
"""The length of a record's head in an ARC file."""
NOT_OWN = "not_of_this_file"
"""Reason to refuse a record without the id of its file."""
KEPT_BYTES = 1 << 20
"""How far back a member is looked for where a damaged one was noticed: damage shows some way behind it."""
_GZIP_ERROR = cast("type[Exception]", isal_zlib.error)
_GZIP_MAGIC = b"\x1f\x8b\x08"
_OWN_MAGIC = _GZIP_MAGIC + b"\0"
"""How each member of ours begins: without optional fields, whose flags one bit could set."""
_NEXT = re.compile(rb"\nWARC/[01]\.")
_HEAD_END = re.compile(rb"\r?\n\r?\n|" + _NEXT.pattern)
_EMPTY_LINES = re.compile(rb"[\r\n]*")
_ARC = b"filedesc:"


class WarcRecord(NamedTuple):
    """One record. `headers`: names in lower case. `offset`: of its gzip member, or of its plain bytes. `length`: of
    these too; of a record in an archive of another writer, its bytes once decompressed."""

    type: str
    headers: dict[str, str]
    block: bytes
    offset: int
    length: int

    @property
    def is_answer(self) -> bool:
        """Whether this is the main record of an answer's group.

        The answer is whole, or refers to an earlier capture for the body.
        """
        return self.type in {"response", "revisit"}

    @property
    def url(self) -> str:
        """The URL it is about, "" for none.

        Brackets, added by some writers, are removed.
        """
        return self.headers.get("warc-target-uri", "").strip("<>")


class Whole(NamedTuple):
    """A record with the bytes of the gzip member. `is_own`: whether Krake wrote the record, by the id of its file."""

    record: WarcRecord
    raw: bytes
    is_own: bool


class Damage(NamedTuple):
    """Bytes `offset` to `end` that are no whole record. `reason`: one word."""

    offset: int
    end: int
    reason: str


class FileId:
    """The random id that all records of one of Krake's files share: the record id of the file's warcinfo record.

    A server cannot know the id, so a record with the id is no part of a body. Files of older versions have records
    without ids. Records without an id are trusted up to the first damage, but not if another record of the file has an
    id.
    """

    def __init__(self, named: str = "") -> None:
        """`named`: the id by the manifest, "" where the manifest names none."""
        self.value, self.is_carried, self.is_damaged = named, bool(named), False

    @property
    def mark(self) -> bytes:
        """The bytes in the head of each record of the file.

        A file of an older version has none.
        """
        return self.value.encode("utf-8", "surrogateescape") if self.is_carried else b""

    def owns(self, record: WarcRecord) -> bool:
        """Return whether a record belongs to this file.

        Call it in file order.
        """
        if record.type == "warcinfo":
            said = record.headers.get("warc-record-id", "")
            if record.offset == 0:
                self.value = self.value or said
            return said == self.value
        said = record.headers.get("warc-warcinfo-id", "")
        if not said:
            return not (self.is_carried or self.is_damaged)
        if not (self.value or self.is_damaged):
            self.value = said
        self.is_carried = self.is_carried or said == self.value
        return said == self.value


class _Torn(Exception):  # noqa: N818 - not an error of the tree: readers turn it into a `Damage`
    """Bytes that are no whole record. `needs`: how many would have to be there; 0 if more of them are no help."""

    def __init__(self, reason: str, needs: int = 0) -> None:
        super().__init__(reason)
        self.reason, self.needs = reason, needs


def read_one(data: bytes, offset: int, where: str) -> WarcRecord:
    """Parse the record of a gzip member.

    Raises DamagedFileError naming `where` and the offset.
    """
    try:
        return _parsed(isal_zlib.decompress(data, 31), offset, len(data))[0]
    except _Torn as torn:
        raise DamagedFileError(f"{where}: no record at byte {offset}: {torn.reason}") from None
    except _GZIP_ERROR as error:
        raise DamagedFileError(f"{where}: no gzip member at byte {offset}: {error}") from None


def walk(
    file: BinaryIO, damage: Counter[str] | None = None, file_id: FileId | None = None
) -> Iterator[WarcRecord]:
    """Yield the records of one of Krake's own files.

    Records come in file order, until the file's end or the first damage.

    `damage` counts, by its reason, what the walk ended at. `file_id` learns the id of the file.
    """
    for item in scan(file, file_id=file_id):
        if isinstance(item, Whole) and item.is_own:
            yield item.record
            continue
        if damage is not None:
            damage[item.reason if isinstance(item, Damage) else NOT_OWN] += 1
        return


def scan(
    file: BinaryIO, max_record_bytes: int = MAX_RECORD_BYTES, file_id: FileId | None = None
) -> Iterator[Whole | Damage]:
    """Yield records and damage of one of Krake's own files.

    These come in file order. Behind damage, the reading of a file with ids goes on at the next member with its id.
    `file_id`: what is known of it.
    """
    raw, effort = _Buffer(iter(lambda: file.read(BLOCK_BYTES), b"")), _Effort()
    file_id = file_id or FileId()
    while raw.fill(1):
        start, member, data = raw.offset, _Member(raw, effort), bytearray()
        try:
            if raw.fill(len(_OWN_MAGIC)) and not raw.data.startswith(_OWN_MAGIC):
                raise _Torn("bad_gzip")
            for piece in member.pieces():
                data += piece
                if len(data) > max_record_bytes:
                    raise _Torn("record_too_large")
            if member.torn:
                raise _Torn(member.torn)
            record, end = _parsed(data, start, member.size)
            if data[end:].strip(b"\r\n"):
                raise _Torn("several_records_in_a_member")
        except _Torn as torn:
            file_id.is_damaged = True
            _skip_to_member(raw, effort, _OWN_MAGIC, file_id.mark)
            yield Damage(start, raw.offset, torn.reason)
        else:
            yield Whole(record, raw.take(member.size), file_id.owns(record))


def read_archive(
    file: BinaryIO, max_record_bytes: int = MAX_RECORD_BYTES
) -> Iterator[WarcRecord | Damage]:
    """Yield an archive's records and damage, in file order.

    The writer may be any. `file`: at its beginning, seekable. Offsets are those of the gzip member or, in a plain file,
    of the record.
    """
    kind = _kind(file)
    if kind == "arc":
        yield from _read_arc(file, max_record_bytes)
    elif kind == "gzip":
        raw, effort = _Buffer(iter(lambda: file.read(BLOCK_BYTES), b"")), _Effort()
        while raw.fill(1):
            start, member = raw.offset, _Member(raw, effort, KEPT_BYTES)
            yield from _records(member.pieces(), max_record_bytes, member, start)
            if member.torn:
                _skip_to_member(raw, effort)
                yield Damage(start, raw.offset, member.torn)
            else:
                raw.take(member.size)
    elif kind == "warc":
        yield from _records(iter(lambda: file.read(BLOCK_BYTES), b""), max_record_bytes)
    else:
        yield Damage(0, file.seek(0, 2), "not_an_archive" if kind else "empty_file")


def _kind(file: BinaryIO) -> str:
    start = file.read(BLOCK_BYTES)
    file.seek(0)
    is_gzip = start.startswith(_GZIP_MAGIC)
    content = start
    if is_gzip:
        with suppress(_GZIP_ERROR):
            content = isal_zlib.decompressobj(31).decompress(start, 64)
    if content.startswith(_ARC):
        return "arc"
    if is_gzip:
        return "gzip"
    if content.lstrip(b"\r\n").startswith(b"WARC/") or _NEXT.search(content):
        return "warc"
    # A damaged start, with members behind it
    return "gzip" if _GZIP_MAGIC in start else "other" if start else ""


class _Head(NamedTuple):
    """The head of a record. `start`, `end`: of its block."""

    headers: dict[str, str]
    start: int
    end: int


def _head(data: bytes | bytearray, max_bytes: int = MAX_RECORD_BYTES) -> _Head:
    """Read the head at the beginning of `data`.

    Raises _Torn, also for an incomplete block. The next line that begins as a record does ends a head too: else lines
    without a head would be read many times.
    """
    if not data.startswith(b"WARC/"):
        raise _Torn("no_record_head")
    found = _HEAD_END.search(data, 0, MAX_HEAD_BYTES)
    if found is None:
        raise _Torn("no_record_head", len(data) + 1 if len(data) < MAX_HEAD_BYTES else 0)
    if found[0].startswith(b"\nWARC"):
        raise _Torn("no_record_head")
    headers: dict[str, str] = {}
    for line in data[: found.start()].decode("utf-8", "surrogateescape").split("\n")[1:]:
        name, colon, value = line.partition(":")
        if colon:
            headers.setdefault(name.strip().lower(), value.strip())
    size = headers.get("content-length", "")
    if not (size.isascii() and size.isdigit()):
        raise _Torn("no_content_length")
    if len(size) > 18 or int(size) > max_bytes:
        raise _Torn("record_too_large")
    end = found.end() + int(size)
    if end > len(data):
        raise _Torn("record_cut_short", end)
    return _Head(headers, found.end(), end)


def _with_block(head: _Head, data: bytes | bytearray, offset: int, length: int) -> WarcRecord:
    with memoryview(data) as view:
        block = bytes(view[head.start : head.end])
    return WarcRecord(head.headers.get("warc-type", ""), head.headers, block, offset, length)


def _parsed(data: bytes | bytearray, offset: int, length: int) -> tuple[WarcRecord, int]:
    """Return the record at the beginning of `data`, with the record's end.

    Raises _Torn.
    """
    head = _head(data)
    return _with_block(head, data, offset, length), head.end


class _Buffer:
    """The bytes of a stream from `offset` on, as far as they were read: `data`."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces
        self.offset = 0
        self.data = bytearray()

    def fill(self, size: int) -> bool:
        """Read on, and return whether there are `size` bytes."""
        while len(self.data) < size:
            piece = next(self._pieces, None)
            if piece is None:
                return False
            self.data += piece
        return True

    def take(self, size: int) -> bytes:
        """Take the next bytes out of the buffer."""
        data = bytes(self.data[:size])
        del self.data[:size]
        self.offset += size
        return data


class _Effort:
    """The work of inflating a file, which is limited where members lie within each other.

    `spent`: bytes inflated so far, counted each time; `seen`: the end of the last byte of these.
    """

    def __init__(self) -> None:
        self.spent = self.seen = 0

    def feed(self, size: int, end: int) -> bool:
        """Count `size` bytes; return whether they may be inflated.

        The bytes end at byte `end` of the file.
        """
        self.spent, self.seen = self.spent + size, max(self.seen, end)
        return self.spent <= TIMES_INFLATED * self.seen


def _skip_to_member(
    raw: _Buffer, effort: _Effort, magic: bytes = _GZIP_MAGIC, mark: bytes = b""
) -> None:
    """Skip to the next place where a record may begin.

    Without one, skip to the end.

    `magic`: how a member begins. `mark`: bytes near the beginning of each record. Where too much was inflated already,
    what was looked at is passed over.
    """
    at = 1
    if effort.spent > TIMES_INFLATED * effort.seen:
        raw.take(min(max(1, effort.seen - raw.offset), len(raw.data)))
        at = 0
    while True:
        at = raw.data.find(magic, at)
        if at >= 0:
            raw.fill(at + PROBE_BYTES)
            with suppress(_GZIP_ERROR):
                probe = bytes(raw.data[at : at + PROBE_BYTES])
                found = isal_zlib.decompressobj(31).decompress(probe, PROBED_BYTES)
                if found.startswith(b"WARC/") and mark in found:
                    raw.take(at)
                    return
            at += 1
        else:
            raw.take(max(0, len(raw.data) - len(magic) + 1))
            at = 0
            if not raw.fill(len(raw.data) + 1):
                raw.take(len(raw.data))
                return


class _Member:
    """The gzip member at the beginning of `raw`. After its content it has a `size`, of what it takes of the buffer, or
    is `torn`: a word. `kept`: so many bytes of it stay in the buffer, None: all."""

    def __init__(self, raw: _Buffer, effort: _Effort, kept: int | None = None) -> None:
        self._raw, self._effort, self._kept = raw, effort, kept
        self.size, self.torn = 0, ""

    def pieces(self, limit: int = BLOCK_BYTES) -> Iterator[bytes]:
        """Inflate the content, in pieces of at most `limit` bytes."""
        raw, inflate, fed = self._raw, isal_zlib.decompressobj(31), 0
        pending, piece, step = b"", b"", PROBE_BYTES
        while not inflate.eof:
            if not pending and len(piece) < limit:
                if self._kept is not None and fed > self._kept:
                    raw.take(fed - self._kept)
                    fed = self._kept
                if not raw.fill(fed + 1):
                    self.torn = "member_cut_short"
                    return
                # Small members cost no copies of large blocks: a step is not longer than what went before.
                pending = bytes(raw.data[fed : fed + step])
                step = min(2 * step, BLOCK_BYTES)
                fed += len(pending)
                if not self._effort.feed(len(pending), raw.offset + fed):
                    self.torn = "too_many_members_within_each_other"
                    return
            try:
                piece = inflate.decompress(pending, limit)
            except _GZIP_ERROR:
                self.torn = "bad_gzip"
                return
            pending = inflate.unconsumed_tail
            yield piece
        self.size = fed - len(inflate.unused_data)
        self._effort.spent -= len(inflate.unused_data)


def _records(
    pieces: Iterator[bytes], max_bytes: int, member: _Member | None = None, start: int = 0
) -> Iterator[WarcRecord | Damage]:
    """Yield the records in a stream of plain bytes.

    `member`: what the stream is the content of, so that all its records have one offset, `start`; None for a plain
    file. If the member itself ends in damage, its reader reports this, not the truncated record.
    """
    buffer = _Buffer(pieces)
    while buffer.fill(1):
        if empty := _EMPTY_LINES.match(buffer.data):
            buffer.take(empty.end())
        if not buffer.data:
            continue
        at = start if member else buffer.offset
        try:
            record = _record(buffer, at, max_bytes)
        except _Torn as torn:
            _skip_to_record(buffer)
            is_cut = torn.reason in {"record_cut_short", "no_record_head"} and not buffer.data
            if not (is_cut and member and member.torn):
                yield Damage(at, start if member else buffer.offset, torn.reason)
        else:
            yield record


def _record(buffer: _Buffer, offset: int, max_bytes: int) -> WarcRecord:
    """Take the first record out of the buffer.

    Raises _Torn.
    """
    buffer.fill(5)
    while True:
        try:
            head = _head(buffer.data, max_bytes)
            break
        except _Torn as torn:
            if not (torn.needs and buffer.fill(torn.needs)):
                raise
    buffer.fill(head.end + 8)
    after = buffer.data[head.end : head.end + 8].lstrip(b"\r\n")
    if after and not b"WARC/".startswith(after[:5]):
        raise _Torn("wrong_length")
    record = _with_block(head, buffer.data, offset, head.end)
    buffer.take(head.end)
    return record


def _skip_to_record(buffer: _Buffer) -> None:
    """Skip to the begin of the next record.

    Without one, skip to the end.
    """
    while True:
        found = _NEXT.search(buffer.data, 1)
        if found is not None:
            buffer.take(found.start() + 1)
            return
        buffer.take(max(0, len(buffer.data) - 8))
        if not buffer.fill(len(buffer.data) + 1):
            buffer.take(len(buffer.data))
            return


def _read_arc(file: BinaryIO, max_bytes: int) -> Iterator[WarcRecord | Damage]:
    """Yield the records of an ARC file.

    Warcio makes WARC records of these.
    """
    from warcio.archiveiterator import (  # type: ignore[import-untyped]  # noqa: PLC0415 - only for such files
        ArchiveIterator,
    )

    is_gzip = file.read(2) == _GZIP_MAGIC[:2]
    file.seek(0)
    # As one stream, since not all writers compress record by record; offsets are those of the plain file then.
    plain = cast("BinaryIO", gzip.GzipFile(fileobj=file)) if is_gzip else file
    records = ArchiveIterator(plain, no_record_parse=True, arc2warc=True)
    # A line is put together of many small pieces, which takes time quadratic in its length.
    read_line = records.reader.readline
    records.reader.readline = lambda length=MAX_ARC_LINE_BYTES: read_line(
        min(length, MAX_ARC_LINE_BYTES)
    )
    offset = 0
    while True:
        try:
            record = next(records)
            block = record.content_stream().read(max_bytes + 1)
            offset = records.get_record_offset()  # reads on to the end of the record
            headers = {name.lower(): value for name, value in record.rec_headers.headers}
            kind = cast("str", record.rec_type)
        except StopIteration:
            return
        except Exception as error:  # warcio raises errors of many kinds over a damaged file
            yield Damage(offset, offset, f"bad_arc_{type(error).__name__}")
            return
        if len(block) > max_bytes:
            yield Damage(offset, offset, "record_too_large")
            continue
        yield WarcRecord(kind, headers, block, offset, len(block))
