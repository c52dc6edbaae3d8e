"""Reading WARC files: Krake's own, a gzip member a record, and archives of any writer. Damage never raises here.

`scan` and `walk` read Krake's own files. `scan` reads on past damage and keeps the bytes of each record, so that it can
be copied; `walk` ends at the first damage. `read_archive` reads WARC 1.0 and 1.1 of any writer, compressed record by
record, as a whole, or not at all, and ARC; it reads on past damage too.

After damage in a compressed file the next gzip member that opens with `WARC/` is looked for, in a plain one the next
line that begins so. What a hostile server put into a record that is damaged could pass for one, so callers take nothing
for true that a record of ours would not say. A record is held in memory whole; `max_record_bytes` bounds it.
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
PROBE_BYTES = 1 << 12
MAX_HEAD_BYTES = 1 << 17
"""Of a record's own head: a URL of ours may have 65,535 characters."""
KEPT_BYTES = 1 << 20
"""How far back a member is looked for where a damaged one was noticed: damage shows some way behind it."""
_GZIP_ERROR = cast("type[Exception]", isal_zlib.error)
_GZIP_MAGIC = b"\x1f\x8b\x08"
_HEAD_END = re.compile(rb"\r?\n\r?\n")
_NEXT = re.compile(rb"\nWARC/[01]\.")
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
        """Whether it is the main record of a group with an answer: whole, or without the body of an earlier one."""
        return self.type in {"response", "revisit"}

    @property
    def url(self) -> str:
        """The URL it is about, "" for none; without the brackets that some writers put around it."""
        return self.headers.get("warc-target-uri", "").strip("<>")


class Whole(NamedTuple):
    """A record with the bytes of its gzip member."""

    record: WarcRecord
    raw: bytes


class Damage(NamedTuple):
    """Bytes `offset` to `end` that are no whole record. `reason`: one word."""

    offset: int
    end: int
    reason: str


class _Torn(Exception):  # noqa: N818 - not an error of the tree: readers turn it into a `Damage`
    """Bytes that are no whole record. `needs`: how many would have to be there; 0 if more of them are no help."""

    def __init__(self, reason: str, needs: int = 0) -> None:
        super().__init__(reason)
        self.reason, self.needs = reason, needs


def read_one(data: bytes, offset: int, where: str) -> WarcRecord:
    """The record of one gzip member. Raises DamagedFileError naming `where` and the offset."""
    try:
        return _parsed(isal_zlib.decompress(data, 31), offset, len(data))[0]
    except _Torn as torn:
        raise DamagedFileError(f"{where}: no record at byte {offset}: {torn.reason}") from None
    except _GZIP_ERROR as error:
        raise DamagedFileError(f"{where}: no gzip member at byte {offset}: {error}") from None


def walk(file: BinaryIO, damage: Counter[str] | None = None) -> Iterator[WarcRecord]:
    """The records of one of Krake's own files in file order, until its end or the first damage.

    `damage` counts, by its reason, what the walk ended at.
    """
    for item in scan(file):
        if isinstance(item, Damage):
            if damage is not None:
                damage[item.reason] += 1
            return
        yield item.record


def scan(file: BinaryIO, max_record_bytes: int = MAX_RECORD_BYTES) -> Iterator[Whole | Damage]:
    """All of one of Krake's own files in file order, records and damage."""
    raw = _Buffer(iter(lambda: file.read(BLOCK_BYTES), b""))
    while raw.fill(1):
        start, member, data = raw.offset, _Member(raw), bytearray()
        try:
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
            _skip_to_member(raw)
            yield Damage(start, raw.offset, torn.reason)
        else:
            yield Whole(record, raw.take(member.size))


def read_archive(file: BinaryIO, max_record_bytes: int = MAX_RECORD_BYTES) -> Iterator[WarcRecord | Damage]:
    """All records of an archive of any writer, and its damaged places, in file order. `file`: at its beginning,
    seekable. Offsets are of the gzip member or, in a plain file, of the record."""
    kind = _kind(file)
    if kind == "arc":
        yield from _read_arc(file, max_record_bytes)
    elif kind == "gzip":
        raw = _Buffer(iter(lambda: file.read(BLOCK_BYTES), b""))
        while raw.fill(1):
            start, member = raw.offset, _Member(raw, KEPT_BYTES)
            yield from _records(member.pieces(), max_record_bytes, member, start)
            if member.torn:
                _skip_to_member(raw)
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


def _parsed(
    data: bytes | bytearray, offset: int, length: int | None = None, max_bytes: int = MAX_RECORD_BYTES
) -> tuple[WarcRecord, int]:
    """The record at the beginning of `data`, and where its block ends. Raises _Torn."""
    if not data.startswith(b"WARC/"):
        raise _Torn("no_record_head")
    found = _HEAD_END.search(data)
    if found is None:
        raise _Torn("no_record_head", len(data) + 1 if len(data) < MAX_HEAD_BYTES else 0)
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
    block = bytes(data[found.end() : end])
    return WarcRecord(headers.get("warc-type", ""), headers, block, offset, end if length is None else length), end


class _Buffer:
    """The bytes of a stream from `offset` on, as far as they were read: `data`."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces
        self.offset = 0
        self.data = bytearray()

    def fill(self, size: int) -> bool:
        """Whether there are `size` bytes, after reading on."""
        while len(self.data) < size:
            piece = next(self._pieces, None)
            if piece is None:
                return False
            self.data += piece
        return True

    def take(self, size: int) -> bytes:
        """The next bytes, which were read; they leave it."""
        data = bytes(self.data[:size])
        del self.data[:size]
        self.offset += size
        return data


def _skip_to_member(raw: _Buffer) -> None:
    """Go to the next place after this one where a record may begin, or to the end."""
    at = 1
    while True:
        at = raw.data.find(_GZIP_MAGIC, at)
        if at >= 0:
            raw.fill(at + PROBE_BYTES)
            with suppress(_GZIP_ERROR):
                probe = bytes(raw.data[at : at + PROBE_BYTES])
                if isal_zlib.decompressobj(31).decompress(probe, 5).startswith(b"WARC/"):
                    raw.take(at)
                    return
            at += 1
        else:
            raw.take(max(0, len(raw.data) - len(_GZIP_MAGIC) + 1))
            at = 0
            if not raw.fill(len(raw.data) + 1):
                raw.take(len(raw.data))
                return


class _Member:
    """The gzip member at the beginning of `raw`. After its content it has a `size`, of what it takes of the buffer, or
    is `torn`: a word. `kept`: so many bytes of it stay in the buffer, None: all."""

    def __init__(self, raw: _Buffer, kept: int | None = None) -> None:
        self._raw, self._kept = raw, kept
        self.size, self.torn = 0, ""

    def pieces(self, limit: int = BLOCK_BYTES) -> Iterator[bytes]:
        """The content, in pieces of at most `limit` bytes."""
        raw, inflate, fed = self._raw, isal_zlib.decompressobj(31), 0
        pending, piece = b"", b""
        while not inflate.eof:
            if not pending and len(piece) < limit:
                if self._kept is not None and fed > self._kept:
                    raw.take(fed - self._kept)
                    fed = self._kept
                if not raw.fill(fed + 1):
                    self.torn = "member_cut_short"
                    return
                pending = bytes(raw.data[fed : fed + BLOCK_BYTES])
                fed += len(pending)
            try:
                piece = inflate.decompress(pending, limit)
            except _GZIP_ERROR:
                self.torn = "bad_gzip"
                return
            pending = inflate.unconsumed_tail
            yield piece
        self.size = fed - len(inflate.unused_data)


def _records(
    pieces: Iterator[bytes], max_bytes: int, member: _Member | None = None, start: int = 0
) -> Iterator[WarcRecord | Damage]:
    """Records out of a stream of plain bytes.

    `member`: what the stream is the content of, so that all its records have one offset, `start`; None for a plain
    file. Where the member itself ends in damage, its reader says so, not the record that it cuts.
    """
    buffer = _Buffer(pieces)
    while buffer.fill(1):
        buffer.take(len(buffer.data) - len(buffer.data.lstrip(b"\r\n")))
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
    """The record at the beginning of the buffer, taken out of it. Raises _Torn."""
    buffer.fill(5)
    while True:
        try:
            record, end = _parsed(buffer.data, offset, max_bytes=max_bytes)
            break
        except _Torn as torn:
            if not (torn.needs and buffer.fill(torn.needs)):
                raise
    buffer.fill(end + 8)
    after = buffer.data[end : end + 8].lstrip(b"\r\n")
    if after and not b"WARC/".startswith(after[:5]):
        raise _Torn("wrong_length")
    buffer.take(end)
    return record


def _skip_to_record(buffer: _Buffer) -> None:
    """Go to the next line that begins as a record does, or to the end."""
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
    """Records of an ARC file, as warcio turns them into those of a WARC."""
    from warcio.archiveiterator import (  # type: ignore[import-untyped]  # noqa: PLC0415 - only for such files
        ArchiveIterator,
    )

    is_gzip = file.read(2) == _GZIP_MAGIC[:2]
    file.seek(0)
    # As one stream, since not all writers compress record by record; offsets are those of the plain file then.
    plain = cast("BinaryIO", gzip.GzipFile(fileobj=file)) if is_gzip else file
    records = ArchiveIterator(plain, no_record_parse=True, arc2warc=True)
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
