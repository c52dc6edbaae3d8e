"""The memory of a crawl's processes with a million URLs in the queue, and whether it grows while a long batch lasts."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from itertools import chain
from pathlib import Path
from threading import Event, Thread
from time import monotonic

import psutil

from benchmarks.crawl import make_config, served
from benchmarks.report import Row, measure
from crawl_lib import Config, stages
from crawl_lib.frontier import NodeDirectory
from crawl_lib.rounds import start_iteration
from crawl_lib.stores import open_stores

QUEUED = 1_000_000
HOSTS = 5_000
"""Of the URLs that wait behind the batch."""
MOST_MB = 400
LOOK_S = 0.1
GROWTH = 1.1
"""What counts as flat: the peak of the last third of the batch against that of the second."""


def queue_by_hand(config: Config, first: Sequence[str], queued: int) -> None:
    """A queue of so many URLs as anyone may make one, `first` at its head, taken over by an iteration of one URL."""
    directory = Path(config.queue.local_dir) / "node"
    directory.mkdir(parents=True)
    others = (
        f"http://host{number % HOSTS}.example/page/{number}"
        for number in range(queued - len(first))
    )
    with (directory / "0").open("w") as file:
        file.writelines(f"{url}\n" for url in chain(first, others))
    NodeDirectory(directory).state.write_text(f"0\n{queued}\n")
    iterate(config, 1, 1)


def iterate(config: Config, number: int, size: int) -> int:
    """Take and crawl so many URLs; returns the pages."""
    start_iteration(open_stores(config), run_id="bench", iteration=number, batch_size=size)
    counts = stages.crawl_node(open_stores(config), run_id="bench", iteration=number, node="node")
    return int(counts["pages"])


def crawl_watched(config: Config, size: int) -> tuple[int, list[float]]:
    """Crawl a batch; returns its pages, and the memory of the fetching process in MB, every `LOOK_S` seconds."""
    seen: list[float] = []
    over = Event()
    watcher = Thread(target=_watch, args=(seen, over))
    watcher.start()
    try:
        return iterate(config, 2, size), seen
    finally:
        over.set()
        watcher.join()


def _watch(seen: list[float], over: Event) -> None:
    task = psutil.Process()
    while not over.wait(LOOK_S):
        sizes = []
        for process in task.children(recursive=True):
            with suppress(psutil.NoSuchProcess):  # it has ended
                sizes.append(process.memory_info().rss)
        if sizes:
            seen.append(max(sizes) / (1 << 20))


def run(directory: Path) -> list[Row]:
    """All pages of the served trees are the batch, the rest of the million waits behind them."""
    config = make_config(directory)
    with served() as web:
        urls = web.pages()
        begun_s = monotonic()
        measure(queue_by_hand, config, urls, QUEUED)
        adopted_s = monotonic() - begun_s
        watched = measure(crawl_watched, config, len(urls))
    pages, seen = watched.result
    third = len(seen) // 3
    middle, last = max(seen[third : 2 * third], default=0.0), max(seen[2 * third :], default=0.0)
    return [
        Row(
            f"memory: a queue of {QUEUED:,} URLs made by hand is taken over in",
            f"{adopted_s:.0f} s by the clock",
        ),
        Row(
            f"memory: peak of a process, {QUEUED:,} URLs queued, {pages:,} taken",
            f"{watched.peak_mb:,.0f} MB",
            f"under {MOST_MB}",
            watched.peak_mb < MOST_MB,
        ),
        Row(
            "memory: fetching process, middle and last third of that batch",
            f"{middle:,.0f} and {last:,.0f} MB at most",
            "flat",
            last <= middle * GROWTH if third else None,
        ),
    ]
