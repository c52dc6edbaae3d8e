"""From the links of a page to rows of `links`, and to URLs for other nodes.

The memory of `rows` knows the targets of earlier links. Resolver and filter judge new references. An ordinary page
of 62 links costs about 80 us.
"""

from collections.abc import Callable, Sequence

from crawl_lib.config import Config
from crawl_lib.parse import TEXTS_OF_LINK, ParsedPage, count_links
from crawl_lib.records import MOST_STEPS, QueuedUrl, TakenUrl, hops_text
from crawl_lib.segment import PartWriter
from crawl_lib.urls import LinkResolver, Owners, Rejection, Target, UrlFilter, host_of, key_of
from crawl_lib.worker.requisites import Requisites
from crawl_lib.worker.rows import (
    FOLLOWS_ALL,
    IS_REQUISITE,
    IS_SIMILAR,
    NO_HOP,
    REQUISITES,
    SAYS_NOFOLLOW,
    Ask,
    LinkRows,
)

_ROBOTS_POSITION = 10**10 - 2
"""The position of a robots.txt, behind the positions of all pages."""
_REQUISITES_POSITION = 10**10 // 2
"""Requisites of a page come so far behind its links: a URL that is both is a link."""


class Discovery:
    """Judges targets of links and redirects of a worker's pages; writes it to the worker's `PartWriter`.

    `own_index`: index of this node among `nodes`, for `local` routing, where every URL stays here. `url_filter`: the
    crawl's filter with the scope of this iteration. `seeds_widen_scope`: see `PageHandler`.
    """

    def __init__(
        self,
        config: Config,
        nodes: Sequence[str],
        own_index: int,
        url_filter: UrlFilter,
        writer: PartWriter,
        *,
        seeds_widen_scope: bool,
    ) -> None:
        self._max_redirects = config.fetch.max_redirects
        self._max_depth = config.urls.max_depth
        self._follows_all = config.parse.follow_nofollow
        self._filter = url_filter
        self._writer = writer
        self._widens = seeds_widen_scope
        self._owner_index = (
            Owners(nodes).index if config.frontier.routing == "host" else lambda host: own_index
        )
        normalize = url_filter.chain.normalize if url_filter.chain.normalizes else None
        self._resolver = LinkResolver(config.urls.max_length_chars, normalize)
        self._rows = LinkRows()
        self._needed = Requisites(config, url_filter)
        self.on_found: Callable[[TakenUrl, bytes, str], None] | None = None
        """Called for each URL to hand on: the page with the URL, the page's key and host."""

    def links(
        self,
        taken: TakenUrl,
        page: ParsedPage,
        nofollow: bool,
        start: int = 0,
        *,
        is_similar: bool = False,
    ) -> None:
        """Write the links of a page, and hand on the accepted ones.

        `nofollow`: the page says so for all its links.

        `start`: the place on the page of the first of them, where it comes a part at a time. `is_similar`: too many
        pages have the same words, so no link of this page is followed.
        """
        counts = self._writer.part.counts
        if page.requisites:
            self._requisites(taken, page)
        if page.requisites_cut:
            counts.rejections[Rejection.REQUISITE_LIMIT] += page.requisites_cut
        if page.links_cut:
            counts.rejections[Rejection.PAGE_LIMIT] += page.links_cut
        if not page.links:
            return
        how = self._follows_all * FOLLOWS_ALL + nofollow * SAYS_NOFOLLOW + is_similar * IS_SIMILAR
        if taken.queued.requisite:
            how += IS_REQUISITE
        if taken.queued.redirects >= self._max_redirects:
            how += NO_HOP
        for ask in self._unjudged(self._rows, taken, page.links, page.base, how):
            self._judge(taken, ask, start)
        self._write(taken, self._rows)

    def _unjudged(
        self, rows: LinkRows, taken: TakenUrl, links: bytes, base: str, how: int
    ) -> list[Ask]:
        """Resolve the references of a page; return the URLs to judge."""
        if new := rows.look(links, base, how):
            self._resolver.enter(base)
            for ask in new:
                rows.learn(ask.number, *self._resolver.find(ask.text))
        return rows.unjudged(taken.position)

    def _write(self, taken: TakenUrl, rows: LinkRows) -> None:
        """Write the rows of a page."""
        table = self._writer.part.links
        table.grown(rows.write(table.block, taken.key))
        self._writer.part.counts.rejections.update(rows.rejected())

    def _judge(self, taken: TakenUrl, ask: Ask, start: int) -> None:
        """Ask the filter for a URL, and hand accepted URLs on."""
        target, depth = Target(ask.text, ask.key, host_of(ask.text), None), taken.queued.depth + 1
        accepted, rule = self._filter.verdict(target.url, target.host, depth)
        self._rows.judge(ask.number, accepted, rule, lasts=self._max_depth is None)
        if accepted and self._rows.send(ask.number, taken.position):
            redirects = taken.queued.redirects + 1 if ask.is_hop else 0
            self._hand_on(taken, target, start + ask.link, depth, redirects)

    def _requisites(self, taken: TakenUrl, page: ParsedPage) -> None:
        """Write the requisites of a page, and hand them on."""
        steps = taken.queued.requisite + 1
        if steps > MOST_STEPS:
            self._writer.part.counts.rejections[Rejection.REQUISITE_DEPTH] += count_links(
                page.requisites
            )
            return
        letters, rows = page.requisites.split(b"\0")[::TEXTS_OF_LINK], self._needed.rows
        for ask in self._unjudged(rows, taken, page.requisites, page.base, REQUISITES):
            target = Target(ask.text, ask.key, host_of(ask.text), None)
            accepted, rule, lasts = self._needed.judge(
                taken, target.url, target.host, letters[ask.link][:1]
            )
            rows.judge(ask.number, accepted, rule, lasts)
            if accepted and rows.send(ask.number, taken.position):
                self._hand_on(taken, target, ask.link, steps, 0, requisite=steps)
        self._write(taken, rows)

    def _hand_on(
        self,
        taken: TakenUrl,
        target: Target,
        index: int,
        depth: int,
        redirects: int,
        *,
        requisite: int = 0,
    ) -> None:
        """Hand a discovered URL on.

        The first place in batch order counts, and links of all pages come before requisites.

        `requisite`: steps from the page with the requisite; 0: a link.
        """
        hops = hops_text(redirects, requisite) if requisite else redirects
        self._writer.part.counts.requisites += requisite > 0
        place = taken.position + 1 + (_REQUISITES_POSITION if requisite else 0)
        self._writer.part.outlinks.add(
            self._owner_index(target.host), place, index, (target.url, taken.key, depth, hops, "")
        )
        if self.on_found is not None and taken.position < _ROBOTS_POSITION and not requisite:
            self.on_found(taken, target.key, target.host)

    def sitemaps(self, url: str, links: bytes, start: int = 0) -> None:
        """Hand on the sitemaps of a robots.txt.

        These count like links of a seed, after all links. Accepted sitemaps are rows of `links` too, for a CrawlDb.
        `links`: as `robots_sitemaps` returns links. `start`: the place in the robots.txt of the first link, where links
        come a part at a time.
        """
        taken = TakenUrl(_ROBOTS_POSITION, key_of(url), QueuedUrl(url))
        self.links(
            taken,
            ParsedPage("", None, None, None, None, url, links, nofollow=False, links_cut=0),
            False,
            start,
        )

    def redirect(self, taken: TakenUrl, url: str, location: str) -> str | None:
        """Hand on the target of a redirect, and return the URL.

        None: the target is invalid. A seed's redirect widens the scope by the target's host. The target of a
        requisite's redirect is a requisite.
        """
        self._resolver.enter(url)
        target, _ = self._resolver.find(location)
        if target.rejection is not None:
            self._writer.part.counts.rejections[target.rejection] += 1
            return None
        redirects, requisite = taken.queued.redirects + 1, taken.queued.requisite
        if requisite:
            rows, (accepted, rule) = (
                self._needed.rows,
                self._needed.verdict(taken, target.url, target.host),
            )
        else:
            rows, (accepted, rule) = (
                self._rows,
                self._filter.verdict(target.url, target.host, taken.queued.depth),
            )
        if redirects > self._max_redirects:
            self._writer.part.counts.rejections[Rejection.REDIRECT_LIMIT] += 1
        elif accepted or (self._widens and rule == Rejection.SCOPE and taken.queued.depth == 0):
            if not accepted:
                self._writer.part.counts.scope_hosts.add(target.host)
            if rows.send(rows.target(target), taken.position):
                self._hand_on(taken, target, 0, taken.queued.depth, redirects, requisite=requisite)
        else:
            self._writer.part.counts.rejections[rule] += 1
        return target.url
