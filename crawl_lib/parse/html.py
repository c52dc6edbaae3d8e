"""One page: its links in document order, and what it says of itself. docs/links.md says what is a link."""

import json
import re
from collections.abc import Iterable
from contextlib import suppress
from typing import NamedTuple
from urllib.parse import quote_from_bytes

from crawl_lib.config import ParseConfig
from crawl_lib.errors import UrlError
from crawl_lib.parse.charset import PRESCAN_BYTES, Charset, charset_of, decoded, said_by_metas
from crawl_lib.parse.directives import says_nofollow
from crawl_lib.parse.encodings import encode
from crawl_lib.parse.facts import FIRST_FACT, Metadata, metadata_of
from crawl_lib.parse.scan import CUT, FACTS, XML, may_name_charset, scan, wanted_kinds
from crawl_lib.urls import resolve


class ParsedPage(NamedTuple):
    """Content read out of a page. None: the page does not say."""

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
    links: bytes
    """The links in document order, at most `parse.max_links_per_page`: see `links_as_bytes`."""
    nofollow: bool
    """meta robots says nofollow or none."""
    links_cut: int
    """Links beyond `parse.max_links_per_page`, which are not in `links`."""
    words: int | None = None
    """Digest (64 bits) of the different words that the page shows, its title among them; 0 without words.

    The order of the words and the case of ASCII letters do not count. The value is None for a sitemap, whose text
    consists of links.
    """
    metadata: Metadata | None = None
    """The page's metadata; None if that was not asked for, and for a sitemap."""

    requisites: bytes = b""
    """References of requisites, at most `parse.requisites_per_page`, in the form of `links`."""
    requisites_cut: int = 0
    """Requisites beyond `parse.requisites_per_page`."""

    def to_json(self) -> str:
        """Return the page as text, to send it to another process."""
        return json.dumps(self._asdict() | {name: getattr(self, name).decode() for name in _BYTES})

    @classmethod
    def from_json(cls, text: str | bytes) -> "ParsedPage":
        """Return the page that `to_json` wrote."""
        page = cls(**json.loads(text))
        metadata = None if page.metadata is None else Metadata.from_json(page.metadata)
        in_bytes = {name: getattr(page, name).encode("utf-8", "replace") for name in _BYTES}
        return page._replace(**in_bytes, metadata=metadata)


_BYTES = ("links", "requisites")

TEXTS_OF_LINK = 3
_NON_ASCII = re.compile(r"[^\x00-\x7f]+")
# The scanner cuts titles, descriptions and anchors too, but at characters of UTF-8: a byte that was none became one.
_MAX_TITLE_CHARS = 1000
_MAX_DESCRIPTION_CHARS = 2000
_MAX_ROBOTS_CHARS = 2000


def count_links(links: bytes) -> int:
    """Count the links in `ParsedPage.links`."""
    return links.count(0) // TEXTS_OF_LINK


def links_as_bytes(links: Iterable[tuple[str, str, str]]) -> bytes:
    """Return links in the form read by `native/rows.c`.

    Each link has three texts in UTF-8, with a NUL behind each. The first text is the reference, behind the letter of
    the element; rows.c lists the letters, and a capital letter means that rel holds nofollow. The second text is the
    anchor, white space collapsed. The third text has the words of rel in lower case, separated by one space.
    """
    texts = [text.replace("\0", "\ufffd") for link in links for text in link]
    return "\0".join([*texts, ""]).encode("utf-8", "replace")


def parse_html(
    data: bytes,
    *,
    url: str,
    header_charset: str | None,
    config: ParseConfig,
    user_agent: str = "",
    is_xml: bool = False,
    is_cut: bool = False,
    facts_at: float | None = None,
) -> ParsedPage:
    """Read a page. Raises nothing but MemoryError, whatever `data` holds.

    `data`: content with its codings undone; `url`: the page's canonical URL; `header_charset`: of its Content-Type;
    `user_agent`: our token, for metas that bear its name; `is_xml`: its type is one of XML; `is_cut`: its end is
    missing, so what is open there (a title, the text of a link) does not count; `facts_at`: POSIX seconds of the visit
    where the page's metadata is wanted, None where not.

    Its time and memory are linear in `data`, whatever that is: at most 20 ms of CPU for each MB, 200 ms where a page in
    a legacy charset has a query to escape in each link, 600 ms where each of its characters is wrong, and about six
    times the page's size. It may be called in any
    process and thread, each with pages of its own; the result goes to another process by `ParsedPage.to_json`.
    """
    agent = user_agent.lower().encode()
    how = is_xml * XML + is_cut * CUT + kinds_of(config) + (facts_at is not None) * FACTS
    charset = charset_of(data, header_charset, is_xml=is_xml)
    while True:
        limits = config.max_links_per_page, config.max_anchor_chars
        texts, links, cut, _, words, needed, needed_cut = scan(
            decoded(data, charset), agent, *limits, how, max_requisites=config.requisites_per_page
        )
        if charset.is_certain or texts[-2] in ("", f"c{charset.name}\n"):
            break
        said = said_by_metas(texts[-2])
        if said is None or said == charset.name:
            break
        charset = Charset(said, 0, True)
    title, description, robots, canonical, base_href = (
        value if flag == "1" else None
        for flag, value in zip(texts[0], texts[1:FIRST_FACT], strict=True)
    )
    # A base that is no http URL is as good as none: nothing below it could be fetched.
    base = (None if base_href is None else _resolved(url, base_href)) or url
    return ParsedPage(
        charset=charset.name,
        title=title and title[:_MAX_TITLE_CHARS],
        description=description and description[:_MAX_DESCRIPTION_CHARS],
        meta_robots=robots and robots[:_MAX_ROBOTS_CHARS],
        canonical_url=None if canonical is None else _resolved(base, canonical),
        base=base,
        links=_in_utf8(links, config.max_anchor_chars, charset.name),
        nofollow=robots is not None and says_nofollow(robots),
        links_cut=cut,
        words=words,
        metadata=None if facts_at is None else metadata_of(texts, base, facts_at),
        requisites=_in_utf8(needed, config.max_anchor_chars, charset.name),
        requisites_cut=needed_cut,
    )


def kinds_of(config: ParseConfig) -> int:
    """Return the scanner's flags for the wanted kinds of requisites.

    0: no requisites are wanted.
    """
    return wanted_kinds(config.requisite_kinds) if config.wants_requisites else 0


def is_surely_utf8(data: bytes, header_charset: str | None, *, is_xml: bool) -> bool:
    """Say whether `parse_html` reads a page as UTF-8 at once.

    Otherwise a meta further down may name another encoding. Raises SetupError where the scanner was not compiled.
    """
    found = charset_of(data, header_charset, is_xml=is_xml)
    may_change = not found.is_certain and may_name_charset(data, PRESCAN_BYTES)
    return found.name == "utf-8" and not may_change


def words_of(data: bytes, header_charset: str | None) -> int:
    """Digest the different words of HTML, without its links.

    The result is `ParsedPage.words`. Raises MemoryError.
    """
    return scan(html_to_utf8(data, header_charset), b"", 0, 0).words


def _in_utf8(links: bytes, max_anchor_chars: int, charset: str) -> bytes:
    """Replace invalid UTF-8, and escape queries in a legacy charset."""
    if links.isascii():
        return links
    if charset.startswith("utf-"):
        with suppress(UnicodeDecodeError):
            links.decode()
            return links
    texts = links.decode("utf-8", "replace").split("\0")
    if not charset.startswith("utf-"):
        texts[::TEXTS_OF_LINK] = [
            href if href.isascii() else _encode_query(href, charset)
            for href in texts[::TEXTS_OF_LINK]
        ]
    texts[1::TEXTS_OF_LINK] = [anchor[:max_anchor_chars] for anchor in texts[1::TEXTS_OF_LINK]]
    return "\0".join(texts).encode()


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
    """Escape characters in a charset.

    A missing character becomes an escaped character reference, as in browsers.
    """
    return quote_from_bytes(encode(chars, charset), safe="")


def html_to_utf8(data: bytes, header_charset: str | None, *, is_xml: bool = False) -> bytes:
    """Return a page as UTF-8, decoded as by `parse_html`."""
    charset = charset_of(data, header_charset, is_xml=is_xml)
    text = decoded(data, charset)
    said = None if charset.is_certain else said_by_metas(scan(text, b"", 0, 0)[0][-2])
    return text if said is None or said == charset.name else decoded(data, Charset(said, 0, True))
