"""Indexes in memory for tests."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa
import tantivy

from crawl_lib.index import Fields, IndexedPage
from crawl_lib.search import OpenIndex, SearchAnswer, SearchOptions, Sites, answer
from crawl_lib.urls import host_of, key_of

NOW_US = 1_700_000_000_000_000
LANGUAGES = ("en", "de", "fr", "es", "it", "pt", "ru")
NO_SITES = Sites({})


def page(url: str, text: str = "", **more: Any) -> IndexedPage:
    """A page of an English text, captured before `NOW_US`."""
    url = url if "://" in url else f"http://example.org/{url}"
    facts: dict[str, Any] = {"language": "en", "captured_us": NOW_US - 1, **more}
    return IndexedPage(key=key_of(url), url=url, text=text, **facts)


def opened(
    pages: Iterable[IndexedPage],
    boosts: Mapping[str, float] | None = None,
    near: Mapping[str, int] | None = None,
    until_us: Mapping[str, int] | None = None,
    languages: Sequence[str] = LANGUAGES,
    commits: int = 1,
) -> OpenIndex:
    """An index of pages; facts by the end of a URL's path. `commits`: how many segments it is made in."""
    pages, fields = list(pages), Fields(languages)
    index = tantivy.Index(fields.schema)
    fields.analysers.register(index)
    writer = index.writer(15_000_000, 1)
    for part in range(commits):
        for one in pages[part::commits]:
            writer.add_document(fields.document(one))
        writer.commit()
    rows = [
        {
            "key": one.key,
            "boost": (boosts or {}).get(one.url.rpartition("/")[2], 1.0),
            "host": host_of(one.url),
            "near": (near or {}).get(one.url.rpartition("/")[2]),
            "unavailable_after": (until_us or {}).get(one.url.rpartition("/")[2]),
        }
        for one in sorted(pages, key=lambda one: one.key)
    ]
    return OpenIndex.of(1, fields, index, pa.Table.from_pylist(rows, _SCHEMA))


_SCHEMA = pa.schema(
    [
        pa.field("key", pa.binary(20)),
        pa.field("boost", pa.float32()),
        pa.field("host", pa.string()),
        pa.field("near", pa.int64()),
        pa.field("unavailable_after", pa.timestamp("us", "UTC")),
    ]
)


def ask(index: OpenIndex, query: str, sites: Sites = NO_SITES, **wanted: Any) -> SearchAnswer:
    """The answer to a query at `NOW_US`."""
    return answer(index, query, sites, SearchOptions(**wanted), NOW_US)


def found(index: OpenIndex, query: str, **wanted: Any) -> list[str]:
    """The ends of the URLs that a query finds, in their order; those that lack a word end with `-`."""
    results = ask(index, query, **wanted).results
    return [one.url.rpartition("/")[2] + "-" * bool(one.missing) for one in results]
