"""From one fetch to its rows: content, page row, link rows, and discovered URLs.

The same code runs when a page arrives and when a spool is read again after a kill, from the same bytes; so a segment
does not tell how often its task was killed.

Fetches whose records are written may wait for their rows, to be handled together, step by step. Between two pages of a
lone handling the processor's caches are filled by something else: fetch, parser, digests, compressor. 1,500 real pages
cost 1,160 us each in this way, and 970 us with 64 pages in a row. No record is at stake: after a kill the rows of an
open part are made again from its records.
"""

import time
from collections.abc import Callable, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

from crawl_lib.config import Config
from crawl_lib.durable import reached
from crawl_lib.parse import Headers, ParsedPage, count_links, parse_head, require_scanner
from crawl_lib.records import Fetched, TakenUrl, metadata_with_list
from crawl_lib.scoring import load_plugins, note
from crawl_lib.segment import PageRow, PartWriter, Position, payload_of
from crawl_lib.states import WITH_RESPONSE, Outcome
from crawl_lib.urls import Rejection, UrlFilter, host_of, target_of_error
from crawl_lib.worker.aside import Aside
from crawl_lib.worker.discovery import Discovery
from crawl_lib.worker.large import Handled, LargePages, ReadingNotes, Steps
from crawl_lib.worker.patterns import SIMILAR, Patterns
from crawl_lib.worker.reading import (
    NOTED_BYTES,
    SLICE_BYTES,
    SLICE_LINKS,
    UNREAD,
    Pieces,
    Reader,
    Reading,
    barred,
    places,
    slices,
)
from crawl_lib.worker.texts import Texts

MOST_FETCHES = 64
MOST_BYTES = 4 << 20
MOST_S = 0.1
"""The CPU time for which waiting fetches may hold the loop; what is left then waits for the next one.

By the clock, a machine with other work would divide every group, and a page would cost a fifth more there.
"""
_NO_METADATA = (None,) * 5
_MOST_LINKS_BYTES = 8 << 20
"""Links of so many bytes wait for their rows at most."""


class _Turn:
    """A turn of so many seconds of this thread's CPU. A busy machine shortens no turn."""

    def __init__(self, most_s: float) -> None:
        self._ends_at, self._cpu_ends_at = time.monotonic() + most_s, time.thread_time() + most_s

    @property
    def is_over(self) -> bool:
        """Whether the turn has ended. The clock costs a tenth of a look at CPU time, and ends no later."""
        return time.monotonic() > self._ends_at and time.thread_time() > self._cpu_ends_at


class PageHandler:
    """Turns fetches into rows for one worker's `PartWriter`; keeps counts for the manifest.

    `own_index`: index of this node among `nodes`, for `local` routing, where every URL stays here. `url_filter`: the
    crawl's filter with the scope of this iteration. `seeds_widen_scope`: whether a URL of depth 0 is a seed, whose
    redirect brings its target's host into the scope; imported pages have this depth without being seeds. `aside`: reads
    large pages (`large`); without a reader, pages are read in place. The rows come later, at the latest with `drain`.
    `patterns`: what notes pages of large patterns, where a task has such; `texts`: counter of pages with equal words.
    `rule_errors`: rules that raised, by name, which are still to be counted. Raises SetupError, ConfigError for a
    scoring plug-in.
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
        self.large = LargePages(aside, self._notes, self._write)
        self._waiting: list[Handled] = []
        self._waiting_bytes = 0
        self.patterns = Patterns({}, None, Path())
        self.texts = Texts()
        self.rule_errors = url_filter.chain.errors
        self._plugins = [
            one for one in load_plugins(config.scoring) if one.after_parsing is not None
        ]
        self._discovery = Discovery(
            config, nodes, own_index, url_filter, writer, seeds_widen_scope=seeds_widen_scope
        )

    def count_texts(self, texts: Texts) -> None:
        """Have pages counted by their words. Before the first fetch."""
        self.texts = texts
        self._discovery.on_found = texts.found if texts.keeps_finders else None

    def add(self, taken: TakenUrl, fetched: Fetched, position: Position) -> None:
        """Keep a fetch until there are enough for a group.

        A group has `MOST_FETCHES` fetches, or `MOST_BYTES` of bodies.
        """
        self._waiting.append((taken, fetched, position))
        self._waiting_bytes += len(fetched.body)
        if len(self._waiting) >= MOST_FETCHES or self._waiting_bytes >= MOST_BYTES:
            self._some()

    def robots(self, fetched: Fetched) -> None:
        """Hand on the sitemaps in a robots.txt whose record is written."""
        links = self._reader.sitemaps(fetched)
        if self._notes.is_barred(fetched.url):
            self._writer.part.counts.rejections[Rejection.PAGE_LIMIT] += count_links(links)
        elif links:
            self.large.add(self._sitemap_steps(fetched.url, links))

    def _sitemap_steps(self, url: str, links: bytes) -> Steps:
        with self._notes.over(url):
            for start, part in places(links):
                self._discovery.sitemaps(url, part, start)
                yield

    def is_empty(self) -> bool:
        """Write some waiting rows; return whether all are written."""
        self._some()
        return not self._waiting and self.large.is_idle

    def drain(self) -> None:
        """Write all waiting rows.

        Call this before closing the part that holds their records.
        """
        waiting, self._waiting, self._waiting_bytes = self._waiting, [], 0
        self.handle_all(waiting)
        self.large.drain()
        self._notes.close()
        self.patterns.save()
        self.texts.save()
        self._note_errors()

    def _note_errors(self) -> None:
        """Count raising rules. There is an open part."""
        if self.rule_errors:
            self._writer.part.counts.rule_errors.update(self.rule_errors)
            self.rule_errors.clear()

    def _some(self) -> None:
        del self._waiting[: self.handle_all(self._waiting, MOST_S)]
        self._waiting_bytes = sum(len(fetched.body) for _, fetched, _ in self._waiting)

    def handle_all(self, fetches: Sequence[Handled], most_s: float = float("inf")) -> int:
        """Write the rows of fetches: first pages, then links.

        The records are written already. This way each step finds its code in the caches. Ends after about `most_s`;
        returns how many were handled.
        """
        found: list[tuple[TakenUrl, ParsedPage, bool]] = []
        links_bytes = done = 0
        turn = _Turn(most_s)
        for fetch in fetches:
            page, nofollow = self._page(*fetch)
            done += 1
            if page is not None:
                found.append((fetch[0], page, nofollow))
                links_bytes += len(page.links)
                if links_bytes > _MOST_LINKS_BYTES:
                    self._links(found, turn)
                    links_bytes = 0
            if turn.is_over:
                break
        self._links(found, turn)
        if done:
            self._note_errors()
        return done

    def _links(self, found: list[tuple[TakenUrl, ParsedPage, bool]], turn: "_Turn") -> None:
        """Write the links of pages.

        Long pages, and all pages after the turn, are written in steps.
        """
        self.texts.count()
        full = [self.texts.is_full(taken) for taken, *_ in found]
        short = {taken.position for taken, page, _ in found if not _is_long(page)}
        with self._notes.in_turn(short) as noted:
            for (taken, page, nofollow), is_full in zip(found, full, strict=True):
                if taken.position not in short or turn.is_over:
                    noted.end()  # steps may run at once, and have notes of their own
                    self.large.add(self._link_steps(taken, slices(page), nofollow, is_full))
                else:
                    noted.go_on(taken.position)
                    self._discovery.links(taken, page, nofollow, is_similar=is_full)
        found.clear()

    def _link_steps(self, taken: TakenUrl, pieces: Pieces, nofollow: bool, is_full: bool) -> Steps:
        with self._notes.over(taken.position):
            for start, piece in pieces:
                self._discovery.links(taken, piece, nofollow, start, is_similar=is_full)
                yield

    def _write(self, handled: Handled, reading: Reading, pieces: Pieces) -> Steps:
        """Write the rows of an answer read aside, by steps."""
        first = next(pieces, None)
        reading = reading._replace(page=first[1] if first else None)
        nofollow = self._row(handled, parse_head(handled[1].head), reading)
        taken, fetched, _ = handled
        self.texts.note(taken, fetched, reading.page.words if reading.page else None)
        self.texts.count()
        is_full = self.texts.is_full(taken)
        yield from self._link_steps(
            taken, chain([first] if first else [], pieces), nofollow, is_full
        )

    def _page(
        self, taken: TakenUrl, fetched: Fetched, position: Position
    ) -> tuple[ParsedPage | None, bool]:
        """Write the row of `pages`.

        Returns the page, if any, and whether the page says nofollow.
        """
        if fetched.outcome not in WITH_RESPONSE:
            self._without_response(taken, fetched, position)
            return None, False
        headers = parse_head(fetched.head)
        if fetched.revisits is not None:
            return None, self._row((taken, fetched, position), headers, UNREAD)
        content = (self._reader.small_content if self._has_aside else self._reader.content)(
            headers, fetched
        )
        if content is None:
            self.patterns.note(taken, fetched, None, b"")
            self.large.read(taken, fetched, position)
            return None, False
        reading = self._reader.facts(headers, fetched, content)
        self.patterns.note(taken, fetched, reading.mime, content.data)
        if self._notes.is_barred(taken.position):
            reading = barred(reading)
        elif self._reader.is_page(headers, fetched.outcome, reading.mime, content.data):
            read = partial(
                self._reader.page, headers, fetched.url, content, reading.mime, fetched.time
            )
            reading = reading._replace(
                page=self._noted(taken, read) if len(content.data) > NOTED_BYTES else read()
            )
        if self.texts.counts:
            self.texts.note(
                taken, fetched, self._reader.words(headers, fetched.outcome, content, reading)
            )
        return reading.page, self._row((taken, fetched, position), headers, reading)

    def _noted(self, taken: TakenUrl, read: Callable[[], ParsedPage]) -> ParsedPage:
        with self._notes.over(taken.position):
            reached("page.noted")
            return read()

    def _without_response(self, taken: TakenUrl, fetched: Fetched, position: Position) -> None:
        self.patterns.note(taken, fetched, None, b"")
        row, counts = PageRow(*_always(taken, fetched, position)), self._writer.part.counts
        if fetched.outcome is Outcome.FILTERED:
            if target := target_of_error(fetched.error):
                row = row._replace(
                    redirect_url=self._discovery.redirect(taken, fetched.url, target)
                )
            counts.rejections[Rejection.SIMILAR] += fetched.error.startswith(SIMILAR)
        self._writer.part.pages.add(row)

    def _row(self, handled: Handled, headers: Headers, reading: Reading) -> bool:
        """Write the row of an answer; returns whether it says nofollow."""
        taken, fetched, _ = handled
        mime_declared, charset = headers.content_type
        redirect_url, is_barred = None, self._notes.is_barred(taken.position)
        if fetched.outcome is Outcome.REDIRECT and (location := headers.location) and not is_barred:
            with self._notes.over(taken.position):
                redirect_url = self._discovery.redirect(taken, fetched.url, location)
        payload_digest: bytes | None = payload_of(fetched).sha1
        if payload_digest == reading.digest or fetched.revisits is not None:
            payload_digest = None
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
            payload_digest,
        )
        page = reading.page
        of_page = (charset, None, None, None, None) if page is None else page[:5]
        row = PageRow._make((*_always(*handled), *of_response, *of_page, *_metadata_of(page)))
        if page is not None and self._plugins:
            row = row._replace(
                metadata=note(self._plugins, "after_parsing", row.metadata, row._asdict())
            )
        self._writer.part.pages.add(row)
        if page is None:
            return False
        return page.nofollow or headers.says_nofollow(self._token)


def _is_long(page: ParsedPage) -> bool:
    return len(page.links) > SLICE_BYTES or count_links(page.links) > SLICE_LINKS


def _metadata_of(page: ParsedPage | None) -> tuple[str | None, ...]:
    """Return the last fields of `PageRow`: a page's own metadata.

    The config says whether pages are asked for metadata.
    """
    said = page.metadata if page else None
    if said is None:
        return _NO_METADATA
    return tuple(
        value and value[0]
        for value in (said.image, said.author, said.published, said.modified, said.language)
    )


def _always(taken: TakenUrl, fetched: Fetched, position: Position) -> tuple[Any, ...]:
    """Return the first fields of `PageRow`.

    URLs without a response have these fields too.
    """
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
        metadata_with_list(queued),
        fetched.error or None,
        None if fetched.retry_at is None else fetched.retry_at * 1_000_000,
        None if fetched.revisits is None else fetched.revisits.place,
        queued.hop,
    )
