"""Ranks: PageRank of an export of 2 M pages and 20 M arcs, ten rounds; a tenth of what has a budget of ten minutes.

Arcs are those of a rule that needs no sorting, and leads all over the graph: page s links to s x STEP + jumps[k], for
k from 0 to the remainder of s by MOST_LINKS.
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import sha1
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.report import Row, measure
from crawl_lib import from_mapping
from crawl_lib.export import ARCS_IN, ARCS_OUT, PAGES, ExportTable, export_pages
from crawl_lib.export.tables import EXPORT_SCHEMA
from crawl_lib.ranks import rank_export
from crawl_lib.stores import Stores, open_stores

COUNT, MOST_LINKS, ROUNDS, BLOCK = 2_000_000, 19, 10, 1 << 18
STEP, SEED = 1_000_003, 7
MOST_S, MOST_MB = 60, 4000


def _stores(root: Path) -> Stores:
    options = {"servers": ["node"], "dfs_primary": "dfs", "scratch": {"directory": "scratch"}}
    pagerank = {"tolerance": 0, "max_rounds": ROUNDS}
    return open_stores(from_mapping({**options, "pagerank": pagerank}, root))


def make_export(root: Path, count: int) -> None:
    """An export of so many pages, with pages and arcs alone."""
    export_pages(_stores(root), name="x", segments=[])
    folder = root / "dfs" / "export" / "x"
    jumps = np.random.default_rng(SEED).choice(count, MOST_LINKS, replace=False)
    back = pow(STEP, -1, count)  # count has no factor of STEP, which is a prime
    for name in (ARCS_OUT, ARCS_IN):
        with pq.ParquetWriter(
            folder / name, ExportTable.SCHEMAS[name], compression="zstd", use_dictionary=False
        ) as table:
            for ids in _blocks(count):
                own = ids[:, None]
                others = (own * STEP + jumps if name == ARCS_OUT else (own - jumps) * back) % count
                sources = own if name == ARCS_OUT else others
                there = np.arange(MOST_LINKS) <= sources % MOST_LINKS
                ends = np.sort(np.where(there, others, count), axis=1)
                pairs = [np.repeat(ids, there.sum(axis=1)), ends[ends < count]]
                table.write_table(
                    pa.table(
                        [pa.array(one.astype(np.int32)) for one in pairs], ExportTable.SCHEMAS[name]
                    )
                )
    with pq.ParquetWriter(folder / PAGES, EXPORT_SCHEMA, compression="zstd") as table:
        for ids in _blocks(count):
            table.write_table(_pages(ids.tolist()))


def _blocks(count: int) -> Iterator[np.ndarray]:
    for first in range(0, count, BLOCK):
        yield np.arange(first, min(count, first + BLOCK))


def _pages(ids: list[int]) -> pa.Table:
    """Rows of a URL each; what no rank looks at is null, or what its type begins with."""
    urls = [f"http://h{number % 20_000}.example/page/{number}" for number in ids]
    known = {"node_id": ids, "url": urls, "host": [url.split("/")[2] for url in urls]}
    known["key"] = [sha1(url.encode()).digest() for url in urls]
    columns = []
    for field in EXPORT_SCHEMA:
        if field.name in known or field.nullable:
            columns.append(pa.array(known.get(field.name, [None] * len(ids)), field.type))
        else:
            columns.append(
                pa.array(["" if pa.types.is_string(field.type) else 0] * len(ids)).cast(field.type)
            )
    return pa.table(columns, schema=EXPORT_SCHEMA)


def rank(root: Path) -> tuple[int, int]:
    """Rank the pages; returns arcs and rounds."""
    report = rank_export(_stores(root), name="x")
    return report.arcs, report.rounds


def run(directory: Path) -> list[Row]:
    """The rows of this part."""
    make_export(directory, COUNT)
    cost = measure(rank, directory)
    arcs, rounds = cost.result
    what = f"PageRank, {COUNT:,} pages, {arcs:,} arcs, {rounds} rounds"
    return [
        Row(
            what,
            f"{cost.wall_s:.1f} s, CPU {cost.cpu_s:.1f} s",
            f"under {MOST_S} s",
            cost.wall_s < MOST_S,
        ),
        Row(
            f"memory of that, {COUNT:,} pages",
            f"{cost.peak_mb:.0f} MB",
            f"under {MOST_MB} MB",
            cost.peak_mb < MOST_MB,
        ),
    ]
