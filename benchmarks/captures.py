"""The table of captures: its making from 2 M pages, and look-ups of a page and of a URL that no page has.

`CAPTURES_ROWS=10000000` makes it five times as large. Each million pages is of a node of its own.
"""

from __future__ import annotations

import os
import time
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import NamedTuple

import numpy as np

from benchmarks.crawldb import BEGAN, make_keys, make_round, nodes_of, urls_of
from benchmarks.report import Row, measure
from crawl_lib import from_mapping
from crawl_lib.ask import newest_rows
from crawl_lib.captures import update_captures
from crawl_lib.stores import Stores, open_stores
from crawl_lib.urls import key_of

ROWS = int(os.environ.get("CAPTURES_ROWS", "2000000"))
LOOK_UPS = 20
MOST_MS, MOST_MB = 50, 2
MOST_US = 2
"""CPU a row: 20 s for ten million rows."""


class LookUp(NamedTuple):
    """Medians of look-ups: CPU in milliseconds, and megabytes read."""

    cpu_ms: float
    megabytes: float


def _stores(root: Path, rows: int) -> Stores:
    options = {"servers": nodes_of(rows), "dfs_primary": "dfs", "scratch": {"directory": "scratch"}}
    return open_stores(from_mapping(options, root))


def make_table(root: Path, rows: int) -> int:
    """Make the table of so many pages; return its number of rows."""
    return int(update_captures(_stores(root, rows), now=datetime.now(UTC)).manifest["rows"])


def look_up(root: Path, rows: int, ending: str) -> LookUp:
    """Look URLs up, each by stores of its own, as `krake why` does. `ending`: added to the URLs of pages."""
    urls = [f"{url}{ending}" for url in urls_of(np.arange(0, rows, rows // LOOK_UPS)).to_pylist()]
    found = [_looked_up(root, rows, url) for url in ["http://first.example/", *urls]]
    return LookUp(*map(median, zip(*found[1:], strict=True)))  # the first one loads modules


def _looked_up(root: Path, rows: int, url: str) -> LookUp:
    begun_s, read_bytes = time.process_time(), _bytes_read()
    newest_rows(_stores(root, rows), [key_of(url)])
    return LookUp(1000 * (time.process_time() - begun_s), (_bytes_read() - read_bytes) / 1e6)


def _bytes_read() -> int:
    """Return how many bytes this process has read, from the disk or from the memory of the system."""
    return int(Path("/proc/self/io").read_text().split()[1])


def run(directory: Path) -> list[Row]:
    """Return the rows of this part."""
    make_keys(directory / "keys", ROWS)
    make_round(directory, BEGAN, ROWS, 0)
    made = measure(make_table, directory, ROWS)
    cost, is_met = (
        f"CPU {made.cpu_s:.1f} s, {made.peak_mb:.0f} MB",
        1e6 * made.cpu_s < MOST_US * made.result,
    )
    rows = [
        Row(f"captures: update, {made.result:,} pages", cost, f"{MOST_US} us of CPU a page", is_met)
    ]
    for what, ending in (("a page", ""), ("a URL that no page has", "/none")):
        found: LookUp = measure(look_up, directory, ROWS, ending).result
        value = f"{found.cpu_ms:.1f} ms of CPU, {found.megabytes:.2f} MB read"
        is_met = found.cpu_ms < MOST_MS and found.megabytes < MOST_MB
        rows.append(
            Row(f"captures: look-up of {what}", value, f"under {MOST_MS} ms, {MOST_MB} MB", is_met)
        )
    return rows
