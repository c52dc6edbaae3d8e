"""The stores of a config, over a file store that a test has opened itself."""

from __future__ import annotations

from pathlib import Path
from threading import Event
from typing import Any

import pyarrow.parquet as pq

from crawl_lib.config import Config
from crawl_lib.stopping import OnProgress
from crawl_lib.storage import Storage
from crawl_lib.stores import Secrets, Stores
from crawl_lib.versions import Version


def stores_on(
    storage: Storage,
    config: Config,
    *,
    on_progress: OnProgress | None = None,
    stop: Event | None = None,
) -> Stores:
    """What a stage is given."""
    return Stores(config, Secrets(), storage, on_progress=on_progress, stop=stop or Event())


def rows_of(stores: Stores, version: Version) -> list[dict[str, Any]]:
    """All rows of a version, in order."""
    root = Path(stores.config.dfs_primary)
    return [row for path in version.paths for row in pq.read_table(root / path).to_pylist()]
