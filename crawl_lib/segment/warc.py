"""Reading WARC files: gzip members (ours: one a record) or plain records, one at a time, damage counted.

A record is held in memory whole; `max_record_bytes` bounds it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import BinaryIO, NamedTuple, cast

from isal import isal_zlib

from crawl_lib.errors import DamagedFileError
from crawl_lib.records import MAX_RECORD_BYTES
from crawl_lib.segment.encoder import split_head

READ_BYTES = 1 << 18
GZIP_ERROR = cast("type[Exception]", isal_zlib.error)
GZIP_MAGIC = b"\x1f\x8b\x08"
HEAD_END = re.compile(rb"\r?\n\r?\n")


class WarcRecord(NamedTuple):
    """One record. `headers`: names in lower case. `offset`, `length`: of its gzip member, or of its plain bytes."""

    type: str
    headers: dict[str, str]
    block: bytes
    offset: int
    length: int

    @property
    def url(self) -> str:
        """The URL it is about, "" for none; without the brackets that some writers put around it."""
        return self.headers.get("warc-target-uri", "").strip("<>")

    @property
    def head(self) -> bytes:
        """Status line and headers of an HTTP block, with the empty line."""
        return split_head(self.block)[0]

    @property
    def body(self) -> bytes:
        """What follows the head, as it came over the wire."""
        return split_head(self.block)[1]


class Torn(Exception):  # noqa: N818 - not an error of the tree: the walk turns it into a count
    """Bytes that are no whole record. `reason`: the name it is counted by."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def parse_record(data: bytes, offset: int = 0, length: int | None = None, start: int = 0) -> tuple[WarcRecord, int]:
    """The record at `data[start:]` and where it ends there. Raises Torn."""
    found = HEAD_END.search(data, start)
    if found is None or not data.startswith(b"WARC/", start):
        raise Torn("no_record_head")
    headers = parse_headers(data[start : found.start()])
    try:
        size = int(headers.get("content-length", ""))
    except ValueError:
        raise Torn("no_content_length") from None
    end = found.end() + size
    if size < 0 or end > len(data):
        raise Torn("record_cut_short")
    after = end
    while data[after : after + 1] in {b"\r", b"\n"} and after < end + 4:
        after += 1
    kind = headers.get("warc-type", "")
    return WarcRecord(
        kind, headers, data[found.end() : end], offset, after - start if length is None else length
    ), after


def parse_headers(head: bytes) -> dict[str, str]:
    """The fields of a record's head, names in lower case; of several of one name, the first."""
    headers: dict[str, str] = {}
    for line in head.decode("utf-8", "surrogateescape").split("\n")[1:]:
        name, colon, value = line.partition(":")
        if colon:
            headers.setdefault(name.strip().lower(), value.strip())
    return headers


def members(
    file: BinaryIO, damage: Counter[str], max_record_bytes: int = MAX_RECORD_BYTES
) -> Iterator[tuple[int, int, bytes]]:
    """Offset, length and content of each gzip member from the start of a file; ends at the first damage, counted."""
    offset, buffer = 0, b""
    while True:
        buffer = buffer or file.read(READ_BYTES)
        if not buffer:
            return
        try:
            data, used, buffer = _member(file, buffer, max_record_bytes)
        except Torn as torn:
            damage[torn.reason] += 1
            return
        yield offset, used, data
        offset += used


def _member(file: BinaryIO, buffer: bytes, max_bytes: int) -> tuple[bytes, int, bytes]:
    """The content of one member, its length, and what was read beyond it."""
    inflate = isal_zlib.decompressobj(31)
    parts, used, size = [], 0, 0
    while True:
        try:
            part = inflate.decompress(buffer, max_bytes - size + 1)
        except GZIP_ERROR:
            raise Torn("bad_gzip") from None
        parts.append(part)
        used += len(buffer)
        size += len(part)
        if size > max_bytes:
            raise Torn("record_too_large")
        if inflate.eof:
            rest = inflate.unused_data
            return b"".join(parts), used - len(rest), rest
        buffer = file.read(READ_BYTES)
        if not buffer:
            raise Torn("member_cut_short")


def read_one(data: bytes, offset: int, where: str) -> WarcRecord:
    """The record of one gzip member. Raises DamagedFileError naming `where` and the offset."""
    try:
        return parse_record(isal_zlib.decompress(data, 31), offset, len(data))[0]
    except Torn as torn:
        raise DamagedFileError(f"{where}: no record at byte {offset}: {torn.reason}") from None
    except GZIP_ERROR as error:
        raise DamagedFileError(f"{where}: no gzip member at byte {offset}: {error}") from None


def walk(file: BinaryIO, damage: Counter[str] | None = None) -> Iterator[WarcRecord]:
    """Every record of a WARC file, compressed or plain, in file order.

    `damage` counts what could not be read, by reason; the walk ends at damage, since nothing after it is certain.
    """
    damage = Counter() if damage is None else damage
    start = file.read(READ_BYTES)
    rest = _Rest(start, file)
    if start.startswith(GZIP_MAGIC[:2]):
        for offset, length, data in members(rest, damage):  # type: ignore[arg-type]
            yield from _records_of(data, offset, length, damage)
    elif start:
        yield from _plain(rest, damage)


def _records_of(data: bytes, offset: int, length: int, damage: Counter[str]) -> Iterator[WarcRecord]:
    """The records of a member: one, as it should be, or several, which is counted."""
    at = 0
    while at < len(data):
        try:
            record, at = parse_record(data, offset, length, at)
        except Torn as torn:
            damage[torn.reason] += 1
            return
        yield record
        if at < len(data):
            damage["several_records_in_a_member"] += 1


class _Rest:
    """A file whose first bytes were read already."""

    def __init__(self, start: bytes, file: BinaryIO) -> None:
        self._start, self._file = start, file

    def read(self, size: int) -> bytes:
        data, self._start = self._start, b""
        return data or self._file.read(size)


def _plain(file: _Rest, damage: Counter[str]) -> Iterator[WarcRecord]:
    buffer, base = b"", 0
    while True:
        try:
            record, used = parse_record(buffer, base)
            if used == len(buffer):
                raise Torn("record_cut_short")  # the closing lines may follow
        except Torn as torn:
            more = file.read(READ_BYTES) if len(buffer) < MAX_RECORD_BYTES else b""
            if more:
                buffer += more
                continue
            yield from _last(buffer, base, damage, torn.reason)
            return
        yield record
        buffer, base = buffer[used:], base + used


def _last(buffer: bytes, base: int, damage: Counter[str], reason: str) -> Iterator[WarcRecord]:
    if not buffer.strip():
        return
    try:
        record, used = parse_record(buffer, base)
    except Torn:
        damage[reason] += 1
        return
    yield record
    if buffer[used:].strip():
        damage["rubbish_at_the_end"] += 1
