"""LinkRank over tables of links: 2 M pages and 20 M links, a tenth of what has ten minutes (rounds: one) and 4 GB.

Page s links to pages s x STEP + jumps[k], for k from 0 to the remainder of s by MOST_LINKS: all over the graph, to
other hosts, so that every link counts, which costs most. By hand, ten times as many, in a directory that is kept:

    python -m benchmarks.linkrank DIRECTORY --pages 20_000_000
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.report import Row, ahead, measure, print_rows
from crawl_lib import from_mapping
from crawl_lib.linkdb import OUTLINKS, OUTLINKS_SCHEMA
from crawl_lib.ranks import LINKRANK, update_linkrank
from crawl_lib.stopping import OnProgress
from crawl_lib.stores import Stores, open_stores
from crawl_lib.versions import GROUP_ROWS, Versions
from tests.linkdb.tables import leave_links

PAGES, PAGES_OF_A_HOST, MOST_LINKS, BLOCK = 2_000_000, 100, 19, 1 << 14
STEP, SEED = 1_000_003, 7
SORTING_BYTES, MOST_S, MOST_ROUNDS_S, MOST_MB = 2 << 30, 60, 2.5, 4000
MADE = datetime(2026, 1, 1, tzinfo=UTC)


def _stores(root: Path, on_progress: OnProgress | None = None) -> Stores:
    scratch = {"directory": "scratch", "memory_bytes": SORTING_BYTES}
    options = {"servers": ["node"], "dfs_primary": "dfs", "scratch": scratch}
    return open_stores(from_mapping(options, root), on_progress=on_progress)


def _mixed(ids: np.ndarray, seed: int) -> np.ndarray:
    """Numbers that look like chance: https://prng.di.unimi.it/splitmix64.c"""
    mixed = ids.astype(np.uint64) + np.uint64(seed * 0x9E3779B97F4A7C15 % 2**64)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))


def _keys(ids: np.ndarray, pages: int) -> pa.Array[Any]:
    """Keys in the order of pages, as evenly spread as digests are."""
    words = np.empty((len(ids), 5), ">u4")
    words[:, :2] = (
        (ids.astype(np.uint64) * np.uint64((2**64 - 1) // pages))
        .astype(">u8")
        .view(">u4")
        .reshape(-1, 2)
    )
    words[:, 2:4] = _mixed(ids, 1).astype(">u8").view(">u4").reshape(-1, 2)
    words[:, 4] = _mixed(ids, 2).astype(np.uint32)
    return pa.Array.from_buffers(pa.binary(20), len(ids), [None, pa.py_buffer(words.tobytes())])


def _urls(ids: np.ndarray, pages: int) -> pa.Array[Any]:
    hosts = _mixed(ids, 3) % np.uint64(max(2, pages // PAGES_OF_A_HOST))
    host, page = (pc.cast(pa.array(numbers), pa.string()) for numbers in (hosts, ids))
    parts = [pa.scalar("http://h"), host, pa.scalar(".example/page/"), page, pa.scalar("")]
    found: pa.Array[Any] = pc.call_function("binary_join_element_wise", parts)
    return found


def _batches(pages: int) -> Iterator[pa.RecordBatch]:
    jumps = np.random.default_rng(SEED).choice(pages, MOST_LINKS, replace=False)
    for first in range(0, pages, BLOCK):
        ids = np.arange(first, min(pages, first + BLOCK))
        there = np.arange(MOST_LINKS) <= (ids % MOST_LINKS)[:, None]
        ends = np.sort(np.where(there, (ids[:, None] * STEP + jumps) % pages, pages), axis=1)
        rows = np.concatenate(
            [np.full((len(ids), 1), -1), ends], axis=1
        )  # a page's own row comes first
        rows, sources = rows[rows < pages], np.repeat(ids, 1 + there.sum(axis=1))
        is_own = pa.array(rows < 0)
        nothing = {field.name: pa.scalar(None, field.type) for field in OUTLINKS_SCHEMA}
        columns = {
            "key": _keys(sources, pages),
            "url": _urls(sources, pages),
            "target": pc.if_else(is_own, nothing["target"], _keys(np.maximum(rows, 0), pages)),
            "target_url": pc.if_else(
                is_own, nothing["target_url"], _urls(np.maximum(rows, 0), pages)
            ),
            "anchor": pc.if_else(is_own, nothing["anchor"], pa.scalar("a text")),
            "is_gone": pa.repeat(False, len(rows)),
            "capture_time": pc.if_else(
                is_own, pa.scalar(MADE, pa.timestamp("us", "UTC")), nothing["capture_time"]
            ),
            "capture_segment": pc.if_else(is_own, pa.scalar("1/node"), nothing["capture_segment"]),
            "seen_time": pc.if_else(
                is_own, pa.scalar(MADE, pa.timestamp("us", "UTC")), nothing["seen_time"]
            ),
        }
        batch = pa.record_batch(columns)
        for start in range(0, len(batch), GROUP_ROWS):
            yield batch.slice(start, GROUP_ROWS)


def make_links(root: Path, pages: int) -> None:
    """The table of links of so many pages, as if it had been made of segments that are gone, if it is not there."""
    stores = _stores(root)
    if Versions(stores, OUTLINKS).newest() is None:
        leave_links(stores, _batches(pages))


def rank(root: Path) -> float:
    """Rank the ends of links, also where that was done before; returns how many seconds the rounds took."""
    times: list[float] = []

    def note(counts: Mapping[str, Any]) -> None:
        if counts.get("stage") == "linkrank.rounds":
            times.append(time.perf_counter())

    stores = _stores(root, note)
    stores.storage.delete(Versions(stores, LINKRANK).folder)
    update_linkrank(stores, now=datetime.now(UTC))
    return times[-1] - times[0]


def run(directory: Path, pages: int = PAGES) -> list[Row]:
    """The rows of this part."""
    make_links(directory, pages)
    links = pages // MOST_LINKS * sum(range(1, MOST_LINKS + 1)) + sum(
        range(1, pages % MOST_LINKS + 1)
    )
    with ahead():
        cost = measure(rank, directory)
    times = max(1, pages // PAGES)
    most_s, rounds_s = MOST_S * times, MOST_ROUNDS_S * times
    what = f"LinkRank, {pages:,} pages, {links:,} links"
    return [
        Row(
            what,
            f"{cost.wall_s:.1f} s, CPU {cost.cpu_s:.1f} s",
            f"under {most_s} s",
            cost.wall_s < most_s,
        ),
        Row(
            "the ten rounds of that",
            f"{cost.result:.1f} s",
            f"under {rounds_s:g} s: 80 M arcs/s",
            cost.result < rounds_s,
        ),
        Row(
            f"memory of that, {links:,} links",
            f"{cost.peak_mb:.0f} MB",
            f"under {MOST_MB} MB",
            cost.peak_mb < MOST_MB,
        ),
    ]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m benchmarks.linkrank", description=__doc__)
    parser.add_argument(
        "directory", type=Path, help="where the tables are made, if they are not there"
    )
    parser.add_argument("--pages", type=int, default=PAGES, help="how many")
    given = parser.parse_args()
    print_rows(run(given.directory, given.pages))
