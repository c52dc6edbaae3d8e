"""What a resolver makes of the links of a page."""

from __future__ import annotations

from collections.abc import Iterable

from crawl_lib.urls import LinkResolver, Target


def resolved(resolver: LinkResolver, base: str, hrefs: Iterable[str]) -> list[Target]:
    """The target of each reference of a page."""
    resolver.enter(base)
    return [resolver.find(href)[0] for href in hrefs]
