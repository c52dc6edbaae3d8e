"""Documents for OpenSearch, as `config/opensearch-mapping.json` says: each page in the fields of the page's language.

The words of a title count three times, and the words of headings twice. The mapping repeats both by `copy_to`, so a
document has each text once.
"""

from collections.abc import Iterable, Iterator
from datetime import datetime
from itertools import islice
from typing import Any
from urllib.parse import unquote, urlsplit

from crawl_lib.errors import DamagedFileError
from crawl_lib.index import INDEX, IndexedPage, find_runs, pages_with_keys, sites_of
from crawl_lib.push.changes import Listed, PageChange
from crawl_lib.search import OpenIndex
from crawl_lib.urls import host_of

Document = dict[str, Any]
READ_PAGES = 200
"""Pages of a look-up. A single page at a time is in memory."""


def documents(
    opened: OpenIndex, wanted: Iterable[PageChange]
) -> Iterator[tuple[bytes, Document | None]]:
    """Yield key and document of each change, in about their order.

    None: the page is to be deleted. Raises DamagedFileError where the index lacks a listed page, or cannot be read.
    """
    rest = iter(wanted)
    while some := list(islice(rest, READ_PAGES)):
        yield from ((one.key, None) for one in some if one.page is None)
        listed = {one.key: one.page for one in some if one.page is not None}
        for page in _pages(opened, listed):
            yield (
                page.key,
                document_of(page, listed.pop(page.key), opened.fields.group(page.language)),
            )
        if listed:
            raise DamagedFileError(
                f"version {opened.number} of the index lacks {len(listed)} pages; {INDEX.remedy}"
            )


def _pages(opened: OpenIndex, listed: dict[bytes, Listed]) -> Iterator[IndexedPage]:
    if not listed:
        return
    try:
        yield from pages_with_keys(opened.searcher, opened.fields.schema, list(listed))
    except ValueError as error:
        raise DamagedFileError(
            f"version {opened.number} of the index: {error}; {INDEX.remedy}"
        ) from error


def document_of(page: IndexedPage, listed: Listed, group: str) -> Document:
    """Return a page's document, with times in POSIX milliseconds.

    `group`: the language of the page's fields.
    """
    host = host_of(page.url)
    runs = [
        run
        for text in (page.text, page.title, page.headings, *page.anchors)
        for run in find_runs(text)
    ]
    found = {
        "key": page.key.hex(),
        "url": page.url,
        "title": page.title,
        "host": host,
        "site": sites_of(host),
        "language": page.language,
        "type": page.mime_type,
        "robots": list(page.robots),
        "captured": page.captured_us // 1000,
        "published": None if page.published_us is None else page.published_us // 1000,
        "date": (page.captured_us if page.published_us is None else page.published_us) // 1000,
        "boost": listed.boost,
        "near": (listed.near or page.key).hex(),
        "unavailable_after": None
        if listed.unavailable_after is None
        else _ms(listed.unavailable_after),
        f"title_{group}": page.title,
        f"headings_{group}": page.headings,
        f"anchors_{group}": list(page.anchors),
        f"path_{group}": unquote(urlsplit(page.url).path),
        f"body_{group}": page.text,
        "text_cjk": runs,
    }
    return {name: value for name, value in found.items() if value not in (None, "", [])}


def _ms(time: datetime) -> int:
    return int(time.timestamp() * 1000)
