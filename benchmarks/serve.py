"""The search page under load: queries that arrive whether earlier ones are answered or not (an open loop).

A crawl of made-up texts gets its index by `krake index update`, and `krake serve search` answers in a process of its
own. The crawl has the tables that an index is made of, and no records. The same queries are asked one at a time, then
20 a second for a minute, then 20 a second during an update of the index. A latency begins when the query is due: the
queries that wait for a blocked server count in full.
"""

from __future__ import annotations

import asyncio
import math
import os
import random
import sys
import time
from collections.abc import Mapping, Sequence
from itertools import cycle, islice
from pathlib import Path
from statistics import quantiles
from typing import Any
from urllib.parse import urlencode

import httpx
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.report import Row, ahead, measure
from benchmarks.search import SEED, zipf_texts
from crawl_lib.segment.schema import LINKS_SCHEMA, PAGES_SCHEMA
from crawl_lib.text import TEXT_SCHEMA, text_table
from crawl_lib.urls import host_of, key_of
from tests.export.crawls import PAGE_DEFAULTS, manifest
from tests.index.made import Made
from tests.serve.made import Served

TEXTS, SEGMENT_TEXTS, HOSTS = 1_000_000, 50_000, 20_000
NEW_SHARE = 100
"""An update has one new page for so many."""
NODE = "node-0"
PAGE = {
    **PAGE_DEFAULTS,
    "status": 200,
    "mime_detected": "text/html",
    "warc_file": "no.warc.gz",
    "warc_length": 1,
}
"""Columns of a page, besides its own."""
QUERIES, RATE, LOAD_S, LIMIT_S = 200, 20, 60, 60.0
MOST_TIMES, MOST_TIMES_MEANWHILE = 10, 3
"""The 99th percentile under load against the median of one query at a time, and during an update against the former."""


def run(directory: Path) -> list[Row]:
    """Measure; `SERVE_TEXTS` in the environment is another number of texts, `SERVE_SECONDS` of seconds."""
    count, seconds = (
        int(os.environ.get("SERVE_TEXTS", TEXTS)),
        int(os.environ.get("SERVE_SECONDS", LOAD_S)),
    )
    rows: list[Row] = measure(_measured, directory / "crawl", count, seconds).result
    return rows


def _measured(folder: Path, count: int, seconds: int) -> list[Row]:
    made = Made.below(folder)
    texts = zipf_texts(random.Random(SEED + 1), count + max(1, count // NEW_SHARE))
    for first in range(0, count, SEGMENT_TEXTS):
        write_segment(made, list(islice(texts, min(SEGMENT_TEXTS, count - first))), first)
    made.update()
    return measured(made, list(texts), count, seconds)


def measured(made: Made, new: Sequence[str], count: int, seconds: int) -> list[Row]:
    """Measure the search page of a crawl with so many texts. `new`: texts for the update."""
    queries = zipf_texts(random.Random(SEED), QUERIES)
    paths = [f"/?{urlencode({'q': ' '.join(text.split()[:3])})}" for text in queries]
    with ahead(), Served(made) as served:
        asyncio.run(
            _one_at_a_time(served.url, paths)
        )  # what is read for the first time is read now
        alone = asyncio.run(_one_at_a_time(served.url, paths))
        loaded = asyncio.run(_at_a_rate(served.url, paths, seconds))
        write_segment(made, new, count)
        meanwhile = asyncio.run(_during_update(served.url, paths, made))
    return _rows(count, alone, loaded, meanwhile)


def write_segment(made: Made, texts: Sequence[str], first: int) -> None:
    """Write a segment of pages, and the table of their texts. `first`: the number of the first page."""
    folder, numbers = str(-(-first // SEGMENT_TEXTS) + 1), range(first, first + len(texts))
    urls = [f"http://h{number % HOSTS}.example/{number}" for number in numbers]
    times = [1_000_000_000 + number for number in numbers]
    columns = {
        "key": [key_of(url) for url in urls],
        "url": urls,
        "host": [host_of(url) for url in urls],
        "time": times,
    }
    place = Path(made.config.dfs_primary) / "crawl" / folder / NODE
    place.mkdir(parents=True)
    pq.write_table(
        _table(PAGES_SCHEMA, {**columns, **PAGE, "warc_offset": numbers}), place / "pages.parquet"
    )
    pq.write_table(LINKS_SCHEMA.empty_table(), place / "links.parquet")
    (place / "manifest.json").write_bytes(manifest(folder, NODE, pages=len(texts), links=0))
    table = made.stores.storage.local_path(
        text_table(made.stores, made.stores.crawl.segment(folder, NODE))
    )
    assert table is not None
    table.parent.mkdir(parents=True)
    pq.write_table(
        _table(TEXT_SCHEMA, {**columns, "text": texts, "language": "en"}),
        table,
        row_group_size=2_000,
    )


def _table(schema: pa.Schema, columns: Mapping[str, Any]) -> pa.Table:
    """Return a table of columns; a single value stands in every row, and other columns are null."""
    rows = len(columns["key"])
    values = {
        name: one if isinstance(one, Sequence) and not isinstance(one, str) else [one] * rows
        for name, one in columns.items()
    }
    arrays = [
        pa.array(values[one.name], one.type) if one.name in values else pa.nulls(rows, one.type)
        for one in schema
    ]
    return pa.Table.from_arrays(arrays, schema=schema)


async def _one_at_a_time(url: str, paths: Sequence[str]) -> list[float]:
    async with httpx.AsyncClient(base_url=url, timeout=LIMIT_S) as client:
        return [await _spent_ms(client, path, time.monotonic()) for path in paths]


async def _at_a_rate(
    url: str, paths: Sequence[str], seconds: float, ending: asyncio.Event | None = None
) -> list[float]:
    """Ask so many queries a second, until the time is over or an event is set; return their latencies."""
    begun_s, asked = time.monotonic(), list[asyncio.Task[float]]()
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=RATE)
    async with httpx.AsyncClient(base_url=url, timeout=LIMIT_S, limits=limits) as client:
        for number, path in enumerate(islice(cycle(paths), int(seconds * RATE))):
            due_s = begun_s + number / RATE
            await asyncio.sleep(max(0.0, due_s - time.monotonic()))
            if ending is not None and ending.is_set():
                break
            asked.append(asyncio.create_task(_spent_ms(client, path, due_s)))
        return await asyncio.gather(*asked)


async def _during_update(url: str, paths: Sequence[str], made: Made) -> list[float]:
    """Ask at the rate as long as an update of the index takes."""
    config, ended = made.root / "served.yml", asyncio.Event()
    program = "from crawl_lib.cli import krake; krake()"
    update = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        program,
        "--config",
        str(config),
        "index",
        "update",
        stdout=asyncio.subprocess.DEVNULL,
    )

    async def wait() -> None:
        await update.wait()
        ended.set()

    waiting = asyncio.create_task(wait())
    found = await _at_a_rate(url, paths, 3600, ended)
    await waiting
    assert update.returncode == 0
    return found


async def _spent_ms(client: httpx.AsyncClient, path: str, due_s: float) -> float:
    """Return the latency of a query; infinity if the server refuses the query."""
    answer = await client.get(path)
    return 1000 * (time.monotonic() - due_s) if answer.status_code == httpx.codes.OK else math.inf


def _rows(count: int, alone: list[float], loaded: list[float], meanwhile: list[float]) -> list[Row]:
    median, p99, p99_meanwhile = (
        quantiles(alone, n=2)[0],
        *(quantiles(one, n=100)[98] for one in (loaded, meanwhile)),
    )
    times, times_meanwhile = p99 / median, p99_meanwhile / p99
    what = f"serve: {count:,} texts, {len(alone)} queries one at a time"
    return [
        Row(what, f"p50 {median:.1f} ms, p99 {quantiles(alone, n=100)[98]:.1f} ms"),
        Row(
            f"serve: {RATE} queries/s in an open loop, {len(loaded):,} queries, against that p50",
            f"p99 {p99:.1f} ms, {times:.1f} times, {loaded.count(math.inf)} refused",
            f"under {MOST_TIMES} times",
            times < MOST_TIMES,
        ),
        Row(
            f"serve: the same during `index update`, {len(meanwhile):,} queries, against that p99",
            f"p99 {p99_meanwhile:.1f} ms, {times_meanwhile:.1f} times, {meanwhile.count(math.inf)} refused",
            f"at most {MOST_TIMES_MEANWHILE} times",
            times_meanwhile <= MOST_TIMES_MEANWHILE,
        ),
    ]
