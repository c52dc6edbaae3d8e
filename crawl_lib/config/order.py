"""The orders of a crawl (`frontier.order`): what rooms ask, in place of the order's name."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Order:
    """The facts that follow from the way in which a crawl finds its next URLs.

    `keeps_keys`: keys on key servers say which URLs are new; `makes_lists`: nodes take the URLs of lists, and not each
    new URL once; `has_crawldb`: a table has all URLs, and lists are made of the table; `revisits`: pages are fetched
    more than once.
    """

    name: str
    keeps_keys: bool
    makes_lists: bool
    has_crawldb: bool
    revisits: bool


FIFO = Order("fifo", keeps_keys=True, makes_lists=False, has_crawldb=False, revisits=False)
CRAWLDB = Order("crawldb", keeps_keys=False, makes_lists=True, has_crawldb=True, revisits=True)
ORDERS = {order.name: order for order in (FIFO, CRAWLDB)}
