"""Crawls whose files lie in an object store from the beginning, or were copied there, next to those on a disk."""

from __future__ import annotations

import dataclasses
import hashlib
from collections import Counter
from pathlib import Path

from crawl_lib.config import Config
from crawl_lib.config.model import DfsConfig
from crawl_lib.segment.schema import LINKS_SCHEMA, PAGES_SCHEMA
from crawl_lib.storage import Storage
from crawl_lib.stores import open_stores
from tests.e2e.crawl import Result
from tests.s3 import S3Server

SAME = ("urlmapping", "content", "offsets", "webgraph")
"""Files of an export, and of its graph, that are equal wherever they lie."""
DIFFERENT = {
    "time",
    "duration_ms",
    "retry_at",
    "warc_file",
    "warc_offset",
    "warc_length",
    "refers_to",
}
"""Columns that say times, durations and places."""


def in_bucket(config: Config, server: S3Server, prefix: str) -> Config:
    """Return a config whose store is below a prefix of a server's bucket."""
    far = server.config(prefix)
    return dataclasses.replace(
        config, dfs_primary=far.dfs_primary, s3=far.s3, dfs=DfsConfig(wait_s=20.0)
    )


def export_digests(done: Result) -> dict[str, str]:
    """Return the SHA-256 of the files of the export and its graph that are equal everywhere."""
    storage = open_stores(done.config).storage
    folder = f"{done.config.export.directory}/{done.export}"
    names = [entry.name for entry in storage.list(folder) if entry.name in SAME]
    return {
        name: hashlib.sha256(storage.read_bytes(f"{folder}/{name}")).hexdigest() for name in names
    }


def rows_of(done: Result, directory: Path) -> dict[str, Counter[str]]:
    """Return how often each row of a table is there, without what may differ. `directory`: where the files lie."""
    found = dataclasses.replace(
        done, config=dataclasses.replace(done.config, dfs_primary=str(directory))
    )
    tables = {
        "pages": [name for name in PAGES_SCHEMA.names if name not in DIFFERENT],
        "links": LINKS_SCHEMA.names,
    }
    return {
        table: Counter(map(repr, found.rows(table, columns))) for table, columns in tables.items()
    }


def copy_objects(source: Storage, server: S3Server, prefix: str, path: str = "") -> None:
    """Copy the files of a store to a bucket, as `aws s3 sync` and `hadoop distcp` do: no folder gets an object."""
    client = server.store(prefix)._client
    for entry in source.list(path):
        below = f"{path}/{entry.name}" if path else entry.name
        if entry.is_dir:
            copy_objects(source, server, prefix, below)
        else:
            client.create(below, source.read_bytes(below))
