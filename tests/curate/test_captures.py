"""The table of captures after pages were dropped, segments compacted or repaired: no stale place is believed."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from crawl_lib.ask import find_page, read_answer
from crawl_lib.captures import KnownCaptures, update_captures
from crawl_lib.curate.compact import compact_segment
from crawl_lib.curate.drop import drop_pages
from crawl_lib.errors import InputError
from crawl_lib.repair.segments.salvage import salvage_segment
from tests.curate.test_drop_and_compact import some_pages
from tests.e2e.crawl import Result
from tests.harms import shorten
from tests.repair.crawled import largest, rows, stores_of

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def looked_up(crawl: Result, url: str) -> Any:
    """Return what `krake show` and `krake cat` say of a URL, or the error."""
    stores = stores_of(crawl.config)
    try:
        found = find_page(stores, url)
        return found.row, read_answer(stores, found)
    except InputError as error:
        return str(error)


def without_table(crawl: Result, url: str) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(KnownCaptures, "of", lambda stores: None)
        return looked_up(crawl, url)


def change(crawl: Result, how: str, segment: Path, dropped: str) -> None:
    """Change the largest segment as people do."""
    stores = stores_of(crawl.config)
    _, name = largest(crawl)
    if how == "repair":
        shorten(segment / "pages.parquet")
        salvage_segment(stores, name)
        return
    drop_pages(stores, [dropped])
    if how == "compact":
        compact_segment(stores_of(crawl.config), name)


def in_the_order_of_records(segment: Path) -> list[str]:
    """Return URLs of three pages; without the record of the first one, those of the others lie elsewhere."""
    places = {row["url"]: (row["warc_file"], row["warc_offset"]) for row in rows(segment)}
    return sorted(some_pages(segment), key=lambda url: places[url])


@pytest.mark.parametrize("how", ["drop", "compact", "repair"])
def test_a_stale_place_is_noticed(crawl: Result, how: str) -> None:
    segment, _ = largest(crawl)
    first, second, third = in_the_order_of_records(segment)
    update_captures(stores_of(crawl.config), now=NOW)
    before = {url: looked_up(crawl, url) for url in (first, second, third)}
    change(crawl, how, segment, first)
    for url in (first, second, third):
        assert looked_up(crawl, url) == without_table(crawl, url)
    assert [looked_up(crawl, url)[1] for url in (second, third)] == [
        before[url][1] for url in (second, third)
    ]
    update_captures(stores_of(crawl.config), now=NOW)
    for url in (first, second, third):
        assert looked_up(crawl, url) == without_table(crawl, url)
