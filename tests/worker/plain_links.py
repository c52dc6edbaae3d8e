"""The links of pages, judged one by one in plain Python: what `Discovery` must say, whatever it remembers."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from crawl_lib.config import Config
from crawl_lib.parse import ParsedPage
from crawl_lib.records import TakenUrl
from crawl_lib.urls import LinkResolver, Target, UrlFilter, key_of
from tests.parse.links import Link, read_links
from tests.urls.resolved import resolved

Row = tuple[bytes, bytes, str, str, str, str, bool, str]
"""A row of `links`."""


@dataclass
class Found:
    """Rows, the first place of each URL that is handed on with its line, and the rejected links by rule."""

    rows: list[Row] = field(default_factory=list)
    sent: dict[str, tuple[Any, ...]] = field(default_factory=dict)
    rejections: Counter[str] = field(default_factory=Counter)

    def send(self, url: str, *place: Any) -> None:
        """Hand a URL on: of several places the first one counts."""
        self.sent[url] = min(place, self.sent.get(url, place))


class PlainLinks:
    """Judges links by the config, and remembers nothing."""

    def __init__(self, config: Config, url_filter: UrlFilter) -> None:
        self.config, self.filter = config, url_filter
        self.found = Found()

    def links(
        self,
        taken: TakenUrl,
        page: ParsedPage,
        nofollow: bool,
        start: int = 0,
        *,
        is_similar: bool = False,
    ) -> None:
        """See `Discovery.links`."""
        links, resolver = read_links(page.links), LinkResolver(self.config.urls.max_length_chars)
        hops = {link.href for link in links if link.element in {"meta", "sitemap"}}
        for number, link in enumerate(links, start):
            (target,) = resolved(resolver, page.base, [link.href])
            bar = self.bar(taken, link, nofollow, link.href in hops) or (
                "similar" if is_similar else ""
            )
            self.one(taken, number, link, target, bar, is_hop=link.href in hops)

    def bar(self, taken: TakenUrl, link: Link, nofollow: bool, is_hop: bool) -> str:
        """Why a link is not followed, wherever it leads."""
        if not link.followable:
            return "element"
        if (nofollow or link.nofollow) and not self.config.parse.follow_nofollow:
            return "nofollow"
        return (
            "redirect_limit"
            if is_hop and taken.queued.redirects >= self.config.fetch.max_redirects
            else ""
        )

    def one(
        self, taken: TakenUrl, number: int, link: Link, target: Target, bar: str, *, is_hop: bool
    ) -> None:
        """Judge a link."""
        depth, followed, rule = taken.queued.depth + 1, False, target.rejection or bar
        if not rule:
            followed, rule = self.filter.verdict(target.url, target.host, depth)
        if followed:
            redirects = taken.queued.redirects + 1 if is_hop else 0
            self.found.send(
                target.url, taken.position + 1, number, taken.key.hex(), depth, redirects
            )
        else:
            self.found.rejections[str(rule)] += 1
        if target.rejection is None and (followed or link.element != "robots"):
            assert target.key == key_of(target.url)
            row = (target.key, target.url, link.anchor, link.rel, link.element, followed, str(rule))
            self.found.rows.append((taken.key, *row))
