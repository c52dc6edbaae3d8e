"""The text of an answer for robots.txt: decoded, in an encoding that contains ASCII, and without a line that was cut.

A line that a limit or a break cut off may mean something else than its author wrote: `Disallow: /private/` becomes
`Disallow: /`. A text without a certain end loses its last line.
"""

from crawl_lib.parse.charset import to_utf8
from crawl_lib.parse.content import decode_content
from crawl_lib.parse.headers import parse_head

_UTF_16_MARKS = (b"\xff\xfe", b"\xfe\xff")


def robots_text(head: bytes, body: bytes, *, is_cut: bool, max_bytes: int) -> bytes:
    """Return at most `max_bytes` bytes of whole lines of a robots.txt.

    `head`, `body`: of the answer as it came; `is_cut`: the body lacks its end. A text with a byte order mark of UTF-16
    becomes UTF-8. Any other text keeps its octets, since rules and paths are compared by octets (RFC 9309, 2.2.2).
    """
    content = decode_content(parse_head(head), body, max_bytes=max_bytes)
    text, is_cut = content.data, is_cut or content.truncated or content.broken
    if text.startswith(_UTF_16_MARKS):
        text, _ = to_utf8(text, None)
        text, is_cut = text[:max_bytes], is_cut or len(text) > max_bytes
    return text[: max(text.rfind(b"\n"), text.rfind(b"\r")) + 1] if is_cut else text
