"""Write and read the texts of WARC records: dates, URIs, fields, digests, heads of HTTP blocks."""

import re
import time
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from urllib.parse import quote

END = b"\r\n\r\n"
"""The end of a head."""
SAFE_IN_URI = "!#$%&'()*+,/:;=?@[]~"
FIELD_ESCAPES = str.maketrans({"\\": "\\\\", "\n": "\\n", "\r": "\\r"})
_BASE32 = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"
_BASE32_PAIRS = [first + second for first in _BASE32 for second in _BASE32]
_PAIR_STARTS = range(150, -1, -10)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)
_DAY = re.compile("([0-9]{4})(?:-([0-9]{2})(?:-([0-9]{2}))?)?")


def microseconds(seconds: float) -> int:
    """Round POSIX seconds to whole microseconds.

    A WARC date can carry these without loss.
    """
    return round(seconds * 1_000_000)


def utc_text(seconds: float) -> str:
    """POSIX seconds as a date of WARC/1.1, with microseconds: `YYYY-MM-DDThh:mm:ss.ffffffZ`."""
    second, micros = divmod(microseconds(seconds), 1_000_000)
    return f"{_second_text(second)}.{micros:06d}Z"


@lru_cache(maxsize=16)
def _second_text(second: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second))


def escape_field(text: str) -> str:
    """Escape a text for a line of `application/warc-fields`.

    Backslash, CR and LF are escaped.
    """
    return text.translate(FIELD_ESCAPES)


def unescape_field(text: str) -> str:
    """Undo `escape_field`."""
    if "\\" not in text:
        return text
    return re.sub(r"\\(.)", lambda found: {"n": "\n", "r": "\r"}.get(found[1], found[1]), text)


def safe_uri(url: str) -> str:
    """Escape a URL for a WARC header.

    Only visible ASCII stays; a canonical URL has nothing else.
    """
    if url.isascii() and url.isprintable() and " " not in url and "<" not in url and ">" not in url:
        return url
    return quote(url, safe=SAFE_IN_URI, errors="replace")


def split_head(block: bytes) -> tuple[bytes, bytes]:
    """Split an HTTP block into head and body.

    The head includes the empty line. Without an empty line all is head.
    """
    end = block.find(END)
    newline = block.find(b"\n\n")
    if newline >= 0 and (end < 0 or newline < end):
        return block[: newline + 2], block[newline + 2 :]
    return (block, b"") if end < 0 else (block[: end + 4], block[end + 4 :])


def base32(digest: bytes) -> str:
    """Encode 20 bytes by Base32 (RFC 4648).

    Two characters at a time take half the time of `base64.b32encode`.
    """
    bits = int.from_bytes(digest, "big")
    return "".join([_BASE32_PAIRS[bits >> start & 1023] for start in _PAIR_STARTS])


def warc_fields(block: bytes) -> dict[str, str]:
    """Parse an `application/warc-fields` block, and undo escapes."""
    fields = {}
    for line in block.decode("utf-8", "replace").split("\r\n"):
        name, colon, value = line.partition(": ")
        if colon:
            fields[name] = unescape_field(value)
    return fields


def microseconds_of(date: str) -> int:
    """Return POSIX microseconds of a WARC date, rounded down.

    The date is a year, month or day (in UTC), or a time with its zone. Raises ValueError. Source:
    https://iipc.github.io/warc-specifications/specifications/warc-format/warc-1.1/#warc-date-mandatory
    """
    if found := _DAY.fullmatch(date):
        year, month, day = found.groups()
        date = f"{year}-{month or '01'}-{day or '01'}T00:00Z"
    moment = datetime.fromisoformat(date)
    if moment.tzinfo is None:
        raise ValueError(f"{date}: has no time zone")
    return (moment - EPOCH) // MICROSECOND
