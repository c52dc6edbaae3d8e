"""Type, size and length of a picture, by its first bytes. No picture is decoded.

`imagesize` reads heads of files. Formats of Netpbm are left out: a size of 64 KB digits takes quadratic time, and no
browser shows such pictures. Rotations are left out too: an `iloc` box of 64 KB may name 500 million extents. All other
formats take linear time.
"""

import io
from typing import Any

import imagesize

from crawl_lib.config import Config
from crawl_lib.parse import decode_content, detect_mime, parse_head
from crawl_lib.records import Fetched
from crawl_lib.states import Outcome

PROBE_BYTES = 64 << 10
"""The most bytes of a picture to fetch, and to read."""
MOST_PIXELS = (1 << 31) - 1
_MOST_DIGITS = 15
_NETPBM = tuple(b"P%d" % number for number in range(1, 8))


def picture_facts(fetched: Fetched, config: Config) -> dict[str, Any]:
    """Return the type, size and length of a picture, if known.

    These are `type`, `width`, `height` (in pixels, as stored) and `length` (in bytes).
    """
    if fetched.outcome is not Outcome.OK:
        return {}
    headers = parse_head(fetched.head)
    most_bytes = min(PROBE_BYTES, config.fetch.max_decompressed_bytes)
    content = decode_content(headers, fetched.body, max_bytes=most_bytes)
    is_cut = content.truncated or content.broken or fetched.truncated is not None
    declared = None if headers.get("content-encoding") else headers.get("content-length")
    facts = {
        "type": detect_mime(headers.content_type[0], content.data),
        "length": _number(declared) if is_cut else len(content.data),
        **size_of(content.data),
    }
    return {name: value for name, value in facts.items() if value is not None}


def size_of(data: bytes) -> dict[str, int]:
    """Return `width` and `height` in pixels from a picture's beginning.

    An unknown or malformed picture has none.
    """
    if data.startswith(_NETPBM):
        return {}
    width, height = imagesize.get(io.BytesIO(data[:PROBE_BYTES]), exif_rotation=False)
    if not (0 < width <= MOST_PIXELS and 0 < height <= MOST_PIXELS):
        return {}
    return {"width": max(1, round(width)), "height": max(1, round(height))}


def _number(text: str | None) -> int | None:
    """Return the number of a `Content-Length`, None for an invalid one."""
    is_number = text is not None and text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS
    return int(text) if is_number and text is not None else None
