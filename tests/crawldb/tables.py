"""Versions of the CrawlDb as tests write them: rows by hand."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from hashlib import sha1
from typing import Any

import pyarrow as pa

from crawl_lib.crawldb import CRAWLDB, CRAWLDB_SCHEMA
from crawl_lib.stores import Stores
from crawl_lib.urls import domain_of, host_of
from crawl_lib.versions import Version, Versions, write_version

NOW = 1_795_000_000


def at(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def row_of(url: str, **fields: Any) -> dict[str, Any]:
    """A row of a URL that was never visited and is due; `fields`: what differs, times in POSIX seconds."""
    host = host_of(url)
    row: dict[str, Any] = dict.fromkeys(CRAWLDB_SCHEMA.names)
    row |= {"key": sha1(url.encode()).digest(), "url": url, "host": host, "domain": domain_of(host)}
    row |= {
        "status": "unfetched",
        "fetch_status": "unfetched",
        "fetch_time": NOW,
        "retries": 0,
        "interval_s": 86400,
    }
    row |= {"score": Decimal(0), "redirects": 0, "depth": 0, "inlinks": 0}
    row |= fields
    times = {
        name: at(value)
        for name, value in row.items()
        if name.endswith("_time") and value is not None
    }
    return row | times


def leave_version(
    stores: Stores,
    number: int,
    rows: Iterable[dict[str, Any]],
    parent: int | None = None,
    segments: Iterable[str] = (),
) -> Version:
    """Write a version of such rows. `segments`: names of those that it has taken in."""
    ordered: Sequence[dict[str, Any]] = sorted(rows, key=lambda row: row["key"])
    batches = pa.Table.from_pylist(list(ordered), schema=CRAWLDB_SCHEMA).to_batches()
    facts = {
        "parent": parent,
        "now": NOW,
        "config_digest": "",
        "segments": dict.fromkeys(segments, ""),
        "seeds": [],
    }
    version = write_version(Versions(stores, CRAWLDB), number, batches, facts)
    assert version is not None
    return version
