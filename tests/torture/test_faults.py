"""Disks, stores and processes that fail in the middle of a crawl: a clear error, and nothing lost or doubled after it.

Each: the first attempt at a task fails with a KrakeError that names what failed; the cause is gone; the next attempt
does the rest, and the crawl equals the truth. No page is asked for again but the one that was in flight (I1, I2, I3).
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from crawl_lib import stages
from crawl_lib.config import Config
from crawl_lib.rounds import start_iteration
from crawl_lib.stores import open_stores
from demo import Serving, SynthWeb, TruthOptions
from tests.e2e.crawl import Result, check_cdxj, check_counts, make_config, run_iteration
from tests.torture.faulty import (
    attempt,
    dying_sync,
    dying_worker,
    failing_fsync,
    failing_storage,
    failing_write,
    small_files,
    worker_without_memory,
)
from tests.torture.tasks import Task

WEB = SynthWeb(seed=3, sites=1, pages_per_site=30, specials=False)
CRAWL = Task("crawl", "run", iteration=2, node="node-0")


@pytest.fixture
def config(serving: Serving, tmp_path: Path) -> Config:
    """A crawl whose second iteration has begun; its batch is most of the web."""
    config = make_config(
        tmp_path, nodes=1, fetch={"host_delay_s": 0.0}, segment={"sync_interval_s": 0.0}
    )
    stages.inject(open_stores(config), run_id="run", seeds=serving.seeds[0])
    run_iteration(config, "run", 1)
    start_iteration(open_stores(config), run_id="run", iteration=2)
    return config


def assert_whole(config: Config, serving: Serving, before: Any, *, again: int = 1) -> None:
    """After both iterations: the truth, once each; `again`: pages that may have been asked for twice."""
    result = Result(config)
    visited = result.visited()
    assert set(visited) == set(serving.truth(options=TruthOptions(rounds=2)).visits)
    assert set(visited.values()) == {1}
    check_counts(result)
    check_cdxj(result)
    asked = serving.log().counts() - before
    assert sum(count - 1 for count in asked.values()) <= again
    assert not (Path(config.queue.local_dir) / "node-0" / "spool").exists()


FAULTS: list[tuple[Callable[..., None], tuple[Any, ...], str, str]] = [
    (failing_write, (errno.ENOSPC, 1, False), "KrakeError", "No space left on device"),
    (failing_write, (errno.ENOSPC, 9, False), "KrakeError", "No space left on device"),
    (failing_write, (errno.EIO, 9, False), "KrakeError", "Input/output error"),
    (failing_write, (0, 9, True), "KrakeError", "No space left on device"),
    (failing_fsync, (1,), "KrakeError", "Input/output error"),
    (failing_fsync, (3,), "KrakeError", "Input/output error"),
    (dying_sync, ("ZeroDivisionError",), "KrakeError", "died (exit code"),
    (dying_sync, ("SystemExit",), "KrakeError", "died (exit code"),
    (failing_storage, ("upload_final", 1, True), "StorageError", "the storage fails"),
    (failing_storage, ("upload_final", 3, True), "StorageError", "the storage fails"),
    (failing_storage, ("rename", 1, False), "StorageError", "the storage fails"),
    (failing_storage, ("list", 2, False), "StorageError", "the storage fails"),
    (dying_worker, (5, 137), "KrakeError", "died (exit code 137)"),
    (worker_without_memory, (5,), "KrakeError", "died (exit code 1)"),
]


@pytest.mark.parametrize(
    ("fault", "arguments", "kind", "says"),
    FAULTS,
    ids=[f"{fault.__name__}-{'-'.join(map(str, arguments))}" for fault, arguments, _, _ in FAULTS],
)
def test_a_fault_is_named_and_the_next_attempt_does_the_rest(
    fault: Callable[..., None],
    arguments: Any,
    kind: str,
    says: str,
    config: Config,
    serving: Serving,
) -> None:
    before = serving.log().counts()
    failed = attempt(CRAWL, config, fault, *arguments)
    assert failed[0] == kind
    assert says in failed[1]
    assert len(Result(config).segments()) == 1, "nothing of the second iteration is to be seen"
    run_iteration(config, "run", 2)
    assert_whole(config, serving, before)


@pytest.mark.parametrize("size_bytes", [0, 100, 1_000, 4_000])
def test_a_disk_that_takes_no_more_whoever_writes(
    size_bytes: int, config: Config, serving: Serving
) -> None:
    """The queue's files, the WARC, Arrow's and Parquet's files, SQLite: none may end in anything but a clear error."""
    before = serving.log().counts()
    kind, text = attempt(CRAWL, config, small_files, size_bytes)
    assert kind != "done", "nothing was refused, so nothing was tested"
    assert any(
        place in text
        for place in (config.queue.local_dir, config.dfs_primary, *config.key_storage.servers)
    )
    if not run_iteration(config, "run", 2)[
        "taken"
    ]:  # no key server answered, so all was left undecided
        run_iteration(config, "run", 3)
    assert_whole(config, serving, before)
