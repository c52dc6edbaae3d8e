"""The text of an answer for robots.txt: decoded, in an encoding that contains ASCII, and without a line that was cut.

A line that a limit or a break cut off may mean something else than its author wrote: `Disallow: /private/` becomes
`Disallow: /`. A text without a certain end loses its last line.
"""

from crawl_lib.parse.charset import charset_of, decoded
from crawl_lib.parse.content import decode_content
from crawl_lib.parse.headers import parse_head

_UTF_16 = ("utf-16le", "utf-16be")


def robots_text(head: bytes, body: bytes, *, is_cut: bool, max_bytes: int) -> bytes:
    """Return at most `max_bytes` bytes of whole lines of a robots.txt.

    `head`, `body`: of the answer as it came; `is_cut`: the body lacks its end. A text in UTF-16 becomes UTF-8: by its
    byte order mark, or by its Content-Type if it has zero bytes. Any other text keeps its octets, since rules and paths
    are compared by octets (RFC 9309, 2.2.2).
    """
    headers = parse_head(head)
    content = decode_content(headers, body, max_bytes=max_bytes)
    text, is_cut = content.data, is_cut or content.truncated or content.broken
    charset = charset_of(text, headers.content_type[1] if b"\0" in text else None)
    if charset.name in _UTF_16:
        text = decoded(text, charset)
        text, is_cut = text[:max_bytes], is_cut or len(text) > max_bytes
    return text[: max(text.rfind(b"\n"), text.rfind(b"\r")) + 1] if is_cut else text
