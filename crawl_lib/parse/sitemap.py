"""What lists pages and is none: sitemaps (https://www.sitemaps.org/protocol.html), RSS, Atom, and robots.txt.

Nothing is built of the XML: its start tags are found one after the other, in time and memory linear in its bytes,
whatever they are. No entity is expanded but those of characters, and nothing is loaded.
"""

import re
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from html import unescape
from itertools import islice
from typing import Any

from crawl_lib.config import ParseConfig
from crawl_lib.parse.charset import to_utf8
from crawl_lib.parse.content import decode_content
from crawl_lib.parse.headers import Headers
from crawl_lib.parse.html import FOLLOWED_RELS, Links, Page

SITEMAP_TYPES = frozenset(
    {
        *("application/xml", "text/xml", "application/rss+xml", "application/atom+xml", "application/rdf+xml"),
        *("text/plain", "application/gzip", "application/x-gzip"),
    }
)
"""The types that `parse_sitemap` is meant for."""
SITEMAP = "sitemap"
"""The element of a link to a sitemap, in an index."""
ROBOTS = "robots"
"""The element of a link to a sitemap that a robots.txt names, whose key is the link's source."""
GZIP_MAGIC = b"\x1f\x8b"

_GZIP = Headers(0, (("content-encoding", "gzip"),))
# Atomic, so that hostile bytes cannot make it look twice. A document type with declarations in it is no sitemap's.
_COMMENT = rb"<!--(?s:(?>.*?-->|.*))"
_ROOT = re.compile(
    rb"(?>\s*(?:" + _COMMENT + rb"|<[?!][^<>]*+>))*+\s*+<((?:[\w.-]++:)?)(urlset|sitemapindex|rss|RDF|feed)\b"
)
_SKIPPED = _COMMENT + rb"|<!\[CDATA\[(?s:(?>.*?\]\]>|.*))"
_TEXT = rb"\s*+(?:<!\[CDATA\[([^\]<]*+)|([^<]*+))"
_ATTRIBUTE = re.compile(r"""(?<![\w:.-])([\w:.-]++)\s*+=\s*+(?:"([^"]*+)"|'([^']*+)')""")
_WORDS = re.compile(rb"\S++")
_IS_URL = re.compile(rb"https?://", re.IGNORECASE)
_ROBOTS_LINE = re.compile(rb"^[ \t]*+site-?map[ \t]*+:[ \t]*+([^\s#]\S*)", re.IGNORECASE | re.MULTILINE)
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

_Found = tuple[str, str, str, bool]
"""Href, element, rel, whether it may be followed."""


def may_be_sitemap(data: bytes) -> bool:
    """Whether content begins as a sitemap does: most XML, text and gzip is none, and need not be read."""
    start = to_utf8(_unzipped(data, _START_BYTES)[:_START_BYTES], None)[0]
    return (_ROOT.match(start) or _IS_URL.match(start.lstrip())) is not None


def parse_sitemap(data: bytes, *, url: str, header_charset: str | None, config: ParseConfig, max_bytes: int) -> Page:
    """Read a sitemap, an index of sitemaps, a feed, a text of URLs (with anything else in it, it is none).

    `data`: content with its codings undone, or gzip of it; `url`: its canonical URL; `max_bytes`: of what gzip
    decompresses to.
    """
    text, charset = to_utf8(_unzipped(data, max_bytes), header_charset)
    root = _ROOT.match(text)
    found: Iterator[_Found] = iter(())
    if root:
        found = _in_xml(text, root[1], root[2].decode())
    elif all(_IS_URL.match(text, word.start()) for word in _WORDS.finditer(text)):
        found = ((word[0].decode("utf-8", "replace"), "loc", "", True) for word in _WORDS.finditer(text))
    some = list(islice(found, config.max_links_per_page))
    cut = sum(1 for _ in found)
    columns: Any = zip(*some, strict=True) if some else ((),) * 4
    hrefs, elements, rels, followable = map(list, columns)
    links = Links(hrefs, [""] * len(some), rels, elements, followable, [False] * len(some))
    return Page(charset, None, None, None, None, url, links, nofollow=False, links_cut=cut)


def _unzipped(data: bytes, max_bytes: int) -> bytes:
    return decode_content(_GZIP, data, max_bytes=max_bytes).data if data.startswith(GZIP_MAGIC) else data


def robots_sitemaps(body: bytes) -> list[str]:
    """The sitemaps that a robots.txt names, in its order."""
    lines = _ROBOTS_LINE.findall(body.removeprefix(b"\xef\xbb\xbf").replace(b"\r", b"\n"))
    return [line.decode("utf-8", "replace") for line in lines]


def _in_xml(text: bytes, prefix: bytes, root: str) -> Iterator[_Found]:
    if root == "feed":
        return _in_atom(text, prefix)
    if root == "urlset":
        return _in_urlset(text, prefix)
    element = SITEMAP if root == "sitemapindex" else "item"
    name = b"link" if element == "item" else prefix + b"loc"
    pattern = re.compile(_SKIPPED + rb"|<" + re.escape(name) + rb"(?:\s[^<>]*+)?>" + _TEXT)
    texts = (_text_of(match[1], match[2]) for match in pattern.finditer(text))
    return ((href, element, "", True) for href in texts if href)


def _in_urlset(text: bytes, prefix: bytes) -> Iterator[_Found]:
    """Each `loc`, with what its `url` says of it as the rel: in any order, and without the ends of elements."""
    names = rb"(url|loc|lastmod|changefreq|priority)"
    pattern = re.compile(_SKIPPED + rb"|<" + re.escape(prefix) + names + rb"(?:\s[^<>]*+)?>" + _TEXT)
    href, said = "", dict[str, str]()
    for match in pattern.finditer(text):
        name, value = (match[1] or b"").decode(), _text_of(match[2], match[3])
        if name == "url" or (name == "loc" and href):
            if href:
                yield href, "loc", _hints(said), True
            href, said = "", {}
        if name == "loc":
            href = value
        elif name != "url":
            said[name] = value
    if href:
        yield href, "loc", _hints(said), True


def _hints(said: dict[str, str]) -> str:
    """What can be read of `lastmod` (POSIX seconds), `changefreq` (seconds) and `priority` (0 to 1), as words."""
    words = []
    with suppress(ValueError, OverflowError):
        at = datetime.fromisoformat(said.get("lastmod", ""))
        if (at_s := int((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp())) > 0:
            words.append(f"lastmod={at_s}")
    if every_s := _EVERY_S.get(said.get("changefreq", "").lower()):
        words.append(f"every_s={every_s}")
    if _PRIORITY.fullmatch(said.get("priority", "")):
        words.append(f"priority={said['priority']}")
    return " ".join(words)


def _text_of(marked: bytes | None, plain: bytes | None) -> str:
    """The text of an element. `marked`: in a CDATA section."""
    if marked is not None:
        return marked.decode("utf-8", "replace").strip()
    return unescape((plain or b"").decode("utf-8", "replace")).strip()


def _in_atom(text: bytes, prefix: bytes) -> Iterator[_Found]:
    pattern = re.compile(_SKIPPED + rb"|<" + re.escape(prefix) + rb"link(?=[\s/])([^<>]*+)>")
    for match in pattern.finditer(text):
        tag = (match[1] or b"").decode("utf-8", "replace")
        values = {name: unescape(quoted or single) for name, quoted, single in _ATTRIBUTE.findall(tag)}
        if href := values.get("href", "").strip():
            rel = " ".join(values.get("rel", "alternate").lower().split())
            yield href, "entry", rel, not FOLLOWED_RELS.isdisjoint(rel.split())
