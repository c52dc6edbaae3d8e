"""What was found for a node and waits to be taken in: injected seeds first, then segments by folder and node."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from crawl_lib.crawl.places import (
    INDEX_FILE,
    MANIFEST_FILE,
    SEEDS_FOLDER,
    list_folders,
    list_seeds,
    read_iteration,
    read_json,
    segments_of,
)
from crawl_lib.errors import DamagedFileError
from crawl_lib.frontier import Source, read_outlinks
from crawl_lib.records import QueuedUrl
from crawl_lib.stores import Stores

OUTLINKS_FILE = "outlinks"
