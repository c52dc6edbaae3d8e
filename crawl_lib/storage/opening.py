"""From the config to a file store."""

from __future__ import annotations

from pathlib import Path

from crawl_lib.config import Config
from crawl_lib.errors import ConfigError
from crawl_lib.storage.base import Storage
from crawl_lib.storage.local import LocalStorage


def open_storage(config: Config) -> Storage:
    """The store that `dfs_primary` names. A missing directory is made if its parent is there.

    Raises ConfigError (the operator mends `dfs_primary`) and StorageError (the operator looks at the disk).
    """
    address = config.dfs_primary
    if address.lower().startswith(("http://", "https://")):
        raise ConfigError(
            f"dfs_primary: {address}: HDFS over WebHDFS is not available in this version; name a local directory"
        )
    return LocalStorage.open(Path(address))
