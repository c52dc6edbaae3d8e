"""Reading one answer: content, type, and, for pages, a `Page`.

The cost of reading for the loop is bounded by size. Per MiB: a body's digests and record 3 ms, its decoding up to 110
ms (chunks of one byte), its links 1.3 to 30 ms, where queries must be escaped in a charset other than UTF-8 up to 200
ms, and 3.4 us for each link that is different. A process of its own (`aside`) therefore reads a page of more than
`IN_PLACE_BYTES` (`LEGACY_IN_PLACE_BYTES` in another charset), before or after its content codings are undone. The links
of every page are written by slices.
"""

import re
from collections.abc import Iterator
from hashlib import sha1
from typing import NamedTuple

from crawl_lib.config import Config
from crawl_lib.parse import (
    HTML_TYPES,
    XHTML,
    Content,
    Headers,
    PageParser,
    ParsedPage,
    decode_content,
    detect_mime,
    is_surely_utf8,
    robots_sitemaps,
    robots_text,
    words_of,
)
from crawl_lib.records import Fetched
from crawl_lib.states import ERROR_ANSWERS, Outcome

IN_PLACE_BYTES = 3 << 19
LEGACY_IN_PLACE_BYTES = 256 << 10
NOTED_BYTES = 256 << 10
"""Content of more is noted in the spool before it is read as a page: see `large.ReadingNotes`."""
SLICE_LINKS = 4096
SLICE_BYTES = 1 << 18
"""A slice of links has about so many bytes, however few links that are."""
_LINK = re.compile(rb"[^\0]*\0[^\0]*\0[^\0]*\0")
BARRED = "no links were read: the process that read them died, or passed its limits, as often as it was tried"


Pieces = Iterator[tuple[int, ParsedPage]]
"""A page by slices of links, each with the place of its first link."""


class Reading(NamedTuple):
    """The facts in the content of one answer. `error`: the unreadable part, if any; `page`: if any."""

    mime: str | None
    length: int | None
    digest: bytes | None
    error: str | None
    page: ParsedPage | None


UNREADABLE = Reading(None, None, None, BARRED, None)
"""The reading of an answer whose content is unreadable."""
UNREAD = Reading(None, None, None, None, None)
"""The reading of a visit to an unchanged page: the full capture says the rest."""


class Reader:
    """Reads answers as the config says. `page`: reads the page or sitemap in the content (`PageParser.page`)."""

    def __init__(self, config: Config) -> None:
        self._wants_sitemaps = config.parse.sitemaps
        self._max_bytes = config.fetch.max_decompressed_bytes
        self._max_robots = config.fetch.max_robots_bytes
        self._parser = PageParser(config.parse, config.fetch.user_agent, self._max_bytes)
        self.page = self._parser.page

    def content(self, headers: Headers, fetched: Fetched) -> Content:
        """Return the content, up to `fetch.max_decompressed_bytes`."""
        return _content(headers, fetched, self._max_bytes)

    def small_content(self, headers: Headers, fetched: Fetched) -> Content | None:
        """Return the content, if quickly readable here.

        None: to find that out, or to read the content, may take too long. The work is bounded.
        """
        limit = self._max_bytes
        if (
            headers.get("content-encoding") is not None
            or headers.get("transfer-encoding") is not None
        ):
            if len(fetched.body) > IN_PLACE_BYTES:
                return None
            limit = min(IN_PLACE_BYTES, limit)
        content = _content(headers, fetched, limit)
        if content.truncated and limit < self._max_bytes:
            return None
        mime, charset = headers.content_type
        size = len(content.data)
        if size <= LEGACY_IN_PLACE_BYTES and not content.is_gzip:
            return content
        detected = detect_mime(mime, content.data)
        if not self.is_page(headers, fetched.outcome, detected, content.data):
            return content
        if content.is_gzip or size > IN_PLACE_BYTES or detected not in HTML_TYPES:
            return None
        is_utf8 = is_surely_utf8(content.data, charset, is_xml=detected == XHTML)
        return content if is_utf8 else None

    def facts(self, headers: Headers, fetched: Fetched, content: Content) -> Reading:
        """Return the reading without the page."""
        data = content.data
        payload = (
            fetched.payload
        )  # of most pages the content, whose digest the record has needed already
        is_known = payload is not None and payload.data == data
        digest = (
            payload.sha1 if payload and is_known else sha1(data, usedforsecurity=False).digest()
        )
        cut = [f"cut at {self._max_bytes} bytes"] if content.truncated else []
        error = "; ".join([*filter(None, [content.error]), *cut]) or None
        return Reading(detect_mime(headers.content_type[0], data), len(data), digest, error, None)

    def is_page(self, headers: Headers, outcome: Outcome, mime: str | None, data: bytes) -> bool:
        """Return whether an answer's links are read.

        `PageParser.has_links` says which content has links.
        """
        return outcome is Outcome.OK and self._parser.has_links(headers, mime, data)

    def words(
        self, headers: Headers, outcome: Outcome, content: Content, reading: Reading
    ) -> int | None:
        """Digest the words of a page, or of an HTML error.

        See `ParsedPage.words`. None: there are no words to count. An error without words does not count: it has nothing
        in common with a page without words.
        """
        if reading.page is not None:
            return reading.page.words
        if outcome not in ERROR_ANSWERS or reading.mime not in HTML_TYPES:
            return None
        return words_of(content.data[:IN_PLACE_BYTES], headers.content_type[1]) or None

    def sitemaps(self, fetched: Fetched) -> bytes:
        """Return the sitemaps of a robots.txt, as links.

        The config says whether sitemaps are read.
        """
        if fetched.outcome is not Outcome.OK or not self._wants_sitemaps:
            return b""
        is_cut = fetched.truncated is not None
        return robots_sitemaps(
            robots_text(fetched.head, fetched.body, is_cut=is_cut, max_bytes=self._max_robots)
        )


def _content(headers: Headers, fetched: Fetched, limit: int) -> Content:
    """Decode the body of an answer, which may be truncated."""
    content = decode_content(headers, fetched.body, max_bytes=limit)
    return content if fetched.truncated is None else content._replace(broken=True)


def barred(reading: Reading) -> Reading:
    """Return the reading of a skipped page.

    See `large.ReadingNotes`.
    """
    return reading._replace(
        error=BARRED if reading.error is None else f"{reading.error}; {BARRED}", page=None
    )


def places(links: bytes) -> Iterator[tuple[int, bytes]]:
    """Divide links into slices of bounded number and size.

    Each slice comes with the place of its first link. Without links there is one empty slice.
    """
    start = first = 0
    for number, link in enumerate(_LINK.finditer(links)):
        if number - first >= SLICE_LINKS or link.start() - start >= SLICE_BYTES:
            yield first, links[start : link.start()]
            start, first = link.start(), number
    yield first, links[start:]


def slices(page: ParsedPage) -> Pieces:
    """Yield the page with a slice of links at a time.

    Each slice comes with the place of the first link. A page without links comes once. The requisites come with the
    first part.
    """
    for start, links in places(page.links):
        if start:
            page = page._replace(links_cut=0, requisites=b"", requisites_cut=0)
        yield start, page._replace(links=links)
