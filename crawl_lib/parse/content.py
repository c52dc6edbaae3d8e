"""Undoing the codings of a body: chunked, gzip, deflate, br, stacked in any order, damaged or hostile."""

import re
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from io import BytesIO
from typing import Any, cast

import brotli  # type: ignore[import-untyped]
from isal import isal_zlib

from crawl_lib.parse.headers import Headers

# A block of a bomb becomes a thousand times as much, which is in memory twice for a moment.
_BLOCK_BYTES = 1 << 13
_PIECE_BYTES = 1 << 22
_MAX_CODINGS = 5
_MAX_MEMBERS = 1000
_GZIP_MAGIC = b"\x1f\x8b"
_CHUNK_SIZE = re.compile(rb"[ \t]*([0-9A-Fa-f]{1,15})[ \t]*(?:;[^\n]*)?\r?\n")


@dataclass(frozen=True, slots=True)
class Content:
    """A body without its codings."""

    data: bytes
    """The content, or as much of it as could be had."""
    truncated: bool
    """It was cut at the limit."""
    error: str
    """What was wrong with a coding, one line; "" if nothing was."""


def decode_content(headers: Headers, body: bytes, *, max_bytes: int) -> Content:
    """Undo the transfer and content codings that `headers` name, and return at most `max_bytes` bytes of content.

    `body` is as it came from the wire. Never raises: where a coding is damaged, cut off, unknown, or was never applied,
    the content holds what could be decoded, and `error` says what was wrong. Memory stays below `max_bytes` for each
    coding, whatever the body claims (RFC 9110, 8.4; RFC 9112, 7).
    """
    # In the order they were applied.
    values = headers.all("content-encoding") + headers.all("transfer-encoding")
    names = (name.partition(";")[0].strip().lower() for value in values for name in value.split(","))
    codings = [name.removeprefix("x-") for name in names if name not in ("", "identity", "none")]
    errors = []
    truncated = False
    if len(codings) > _MAX_CODINGS:
        errors.append(f"{len(codings)} codings, of which the last {_MAX_CODINGS} were undone")
    data = body
    for coding in codings[: -_MAX_CODINGS - 1 : -1]:
        data, cut, error = _undo(coding, data, max_bytes)
        truncated = truncated or cut
        if error:
            errors.append(f"{coding}: {error}")
    if len(data) > max_bytes:
        data, truncated = data[:max_bytes], True
    return Content(data, truncated, "; ".join(errors))


def _undo(coding: str, data: bytes, limit: int) -> tuple[bytes, bool, str]:
    """Return (data, truncated, error)."""
    if not data:
        return data, False, ""
    if coding == "chunked":
        return _unchunk(data)
    if coding == "gzip" and not data.startswith(_GZIP_MAGIC):
        return data, False, "the body is not compressed"
    if coding == "br":
        return _expand(data, lambda fast: brotli.Decompressor(), limit)
    if coding not in ("gzip", "deflate"):
        return data, False, "unknown coding"
    window_bits = 31 if coding == "gzip" else 15 if _is_zlib(data) else -15
    # isal by default, zlib where damage has to be read byte by byte
    return _expand(data, lambda fast: (isal_zlib if fast else zlib).decompressobj(window_bits), limit)


def _is_zlib(data: bytes) -> bool:
    """Tell zlib's header (RFC 1950, 2.2) from raw deflate, which many servers send instead."""
    return len(data) >= 2 and data[0] & 0x8F == 8 and int.from_bytes(data[:2], "big") % 31 == 0


def _unchunk(data: bytes) -> tuple[bytes, bool, str]:
    pieces: list[bytes] = []
    offset = 0
    while True:
        match = _CHUNK_SIZE.match(data, offset)
        if match is None:
            if not pieces:
                return data, False, "the body has no chunks"
            return b"".join(pieces), False, f"no chunk size at byte {offset}" if offset < len(data) else "no last chunk"
        size = int(match[1], 16)
        start = match.end()
        if size == 0:
            return b"".join(pieces), False, ""
        pieces.append(data[start : start + size])
        offset = start + size
        if offset > len(data):
            return b"".join(pieces), False, "the last chunk is cut off"
        if data.startswith(b"\r\n", offset):
            offset += 2
        elif data.startswith(b"\n", offset):
            offset += 1


def _feed(decoder: Any, block: bytes, out: BytesIO, limit: int) -> bool:
    """Write what a block decompresses to, up to `limit` bytes; returns whether the compressed stream has ended."""
    if not isinstance(decoder, brotli.Decompressor):
        out.write(decoder.decompress(block, limit))
        return bool(decoder.eof)
    limit -= out.write(decoder.process(block, output_buffer_limit=min(limit, _PIECE_BYTES)))
    while limit > 0 and not decoder.can_accept_more_data():
        limit -= out.write(decoder.process(b"", output_buffer_limit=min(limit, _PIECE_BYTES)))
    return bool(decoder.is_finished())


# mypy takes isal's alias of its error class for a variable.
_ERRORS: tuple[type[Exception], ...] = (zlib.error, cast("type[Exception]", isal_zlib.error), brotli.error)


def _expand(data: bytes, start: Callable[[bool], Any], limit: int) -> tuple[bytes, bool, str]:
    """Decompress up to `limit` bytes; damaged data again, and the damaged block byte by byte, to have all before it."""
    careful_from = len(data)
    for fast in (True, False, False):
        out = BytesIO()  # it gives its bytes away without a copy
        truncated, problem, damage = _members(data, partial(start, fast), limit, careful_from, out)
        if damage is None:
            break
        if not fast:
            careful_from = damage
    return out.getvalue(), truncated, problem


def _members(
    data: bytes, start: Callable[[], Any], limit: int, careful_from: int, out: BytesIO
) -> tuple[bool, str, int | None]:
    """Decompress all members into `out`, in blocks, and from byte `careful_from` on byte by byte.

    Returns (truncated, what was wrong, where a damaged block begins).
    """
    offset, members, done, decoder = 0, 1, False, start()
    while offset < len(data):
        end = offset + 1 if offset >= careful_from else min(offset + _BLOCK_BYTES, careful_from)
        try:
            done = _feed(decoder, data[offset:end], out, limit - out.tell() + 1)
        except _ERRORS as error:
            return False, f"damaged after {out.tell()} bytes: {error}", offset
        if out.tell() > limit:
            out.truncate(limit)
            return True, "", None
        offset = end
        if done:
            # Only of gzip may another stream follow. brotli does not tell where its own ends.
            offset -= len(getattr(decoder, "unused_data", b""))
            if not (data.startswith(_GZIP_MAGIC) and data.startswith(_GZIP_MAGIC, offset)):
                return False, "", None  # behind the last member is padding or rubbish, which readers of the web ignore
            if members == _MAX_MEMBERS:
                return False, f"more than {_MAX_MEMBERS} members", None
            decoder, members, done = start(), members + 1, False
    return False, "" if done else "ends before its end", None
