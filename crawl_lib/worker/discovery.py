"""From the links of a page to its rows of `links`, and to the URLs that are handed on.

Written for whole columns: what is the same for a page is asked once a page, what is the same for a href once a href.
A page of 62 links, 35 of them different, costs 210 us; link by link it was 230.
"""

from collections.abc import Callable, Collection, Sequence
from itertools import compress
from operator import not_
from typing import Any

from crawl_lib.config import Config
from crawl_lib.parse import ROBOTS, SITEMAP, Links, Page
from crawl_lib.records import TakenUrl
from crawl_lib.segment import LinkColumns, PartWriter
from crawl_lib.urls import LinkResolver, Owners, Rejection, Target, UrlFilter, key_of

REMEMBERED_BYTES = 64 << 20
"""Memory for verdicts, and for URLs that were handed on: for about 200,000 URLs of usual length."""
_ENTRY_BYTES = 250
"""Memory of an entry besides the text of its URL."""
_ELEMENT, _NOFOLLOW, _SIMILAR = Rejection.ELEMENT.value, Rejection.NOFOLLOW.value, Rejection.SIMILAR.value
_BARS = (_ELEMENT, "")
"""What is against a link by its element alone: by whether that may lead to a page."""
_REDIRECT_LIMIT = Rejection.REDIRECT_LIMIT.value
_REFRESH = "meta"
_NEVER = -1
_OF_ROBOTS = 10**10 - 1
"""The place of what a robots.txt names: behind the last position there can be."""

_Verdict = tuple[bytes, str, bool, str, int]
"""Key and URL of a link's target (both empty if it is no URL), whether it is followed, the name of what decided, and
the batch position from which on it needs no handing on."""


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
        self._resolver = LinkResolver(config.urls.max_length_chars, normalize=normalize)
        self._known: dict[str, _Verdict] = {}
        self._sent: dict[str, int] = {}
        self._remembered_bytes = 0
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
        links = page.links
        bars, hops = self._bars(taken, links, nofollow)
        if is_similar:
            bars, hops = [bar or _SIMILAR for bar in bars], ()
        keys, urls, followed, rules = self._judged(taken, page, bars, hops, start)
        columns: list[Sequence[Any]] = [keys, urls, links.anchors, links.rels, links.elements, followed, rules]
        self._writer.part.counts.rejections.update(compress(rules, map(not_, followed)))
        if b"" in keys:
            columns = [list(compress(column, keys)) for column in columns]
        self._writer.part.links.add(LinkColumns(taken.key, *columns), page.text_bytes)

    def _bars(self, taken: TakenUrl, links: Links, nofollow: bool) -> tuple[list[str], Collection[str]]:
        """Why each link is not even asked for, "" if nothing is against it; and the hrefs that are hops.

        A refresh is a hop, as a redirect is. So is the link to the same place, for those who do not want to wait; and a
        sitemap in an index.
        """
        if self._follows_all or not (nofollow or any(links.nofollow)):
            bars = list(map(_BARS.__getitem__, links.followable))
        else:
            bars = [
                ("" if not (nofollow or barred) else _NOFOLLOW) if may else _ELEMENT
                for may, barred in zip(links.followable, links.nofollow, strict=True)
            ]
        if _REFRESH not in links.elements and links.elements[0] != SITEMAP:
            return bars, ()
        hops = {href for href, name in zip(links.hrefs, links.elements, strict=True) if name in (_REFRESH, SITEMAP)}
        if taken.queued.redirects >= self._max_redirects:
            pairs = zip(links.hrefs, bars, strict=True)
            bars = [bar or (_REDIRECT_LIMIT if href in hops else "") for href, bar in pairs]
        return bars, hops

    def _judged(
        self, taken: TakenUrl, page: Page, bars: Sequence[str], hops: Collection[str], start: int
    ) -> tuple[Sequence[bytes], Sequence[str], Sequence[bool], Sequence[str]]:
        """Key, URL, whether it is followed, and the rule's name, of each link; the key of what is no URL is empty."""
        hrefs = page.links.hrefs
        unique = list(dict.fromkeys(hrefs))
        targets = dict(zip(unique, self._resolver.resolve_many(page.base, unique), strict=True))
        position, known, index = taken.position, self._known, 0
        verdicts: dict[str, _Verdict] = {}
        for href in dict.fromkeys(compress(hrefs, map(not_, bars))):
            target = targets[href]
            verdict = known.get(target.url)
            if verdict is None or verdict[4] > position:
                index = hrefs.index(href, index)  # they come in the order of their first places
                while bars[index]:
                    index = hrefs.index(href, index + 1)
                verdict = self._follow(taken, target, start + index, href in hops)
            verdicts[href] = verdict
        judged: list[Any] = list(map(verdicts.get, hrefs))
        for index in compress(range(len(hrefs)), bars):
            url, key, _, rejection = targets[hrefs[index]]
            judged[index] = (key, url, False, rejection or bars[index], _NEVER)
        keys, urls, followed, rules, _ = zip(*judged, strict=True)
        return keys, urls, followed, rules

    def _follow(self, taken: TakenUrl, target: Target, index: int, is_hop: bool) -> _Verdict:
        """Hand the target of a link on, if the filter accepts it; returns the entry of `_known`."""
        url, key, host, rejection = target
        if rejection is not None:
            return (key, url, False, rejection, _NEVER)
        depth = taken.queued.depth + 1
        accepted, rule = self._filter.verdict(url, host, depth)
        if accepted:
            self._hand_on(taken, target, index, depth, taken.queued.redirects + 1 if is_hop else 0)
        # No position comes before that of a refusal, so the filter is not asked again.
        verdict = (key, url, accepted, rule, taken.position if accepted else _NEVER)
        if self._max_depth is None:
            self._make_room(url)
            self._known[url] = verdict
        return verdict

    def _make_room(self, url: str) -> None:
        """Count an entry for a URL; forget everything where `REMEMBERED_BYTES` are used up."""
        self._remembered_bytes += _ENTRY_BYTES + len(url)
        if self._remembered_bytes > REMEMBERED_BYTES:
            self._known.clear()
            self._sent.clear()
            self._remembered_bytes = _ENTRY_BYTES + len(url)

    def _hand_on(self, taken: TakenUrl, target: Target, index: int, depth: int, redirects: int) -> None:
        """Hand a discovered URL on, unless an earlier page of this worker did: the first in batch order counts."""
        before = self._sent.get(target.url)
        if before is not None and before <= taken.position:
            return
        self._make_room(target.url)
        self._sent[target.url] = taken.position
        found = (target.url, taken.key, depth, redirects, "")
        self._writer.part.outlinks.add(self._owner_index(target.host), taken.position + 1, index, found)
        if self.on_found is not None:
            self.on_found(taken, target.key, target.host)

    def sitemaps(self, url: str, hrefs: Sequence[str], start: int = 0) -> None:
        """Hand on the sitemaps that the robots.txt at a URL names, as if a seed linked to them; behind all links.

        Those that are accepted are rows of `links` too, since a CrawlDb learns of them there. `start`: the place in the
        robots.txt of the first of them, where they come a part at a time.
        """
        source, named = key_of(url), list[tuple[bytes, str, str]]()
        for index, target in enumerate(self._resolver.resolve_many(url, hrefs), start):
            if target.rejection is None:
                accepted, rule = self._filter.verdict(target.url, target.host, 1)
            else:
                accepted, rule = False, target.rejection
            if accepted:
                found = (target.url, source, 1, 0, "")
                self._writer.part.outlinks.add(self._owner_index(target.host), _OF_ROBOTS, index, found)
                named.append((target.key, target.url, rule))
            else:
                self._writer.part.counts.rejections[rule] += 1
        if named:
            keys, urls, rules = zip(*named, strict=True)
            texts, count = [""] * len(named), len(named)
            columns = LinkColumns(source, keys, urls, texts, texts, [ROBOTS] * count, [True] * count, rules)
            self._writer.part.links.add(columns)

    def redirect(self, taken: TakenUrl, url: str, location: str) -> str | None:
        """The target of a redirect, as a discovered URL. A seed's redirect widens the scope by its target's host."""
        (target,) = self._resolver.resolve_many(url, (location,))
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
            self._hand_on(taken, target, 0, taken.queued.depth, redirects)
        else:
            self._writer.part.counts.rejections[rule] += 1
        return target.url
