"""From one fetch to its rows: content, page row, link rows, and the URLs it discovered.

The same code runs when a page arrives and when a spool is read again after a kill, from the same bytes; so a segment
does not tell how often its task was killed.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence

from crawl_lib.config import Config
from crawl_lib.parse import (
    HTML_TYPES,
    Content,
    Headers,
    Page,
    decode_content,
    detect_mime,
    parse_head,
    parse_html,
    x_robots_nofollow,
)
from crawl_lib.records import Fetched, TakenUrl
from crawl_lib.segment import LinkColumns, PageRow, PartWriter, Position
from crawl_lib.states import WITH_RESPONSE, Outcome
from crawl_lib.urls import LinkResolver, Owners, Rejection, Target, UrlFilter, host_of

_SEEN_LIMIT = 200_000


class PageHandler:
    """Turns fetches into rows for one worker's `PartWriter`; keeps the counts that the manifest sums up.

    `own_index`: index of this node among `nodes`, for `local` routing, where every URL stays here. `url_filter`: the
    crawl's filter with the scope of this iteration. `seeds_widen_scope`: whether a URL of depth 0 is a seed, whose
    redirect brings its target's host into the scope; imported pages have that depth and are none.
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
        self._parse = config.parse
        self._max_content_bytes = config.fetch.max_decompressed_bytes
        self._max_redirects = config.fetch.max_redirects
        self._token = config.fetch.user_agent
        self._filter = url_filter
        self._writer = writer
        self._widens = seeds_widen_scope
        self._owner_index = Owners(nodes).index if config.frontier.routing == "host" else lambda host: own_index
        self._resolver = LinkResolver(config.urls.max_length_chars)
        self._verdicts: dict[str, tuple[bool, str]] = {}
        self._sent: dict[str, int] = {}

    def handle(self, taken: TakenUrl, fetched: Fetched, position: Position) -> None:
        """Write the rows of one fetch whose records stand at `position`."""
        if fetched.outcome not in WITH_RESPONSE:
            self._writer.add_page(_bare_row(taken, fetched, position))
            return
        headers = parse_head(fetched.head)
        content = decode_content(fetched.head, fetched.body, max_bytes=self._max_content_bytes)
        mime_declared, charset = headers.content_type
        mime = detect_mime(mime_declared, content.data)
        page: Page | None = None
        if fetched.outcome is Outcome.OK and mime in HTML_TYPES:
            page = parse_html(
                content.data, url=fetched.url, header_charset=charset, config=self._parse, user_agent=self._token
            )
            robots_tags = headers.all("x-robots-tag")
            self._links(taken, page, page.nofollow or x_robots_nofollow(robots_tags, self._token))
        redirect_url = self._redirect(taken, fetched, headers)
        row = _bare_row(taken, fetched, position)._replace(
            mime_declared=mime_declared, mime_detected=mime, charset=charset, redirect_url=redirect_url
        )
        self._writer.add_page(_with_content(row, fetched, headers, content, page))

    def _links(self, taken: TakenUrl, page: Page, page_nofollow: bool) -> None:
        links = page.links
        if page.links_cut:
            self._writer.count_rejection(Rejection.PAGE_LIMIT, page.links_cut)
        if not links:
            return
        unique = list(dict.fromkeys([link[0] for link in links]))
        targets = dict(zip(unique, self._resolver.resolve_many(page.base, unique), strict=True))
        columns = LinkColumns(taken.key)
        add, refused = columns.rows.append, list[str]()
        follow_all = self._parse.follow_nofollow
        page_nofollow = page_nofollow and not follow_all
        verdicts: dict[str, tuple[bool, str]] = {}
        for index, (href, anchor, rel, element, followable, nofollow) in enumerate(links):
            url, key, _, rejection = target = targets[href]
            if rejection is not None:
                refused.append(rejection)
                continue
            if not followable:
                rule, followed = _ELEMENT, False
            elif page_nofollow or (nofollow and not follow_all):
                rule, followed = _NOFOLLOW, False
            else:
                verdict = verdicts.get(href)
                if verdict is None:
                    verdict = verdicts[href] = self._follow(taken, target, index)
                followed, rule = verdict
            if not followed:
                refused.append(rule)
            add((key, url, anchor, rel, element, followed, rule))
        self._writer.add_links(columns)
        for name, count in Counter(refused).items():
            self._writer.count_rejection(name, count)

    def _follow(self, taken: TakenUrl, target: Target, index: int) -> tuple[bool, str]:
        """Hand the target of a link on, if the filter accepts it; returns the filter's verdict."""
        depth = taken.queued.depth + 1
        verdict = self._verdict(target, depth)
        if verdict[0]:
            self._send(taken, target, index, depth, 0)
        return verdict

    def _verdict(self, target: Target, depth: int) -> tuple[bool, str]:
        if self._filter.config.max_depth is not None:
            return self._filter.verdict(target.url, target.host, depth)
        verdict = self._verdicts.get(target.url)
        if verdict is None:
            if len(self._verdicts) >= _SEEN_LIMIT:
                self._verdicts.clear()
            verdict = self._verdicts[target.url] = self._filter.verdict(target.url, target.host, depth)
        return verdict

    def _send(self, taken: TakenUrl, target: Target, index: int, depth: int, redirects: int) -> None:
        """Hand a discovered URL on, unless an earlier page of this worker did: the first in batch order counts."""
        before = self._sent.get(target.url)
        if before is not None and before <= taken.position:
            return
        if len(self._sent) >= _SEEN_LIMIT:
            self._sent.clear()
        self._sent[target.url] = taken.position
        self._writer.add_outlink(
            self._owner_index(target.host), taken.position, index, target.url, taken.key, depth, redirects
        )

    def _redirect(self, taken: TakenUrl, fetched: Fetched, headers: Headers) -> str | None:
        """The target of a redirect, as a discovered URL. A seed's redirect widens the scope by its target's host."""
        location = headers.get("location")
        if fetched.outcome is not Outcome.REDIRECT or location is None:
            return None
        target = self._resolver.resolve(fetched.url, location)
        if target.rejection is not None:
            self._writer.count_rejection(target.rejection, 1)
            return None
        redirects = taken.queued.redirects + 1
        accepted, rule = self._filter.verdict(target.url, target.host, taken.queued.depth)
        if redirects > self._max_redirects:
            self._writer.count_rejection(Rejection.REDIRECT_LIMIT, 1)
        elif accepted or (self._widens and rule == Rejection.SCOPE and taken.queued.depth == 0):
            if not accepted:
                self._writer.add_scope_host(target.host)
            self._send(taken, target, 0, taken.queued.depth, redirects)
        else:
            self._writer.count_rejection(rule, 1)
        return target.url


_ELEMENT, _NOFOLLOW = Rejection.ELEMENT.value, Rejection.NOFOLLOW.value


def _bare_row(taken: TakenUrl, fetched: Fetched, position: Position) -> PageRow:
    queued = taken.queued
    return PageRow(
        key=taken.key,
        url=fetched.url,
        host=host_of(fetched.url),
        time_us=round(fetched.time * 1_000_000),
        outcome=fetched.outcome,
        depth=queued.depth,
        attempts=fetched.attempts,
        duration_ms=fetched.duration_ms,
        warc_file=position.warc_file,
        warc_offset=position.offset,
        warc_length=position.length,
        ip=fetched.ip,
        via_key=queued.via,
        truncated=fetched.truncated,
        metadata=queued.metadata or None,
    )


def _with_content(row: PageRow, fetched: Fetched, headers: Headers, content: Content, page: Page | None) -> PageRow:
    row = row._replace(
        status=fetched.status,
        length=len(content.data),
        digest=hashlib.sha1(content.data).digest(),
        etag=headers.get("etag"),
        last_modified=headers.get("last-modified"),
    )
    if page is None:
        return row
    return row._replace(
        charset=page.charset,
        title=page.title,
        description=page.description,
        meta_robots=page.meta_robots,
        canonical_url=page.canonical_url,
    )
