"""Versions of the index that are made of given pages, without a crawl."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from hashlib import sha1, sha256
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from crawl_lib.config import from_mapping
from crawl_lib.index import INDEX, PAGES_FILE, PAGES_SCHEMA, Fields, IndexedPage
from crawl_lib.index.versions import DELETED_FILE, LEFT_OUT_FILE
from crawl_lib.index.wanted import LEFT_OUT_SCHEMA
from crawl_lib.stores import Secrets, Stores, open_stores
from crawl_lib.urls import host_of
from crawl_lib.versions import Filled, Version, Versions, seal_version

LANGUAGES = ("en", "de")
NOW = datetime(2026, 1, 2, tzinfo=UTC)


def stores_below(
    root: Path, url: str | None, secrets: Secrets | None = None, **push: Any
) -> Stores:
    """A crawl without pages, which pushes to a server."""
    (root / "dfs").mkdir(parents=True, exist_ok=True)
    sections = {
        "servers": ["node-0"],
        "dfs_primary": str(root / "dfs"),
        "push": {"url": url, **push},
    }
    return open_stores(from_mapping(sections, root), secrets or Secrets())


def seal_pages(
    stores: Stores,
    pages: Sequence[IndexedPage],
    *,
    boosts: Mapping[str, float] | None = None,
    near: Mapping[str, bytes] | None = None,
    until: Mapping[str, datetime] | None = None,
    now: datetime = NOW,
    languages: Sequence[str] = LANGUAGES,
) -> Version:
    """Make the next version of the index, with facts of pages by URL."""
    versions, fields = Versions(stores, INDEX), Fields(languages)
    boosts, near, until = boosts or {}, near or {}, until or {}
    rows = [
        {
            "key": page.key,
            "digest": sha1(repr(page).encode()).digest(),
            "boost": boosts.get(page.url, 1.0),
            "host": host_of(page.url),
            "near": near.get(page.url),
            "unavailable_after": until.get(page.url),
            "segment": "",
            "warc_file": "",
            "warc_offset": 0,
            "warc_length": 0,
        }
        for page in sorted(pages, key=lambda page: page.key)
    ]

    def fill(hidden: str) -> Filled:
        stores.storage.make_dirs(hidden)
        folder = stores.storage.local_path(hidden)
        assert folder is not None
        _write_documents(fields, folder, pages)
        pq.write_table(pa.Table.from_pylist(rows, PAGES_SCHEMA), folder / PAGES_FILE)
        pq.write_table(LEFT_OUT_SCHEMA.empty_table(), folder / LEFT_OUT_FILE)
        (folder / DELETED_FILE).write_bytes(b"")
        digest = sha256((folder / PAGES_FILE).read_bytes()).hexdigest()
        return Filled({"pages": len(pages), "deleted": 0, "digest": digest})

    times = {"now": int(now.timestamp()), "made_ms": int(1000 * now.timestamp())}
    facts = {**times, "of": "", "settings": vars(fields.settings)}
    version = seal_version(versions, versions.next_number(), fill, facts)
    assert version is not None
    return version


def _write_documents(fields: Fields, folder: Path, pages: Iterable[IndexedPage]) -> None:
    writer = fields.index(str(folder)).writer(15_000_000, 1)
    for page in pages:
        writer.add_document(fields.document(page))
    writer.commit()
    writer.wait_merging_threads()
    for lock in folder.glob(".tantivy-*.lock"):
        lock.unlink()
