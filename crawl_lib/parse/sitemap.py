"""Lists of pages: sitemaps (https://www.sitemaps.org/protocol.html), RSS, Atom, and robots.txt.

Nothing is built of the XML: its start tags are found one after the other, in time and memory linear in its bytes,
whatever they are. Only the five entities of XML and numbers of characters are replaced, and nothing is loaded.
"""

import re
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from itertools import islice
from typing import NamedTuple

from crawl_lib.config import ParseConfig
from crawl_lib.errors import UrlError
from crawl_lib.parse.charset import to_utf8
from crawl_lib.parse.content import Content, decode_content
from crawl_lib.parse.headers import Headers, escape_octets
from crawl_lib.parse.html import ParsedPage, links_as_bytes
from crawl_lib.urls import resolve

SITEMAP_TYPES = frozenset(
    {
        *(
            "application/xml",
            "text/xml",
            "application/rss+xml",
            "application/atom+xml",
            "application/rdf+xml",
        ),
        *("text/plain", "application/gzip", "application/x-gzip"),
    }
)
"""The types that `parse_sitemap` is meant for."""

_GZIP = Headers(0, (("content-encoding", "gzip"),))
# Possessive and atomic, so that hostile bytes cannot make it look twice. A document type with declarations in it is no
# sitemap's.
_COMMENT = rb"<!--(?s:(?>.*?-->|.*))"
_CDATA = rb"<!\[CDATA\[(?s:(?>.*?\]\]>|.*))"
_ROOT = re.compile(
    rb"(?>\s*(?:"
    + _COMMENT
    + rb"|<[?!][^<>]*+>))*+\s*+<((?:[\w.-]++:)?)(urlset|sitemapindex|rss|RDF|feed)\b"
)
_ATTRIBUTES = rb"""((?:[^<>"']++|"[^"<]*+"|'[^'<]*+'|["'])*+)"""
_PARTS = re.compile(_COMMENT + rb"|<!\[CDATA\[(?s:(.*?))\]\]>|([^<]++)")
_ATTRIBUTE = re.compile(rb"""(?<![\w:.-])([\w:.-]++)\s*+=\s*+(?:"([^"]*+)"|'([^']*+)')""")
_REFERENCE = re.compile(
    r"&(?:(amp|lt|gt|quot|apos)|#(0{0,99}[0-9]{1,7})|#x(0{0,99}[0-9A-Fa-f]{1,6}));"
)
_ENTITIES = {"amp": "&", "lt": "<", "gt": ">", "quot": '"', "apos": "'"}
_ENTRIES = {
    "urlset": b"url",
    "sitemapindex": b"sitemap",
    "rss": b"item",
    "RDF": b"item",
    "feed": b"entry",
}
"""The element of one entry, by the root."""
_WORDS = re.compile(rb"\S++")
_SPACES = (b" ", b"\t", b"\n", b"\v", b"\f", b"\r")
_IS_URL = re.compile(rb"https?://", re.IGNORECASE)
_ROBOTS_LINE = re.compile(
    rb"^[ \t]*+site-?map[ \t]*+:[ \t]*+([^\s#]\S*)", re.IGNORECASE | re.MULTILINE
)
_PRIORITY = re.compile(r"0(\.[0-9]{1,9})?|1(\.0{1,9})?")
_DAY_S = 86400
_EVERY_S = {
    "always": 3600,
    "hourly": 3600,
    "daily": _DAY_S,
    "weekly": 7 * _DAY_S,
    "monthly": 30 * _DAY_S,
    "yearly": 365 * _DAY_S,
}
"""What `changefreq` says; `never` says nothing."""

_START_BYTES = 1 << 14
_MAX_BASES = 64

_Found = tuple[str, str, str]
"""A link for `links_as_bytes`. Its element: `c` loc, `p` sitemap, `d` item, `y` entry; of a robots.txt `x`."""


class _Tag(NamedTuple):
    """A start tag. `attributes`: as they are written; `base`: what its references are relative to."""

    name: str
    attributes: bytes
    text: str
    """The text behind it, up to the next tag; "" if the file ends in it."""
    base: str


def may_be_sitemap(data: bytes) -> bool:
    """Say whether content may be a sitemap, by its beginning.

    Other XML, text and gzip need not be read.
    """
    start = to_utf8(_unzipped(data, _START_BYTES).data[:_START_BYTES], None, is_xml=True)[0]
    return (_ROOT.match(start) or _IS_URL.match(start.lstrip())) is not None


def parse_sitemap(
    data: bytes,
    *,
    url: str,
    header_charset: str | None,
    config: ParseConfig,
    max_bytes: int,
    is_cut: bool = False,
) -> ParsedPage:
    """Read a sitemap, a sitemap index, a feed, or listed URLs.

    A text with other words than URLs gives no links.

    `data`: content with its codings undone, or gzip of it; `url`: its canonical URL; `max_bytes`: of what gzip
    decompresses to; `is_cut`: its end is missing, so a line or an entry that is not whole does not count.
    """
    content = _unzipped(data, max_bytes)
    is_cut = is_cut or content.truncated or content.broken
    text, charset = to_utf8(content.data, header_charset, is_xml=True)
    root = _ROOT.match(text)
    if root:
        name = root[2].decode()
        prefix = b"" if name in ("rss", "RDF") else root[1]
        found = _in_xml(
            _whole_entries(text, prefix + _ENTRIES[name]) if is_cut else text, prefix, name, url
        )
    else:
        found = _in_text(_whole_words(text) if is_cut else text)
    links = links_as_bytes(islice(found, config.max_links_per_page))
    cut = sum(1 for _ in found)
    return ParsedPage(charset, None, None, None, None, url, links, nofollow=False, links_cut=cut)


def _unzipped(data: bytes, max_bytes: int) -> Content:
    content = Content(data, False, "")
    return decode_content(_GZIP, data, max_bytes=max_bytes) if content.is_gzip else content


def _whole_entries(text: bytes, name: bytes) -> bytes:
    """Remove an unclosed last entry from a text that broke off."""
    start: int | None = None
    for match in re.finditer(rb"<(/?)" + re.escape(name) + rb"(?=[\s/>])", text):
        start = None if match[1] else match.start()
    return text[:start]


def _whole_words(text: bytes) -> bytes:
    """Remove an unfinished last word from a text that broke off."""
    return text[: max(text.rfind(space) for space in _SPACES) + 1]


def _in_text(text: bytes) -> Iterator[_Found]:
    """Yield the URLs of a text that has nothing else."""
    if all(_IS_URL.match(text, word.start()) for word in _WORDS.finditer(text)):
        for word in _WORDS.finditer(text):
            yield "c" + word[0].decode("utf-8", "replace"), "", ""


def robots_sitemaps(body: bytes) -> bytes:
    """Return the sitemaps of a robots.txt as links, in order.

    Octets from 0x80 on are escaped.
    """
    lines = _ROBOTS_LINE.findall(body.removeprefix(b"\xef\xbb\xbf").replace(b"\r", b"\n"))
    urls = (escape_octets(line.decode("latin-1")) for line in lines)
    return links_as_bytes(("x" + url, "", "") for url in urls)


def _in_xml(text: bytes, prefix: bytes, root: str, url: str) -> Iterator[_Found]:
    if root == "feed":
        return _in_atom(_tags(text, prefix, (b"link",), url), url)
    if root == "urlset":
        return _in_urlset(
            _tags(text, prefix, (b"url", b"loc", b"lastmod", b"changefreq", b"priority"), url), url
        )
    if root == "sitemapindex":
        tags = _tags(text, prefix, (b"loc",), url)
        return (("p" + _href(tag, tag.text, url), "", "") for tag in tags if tag.text)
    return _in_rss(_tags(text, prefix, (b"link", b"guid"), url), url)


def _tags(text: bytes, prefix: bytes, names: tuple[bytes, ...], url: str) -> Iterator[_Tag]:
    """Yield the start tags of some names.

    All tags are read only if the text contains `xml:base`.
    """
    has_bases = b"xml:base" in text
    wanted = {prefix + name for name in names}
    opening = (
        rb"<(/?)([\w:.-]++)" if has_bases else rb"<()(" + b"|".join(map(re.escape, wanted)) + rb")"
    )
    skipped = _COMMENT + rb"|" + _CDATA
    content = rb"((?:[^<]++|" + skipped + rb")*+)(?=(<?))"
    bases = _Bases(url)
    element = rb"".join((skipped, rb"|", opening, rb"(?=[\s/>])", _ATTRIBUTES, rb">", content))
    for match in re.finditer(element, text):
        end, name, attributes, inside, follows = match.groups()
        if name is None:
            continue
        is_empty = attributes.endswith(b"/")
        base = bases.at_tag(attributes, is_empty=is_empty, is_end=bool(end)) if has_bases else url
        if not end and name in wanted:
            value = "" if is_empty or not follows else _text_of(inside)
            yield _Tag(name.removeprefix(prefix).decode(), attributes, value, base)


class _Bases:
    """The bases that are in force (https://www.w3.org/TR/xmlbase/): `url`, and those of the elements that are open."""

    def __init__(self, url: str) -> None:
        self._depth = 0
        self._open = [(0, url)]
        """Each base with the depth of its element."""

    def at_tag(self, attributes: bytes, *, is_empty: bool, is_end: bool) -> str:
        """Return the base within a starting, or around an ending element."""
        base = self._open[-1][1]
        if is_end:
            if len(self._open) > 1 and self._open[-1][0] >= self._depth:
                self._open.pop()
            self._depth -= 1
            return self._open[-1][1]
        said = _attribute(attributes, b"xml:base") if b"xml:base" in attributes else ""
        if said and len(self._open) < _MAX_BASES:
            base = _joined(base, said)
            if not is_empty:
                self._open.append((self._depth + 1, base))
        self._depth += not is_empty
        return base


def _joined(base: str, href: str) -> str:
    """Resolve a reference.

    A reference that cannot be resolved is absolute, and is returned unchanged.
    """
    try:
        return resolve(base, href)
    except UrlError:
        return href


def _href(tag: _Tag, href: str, url: str) -> str:
    return href if tag.base == url else _joined(tag.base, href)


def _in_urlset(tags: Iterator[_Tag], url: str) -> Iterator[_Found]:
    """Yield each `loc`, with its `url`'s hints as the rel.

    Children may be in any order, and without end tags.
    """
    href, said = "", dict[str, str]()
    for tag in tags:
        if tag.name == "url" or (tag.name == "loc" and href):
            if href:
                yield "c" + href, "", _hints(said)
            href, said = "", {}
        if tag.name == "loc":
            href = _href(tag, tag.text, url) if tag.text else ""
        elif tag.name != "url":
            said[tag.name] = tag.text
    if href:
        yield "c" + href, "", _hints(said)


def _hints(said: dict[str, str]) -> str:
    """Return the valid hints of a sitemap entry, as words.

    `lastmod` (POSIX seconds), `changefreq` (seconds) and `priority` (0 to 1).
    """
    words = []
    lastmod = said.get("lastmod", "")
    with suppress(ValueError, OverflowError):
        # A year or a month is a date too: https://www.w3.org/TR/NOTE-datetime
        at = datetime.fromisoformat(
            lastmod if len(lastmod) > len("2026-11") else f"{lastmod}-01-01"[:10]
        )
        if (at_s := int((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp())) > 0:
            words.append(f"lastmod={at_s}")
    if every_s := _EVERY_S.get(said.get("changefreq", "").lower()):
        words.append(f"every_s={every_s}")
    if _PRIORITY.fullmatch(said.get("priority", "")):
        words.append(f"priority={said['priority']}")
    return " ".join(words)


def _text_of(content: bytes) -> str:
    """Return an element's text, with CDATA and without comments."""
    if b"<" not in content:
        return _unescape(content).strip()
    parts = (match.groups() for match in _PARTS.finditer(content))
    return "".join(
        _unescape(plain) if plain else (marked or b"").decode("utf-8", "replace")
        for marked, plain in parts
    ).strip()


def _unescape(text: bytes) -> str:
    """Replace XML's five entities and numeric references.

    Other references stay.
    """
    decoded = text.decode("utf-8", "replace")
    return _REFERENCE.sub(_character, decoded) if "&" in decoded else decoded


def _character(reference: re.Match[str]) -> str:
    name, decimal, hexadecimal = reference.groups()
    if name:
        return _ENTITIES[name]
    code = int(decimal) if decimal else int(hexadecimal, 16)
    is_valid = 0 < code < 0xD800 or 0xDFFF < code < 0x110000
    return chr(code) if is_valid else "\ufffd"


def _attribute(attributes: bytes, name: bytes) -> str:
    """Return the value of an attribute, or "" if missing."""
    for found, double, single in _ATTRIBUTE.findall(attributes):
        if found == name:
            return _unescape(double or single).strip()
    return ""


def _in_atom(tags: Iterator[_Tag], url: str) -> Iterator[_Found]:
    for tag in tags:
        href = _attribute(tag.attributes, b"href")
        if href:
            rel = " ".join((_attribute(tag.attributes, b"rel") or "alternate").lower().split())
            yield "y" + _href(tag, href, url), "", rel


def _in_rss(tags: Iterator[_Tag], url: str) -> Iterator[_Found]:
    """Yield each `link`, and each `guid` with another URL.

    https://www.rssboard.org/rss-specification#ltguidgtSubelementOfLtitemgt
    """
    last = ""
    for tag in tags:
        is_link = tag.name == "link" or (
            _IS_URL.match(tag.text.encode()) is not None
            and _attribute(tag.attributes, b"isPermaLink").lower() != "false"
        )
        if is_link and tag.text and tag.text != last:
            yield "d" + _href(tag, tag.text, url), "", ""
            last = tag.text
