"""What tests of the tables of links read and write."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from hashlib import sha256
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from crawl_lib.linkdb import LINKDB, OUTLINKS, update_linkdb
from crawl_lib.segment import LINKS_SCHEMA
from crawl_lib.stores import Stores
from crawl_lib.versions import Family, Versions, write_version
from tests.crawldb.crawls import Crawl
from tests.crawldb.test_update import NOW

A, B, C = "http://a.example/", "http://b.example/", "http://c.example/"
Row = dict[str, Any]


def rows_of(stores: Stores, family: Family) -> list[Row]:
    """The rows of the newest version, which are in order of keys."""
    versions = Versions(stores, family)
    version = versions.newest()
    assert version is not None
    rows = [
        row for batch in versions.batches(version, family.schema.names) for row in batch.to_pylist()
    ]
    assert [row["key"] for row in rows] == sorted(row["key"] for row in rows)
    return rows


def leave_links(stores: Stores, batches: Iterable[pa.RecordBatch]) -> None:
    """Make a first table of links of these rows, as if of segments that are gone. They are in batches of GROUP_ROWS."""
    facts = {
        "parent": None,
        "now": 0,
        "config_digest": "",
        "segments": {},
        "dropped": sha256().hexdigest(),
    }
    assert write_version(Versions(stores, OUTLINKS), 1, batches, facts)


def inlinks(crawl: Crawl) -> dict[str, list[str]]:
    """After an update: who links to each URL, in order of URLs."""
    update_linkdb(crawl.stores, now=NOW)
    found: dict[str, list[str]] = {}
    for row in rows_of(crawl.stores, LINKDB):
        found.setdefault(row["url"], []).append(row["source_url"])
    return {url: sorted(sources) for url, sources in found.items()}


def outlinks(crawl: Crawl) -> list[Row]:
    """The rows of the table of links."""
    return rows_of(crawl.stores, OUTLINKS)


def change_links(crawl: Crawl, segment: str, change: Callable[[Row], Row]) -> None:
    """Write the links of a segment with other values. `change`: what differs, of a row."""
    path: Path = crawl.root / segment / "links.parquet"
    rows = [row | change(row) for row in pq.read_table(path).to_pylist()]
    pq.write_table(pa.Table.from_pylist(rows, LINKS_SCHEMA), path)
