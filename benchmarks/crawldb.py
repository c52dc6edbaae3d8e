"""The CrawlDb: an update that takes in 2 M pages and 20 M links at once, and one of 1 M links on top of that."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from hashlib import sha1
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.report import Row, measure
from crawl_lib import from_mapping
from crawl_lib.crawldb import update
from crawl_lib.crawldir import SCOPE_DIGEST, scope_digest, write_json_bytes
from crawl_lib.sealed import SEALED_VERSION
from crawl_lib.segment import LINKS_SCHEMA, PAGES_SCHEMA, Manifest
from crawl_lib.stores import open_stores

PAGES, LATER, LINKS_PER_PAGE = 2_000_000, 100_000, 10
BEGAN, NODE, BLOCK, HOSTS = 1_790_000_000, "node", 50_000, 20_000
MOST_MB = 4000


def _url(number: int) -> str:
    return f"http://h{number % HOSTS}.example/page/{number}"


def _key(number: int) -> bytes:
    return sha1(_url(number).encode()).digest()


def make_segment(root: Path, folder: int, pages: int, known: int) -> None:
    """A segment of so many pages, with tables alone; it links to twice as many as are `known`."""
    place = root / "crawl" / str(folder) / NODE
    place.mkdir(parents=True)
    rng = np.random.default_rng(folder)
    with (
        pq.ParquetWriter(place / "pages.parquet", PAGES_SCHEMA, compression="zstd") as tables,
        pq.ParquetWriter(place / "links.parquet", LINKS_SCHEMA, compression="zstd") as links,
    ):
        for first in range(0, pages, BLOCK):
            numbers = range(first, min(pages, first + BLOCK))
            tables.write_table(_pages(numbers, folder))
            links.write_table(_links(numbers, rng.integers(0, 2 * known, len(numbers) * LINKS_PER_PAGE).tolist()))
    own = {"take_id": "bench", "run_id": "bench", "iteration": 1, "folder": str(folder), "node": NODE}
    named = dict.fromkeys(("krake_version", "config_digest", "user_agent", "robots_policy"), "")
    counts = {"taken": pages, "deferred": 0, "pages": pages, "links": pages * LINKS_PER_PAGE, "outcomes": {}}
    manifest = Manifest(**own, **named, counts=counts, started="1970-01-01T00:00:00Z")  # type: ignore[arg-type]
    (place / "manifest.json").write_bytes(manifest.to_bytes())
    facts = {"run_id": "bench", "iteration": 1, "nodes": [NODE], "routing": "host", "config_digest": ""}
    sums = {"batch_sizes": {}, "taken_before": 0, "summed": [], "seeds": [], SCOPE_DIGEST: scope_digest(b"")}
    (place.parent / "scope").write_bytes(b"")
    (place.parent / "iteration.json").write_bytes(write_json_bytes({**facts, **sums, "format_version": SEALED_VERSION}))


def _pages(numbers: range, folder: int) -> pa.Table:
    began = datetime.fromtimestamp(folder, UTC)
    always = {"depth": 1, "outcome": "ok", "status": 200, "attempts": 1, "duration_ms": 1, "warc_file": "0.warc.gz"}
    rows = [
        {
            **always,
            "key": _key(number),
            "url": _url(number),
            "host": f"h{number % HOSTS}.example",
            "time": began + timedelta(milliseconds=number),
            "warc_offset": number,
            "warc_length": 1,
            "digest": sha1(f"{folder} {number % 3}".encode()).digest(),
        }
        for number in numbers
    ]
    return pa.Table.from_pylist(rows, PAGES_SCHEMA)


def _links(numbers: range, targets: list[int]) -> pa.Table:
    count = len(targets)
    columns = {
        "source": pa.array([_key(number) for number in numbers for _ in range(LINKS_PER_PAGE)], pa.binary(20)),
        "target": pa.array([_key(number) for number in targets], pa.binary(20)),
        "target_url": [_url(number) for number in targets],
        **{name: pa.nulls(count, pa.string()) for name in ("anchor", "rel")},
        "element": ["a"] * count,
        "followed": [True] * count,
        "rule": ["accepted"] * count,
    }
    return pa.table(columns).cast(LINKS_SCHEMA)


def grow(root: Path) -> int:
    """An update; returns how many rows there are then."""
    options = {"servers": [NODE], "dfs_primary": "dfs", "urls": {"scope": "any"}, "scratch": {"directory": "scratch"}}
    return int(update(open_stores(from_mapping(options, root)), now=datetime.now(UTC)).manifest["rows"])


def run(directory: Path) -> list[Row]:
    """The rows of this part."""
    rows = []
    for folder, pages in ((BEGAN, PAGES), (BEGAN + 86400, LATER)):
        make_segment(directory / "dfs", folder, pages, PAGES)
        cost = measure(grow, directory)
        what = (
            f"update of the CrawlDb, {pages:,} pages and {pages * LINKS_PER_PAGE:,} links ({cost.result:,} rows then)"
        )
        rows.append(Row(what, f"{cost.wall_s:.0f} s, CPU {cost.cpu_s:.0f} s"))
        peak = Row(f"memory of that update, {pages:,} pages", f"{cost.peak_mb:.0f} MB", f"under {MOST_MB} MB")
        rows.append(Row(peak.what, peak.value, peak.budget, cost.peak_mb < MOST_MB))
    return rows
