"""The stores of a config, over a file store that a test has opened itself."""

from __future__ import annotations

from threading import Event

from crawl_lib.config import Config
from crawl_lib.stopping import OnProgress
from crawl_lib.storage import Storage
from crawl_lib.stores import Secrets, Stores


def stores_on(
    storage: Storage,
    config: Config,
    *,
    on_progress: OnProgress | None = None,
    stop: Event | None = None,
) -> Stores:
    """What a stage is given."""
    return Stores(config, Secrets(), storage, on_progress=on_progress, stop=stop or Event())
