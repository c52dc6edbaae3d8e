"""The head of an answer, read leniently: status line and header lines."""

import re
from functools import cached_property, lru_cache

from crawl_lib.dataclass import dataclass
from crawl_lib.parse.directives import x_robots_nofollow

_STATUS = re.compile(r"HTTP/\d+(?:\.\d+)?[ \t]+(\d{3})(?!\d)", re.IGNORECASE)
_BEFORE_STATUS = "\r\n \t\xef\xbb\xbf"
_FOLD = re.compile(r"(?:\r?\n[ \t]+)+")
# A media type, RFC 9110, 8.3.1: two tokens.
_MIME = re.compile(r"[!#$%&'*+.^_`|~0-9a-z-]+/[!#$%&'*+.^_`|~0-9a-z-]+")
# The values of a list, split at commas outside quotes; a quote without an end lasts to the end of the text.
_VALUE = re.compile(r'(?:[^,"]++|"(?:[^"\\]++|\\.)*+"?)++', re.DOTALL)
# A parameter: its name, and a value in quotes or without.
_PARAMETER = re.compile(
    r';[\s]*([^;=]*+)(?:=(?:"((?:[^"\\]++|\\.)*+)[^;]*+|([^;]*+)))?+', re.DOTALL | re.ASCII
)
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
_USUAL_CHARS = 128
_HTTP_SPACE = " \t\r\n"
"""White space around a value (https://fetch.spec.whatwg.org/#concept-header-value-normalize)."""
_NOT_ASCII = re.compile("[\x80-\xff]")


@dataclass(frozen=True)
class Headers:
    """Status and header fields. `fields`: (lower-case name, value) in the order they came."""

    status: int
    """The status code; 0 if the first line is no status line."""
    fields: tuple[tuple[str, str], ...]

    def get(self, name: str) -> str | None:
        """Return a field's first non-empty value; "" or None without one.

        The name may be in any case.
        """
        return self._first.get(name.lower())

    @cached_property
    def _first(self) -> dict[str, str]:
        first: dict[str, str] = {}
        for field, value in self.fields:
            if not first.get(field):
                first[field] = value
        return first

    def all(self, name: str) -> list[str]:
        """Return all values of a field (any case), in order."""
        name = name.lower()
        return [value for field, value in self.fields if field == name]

    @property
    def location(self) -> str | None:
        """First Location reference in ASCII, or None without such a field.

        `escape_octets` makes ASCII of the reference.
        """
        value = self.get("location")
        return None if value is None else escape_octets(value)

    def says_nofollow(self, user_agent: str) -> bool:
        """Say whether X-Robots-Tag fields forbid to follow the links of the answer.

        `user_agent`: our token.
        """
        return x_robots_nofollow(self.all("x-robots-tag"), user_agent)

    @cached_property
    def content_type(self) -> tuple[str | None, str | None]:
        """Media type in lower case, and charset, or None for missing values.

        Several fields count as one list, whose last valid type counts.
        """
        value = ", ".join(self.all("content-type"))
        return (
            _usual_content_type(value) if len(value) <= _USUAL_CHARS else parse_content_type(value)
        )


def parse_head(head: bytes) -> Headers:
    """Read a head as received: status line and header lines.

    The text is latin-1. Lenient: lines may end in a bare newline, folded lines (RFC 9112, 5.2) are joined, lines
    without a colon are skipped, and so are empty lines and a byte order mark before the status line.
    """
    text = head.decode("latin-1")
    if not text.startswith("HTTP/"):
        text = text.lstrip(_BEFORE_STATUS)
    lines = (_FOLD.sub(" ", text) if "\n " in text or "\n\t" in text else text).split("\n")
    match = _STATUS.match(lines[0])
    fields = []
    for line in lines[1:]:
        name, colon, value = line.partition(":")
        if colon:
            fields.append((name.strip(_HTTP_SPACE).lower(), value.strip(_HTTP_SPACE)))
    return Headers(int(match[1]) if match else 0, tuple(fields))


def escape_octets(value: str) -> str:
    """Escape each octet of a URL from 0x80 on.

    `/caf\\xe9` becomes `/caf%E9`.

    `value`: as `parse_head` gives it (latin-1). Browsers send path and query so; a host's escapes are read as UTF-8
    (https://url.spec.whatwg.org/#concept-host-parser). Use it for every field that holds a URL.
    """
    return _NOT_ASCII.sub(lambda octet: f"%{ord(octet[0]):02X}", value)


def parse_content_type(value: str) -> tuple[str | None, str | None]:
    """Return media type and charset of a Content-Type.

    The type is in lower case; Missing values are None. A list, which a server or a proxy may have joined with
    commas, is read as browsers read it: the last valid type counts, and keeps the charset of an equal type before it.
    Source: "extract a MIME type", https://fetch.spec.whatwg.org/#concept-header-extract-mime-type
    """
    mime = charset = None
    for found in _VALUE.finditer(value):
        name = found[0].partition(";")[0]
        new = _MIME.fullmatch(name.strip().lower())
        if new is None or new[0] == "*/*":
            continue
        own = _charset_parameter(found[0])
        charset = own if own is not None or new[0] != mime else charset
        mime = new[0]
    return mime, charset or None


_usual_content_type = lru_cache(maxsize=256)(parse_content_type)


def _charset_parameter(value: str) -> str | None:
    """Return the first charset parameter that has a value (https://mimesniff.spec.whatwg.org/#parsing-a-mime-type)."""
    for found in _PARAMETER.finditer(value):
        name, quoted, plain = found.groups()
        if name.strip().lower() == "charset" and (quoted is not None or (plain or "").strip()):
            return (plain if quoted is None else _ESCAPED.sub(r"\1", quoted)).strip(" \t'\"")
    return None
