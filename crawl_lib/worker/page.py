"""From one fetch to its rows: content, page row, link rows, and the URLs it discovered.

The same code runs when a page arrives and when a spool is read again after a kill, from the same bytes; so a segment
does not tell how often its task was killed.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from crawl_lib.config import Config
from crawl_lib.parse import Content, Headers, Page, parse_head, require_scanner, x_robots_nofollow
from crawl_lib.records import Fetched, TakenUrl
from crawl_lib.segment import PageRow, PartWriter, Position
from crawl_lib.states import WITH_RESPONSE, Outcome
from crawl_lib.urls import UrlFilter, host_of
from crawl_lib.worker.aside import Aside
from crawl_lib.worker.discovery import Discovery
from crawl_lib.worker.large import Handled, LargePages, Pieces
from crawl_lib.worker.notes import ReadingNotes
from crawl_lib.worker.reading import NOTED_BYTES, SLICE_LINKS, Reader, Reading, barred, is_page, slices

_MOST_LINKS = 20_000


class PageHandler:
    """Turns fetches into rows for one worker's `PartWriter`; keeps the counts that the manifest sums up.

    `own_index`: index of this node among `nodes`, for `local` routing, where every URL stays here. `url_filter`: the
    crawl's filter with the scope of this iteration. `seeds_widen_scope`: whether a URL of depth 0 is a seed, whose
    redirect brings its target's host into the scope; imported pages have that depth and are none. `aside`: reads large
    pages; without it they are read in place. Rows of large pages come later, at the latest with `drain`. Raises
    SetupError.
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
        aside: Aside | None = None,
    ) -> None:
        require_scanner()
        self._token = config.fetch.user_agent
        self._writer = writer
        self._reader = Reader(config)
        self._has_aside = aside is not None
        self._notes = ReadingNotes(writer.notes_path)
        self._large = LargePages(aside, self._notes, self._write)
        self._discovery = Discovery(config, nodes, own_index, url_filter, writer, seeds_widen_scope=seeds_widen_scope)

    @property
    def is_idle(self) -> bool:
        """Whether the rows of all large pages are written."""
        return self._large.is_idle

    def attach(self, loop: asyncio.AbstractEventLoop, failed: Callable[[BaseException], None]) -> None:
        """Leave large pages to the turns of a loop. `failed`: gets what is raised there."""
        self._large.attach(loop, failed)

    def detach(self) -> None:
        """The loop ends; what is left of large pages waits for `drain`."""
        self._large.detach()

    def drain(self) -> None:
        """Write the rows of all large pages."""
        self._large.drain()

    def withdraw(self) -> None:
        """The worker ends early, and in order: no page is to blame for what is not read."""
        self._large.withdraw()

    def handle(self, taken: TakenUrl, fetched: Fetched, position: Position) -> None:
        """Write the rows of one fetch whose records stand at `position`."""
        self.handle_all([(taken, fetched, position)])

    def handle_all(self, fetches: Sequence[Handled], most_s: float = float("inf")) -> int:
        """Write the rows of fetches: first pages, then links, so that each step finds its code in the caches.

        Ends after about `most_s`; returns how many were handled.
        """
        found: list[tuple[TakenUrl, Page, bool]] = []
        links = done = 0
        end_s = time.monotonic() + most_s
        for fetch in fetches:
            page, nofollow = self._page(*fetch)
            done += 1
            if page is not None:
                found.append((fetch[0], page, nofollow))
                links += len(page.links)
                if links > _MOST_LINKS:
                    self._links(found)
                    links = 0
            if time.monotonic() > end_s:
                break
        self._links(found)
        return done

    def _content(self, headers: Headers, fetched: Fetched) -> Content | None:
        """The content; None if it is to be found out aside."""
        if self._has_aside:
            return self._reader.small_content(headers, fetched)
        return self._reader.content(headers, fetched.body)

    def _links(self, found: list[tuple[TakenUrl, Page, bool]]) -> None:
        for taken, page, nofollow in found:
            if len(page.links) > SLICE_LINKS:
                self._large.add(self._link_steps(taken, slices(page), nofollow))
            else:
                self._discovery.links(taken, page, nofollow)
        found.clear()

    def _link_steps(self, taken: TakenUrl, pieces: Pieces, nofollow: bool) -> Iterator[None]:
        for start, piece in pieces:
            self._discovery.links(taken, piece, nofollow, start)
            yield

    def _write(self, handled: Handled, reading: Reading, pieces: Pieces) -> Iterator[None]:
        """The rows of an answer that was read aside, by steps."""
        headers = parse_head(handled[1].head)
        nofollow = self._row(handled, headers, reading)
        yield from self._link_steps(handled[0], pieces, nofollow)

    def _page(self, taken: TakenUrl, fetched: Fetched, position: Position) -> tuple[Page | None, bool]:
        """Write the row of `pages`; returns the page, if it is one, and whether it says nofollow."""
        if fetched.outcome not in WITH_RESPONSE:
            self._writer.add_page(PageRow(*_always(taken, fetched, position)))
            return None, False
        headers = parse_head(fetched.head)
        content = self._content(headers, fetched)
        if content is None:
            self._large.read(taken, fetched, position)
            return None, False
        reading = self._reader.facts(headers, fetched, content)
        if is_page(fetched.outcome, reading.mime):
            reading = self._with_page(taken, headers, fetched, content, reading)
        return reading.page, self._row((taken, fetched, position), headers, reading)

    def _with_page(
        self, taken: TakenUrl, headers: Headers, fetched: Fetched, content: Content, reading: Reading
    ) -> Reading:
        is_noted = len(content.data) > NOTED_BYTES
        if is_noted:
            if self._notes.is_barred(taken.position):
                return barred(reading)
            self._notes.begin(taken.position)
        reading = reading._replace(page=self._reader.page(headers, fetched.url, content))
        if is_noted:
            self._notes.end(taken.position)
        return reading

    def _row(self, handled: Handled, headers: Headers, reading: Reading) -> bool:
        """Write the row of an answer; returns whether it says nofollow."""
        taken, fetched, _ = handled
        mime_declared, charset = headers.content_type
        redirect_url = None
        if fetched.outcome is Outcome.REDIRECT and (location := headers.get("location")) is not None:
            redirect_url = self._discovery.redirect(taken, fetched.url, location)
        of_response = (
            fetched.status,
            mime_declared,
            reading.mime,
            reading.length,
            reading.digest,
            redirect_url,
            headers.get("etag"),
            headers.get("last-modified"),
            reading.error,
        )
        page = reading.page
        of_page = (charset, None, None, None, None) if page is None else page[:5]
        self._writer.add_page(PageRow._make((*_always(*handled), *of_response, *of_page)))
        if page is None:
            return False
        return page.nofollow or x_robots_nofollow(headers.all("x-robots-tag"), self._token)


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
        fetched.error or None,
    )
