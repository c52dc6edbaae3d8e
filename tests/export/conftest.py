"""A local file store and a maker of segments for the tests of the export."""

from __future__ import annotations

from pathlib import Path

import pytest

from crawl_lib.config import Config
from crawl_lib.storage import Storage, open_storage
from tests.export.crawls import CrawlMaker


@pytest.fixture
def storage(config: Config) -> Storage:
    """The file store of `config`."""
    return open_storage(config)


@pytest.fixture
def crawl(storage: Storage, config: Config) -> CrawlMaker:
    """An empty crawl to put segments in."""
    return CrawlMaker(Path(config.dfs_primary))
