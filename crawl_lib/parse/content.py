"""Undoing the codings of a body: chunked, gzip, deflate, br, stacked in any order, damaged or hostile.

Servers and proxies name codings that they have not applied, or not so. A compressed body is therefore read as the first
of these formats in which it decodes whole: the format that is named, gzip or zlib by its first bytes, and, if it does
not look like text, raw deflate or brotli, which have no such bytes. If it decodes in none, a body that looks like text
was never compressed, and stays as it is. Anything else is damaged.
"""

import re
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from io import BytesIO
from typing import Any, NamedTuple, cast

import brotli  # type: ignore[import-untyped]
from isal import isal_zlib

from crawl_lib.parse.headers import Headers

# A block of a bomb becomes a thousand times as much, which is in memory twice for a moment.
_BLOCK_BYTES = 1 << 13
_PIECE_BYTES = 1 << 22
_MAX_CODINGS = 5
_MAX_MEMBERS = 1000
_GZIP_MAGIC = b"\x1f\x8b"
_COMPRESSIONS = ("gzip", "deflate", "br")
_CHECKED = ("gzip", "zlib")
_WITHOUT_MARK = ("raw", "br")
_NOT_APPLIED = "the body is not compressed"
_LAST_BYTES = 64
_LOOKED_AT_BYTES = 1024
_TEXT_MARKS = (b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff")
_BINARY = bytes({*range(0x20)} - {*b"\t\n\f\r\x1b"})
_CHUNK_SIZE = re.compile(rb"[ \t]*([0-9A-Fa-f]{1,15})[ \t]*(?:;[^\n]*)?\r?\n")


class Content(NamedTuple):
    """A body without its codings."""

    data: bytes
    """The content, or as much of it as could be had."""
    truncated: bool
    """It was cut at the limit."""
    error: str
    """The problem of a coding in one line; "" if nothing was."""
    broken: bool = False
    """The end of the content is missing, since a coding is damaged or was cut off."""

    @property
    def is_gzip(self) -> bool:
        """Whether the content itself is gzip, as that of a compressed sitemap."""
        return self.data.startswith(_GZIP_MAGIC)


def decode_content(headers: Headers, body: bytes, *, max_bytes: int) -> Content:
    """Undo transfer and content codings, up to `max_bytes` of content.

    `headers` name the codings.

    `body` is as it came from the wire. Never raises: where a coding is damaged or cut off, the content holds what could
    be decoded; where a coding is unknown or was never applied, the content is the body as it is. `error` says what was
    wrong. Memory stays below `max_bytes` for each coding, whatever the body claims (RFC 9110, 8.4; RFC 9112, 7).
    """
    # In the order they were applied.
    values = headers.all("content-encoding") + headers.all("transfer-encoding")
    names = (
        name.partition(";")[0].strip().lower() for value in values for name in value.split(",")
    )
    codings = [name.removeprefix("x-") for name in names if name not in ("", "identity", "none")]
    errors = []
    truncated = broken = False
    if len(codings) > _MAX_CODINGS:
        errors.append(f"{len(codings)} codings, of which the last {_MAX_CODINGS} were undone")
    data, left = body, codings[-_MAX_CODINGS:]
    while left:
        coding = left.pop()
        found, is_sure = _undo(coding, data, max_bytes)
        if not is_sure and left and _undo(left[-1], data, max_bytes)[1]:
            errors.append(f"{coding}: {_NOT_APPLIED}")
            continue
        data, truncated, broken = found.data, truncated or found.truncated, broken or found.broken
        if found.error:
            errors.append(f"{coding}: {found.error}")
    if len(data) > max_bytes:
        data, truncated = data[:max_bytes], True
    return Content(data, truncated, "; ".join(errors), broken)


def _undo(coding: str, data: bytes, limit: int) -> tuple[Content, bool]:
    """Undo one coding.

    Return the content, and whether the coding was surely applied.
    """
    if not data:
        return Content(data, False, ""), True
    if coding == "chunked":
        return _unchunk(data), True
    if coding not in _COMPRESSIONS:
        return Content(data, False, "unknown coding"), False
    first: Content | None = None
    has_mark, is_text = data.startswith(_GZIP_MAGIC) or _is_zlib(data), _looks_like_text(data)
    forms = list(_forms(coding, data))
    others = [] if has_mark or is_text else [form for form in _WITHOUT_MARK if form not in forms]
    for form in forms + others:
        found, is_sure = _expand(data, form, limit)
        if is_sure:
            return found, True
        if form in forms:
            first = first or found
    if first is None or is_text or not (first.data or has_mark):
        first = Content(data, False, _NOT_APPLIED)
    return first, False


def _forms(coding: str, data: bytes) -> Iterator[str]:
    """Yield the formats suggested by name and first bytes.

    The likeliest comes first.
    """
    if coding == "br":
        yield coding
    if data.startswith(_GZIP_MAGIC):
        yield "gzip"
    elif _is_zlib(data):
        yield "zlib"
    if coding == "deflate":
        yield "raw"


def _looks_like_text(data: bytes) -> bool:
    """Say whether the beginning has no byte that texts lack.

    https://mimesniff.spec.whatwg.org/#binary-data-byte. A short compressed body may look so too.
    """
    start = data[:_LOOKED_AT_BYTES]
    return start.startswith(_TEXT_MARKS) or len(start.translate(None, _BINARY)) == len(start)


def _is_zlib(data: bytes) -> bool:
    """Tell zlib's header from raw deflate, which many servers send.

    RFC 1950, 2.2.
    """
    return len(data) >= 2 and data[0] & 0x8F == 8 and int.from_bytes(data[:2], "big") % 31 == 0


def _unchunk(data: bytes) -> Content:
    pieces: list[bytes] = []
    offset = 0
    while match := _CHUNK_SIZE.match(data, offset):
        size = int(match[1], 16)
        start = match.end()
        if size == 0:
            return Content(b"".join(pieces), False, "")
        pieces.append(data[start : start + size])
        offset = start + size
        if offset > len(data):
            return Content(b"".join(pieces), False, "the last chunk is cut off", broken=True)
        if data.startswith(b"\r\n", offset):
            offset += 2
        elif data.startswith(b"\n", offset):
            offset += 1
    if not pieces:
        return Content(data, False, "the body has no chunks")
    error = f"no chunk size at byte {offset}" if offset < len(data) else "no last chunk"
    return Content(b"".join(pieces), False, error, broken=True)


def _feed(decoder: Any, block: bytes, out: BytesIO, limit: int) -> bool:
    """Decompress a block, up to `limit` bytes.

    Return whether the compressed stream has ended.
    """
    if not isinstance(decoder, brotli.Decompressor):
        out.write(decoder.decompress(block, limit))
        return bool(decoder.eof)
    limit -= out.write(decoder.process(block, output_buffer_limit=min(limit, _PIECE_BYTES)))
    while limit > 0 and not decoder.can_accept_more_data():
        limit -= out.write(decoder.process(b"", output_buffer_limit=min(limit, _PIECE_BYTES)))
    return bool(decoder.is_finished())


# mypy takes isal's alias of its error class for a variable.
_ERRORS: tuple[type[Exception], ...] = (
    zlib.error,
    cast("type[Exception]", isal_zlib.error),
    brotli.error,
)


_DECODERS: dict[str, Callable[[bool], Any]] = {
    # isal by default, zlib where damage has to be read byte by byte
    "gzip": lambda fast: (isal_zlib if fast else zlib).decompressobj(31),
    "zlib": lambda fast: (isal_zlib if fast else zlib).decompressobj(15),
    "raw": lambda fast: (isal_zlib if fast else zlib).decompressobj(-15),
    "br": lambda fast: brotli.Decompressor(),
}


class _Members(NamedTuple):
    """The end of a pass over all members: `error`; where a damaged block begins; where the last member ended."""

    truncated: bool
    error: str
    damage: int | None
    end: int


def _expand(data: bytes, form: str, limit: int) -> tuple[Content, bool]:
    """Decompress up to `limit` bytes.

    Return the content, and whether the data surely have this format. Damaged data are read again, and the damaged block
    byte by byte, to have all before it. gzip and zlib have a checksum. Any bytes may pass for a short stream of the
    other formats with rubbish behind it, so the stream must fill the data; brotli tells where its stream ends only if
    it is fed byte by byte.
    """
    careful_from = max(0, len(data) - _LAST_BYTES) if form == "br" else len(data)
    for fast in (True, False, False):
        out = BytesIO()  # it gives its bytes away without a copy
        found = _members(data, partial(_DECODERS[form], fast), limit, careful_from, out)
        if found.damage is None:
            break
        if not fast:
            careful_from = found.damage
    is_sure = not found.error and (found.end == len(data) or form in _CHECKED)
    return Content(out.getvalue(), found.truncated, found.error, bool(found.error)), is_sure


def _members(
    data: bytes, start: Callable[[], Any], limit: int, careful_from: int, out: BytesIO
) -> _Members:
    """Decompress all members into `out`, in blocks.

    From byte `careful_from` on, byte by byte.
    """
    offset, members, done, decoder = 0, 1, False, start()
    while offset < len(data):
        end = offset + 1 if offset >= careful_from else min(offset + _BLOCK_BYTES, careful_from)
        try:
            done = _feed(decoder, data[offset:end], out, limit - out.tell() + 1)
        except _ERRORS as error:
            return _Members(False, f"damaged after {out.tell()} bytes: {error}", offset, offset)
        if out.tell() > limit:
            out.truncate(limit)
            return _Members(True, "", None, len(data))
        offset = end
        if done:
            # Only of gzip may another stream follow. brotli does not tell where its own ends.
            offset -= len(getattr(decoder, "unused_data", b""))
            if not (data.startswith(_GZIP_MAGIC) and data.startswith(_GZIP_MAGIC, offset)):
                return _Members(
                    False, "", None, offset
                )  # padding or rubbish behind it is ignored, as browsers do
            if members == _MAX_MEMBERS:
                return _Members(False, f"more than {_MAX_MEMBERS} members", None, offset)
            decoder, members, done = start(), members + 1, False
    return _Members(False, "" if done else "ends before its end", None, offset)
