"""The search page under load: queries that arrive whether earlier ones are answered or not (an open loop).

A crawl of made-up texts gets its index by `krake index update`, and `krake serve search` answers in a process of its
own. The same queries are asked one at a time, then 20 a second for a minute, then 20 a second during an update of the
index. A latency begins when the query is due: the queries that wait for a blocked server count in full.
"""

from __future__ import annotations

import asyncio
import math
import os
import random
import sys
import time
from collections.abc import Iterator, Sequence
from itertools import cycle, islice
from pathlib import Path
from statistics import quantiles
from urllib.parse import urlencode

import httpx

from benchmarks.report import Row, ahead, measure
from benchmarks.search import SEED, zipf_texts
from tests.export.crawls import Capture
from tests.index.made import Made, page
from tests.serve.made import Served

TEXTS, SEGMENT_TEXTS, HOSTS = 1_000_000, 50_000, 20_000
NEW_SHARE = 100
"""An update has one new page for so many."""
QUERIES, RATE, LOAD_S, LIMIT_S = 200, 20, 60, 60.0
MOST_TIMES, MOST_TIMES_MEANWHILE = 10, 3
"""The 99th percentile under load against the median of one query at a time, and during an update against the former."""


def run(directory: Path) -> list[Row]:
    """Measure; `SERVE_TEXTS` in the environment is another number of texts, `SERVE_SECONDS` of seconds."""
    count, seconds = int(os.environ.get("SERVE_TEXTS", TEXTS)), int(os.environ.get("SERVE_SECONDS", LOAD_S))
    rows: list[Row] = measure(_measured, directory / "crawl", count, seconds).result
    return rows


def _measured(folder: Path, count: int, seconds: int) -> list[Row]:
    made = Made.below(folder)
    for first in range(0, count, SEGMENT_TEXTS):
        made.crawl(*_pages(first, min(SEGMENT_TEXTS, count - first)))
    made.update()
    texts = zipf_texts(random.Random(SEED), QUERIES)
    paths = [f"/?{urlencode({'q': ' '.join(text.split()[:3])})}" for text in texts]
    with ahead(), Served(made) as served:
        asyncio.run(_one_at_a_time(served.url, paths))  # what is read for the first time is read now
        alone = asyncio.run(_one_at_a_time(served.url, paths))
        loaded = asyncio.run(_at_a_rate(served.url, paths, seconds))
        made.crawl(*_pages(count, max(1, count // NEW_SHARE)))
        meanwhile = asyncio.run(_during_update(served.url, paths, made))
    return _rows(count, alone, loaded, meanwhile)


def _pages(first: int, count: int) -> Iterator[Capture]:
    """Give pages of texts, whose titles are their first words."""
    for number, text in enumerate(zipf_texts(random.Random(SEED + 1 + first), count), first):
        title = " ".join(text.split()[:4])
        yield page(f"http://h{number % HOSTS}.example/{number}", text, time=1000.0 + number, title=title)


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
        sys.executable, "-c", program, "--config", str(config), "index", "update", stdout=asyncio.subprocess.DEVNULL
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
    median, p99, p99_meanwhile = (quantiles(alone, n=2)[0], *(quantiles(one, n=100)[98] for one in (loaded, meanwhile)))
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
