"""Reading on past damage: every record of a WARC file that is whole, and where what is not lies.

`scan` reads files whose records are a gzip member each, as Krake writes them, and keeps each record's bytes, so that
it can be copied. After damage it looks for the next byte from which a gzip member opens with `WARC/`. What a hostile
server put into a record that is damaged could pass for one, so callers take nothing for true that a record of ours
would not say.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import BinaryIO, NamedTuple

from isal import isal_zlib

from crawl_lib.records import MAX_RECORD_BYTES
from crawl_lib.segment.warc import GZIP_ERROR, GZIP_MAGIC, Torn, WarcRecord, parse_record

READ_BYTES = 1 << 18
PROBE_BYTES = 1 << 12


class Whole(NamedTuple):
    """A record with the bytes of its gzip member."""

    record: WarcRecord
    raw: bytes


class Damage(NamedTuple):
    """Bytes `offset` to `end` that are no whole record. `reason`: one word."""

    offset: int
    end: int
    reason: str


def scan(file: BinaryIO, max_record_bytes: int = MAX_RECORD_BYTES) -> Iterator[Whole | Damage]:
    """All of a WARC file in file order, records and damage; memory is bounded by one record.

    Damage is told, not raised: behind a torn member (`Torn`, inside) the scan goes on at the next one that can be read.
    """
    raw = Raw(file)
    while raw.more():
        start = raw.offset
        try:
            data, used = _inflate(raw, max_record_bytes)
            record, end = parse_record(data, start, used)
            if end != len(data):
                raise Torn("several_records_in_a_member")
        except Torn as torn:
            raw.skip_to_member()
            yield Damage(start, raw.offset, torn.reason)
            continue
        yield Whole(record, raw.take(used))


class Raw:
    """The bytes of a file from `offset` on, as far as they were read: `buffer`. Not for use by several readers."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.offset = 0
        self.buffer = bytearray()

    def fill(self) -> bytes:
        """Read on; b"" at the end."""
        data = self._file.read(READ_BYTES)
        self.buffer += data
        return data

    def more(self) -> bool:
        """Whether a byte is left."""
        return bool(self.buffer or self.fill())

    def take(self, size: int) -> bytes:
        """The next bytes, which are in the buffer; they leave it."""
        data = bytes(self.buffer[:size])
        del self.buffer[:size]
        self.offset += size
        return data

    def skip_to_member(self) -> None:
        """Go to the next place after this one where a record may begin, or to the end."""
        at = 1
        while True:
            at = self.buffer.find(GZIP_MAGIC, at)
            if at < 0:
                keep = min(len(self.buffer), len(GZIP_MAGIC) - 1)
                self.take(len(self.buffer) - keep)
                at = 0
                if not self.fill():
                    self.take(len(self.buffer))
                    return
                continue
            while len(self.buffer) < at + PROBE_BYTES and self.fill():
                pass
            if _opens_record(self.buffer[at : at + PROBE_BYTES]):
                self.take(at)
                return
            at += 1


def _opens_record(data: bytearray) -> bool:
    try:
        return isal_zlib.decompressobj(31).decompress(bytes(data), 5).startswith(b"WARC/")
    except GZIP_ERROR:
        return False


def _inflate(raw: Raw, max_bytes: int) -> tuple[bytes, int]:
    """The content of the member that begins at the buffer, and its length. Raises Torn; the buffer keeps its bytes."""
    inflate = isal_zlib.decompressobj(31)
    parts: list[bytes] = []
    size, data, used = 0, bytes(raw.buffer), len(raw.buffer)
    while True:
        try:
            part = inflate.decompress(data, max_bytes - size + 1)
        except GZIP_ERROR:
            raise Torn("bad_gzip") from None
        parts.append(part)
        size += len(part)
        if size > max_bytes:
            raise Torn("record_too_large")
        if inflate.eof:
            return b"".join(parts), used - len(inflate.unused_data)
        data = raw.fill()
        used += len(data)
        if not data:
            raise Torn("member_cut_short")
