"""From the links of a page to its rows of `links`, and to the URLs that are handed on.

The memory of `rows` knows the targets of earlier links. Resolver and filter are asked about new ones. An ordinary page
of 62 links costs about 80 us.
"""

from collections.abc import Callable, Sequence

from crawl_lib.config import Config
from crawl_lib.parse import Page
from crawl_lib.records import QueuedUrl, TakenUrl
from crawl_lib.segment import PartWriter
from crawl_lib.urls import LinkResolver, Owners, Rejection, Target, UrlFilter, host_of, key_of
from crawl_lib.worker.rows import FOLLOWS_ALL, IS_SIMILAR, NO_HOP, SAYS_NOFOLLOW, Ask, LinkRows

_ROBOTS_POSITION = 10**10 - 2
"""The position of a robots.txt, behind the positions of all pages."""


class Discovery:
    """Judges what the pages of one worker link and redirect to; writes it to the worker's `PartWriter`.

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
        self._owner_index = Owners(nodes).index if config.frontier.routing == "host" else lambda host: own_index
        normalize = url_filter.chain.normalize if url_filter.chain.normalizes else None
        self._resolver = LinkResolver(config.urls.max_length_chars, normalize)
        self._rows = LinkRows()
        self.on_found: Callable[[TakenUrl, bytes, str], None] | None = None
        """Called for each URL that is handed on: the page that it was found on, its key and its host."""

    def links(self, taken: TakenUrl, page: Page, nofollow: bool, start: int = 0, *, is_similar: bool = False) -> None:
        """Write the links of a page, and hand on those that are followed. `nofollow`: the page says so for all.

        `start`: the place on the page of the first of them, where it comes a part at a time. `is_similar`: too many
        pages have the same words, so no link of this page is followed.
        """
        if page.links_cut:
            self._writer.part.counts.rejections[Rejection.PAGE_LIMIT] += page.links_cut
        if not page.links:
            return
        how = self._follows_all * FOLLOWS_ALL + nofollow * SAYS_NOFOLLOW + is_similar * IS_SIMILAR
        if taken.queued.redirects >= self._max_redirects:
            how += NO_HOP
        if new := self._rows.look(page.links, page.base, how):
            self._resolver.enter(page.base)
            for ask in new:
                self._rows.learn(ask.number, *self._resolver.find(ask.text))
        for ask in self._rows.unjudged(taken.position):
            self._judge(taken, ask, start)
        table = self._writer.part.links
        table.grown(self._rows.write(table.block, taken.key))
        self._writer.part.counts.rejections.update(self._rows.rejected())

    def _judge(self, taken: TakenUrl, ask: Ask, start: int) -> None:
        """Ask the filter for a URL, and hand the URL on if the filter accepts it."""
        target, depth = Target(ask.text, ask.key, host_of(ask.text), None), taken.queued.depth + 1
        accepted, rule = self._filter.verdict(target.url, target.host, depth)
        self._rows.judge(ask.number, accepted, rule, lasts=self._max_depth is None)
        if accepted and self._rows.send(ask.number, taken.position):
            redirects = taken.queued.redirects + 1 if ask.is_hop else 0
            self._hand_on(taken, target, start + ask.link, depth, redirects)

    def _hand_on(self, taken: TakenUrl, target: Target, index: int, depth: int, redirects: int) -> None:
        """Hand a discovered URL on. The first place in batch order counts."""
        found = (target.url, taken.key, depth, redirects, "")
        self._writer.part.outlinks.add(self._owner_index(target.host), taken.position + 1, index, found)
        if self.on_found is not None and taken.position < _ROBOTS_POSITION:
            self.on_found(taken, target.key, target.host)

    def sitemaps(self, url: str, links: bytes, start: int = 0) -> None:
        """Hand on the sitemaps that the robots.txt at a URL names, as if a seed linked to them; behind all links.

        Accepted sitemaps are rows of `links` too, from which a CrawlDb learns of them. `links`: as `robots_sitemaps`
        returns links. `start`: the place in the robots.txt of the first link, where links come a part at a time.
        """
        taken = TakenUrl(_ROBOTS_POSITION, key_of(url), QueuedUrl(url))
        self.links(taken, Page("", None, None, None, None, url, links, nofollow=False, links_cut=0), False, start)

    def redirect(self, taken: TakenUrl, url: str, location: str) -> str | None:
        """The target of a redirect, as a discovered URL. A seed's redirect widens the scope by its target's host."""
        self._resolver.enter(url)
        target, _ = self._resolver.find(location)
        if target.rejection is not None:
            self._writer.part.counts.rejections[target.rejection] += 1
            return None
        redirects = taken.queued.redirects + 1
        accepted, rule = self._filter.verdict(target.url, target.host, taken.queued.depth)
        if redirects > self._max_redirects:
            self._writer.part.counts.rejections[Rejection.REDIRECT_LIMIT] += 1
        elif accepted or (self._widens and rule == Rejection.SCOPE and taken.queued.depth == 0):
            if not accepted:
                self._writer.part.counts.scope_hosts.add(target.host)
            if self._rows.send(self._rows.target(target), taken.position):
                self._hand_on(taken, target, 0, taken.queued.depth, redirects)
        else:
            self._writer.part.counts.rejections[rule] += 1
        return target.url
