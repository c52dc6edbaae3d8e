"""`crawldb.signature`: whether a page has changed is told by its content, or by its main text."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from hashlib import sha1
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from crawl_lib.config import Config
from crawl_lib.config.model import TextConfig
from crawl_lib.crawldb import update
from crawl_lib.segment import PAGES_SCHEMA
from crawl_lib.storage import open_storage
from crawl_lib.stores import Stores
from crawl_lib.text import count_words, extract_text, text_profile
from tests.crawldb.crawls import Crawl
from tests.export.crawls import Capture, CrawlMaker
from tests.stores import stores_on

NOW = datetime(2026, 11, 23, tzinfo=UTC)
URL = "http://a.example/"
WORDS = (
    "The tentacles of an octopus are properly called arms, and every octopus has eight of them. "
)
PAGE = "<html><body><nav>{}</nav><main><p>{}</main><footer>{}</footer></body></html>"
FIRST = PAGE.format("Start", WORDS * 4, "Monday")
AROUND = PAGE.format("Start, News", WORDS * 4, "Tuesday")
CHANGED = PAGE.format("Start, News", WORDS * 4 + "Squids have ten. " * 4, "Tuesday")
KILLER = "<div>" * 30_000


def stores_of(config: Config, signature: str) -> Stores:
    crawldb = replace(config.crawldb, signature=signature)
    config = replace(config, crawldb=crawldb, text=TextConfig(processes=1, cpu_s=1))
    return stores_on(open_storage(config), config)


def visit(stores: Stores, folder: str, html: str) -> dict[str, Any]:
    """The row of the page after another visit, at which it said this."""
    maker = CrawlMaker(Path(stores.config.dfs_primary))
    place = maker.segment(folder, "node-a", [Capture(URL, html.encode(), time=float(folder))])
    [row] = pq.read_table(place / "pages.parquet").to_pylist()
    row["digest"] = digest(html)
    pq.write_table(pa.Table.from_pylist([row], PAGES_SCHEMA), place / "pages.parquet")
    return row_of(stores)


def row_of(stores: Stores) -> dict[str, Any]:
    """The row after an update."""
    return Crawl(stores).rows(update(stores, now=NOW))[URL]


def digest(html: str) -> bytes:
    return sha1(html.encode()).digest()


@pytest.mark.parametrize(
    ("signature", "statuses"),
    [
        ("content", ["fetched", "fetched", "fetched"]),
        ("text", ["fetched", "not_modified", "fetched"]),
    ],
)
def test_what_is_around_the_main_text_changes_a_page_by_its_content_alone(
    signature: str, statuses: list[str], config: Config
) -> None:
    stores = stores_of(config, signature)
    found = [
        visit(stores, str(1_700_000_000 + day), html)
        for day, html in enumerate((FIRST, AROUND, CHANGED))
    ]
    assert [row["status"] for row in found] == statuses
    assert stores.storage.exists("text") == (signature == "text")
    assert found[0]["signature"] == (
        digest(FIRST) if signature == "content" else text_profile(count_words(WORDS * 4))
    )


def test_texts_that_were_made_before_or_deleted_give_the_same(config: Config) -> None:
    stores = stores_of(config, "text")
    before = visit(stores, "1700000000", FIRST)
    stores.storage.delete("text")
    stores.storage.delete("crawl/crawldb")
    assert extract_text(stores, stores.crawl.segments()).pages == 1
    assert row_of(stores) == before


def test_a_page_that_kills_its_process_is_told_by_its_content(config: Config) -> None:
    stores = stores_of(config, "text")
    assert visit(stores, "1700000000", KILLER)["signature"] == digest(KILLER)
    assert visit(stores, "1700000001", KILLER)["status"] == "not_modified"
    assert visit(stores, "1700000002", f"{KILLER}x")["status"] == "fetched"
