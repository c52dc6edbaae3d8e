"""One page: its links in document order, and what it says of itself. docs/links.md says what is a link."""

import json
import re
from dataclasses import dataclass, fields
from functools import lru_cache
from sys import getsizeof
from typing import NamedTuple
from urllib.parse import quote_from_bytes

from crawl_lib.config import ParseConfig
from crawl_lib.errors import UrlError
from crawl_lib.parse.charset import Charset, charset_of, decoded, said_by_metas
from crawl_lib.parse.directives import says_nofollow
from crawl_lib.parse.encodings import encode
from crawl_lib.parse.scan import CUT, XML, scan
from crawl_lib.urls import resolve


@dataclass(slots=True)
class Links:
    """The links of a page in document order, one for each occurrence, by columns of the same length.

    `hrefs`: references as they are written there, without white space around them; relative to the page's `base`.
    `anchors`: the text of the link (the alt text of area and img), white space collapsed, cut to
    `parse.max_anchor_chars`. `rels`: the words of rel, in lower case, separated by one space. `elements`: the element's
    name in lower case; `meta` is a meta refresh. `followable`: whether its element (and the rel of a `link`) is one
    whose target may be a page; others are recorded only. `nofollow`: whether rel holds nofollow; the page's own is
    `Page.nofollow`.
    """

    hrefs: list[str]
    anchors: list[str]
    rels: list[str]
    elements: list[str]
    followable: list[bool]
    nofollow: list[bool]

    def __len__(self) -> int:
        return len(self.hrefs)


class Page(NamedTuple):
    """What was read out of one page. None: the page does not say."""

    charset: str
    """Name of the encoding it was read with (Encoding Standard, lower case)."""
    title: str | None
    description: str | None
    meta_robots: str | None
    """The contents of the metas named robots or as our user agent, joined by ", ", cut to 2,000 characters."""
    canonical_url: str | None
    """Target of the first link rel=canonical, in canonical form."""
    base: str
    """What hrefs are relative to, a canonical URL: the first base href, else the page's URL."""
    links: Links
    """At most `parse.max_links_per_page`."""
    nofollow: bool
    """meta robots says nofollow or none."""
    links_cut: int
    """Links beyond `parse.max_links_per_page`, which are not in `links`."""
    words: int | None = None
    """Digest (64 bits) of the different words that the page shows, its title among them; 0 without words.

    The order of the words and the case of ASCII letters do not count. None for a sitemap, whose links are its text.
    """
    known_size: int | None = None
    """Bytes of memory that the texts of the links take at most; None: not known. See `text_bytes`."""

    @property
    def text_bytes(self) -> int:
        """Bytes of memory that hrefs, anchors and rels take at most, besides their objects."""
        if self.known_size is not None:
            return self.known_size
        links = self.links
        return sum(getsizeof("".join(texts)) for texts in (links.hrefs, links.anchors, links.rels))

    def with_links(self, links: Links, links_cut: int) -> "Page":
        """Return the page with other links."""
        return self._replace(links=links, links_cut=links_cut, known_size=None)

    def to_json(self) -> str:
        """Return the page as text, for a process that gives its answer to another."""
        columns = [getattr(self.links, field.name) for field in fields(Links)]
        return json.dumps(self._replace(links=columns))  # type: ignore[arg-type]

    @classmethod
    def from_json(cls, text: str | bytes) -> "Page":
        """Return the page that `to_json` wrote."""
        page = cls._make(json.loads(text))
        return page._replace(links=Links(*page.links))  # type: ignore[misc]


FOLLOWED_RELS = frozenset(
    {
        *("next", "prev", "index", "contents", "start", "alternate"),
        *("canonical", "author", "copyright", "help", "search", "license"),
    }
)
"""The words of rel that make the target of a `link` element a page to follow."""

# The letters of the scanner (native/tags.h); of elements that may lead to a page, and of others. Of a `link` its rel
# says which. In upper case: rel holds nofollow.
_TO_PAGES = {"a": "a", "r": "area", "f": "frame", "i": "iframe", "m": "meta"}
_TO_OTHERS = {
    "l": "link",
    "g": "img",
    "s": "script",
    "o": "source",
    "v": "video",
    "u": "audio",
    "t": "track",
    "e": "embed",
    "j": "object",
    "n": "input",
}
_NAME = {letter: name for low, name in (_TO_PAGES | _TO_OTHERS).items() for letter in (low, low.upper())}
_FOLLOWABLE = {letter: letter.lower() in _TO_PAGES for letter in _NAME}
_LINK = re.compile("[lL]")
_NON_ASCII = re.compile(r"[^\x00-\x7f]+")
_SAID = 7  # fields before the hrefs
# The scanner cuts titles, descriptions and anchors too, but at characters of UTF-8: a byte that was none became one.
_MAX_TITLE_CHARS = 1000
_MAX_DESCRIPTION_CHARS = 2000
_MAX_ROBOTS_CHARS = 2000


def parse_html(
    data: bytes,
    *,
    url: str,
    header_charset: str | None,
    config: ParseConfig,
    user_agent: str = "",
    is_xml: bool = False,
    is_cut: bool = False,
) -> Page:
    """Read a page. Raises nothing but MemoryError, whatever `data` holds.

    `data`: content with its codings undone; `url`: the page's canonical URL; `header_charset`: of its Content-Type;
    `user_agent`: our token, for metas that bear its name; `is_xml`: its type is one of XML; `is_cut`: its end is
    missing, so what is open there (a title, the text of a link) does not count.

    Its time and memory are linear in `data`, whatever that is: at most 20 ms of CPU for each MB, 200 ms where a page in
    a legacy charset has a query to escape in each link, 600 ms where each of its characters is wrong, and about six
    times the page's size. It may be called in any
    process and thread, each with pages of its own; the result goes to another process by `Page.to_json`.
    """
    agent, how = user_agent.lower().encode(), is_xml * XML + is_cut * CUT
    charset = charset_of(data, header_charset, is_xml=is_xml)
    while True:
        limits = config.max_links_per_page, config.max_anchor_chars
        texts, cut, _, words, size = scan(decoded(data, charset), agent, *limits, how)
        if charset.is_certain or texts[-2] in ("", f"c{charset.name}\n"):
            break
        said = said_by_metas(texts[-2])
        if said is None or said == charset.name:
            break
        charset = Charset(said, 0, True)
    letters, flags = texts[:2]
    title, description, robots, canonical, base_href = (
        value if flag == "1" else None for flag, value in zip(flags, texts[2:_SAID], strict=True)
    )
    # A base that is no http URL is as good as none: nothing below it could be fetched.
    base = (None if base_href is None else _resolved(url, base_href)) or url
    return Page(
        charset=charset.name,
        title=title and title[:_MAX_TITLE_CHARS],
        description=description and description[:_MAX_DESCRIPTION_CHARS],
        meta_robots=robots and robots[:_MAX_ROBOTS_CHARS],
        canonical_url=None if canonical is None else _resolved(base, canonical),
        base=base,
        links=_links_of(letters, texts[_SAID:], config.max_anchor_chars, charset.name),
        nofollow=robots is not None and says_nofollow(robots),
        links_cut=cut,
        words=words,
        known_size=size if charset.name == "utf-8" else None,  # escapes in the charset of the page take more
    )


def words_of(data: bytes, header_charset: str | None) -> int:
    """Digest the different words of HTML whose links are not wanted: `Page.words`. Raises MemoryError."""
    return scan(html_to_utf8(data, header_charset), b"", 0, 0).words


def _links_of(letters: str, texts: list[str], max_anchor_chars: int, charset: str) -> Links:
    count = len(letters)
    hrefs, anchors, rels = texts[:count], texts[count : 2 * count], texts[2 * count : 3 * count]
    if max(map(len, anchors), default=0) > max_anchor_chars:
        anchors = [anchor[:max_anchor_chars] for anchor in anchors]
    followable = list(map(_FOLLOWABLE.__getitem__, letters))
    for place in _LINK.finditer(letters):
        rel = rels[place.start()]
        followable[place.start()] = rel != "" and _is_followed(rel)
    if not charset.startswith("utf-"):
        hrefs = [href if href.isascii() else _encode_query(href, charset) for href in hrefs]
    nofollow = [False] * count if letters.islower() else list(map(str.isupper, letters))
    return Links(hrefs, anchors, rels, list(map(_NAME.__getitem__, letters)), followable, nofollow)


@lru_cache(maxsize=1024)
def _is_followed(rel: str) -> bool:
    return not FOLLOWED_RELS.isdisjoint(rel.split())


def _resolved(base: str, href: str) -> str | None:
    try:
        return resolve(base, href)
    except UrlError:
        return None


def _encode_query(href: str, charset: str) -> str:
    """Escape the query in the page's own charset, as browsers do (https://url.spec.whatwg.org/#query-state)."""
    before, question, rest = href.partition("?")
    query, sharp, fragment = rest.partition("#")
    if not question or query.isascii() or "#" in before:
        return href
    return f"{before}?{_NON_ASCII.sub(lambda chars: _escape(chars[0], charset), query)}{sharp}{fragment}"


def _escape(chars: str, charset: str) -> str:
    """Escape characters. One that the charset lacks becomes an escaped character reference, as in browsers."""
    return quote_from_bytes(encode(chars, charset), safe="")


def html_to_utf8(data: bytes, header_charset: str | None, *, is_xml: bool = False) -> bytes:
    """Return a page as UTF-8, in the encoding that `parse_html` reads it with."""
    charset = charset_of(data, header_charset, is_xml=is_xml)
    text = decoded(data, charset)
    said = None if charset.is_certain else said_by_metas(scan(text, b"", 0, 0)[0][-2])
    return text if said is None or said == charset.name else decoded(data, Charset(said, 0, True))
