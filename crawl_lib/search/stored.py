"""A page of an index, for its cached view."""

import time
from dataclasses import dataclass

from tantivy import Query

from crawl_lib.index import order_of
from crawl_lib.search.opened import OpenIndex
from crawl_lib.search.places import CapturePlace
from crawl_lib.search.sites import Sites


@dataclass(frozen=True)
class StoredPage:
    """A page as the index has it.

    `captured_us`: POSIX microseconds. `robots`: as of `IndexedPage`. `place`: None in an index without places.
    """

    key: bytes
    url: str
    title: str
    text: str
    mime_type: str
    captured_us: int
    robots: tuple[str, ...]
    place: CapturePlace | None


def stored_page(
    index: OpenIndex, key: bytes, sites: Sites, now_us: int | None = None
) -> StoredPage | None:
    """Return a page by its key; None for a hidden page.

    `now_us`: POSIX microseconds, None: the clock's. Raises DamagedFileError.
    """
    by_key = Query.term_query(index.fields.schema, "key", key.hex())
    hits = index.searcher.search(by_key, 1, count=False).hits
    [fact] = index.facts.of([order_of(key)])
    now_us = time.time_ns() // 1000 if now_us is None else now_us
    if not hits or fact.unavailable_after_us <= now_us or sites.factor(fact.host) == 0:
        return None
    page = index.searcher.doc(hits[0][1])
    [captured] = index.searcher.fast_field_values("captured", [hits[0][1]])
    url, title, text = (
        bytes(page.get_first(name) or b"").decode() for name in ("url", "title", "body")
    )
    robots, place = tuple(page.get_all("robots")), index.places.of(key) if index.places else None
    return StoredPage(
        key, url, title, text, str(page.get_first("type")), int(captured or 0), robots, place
    )
