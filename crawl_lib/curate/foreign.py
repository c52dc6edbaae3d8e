"""Reading archives of any writer: WARC 1.0 and 1.1, compressed record by record, as a whole, or not at all; ARC.

Whatever is wrong with a file, what is whole in it is given, and what is not is a `Damage` with its place; nothing is
raised but for a file that cannot be opened. Memory is bounded by one record. After damage in a compressed file the
next gzip member that opens with `WARC/` is looked for, in a plain one the next line that begins so.
"""

from __future__ import annotations

import gzip
import re
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, BinaryIO, cast

from isal import isal_zlib

from crawl_lib.records import MAX_RECORD_BYTES
from crawl_lib.segment import GZIP_ERROR, GZIP_MAGIC, HEAD_END, Damage, Raw, WarcRecord, parse_headers

MAX_HEAD_BYTES = 1 << 17
"""Of a record's own head: a URL of ours may have 65,535 characters."""
KEPT_BYTES = 1 << 20
"""How far back a member is looked for where a damaged one was noticed: damage shows some way behind it."""
BLOCK_BYTES = 1 << 18
_NEXT = re.compile(rb"\nWARC/[01]\.")
_ARC = b"filedesc:"


def read_archive(file: BinaryIO, max_record_bytes: int = MAX_RECORD_BYTES) -> Iterator[WarcRecord | Damage]:
    """All records of an archive, and its damaged places, in file order. `file`: at its beginning, seekable.

    Offsets are of the gzip member or, in a plain file, of the record.
    """
    kind = _kind(file)
    if kind == "arc":
        yield from _read_arc(file, max_record_bytes)
    elif kind == "gzip":
        raw = Raw(file)
        while raw.more():
            start = raw.offset
            member = _Member(raw)
            yield from _Records(member.chunks(), start, None, max_record_bytes).read(lambda: member.torn)  # noqa: B023
            if member.torn:
                raw.skip_to_member()
                yield Damage(start, raw.offset, member.torn)
    elif kind == "warc":
        yield from _Records(_chunks(file), 0, 0, max_record_bytes).read(lambda: "")
    else:
        yield Damage(0, file.seek(0, 2), "not_an_archive" if kind else "empty_file")


def _kind(file: BinaryIO) -> str:
    start = file.read(BLOCK_BYTES)
    file.seek(0)
    is_gzip = start.startswith(GZIP_MAGIC)
    content = start
    if is_gzip:
        with suppress(GZIP_ERROR):
            content = isal_zlib.decompressobj(31).decompress(start, 64)
    if content.startswith(_ARC):
        return "arc"
    if is_gzip:
        return "gzip"
    if content.lstrip(b"\r\n").startswith(b"WARC/") or _NEXT.search(content):
        return "warc"
    # A damaged start, with members behind it
    return "gzip" if GZIP_MAGIC in start else "other" if start else ""


def _chunks(file: BinaryIO) -> Iterator[bytes]:
    while data := file.read(BLOCK_BYTES):
        yield data


class _Member:
    """One gzip member of a file, streamed: its content, and in the end what was wrong with it."""

    def __init__(self, raw: Raw) -> None:
        self._raw = raw
        self.torn = ""

    def chunks(self) -> Iterator[bytes]:
        """The content; the file stands behind the member then, or, where it is torn, shortly before the damage."""
        raw, inflate, fed = self._raw, isal_zlib.decompressobj(31), 0
        while True:
            if fed == len(raw.buffer):
                if fed > KEPT_BYTES:
                    raw.take(fed - KEPT_BYTES)
                    fed = KEPT_BYTES
                if not raw.fill():
                    self.torn = "member_cut_short"
                    return
            data = bytes(raw.buffer[fed : fed + BLOCK_BYTES])
            pending = data
            while True:
                try:
                    out = inflate.decompress(pending, BLOCK_BYTES)
                except GZIP_ERROR:
                    self.torn = "bad_gzip"
                    return
                if out:
                    yield out
                if inflate.eof:
                    raw.take(fed + len(data) - len(inflate.unused_data))
                    return
                pending = inflate.unconsumed_tail
                if not pending and len(out) < BLOCK_BYTES:
                    break
            fed += len(data)


class _Records:
    """Records out of a stream of plain bytes.

    `start`: offset of the stream in its file; `base`: the same for a plain file, where each record has a place of its
    own; None where all records share the member's.
    """

    def __init__(self, chunks: Iterator[bytes], start: int, base: int | None, max_bytes: int) -> None:
        self._chunks, self._start, self._base, self._max = chunks, start, base, max_bytes
        self._buffer = bytearray()
        self._at = 0  # of the buffer in the stream

    def read(self, torn: Any) -> Iterator[WarcRecord | Damage]:
        """All of them. `torn()`: whether the stream itself ended in damage, which then is told by its reader."""
        while True:
            self._skip_blank()
            if not self._buffer:
                return
            found = self._record()
            if isinstance(found, WarcRecord):
                yield found
                continue
            place, was = self._place(), self._at
            self._resync()
            if not (torn() and not self._buffer and found in {"record_cut_short", "no_record_head"}):
                yield Damage(place, place + self._at - was if self._base is not None else place, found)

    def _place(self) -> int:
        return self._start if self._base is None else self._base + self._at

    def _fill(self, size: int) -> bool:
        """Whether the buffer has `size` bytes, after reading on."""
        while len(self._buffer) < size:
            data = next(self._chunks, b"")
            if not data:
                return False
            self._buffer += data
        return True

    def _take(self, size: int) -> None:
        del self._buffer[:size]
        self._at += size

    def _skip_blank(self) -> None:
        while self._fill(1):
            blank = len(self._buffer) - len(self._buffer.lstrip(b"\r\n"))
            self._take(blank)
            if self._buffer:
                return

    def _record(self) -> WarcRecord | str:
        """The record at the beginning of the buffer, taken out of it; or what is wrong with it."""
        found = self._head()
        if found is None:
            return "no_record_head"
        headers = parse_headers(bytes(self._buffer[: found.start()]))
        length = headers.get("content-length", "")
        if not (length.isascii() and length.isdigit()):
            return "no_content_length"
        if int(length) > self._max:
            return "record_too_large"
        end = found.end() + int(length)
        if not self._fill(end):
            return "record_cut_short"
        self._fill(end + 8)
        after = self._buffer[end : end + 8].lstrip(b"\r\n")
        if after and not b"WARC/".startswith(after[:5]):
            return "wrong_length"
        record = WarcRecord(
            headers.get("warc-type", ""), headers, bytes(self._buffer[found.end() : end]), self._place(), end
        )
        self._take(end)
        return record

    def _head(self) -> re.Match[bytes] | None:
        """Where the head of the record at the beginning of the buffer ends; None if there is none."""
        self._fill(5)
        if not self._buffer.startswith(b"WARC/"):
            return None
        found = HEAD_END.search(self._buffer)
        while found is None and len(self._buffer) < MAX_HEAD_BYTES and self._fill(len(self._buffer) + 1):
            found = HEAD_END.search(self._buffer)
        return found

    def _resync(self) -> None:
        """Go to the next line that begins as a record does, or to the end."""
        while True:
            found = _NEXT.search(self._buffer, 1)
            if found is not None:
                self._take(found.start() + 1)
                return
            self._take(max(0, len(self._buffer) - 8))
            if not self._fill(len(self._buffer) + 1):
                self._take(len(self._buffer))
                return


def _read_arc(file: BinaryIO, max_bytes: int) -> Iterator[WarcRecord | Damage]:
    """Records of an ARC file, as warcio turns them into those of a WARC."""
    from warcio.archiveiterator import (  # type: ignore[import-untyped]  # noqa: PLC0415 - only for such files
        ArchiveIterator,
    )

    is_gzip = file.read(2) == GZIP_MAGIC[:2]
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
