"""The CrawlDb: a round that brings 2 M rows and 20 M links, the next list, and a round of 1 M links on top of that.

Half of the rows are pages, each with 20 links to any of the rows; the other half is known from links alone.
`CRAWLDB_ROWS=20000000` makes it ten times as large; the list and the small round stay as they are.
`CRAWLDB_ROOT=DIRECTORY` keeps what was crawled there, which is made once and used again (20 M rows: 5 minutes, 7 GB).
Each million pages is of a node of its own. The scratch is what a step needs for itself, for sorting and for its tables.
"""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from hashlib import sha1
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.report import Row, ahead, measure
from crawl_lib import from_mapping
from crawl_lib.crawldb import generate, update
from crawl_lib.crawldir import FileName, Scopes
from crawl_lib.dfsfiles import write_json_bytes
from crawl_lib.sealed import MANIFEST_FILE, SEALED_VERSION
from crawl_lib.segment import (
    LINKS_NAME,
    LINKS_SCHEMA,
    PAGES_NAME,
    PAGES_SCHEMA,
    Manifest,
    file_entry,
    write_parquet,
)
from crawl_lib.segment.tables import PAGE_BLOCK_ROWS
from crawl_lib.stores import Stores, open_stores

ROWS = int(os.environ.get("CRAWLDB_ROWS", "2000000"))
LATER, LISTED, LINKS_PER_PAGE = 50_000, 1_000_000, 20
BEGAN, NODE_PAGES, PAGES_PER_HOST, BLOCK = 1_790_000_000, 1_000_000, 100, 50_000
MOST_S, MOST_MB, MOST_SCRATCH_GB = {"update": 600, "list": 60, "small": 120}, 4000, 30
LOOK_S = 0.5


def nodes_of(pages: int) -> list[str]:
    """Name the nodes of so many pages."""
    return [f"node-{number:02d}" for number in range(-(-pages // NODE_PAGES))]


def urls_of(numbers: np.ndarray) -> pa.Array:
    """Return the URLs of pages."""
    texts = [pa.array(some).cast(pa.string()) for some in (numbers // PAGES_PER_HOST, numbers)]
    return pc.binary_join_element_wise("http://h", texts[0], ".example/page/", texts[1], "")


def make_keys(path: Path, count: int) -> None:
    """SHA-1 sums of the URLs of so many pages, in order of their numbers."""
    with path.open("wb") as file:
        for first in range(0, count, BLOCK):
            urls = urls_of(np.arange(first, min(count, first + BLOCK))).to_pylist()
            file.write(b"".join(sha1(url.encode()).digest() for url in urls))


def _keys(path: Path, numbers: np.ndarray) -> pa.Array:
    found = np.memmap(path, np.uint8).reshape(-1, 20)[numbers]
    return pa.FixedSizeBinaryArray.from_buffers(
        pa.binary(20), len(numbers), [None, pa.py_buffer(found.tobytes())]
    )


def _table(schema: pa.Schema, count: int, columns: dict[str, Any]) -> pa.RecordBatch:
    """`columns`: arrays, or what all rows have; null in the others."""
    arrays = []
    for field in schema:
        value = columns.get(field.name)
        array = (
            value if isinstance(value, pa.Array) else pa.repeat(pa.scalar(value, field.type), count)
        )
        arrays.append(array.cast(field.type))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _pages(keys: Path, first: int, last: int, folder: int) -> Iterator[pa.RecordBatch]:
    always = {
        "depth": 1,
        "outcome": "ok",
        "status": 200,
        "attempts": 1,
        "duration_ms": 1,
        "warc_file": "0.warc.gz",
    }
    for begin in range(first, last, BLOCK):
        numbers = np.arange(begin, min(last, begin + BLOCK))
        digests = np.random.default_rng(begin).bytes(20 * len(numbers))
        rows = {
            "key": _keys(keys, numbers),
            "url": urls_of(numbers),
            "host": pc.binary_join_element_wise(
                "h", pa.array(numbers // PAGES_PER_HOST).cast("string"), ".example", ""
            ),
            "time": pa.array(
                (folder * 1000 + numbers % 3_600_000) * 1000, pa.timestamp("us", "UTC")
            ),
            "warc_offset": pa.array(numbers),
            "warc_length": 1,
            "digest": pa.FixedSizeBinaryArray.from_buffers(
                pa.binary(20), len(numbers), [None, pa.py_buffer(digests)]
            ),
        }
        table = _table(PAGES_SCHEMA, len(numbers), {**always, **rows})
        yield from (
            table.slice(at, PAGE_BLOCK_ROWS) for at in range(0, len(numbers), PAGE_BLOCK_ROWS)
        )


def _links(keys: Path, first: int, last: int, rows: int) -> Iterator[pa.RecordBatch]:
    """The links of pages, each to any of the rows."""
    for begin in range(first, last, BLOCK):
        numbers = np.arange(begin, min(last, begin + BLOCK))
        targets = np.random.default_rng(begin).integers(0, rows, len(numbers) * LINKS_PER_PAGE)
        ends = {
            "source": _keys(keys, np.repeat(numbers, LINKS_PER_PAGE)),
            "target": _keys(keys, targets),
        }
        always = {"element": "a", "followed": True, "rule": "accepted"}
        yield _table(LINKS_SCHEMA, len(targets), {**ends, "target_url": urls_of(targets), **always})


def make_segment(root: Path, folder: int, number: int, pages: int, rows: int) -> None:
    """The segment of a node, with tables alone. `rows`: of which links go to; 0: there are no links."""
    node, first = nodes_of(pages)[number], number * NODE_PAGES
    last = min(pages, first + NODE_PAGES)
    place = root / "dfs" / "crawl" / str(folder) / node
    place.mkdir()
    write_parquet(place / PAGES_NAME, PAGES_SCHEMA, _pages(root / "keys", first, last, folder))
    if rows:
        write_parquet(place / LINKS_NAME, LINKS_SCHEMA, _links(root / "keys", first, last, rows))
    own = {
        "take_id": "bench",
        "run_id": "bench",
        "iteration": 1,
        "folder": str(folder),
        "node": node,
    }
    named = dict.fromkeys(("krake_version", "config_digest", "user_agent", "robots_policy"), "")
    count = last - first
    links = count * LINKS_PER_PAGE if rows else 0
    counts = {"taken": count, "deferred": 0, "pages": count, "links": links, "outcomes": {}}
    files = [file_entry(place / name) for name in (PAGES_NAME, LINKS_NAME)[: 2 if rows else 1]]
    manifest = Manifest(**own, **named, counts=counts, files=files, started="1970-01-01T00:00:00Z")  # type: ignore[arg-type]
    (place / MANIFEST_FILE).write_bytes(manifest.to_bytes())


def make_round(root: Path, folder: int, pages: int, rows: int) -> None:
    """The folder of an iteration, if it is not there; each segment by a process."""
    if (place := root / "dfs" / "crawl" / str(folder)).exists():
        return
    place.mkdir(parents=True)
    with ProcessPoolExecutor() as pool:
        for made in [
            pool.submit(make_segment, root, folder, one, pages, rows)
            for one in range(len(nodes_of(pages)))
        ]:
            made.result()
    facts = {
        "run_id": "bench",
        "iteration": 1,
        "nodes": nodes_of(pages),
        "routing": "host",
        "config_digest": "",
    }
    sums = {
        "batch_sizes": {},
        "taken_before": 0,
        "summed": [],
        "seeds": [],
        "kind": "crawl",
        Scopes.DIGEST: Scopes.digest(b""),
    }
    scopes = place.parent / FileName.SCOPE
    scopes.mkdir(exist_ok=True)
    (scopes / Scopes.digest(b"")).write_bytes(b"")
    (place / FileName.ITERATION).write_bytes(
        write_json_bytes({**facts, **sums, "format_version": SEALED_VERSION})
    )


def _stores(root: Path, nodes: list[str]) -> Stores:
    options = {"servers": nodes, "dfs_primary": "dfs", "scratch": {"directory": "scratch"}}
    order = {
        "frontier": {"order": "crawldb"},
        "urls": {"scope": "any"},
        "batch": {"size": LISTED // len(nodes)},
    }
    return open_stores(from_mapping({**options, **order}, root))


def grow(root: Path, nodes: list[str]) -> tuple[int, int]:
    """An update; returns how many rows there are then, and the most bytes of scratch."""
    return _watched(
        root, lambda: int(update(_stores(root, nodes), now=datetime.now(UTC)).manifest["rows"])
    )


def make_list(root: Path, nodes: list[str]) -> tuple[int, int]:
    """A list of what is due a day after the round; returns how many URLs it has, and the most bytes of scratch."""
    now = datetime.fromtimestamp(BEGAN, UTC) + timedelta(days=1)
    return _watched(
        root, lambda: int(generate(_stores(root, nodes), "bench", 2, now=now)["listed"])
    )


def _watched(root: Path, step: Callable[[], int]) -> tuple[int, int]:
    """What a step returns, and the most bytes that its own tables and the engine's files took on the disk at once."""
    done, most = threading.Event(), [0]

    def look() -> None:
        while not done.wait(LOOK_S):
            most[0] = max(most[0], _own_bytes(root))

    watch = threading.Thread(target=look)
    watch.start()
    try:
        return step(), most[0]
    finally:
        done.set()
        watch.join()


def _own_bytes(root: Path) -> int:
    """In `scratch`, and in hidden folders of the crawl, the parts of the next version left out."""
    hidden = (root / "dfs" / "crawl").glob("*/.*/")
    paths = [
        Path(at, name)
        for top in (root / "scratch", *hidden)
        for at, _, names in os.walk(top)
        for name in names
    ]
    total = 0
    for path in paths:
        if not path.name.startswith("part-"):
            with suppress(FileNotFoundError):
                total += path.stat().st_blocks * 512
    return total


def _clean(root: Path) -> None:
    """What was crawled in the first round stays."""
    for path in (root / "dfs" / "crawl").glob("*"):
        if path.is_file():
            path.unlink()
        elif path.name != str(BEGAN):
            shutil.rmtree(path)


def run(directory: Path) -> list[Row]:
    """The rows of this part."""
    root = Path(os.environ.get("CRAWLDB_ROOT", directory))
    root.mkdir(exist_ok=True)
    _clean(root)
    if not (root / "keys").exists():
        make_keys(root / "keys", ROWS)
    nodes, rows = nodes_of(ROWS // 2), []
    for name, step, folder, pages in (
        ("update", grow, BEGAN, ROWS // 2),
        ("list", make_list, 0, 0),
        ("small", grow, BEGAN + 2 * 86400, LATER),
    ):
        if pages:
            make_round(root, folder, pages, ROWS)
        with ahead():
            cost = measure(step, root, nodes)
        count, scratch = cost.result
        what = (
            f"update, {pages:,} pages and {pages * LINKS_PER_PAGE:,} links"
            if pages
            else "list of what is due"
        )
        what = f"CrawlDb: {what} ({count:,} {'rows then' if pages else 'URLs'})"
        by_clock = f"{cost.wall_s:.0f} s, CPU {cost.cpu_s:.0f} s"
        rows.append(Row(what, by_clock, f"under {MOST_S[name]} s", cost.wall_s < MOST_S[name]))
        room = f"{cost.peak_mb:.0f} MB, {scratch / 1e9:.1f} GB of scratch"
        is_met = cost.peak_mb < MOST_MB and scratch < MOST_SCRATCH_GB * 1e9
        rows.append(
            Row(
                "CrawlDb: its memory and disk",
                room,
                f"under {MOST_MB} MB, {MOST_SCRATCH_GB} GB",
                is_met,
            )
        )
    return rows
