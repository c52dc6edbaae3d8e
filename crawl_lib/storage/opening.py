"""From the config to a file store."""

from __future__ import annotations

from pathlib import Path
from threading import Event

from crawl_lib.config import Config
from crawl_lib.storage.base import Storage
from crawl_lib.storage.local import LocalStorage


def open_storage(config: Config, stop: Event | None = None) -> Storage:
    """The store that `dfs_primary` names. A missing directory is made if its parent is there; so is HDFS's root path.

    `stop`: when it is set, a request to HDFS that waits for a server, and a file that is being sent or read, end with
    StoppedError within about a second.
    Raises ConfigError (the operator mends `dfs_primary`) and StorageError (the operator looks at the disk or
    the namenodes that are named).
    """
    address = config.dfs_primary
    if address.lower().startswith(("http://", "https://")):
        from crawl_lib.storage.hdfs import HdfsStorage  # noqa: PLC0415 - 50 ms that a local store need not pay

        return HdfsStorage.open(address, config.dfs, stop)
    return LocalStorage.open(Path(address))
