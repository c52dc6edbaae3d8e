"""From one fetch to its rows: content, page row, link rows, and the URLs it discovered.

The same code runs when a page arrives and when a spool is read again after a kill, from the same bytes; so a segment
does not tell how often its task was killed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from hashlib import sha1
from typing import Any

from crawl_lib.config import Config
from crawl_lib.crawl.discovery import Discovery
from crawl_lib.parse import (
    HTML_TYPES,
    Page,
    decode_body,
    detect_mime,
    parse_head,
    parse_html,
    require_scanner,
    x_robots_nofollow,
)
from crawl_lib.records import Fetched, TakenUrl
from crawl_lib.segment import PageRow, PartWriter, Position
from crawl_lib.states import WITH_RESPONSE, Outcome
from crawl_lib.urls import UrlFilter, host_of

Handled = tuple[TakenUrl, Fetched, Position]
"""A URL, what its fetch ended in, and where its records stand."""

_MOST_LINKS = 20_000


class PageHandler:
    """Turns fetches into rows for one worker's `PartWriter`; keeps the counts that the manifest sums up.

    `own_index`: index of this node among `nodes`, for `local` routing, where every URL stays here. `url_filter`: the
    crawl's filter with the scope of this iteration. `seeds_widen_scope`: whether a URL of depth 0 is a seed, whose
    redirect brings its target's host into the scope; imported pages have that depth and are none. Raises SetupError.
    """

    def __init__(
        self,
        config: Config,
        nodes: Sequence[str],
        own_index: int,
        url_filter: UrlFilter,
        writer: PartWriter,
        *,
        seeds_widen_scope: bool = True,
    ) -> None:
        require_scanner()
        self._parse = config.parse
        self._max_content_bytes = config.fetch.max_decompressed_bytes
        self._token = config.fetch.user_agent
        self._writer = writer
        self._discovery = Discovery(config, nodes, own_index, url_filter, writer, seeds_widen_scope=seeds_widen_scope)

    def handle(self, taken: TakenUrl, fetched: Fetched, position: Position) -> None:
        """Write the rows of one fetch whose records stand at `position`."""
        self.handle_all([(taken, fetched, position)])

    def handle_all(self, fetches: Iterable[Handled]) -> None:
        """Write the rows of fetches: first pages, then links, so that each step finds its code in the caches."""
        found: list[tuple[TakenUrl, Page, bool]] = []
        links = 0
        for fetch in fetches:
            page, nofollow = self._page(*fetch)
            if page is not None:
                found.append((fetch[0], page, nofollow))
                links += len(page.links)
                if links > _MOST_LINKS:
                    self._links(found)
                    links = 0
        self._links(found)

    def _links(self, found: list[tuple[TakenUrl, Page, bool]]) -> None:
        for taken, page, nofollow in found:
            self._discovery.links(taken, page, nofollow)
        found.clear()

    def _page(self, taken: TakenUrl, fetched: Fetched, position: Position) -> tuple[Page | None, bool]:
        """Write the row of `pages`; returns the page, if it is one, and whether it says nofollow."""
        if fetched.outcome not in WITH_RESPONSE:
            self._writer.add_page(PageRow(*_always(taken, fetched, position)))
            return None, False
        headers = parse_head(fetched.head)
        content = decode_body(headers, fetched.body, max_bytes=self._max_content_bytes)
        mime_declared, charset = headers.content_type
        mime = detect_mime(mime_declared, content.data)
        page, nofollow = None, False
        if fetched.outcome is Outcome.OK and mime in HTML_TYPES:
            page = parse_html(
                content.data, url=fetched.url, header_charset=charset, config=self._parse, user_agent=self._token
            )
            nofollow = page.nofollow or x_robots_nofollow(headers.all("x-robots-tag"), self._token)
        redirect_url = None
        if fetched.outcome is Outcome.REDIRECT and (location := headers.get("location")) is not None:
            redirect_url = self._discovery.redirect(taken, fetched.url, location)
        same = content.data is fetched.body  # no coding was undone
        digest = fetched.body_sha1() if same else sha1(content.data, usedforsecurity=False).digest()
        of_response = (
            fetched.status,
            mime_declared,
            mime,
            len(content.data),
            digest,
            redirect_url,
            headers.get("etag"),
            headers.get("last-modified"),
        )
        of_page = (charset, None, None, None, None) if page is None else page[:5]
        self._writer.add_page(PageRow._make((*_always(taken, fetched, position), *of_response, *of_page)))
        return page, nofollow


def _always(taken: TakenUrl, fetched: Fetched, position: Position) -> tuple[Any, ...]:
    """The first fields of `PageRow`: those that a URL without a response has too."""
    queued = taken.queued
    return (
        taken.key,
        fetched.url,
        host_of(fetched.url),
        round(fetched.time * 1_000_000),
        fetched.outcome,
        queued.depth,
        fetched.attempts,
        fetched.duration_ms,
        position.warc_file,
        position.offset,
        position.length,
        fetched.ip,
        queued.via,
        fetched.truncated,
        queued.metadata or None,
    )
