"""One page: its links in document order, and what it says of itself. One parse, one CSS query."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple
from urllib.parse import quote_from_bytes

from selectolax.lexbor import LexborCSSSelector, LexborDocumentOptions, LexborHTMLParser, LexborNode

from crawl_lib.config import ParseConfig
from crawl_lib.errors import UrlError
from crawl_lib.parse.charset import codec_of, to_utf8
from crawl_lib.parse.robots import says_nofollow
from crawl_lib.parse.taming import tame
from crawl_lib.urls import resolve


class Link(NamedTuple):
    """One link of a page, as it stands there."""

    href: str
    """The reference, without white space around it; relative to the page's `base`."""
    anchor: str
    """The text of the link (the alt text of area and img), white space collapsed, cut to `parse.max_anchor_chars`."""
    rel: str
    """The words of rel, in lower case, separated by one space."""
    element: str
    """The element's name in lower case; `meta` is a meta refresh."""
    followable: bool
    """Its element (and the rel of a `link`) is one whose target may be a page; others are recorded only."""
    nofollow: bool
    """rel holds nofollow. The page's own nofollow is `Page.nofollow`."""


class Page(NamedTuple):
    """What was read out of one page. None: the page does not say."""

    charset: str
    """Name of the encoding it was read with (Encoding Standard, lower case)."""
    title: str | None
    description: str | None
    meta_robots: str | None
    """The contents of all metas named robots or as our user agent, joined by ", "."""
    canonical_url: str | None
    """Target of the first link rel=canonical, in canonical form."""
    base: str
    """What hrefs are relative to, a canonical URL: the first base href, else the page's URL."""
    links: list[Link]
    """In document order, one for each occurrence, at most `parse.max_links_per_page`."""
    nofollow: bool
    """meta robots says nofollow or none."""
    links_cut: int
    """Links beyond `parse.max_links_per_page`, which are not in `links`."""


FOLLOWED_RELS = frozenset(
    {
        *("next", "prev", "index", "contents", "start", "alternate"),
        *("canonical", "author", "copyright", "help", "search", "license"),
    }
)
"""The words of rel that make the target of a `link` element a page to follow."""

_QUERY = "[href],[src],meta,title,object"
# One for all pages: making it costs 10 us.
_SELECTOR = LexborCSSSelector()  # type: ignore[no-untyped-call]
# Without the events of scripts, which nobody hears here: 6 % of the parse.
_OPTIONS = LexborDocumentOptions.WO_EVENTS.value
# The number of `a` among the parser's names: comparing it costs a third less than asking for the name.
_A = LexborHTMLParser("<a>").css("a")[0].tag_id
# Which attribute of an element holds its link, and whether it may lead to a page. `a` and `link` have their own code.
_SOURCES = {
    "area": ("href", True),
    "frame": ("src", True),
    "iframe": ("src", True),
    "img": ("src", False),
    "script": ("src", False),
    "source": ("src", False),
    "video": ("src", False),
    "audio": ("src", False),
    "track": ("src", False),
    "embed": ("src", False),
    "object": ("data", False),
    "input": ("src", False),
}
_new = tuple.__new__
_MAX_TITLE_CHARS = 1000
_MAX_DESCRIPTION_CHARS = 2000
_MAX_REL_CHARS = 200

# https://html.spec.whatwg.org/#shared-declarative-refresh-steps
_REFRESH = re.compile(
    r"\s*+(?:[0-9]++[0-9.]*+|\.[0-9.]*+)(?=[;,\s])\s*+[;,]?\s*+(?:url\s*+=\s*+)?(.*)", re.IGNORECASE | re.DOTALL
)


def parse_html(data: bytes, *, url: str, header_charset: str | None, config: ParseConfig, user_agent: str = "") -> Page:
    """Read a page. Never raises, whatever `data` holds.

    `data`: content with its codings undone; `url`: the page's canonical URL; `header_charset`: of its Content-Type;
    `user_agent`: our token, for metas that bear its name.
    """
    text, charset = to_utf8(data, header_charset)
    reader = _Reader(url, config, user_agent, codec_of(charset), len(text))
    root = LexborHTMLParser(tame(text), options=_OPTIONS).root
    if root is not None:
        reader.read(_SELECTOR.find(_QUERY, root))
    return reader.page(charset)


class _Reader:
    """Collects one page's links and descriptions, node by node."""

    def __init__(self, url: str, config: ParseConfig, user_agent: str, codec: str, length_bytes: int) -> None:
        self._url = url
        self._config = config
        self._max_anchor_chars = config.max_anchor_chars
        self._robots_names = {"robots", user_agent.lower()} - {""}
        self._legacy_codec = None if codec.startswith("utf-") else codec
        # Links nested in each other would have the same text read again for each; a page gets twice its own length.
        self._text_left = 2 * length_bytes + 1000
        self._links: list[Link] = []
        self._cut = 0
        self._base: str | None = None
        self._title: str | None = None
        self._description: str | None = None
        self._robots: list[str] = []
        self._canonical: str | None = None

    def read(self, nodes: list[LexborNode]) -> None:
        """Take in the answer of the query. Nine of ten nodes are plain `a` elements: they take the short way."""
        links, max_anchor_chars, text_left = self._links, self._max_anchor_chars, self._text_left
        limit = 0 if self._legacy_codec else self._config.max_links_per_page
        for node in nodes:
            if node.tag_id != _A:
                self._read_other(node, node.tag or "")
                continue
            attributes = node.attributes
            href = attributes.get("href")
            if not href or "rel" in attributes or text_left <= 0 or len(links) >= limit:
                self._text_left = text_left
                self._read_a(node, attributes)
                text_left = self._text_left
                continue
            text = node.text_lexbor()
            text_left -= len(text)
            # A quarter of the cost of `Link(...)`.
            links.append(_new(Link, (href.strip(), " ".join(text.split())[:max_anchor_chars], "", "a", True, False)))

    def _read_other(self, node: LexborNode, tag: str) -> None:
        special = _SPECIAL.get(tag)
        if special is not None:
            special(self, node)
        elif tag in _SOURCES:
            self._read_source(node, tag)

    def page(self, charset: str) -> Page:
        """Return what was read."""
        base = self._base or self._url
        robots = ", ".join(self._robots) if self._robots else None
        return Page(
            charset=charset,
            title=self._title,
            description=self._description,
            meta_robots=robots,
            canonical_url=_resolved(base, self._canonical),
            base=base,
            links=self._links,
            nofollow=robots is not None and says_nofollow(robots),
            links_cut=self._cut,
        )

    def _read_a(self, node: LexborNode, attributes: dict[str, str | None]) -> None:
        if "href" in attributes:
            self._add(attributes["href"], self._anchor(node), attributes.get("rel"), "a", True)

    def _read_link(self, node: LexborNode) -> None:
        attributes = node.attributes
        href = attributes.get("href")
        if not href:
            return
        rel = attributes.get("rel")
        words = _read_rel(rel)[1] if rel else _NO_WORDS
        if self._canonical is None and "canonical" in words:
            self._canonical = href
        self._add(href, "", rel, "link", not FOLLOWED_RELS.isdisjoint(words))

    def _read_source(self, node: LexborNode, tag: str) -> None:
        attributes = node.attributes
        name, followable = _SOURCES[tag]
        value = attributes.get(name)
        if tag == "input" and (attributes.get("type") or "").lower() != "image":
            return
        if value or (tag == "area" and name in attributes):
            anchor = _collapse(attributes.get("alt"), self._max_anchor_chars) if tag in ("area", "img") else ""
            self._add(value, anchor, attributes.get("rel"), tag, followable)

    def _read_meta(self, node: LexborNode) -> None:
        attributes = node.attributes
        content = attributes.get("content")
        if not content:
            return
        name = (attributes.get("name") or "").strip().lower()
        if name == "description" and self._description is None:
            self._description = _collapse(content, _MAX_DESCRIPTION_CHARS)
        elif name in self._robots_names:
            self._robots.append(_collapse(content, _MAX_DESCRIPTION_CHARS))
        if (attributes.get("http-equiv") or "").strip().lower() == "refresh":
            target = _refresh_target(content)
            if target:
                self._add(target, "", None, "meta", True)

    def _read_base(self, node: LexborNode) -> None:
        if self._base is None:
            href = node.attributes.get("href")
            # A base that is no http URL is as good as none: nothing below it could be fetched.
            self._base = _resolved(self._url, href or "") or self._url

    def _read_title(self, node: LexborNode) -> None:
        if self._title is None and not _is_in_svg(node):
            self._title = _collapse(node.text_lexbor(), _MAX_TITLE_CHARS)

    def _anchor(self, node: LexborNode) -> str:
        if self._text_left <= 0 or not self._max_anchor_chars:
            return ""
        text = node.text_lexbor()
        self._text_left -= len(text)
        return " ".join(text.split())[: self._max_anchor_chars]

    def _add(self, href: str | None, anchor: str, rel: str | None, element: str, followable: bool) -> None:
        if len(self._links) >= self._config.max_links_per_page:
            self._cut += 1
            return
        href = href.strip() if href else ""
        if self._legacy_codec is not None and not href.isascii():
            href = _encode_query(href, self._legacy_codec)
        text, words = _read_rel(rel) if rel else ("", _NO_WORDS)
        self._links.append(Link(href, anchor, text, element, followable, "nofollow" in words))


# Outside of the reader: bound methods in it would be a cycle, and keep the links of every page until a collection.
_SPECIAL: dict[str, Callable[[_Reader, LexborNode], None]] = {
    "link": _Reader._read_link,
    "meta": _Reader._read_meta,
    "base": _Reader._read_base,
    "title": _Reader._read_title,
}
_NO_WORDS: frozenset[str] = frozenset()


@lru_cache(maxsize=1024)
def _read_rel(rel: str) -> tuple[str, frozenset[str]]:
    """Return rel as `Link.rel` holds it, and its words."""
    words = rel[:_MAX_REL_CHARS].lower().split()
    return " ".join(words), frozenset(words)


def _collapse(text: str | None, max_chars: int) -> str:
    return " ".join(text.split())[:max_chars] if text else ""


def _resolved(base: str, href: str | None) -> str | None:
    if href is None:
        return None
    try:
        return resolve(base, href)
    except UrlError:
        return None


def _is_in_svg(node: LexborNode) -> bool:
    """An SVG drawing has titles of its own; they lie a few levels below its root."""
    parent = node.parent
    for _ in range(8):
        if parent is None:
            return False
        if parent.tag == "svg":
            return True
        parent = parent.parent
    return False


def _refresh_target(content: str) -> str | None:
    match = _REFRESH.match(content)
    if match is None:
        return None
    target = match[1].strip()
    if target[:1] in ("'", '"'):
        target = target[1:].partition(target[0])[0]
    return target or None


def _encode_query(href: str, codec: str) -> str:
    """Escape the query in the page's own charset, as browsers do (https://url.spec.whatwg.org/#query-state)."""
    before, question, rest = href.partition("?")
    query, sharp, fragment = rest.partition("#")
    if not question or query.isascii() or "#" in before:
        return href
    escaped = "".join(char if char.isascii() else _escape(char, codec) for char in query)
    return f"{before}?{escaped}{sharp}{fragment}"


def _escape(char: str, codec: str) -> str:
    """What the charset lacks becomes an escaped character reference: browsers do so."""
    return quote_from_bytes(char.encode(codec, "xmlcharrefreplace"), safe="")
