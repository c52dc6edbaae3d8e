"""A thread next to a crawl task's own fails with an unforeseen error, or ends without a word.

The task goes on as if nothing had been, or ends with an error, and the next attempt goes on. Either way no URL is lost,
and none is asked for twice but one that was in flight.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from crawl_lib import stages
from crawl_lib.config import Config
from crawl_lib.errors import StorageError
from crawl_lib.node import take as node
from crawl_lib.node import watermarks
from crawl_lib.rounds import start_iteration
from crawl_lib.segment import HiddenFolder, Sealer, Spool
from crawl_lib.stores import open_stores
from demo import Serving, SynthWeb
from tests.e2e.crawl import Result, check_counts, make_config

WEB = SynthWeb(seed=5, sites=1, pages_per_site=160, specials=False)
LIMIT_S = 120.0
SILENT = "ignore::pytest.PytestUnhandledThreadExceptionWarning"
"""Python says nothing of a thread that SystemExit ends; pytest does."""


FEW, MANY = 8, 160


def urls(serving: Serving, count: int) -> list[str]:
    return sorted(serving.truth().visits)[:count]


def begun(directory: Path, serving: Serving, count: int, **fetch: Any) -> Config:
    """A crawl whose one iteration fetches so many pages; MANY fill more than one WARC file."""
    config = make_config(
        directory,
        nodes=1,
        fetch={"host_delay_s": 0.0, **fetch},
        segment={"max_warc_bytes": 1 << 16},
    )
    stages.inject(open_stores(config), run_id="run", seeds="\n".join(urls(serving, count)))
    start_iteration(open_stores(config), run_id="run", iteration=1)
    return config


def crawl(config: Config) -> dict[str, Any]:
    return stages.crawl_node(open_stores(config), run_id="run", iteration=1, node="node-0")


def assert_whole(
    config: Config, serving: Serving, count: int, before: Any, *, again: int = 0
) -> None:
    result = Result(config)
    assert result.visited() == dict.fromkeys(urls(serving, count), 1)
    check_counts(result)
    asked = serving.log().counts() - before
    assert sum(count - 1 for count in asked.values()) <= again
    assert not spool_of(config).exists()


def spool_of(config: Config) -> Path:
    return Path(config.queue.local_dir) / "node-0" / "spool"


def is_alive(name: str) -> bool:
    return any(thread.name == name for thread in threading.enumerate())


def fails_once_in(
    name: str, owner: object, function: str, monkeypatch: pytest.MonkeyPatch, error: object
) -> None:
    """The first call of the function in the thread of this name ends with `error`; other threads notice none."""
    real, first = getattr(owner, function), threading.Event()

    def call(*arguments: Any, **more: Any) -> Any:
        if threading.current_thread().name == name and not first.is_set():
            first.set()
            raise error  # type: ignore[misc]
        return real(*arguments, **more)

    monkeypatch.setattr(owner, function, call)


def when_fetched(monkeypatch: pytest.MonkeyPatch, happened: Callable[[], bool]) -> None:
    """Hold the task once its workers have ended, while its threads still run, until something has happened."""
    real = node.run_workers

    def run(*arguments: Any, **more: Any) -> Any:
        results = real(*arguments, **more)
        end_s = time.monotonic() + LIMIT_S
        while not happened():
            assert time.monotonic() < end_s
            threading.Event().wait(0.01)
        return results

    monkeypatch.setattr(node, "run_workers", run)


def test_a_sealer_that_fails_goes_on(
    serving: Serving,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Else the WARC files of a long crawl would fill the disk."""
    before, config = serving.log().counts(), begun(tmp_path, serving, MANY)
    monkeypatch.setattr(node, "Sealer", partial(Sealer, interval_s=0.01))
    fails_once_in(
        "sealer",
        HiddenFolder,
        "seal_closed",
        monkeypatch,
        ZeroDivisionError("planted"),
    )
    when_fetched(
        monkeypatch, lambda: any(part.is_freed for part in Spool(spool_of(config)).parts())
    )
    with caplog.at_level(logging.WARNING):
        crawl(config)
    assert "planted" in caplog.text
    assert "Traceback" in caplog.text
    assert_whole(config, serving, MANY, before)


@pytest.mark.filterwarnings(SILENT)
def test_what_a_dead_sealer_leaves_is_sealed_at_the_end(
    serving: Serving, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, config = serving.log().counts(), begun(tmp_path, serving, MANY)
    monkeypatch.setattr(node, "Sealer", partial(Sealer, interval_s=0.01))
    fails_once_in("sealer", HiddenFolder, "seal_closed", monkeypatch, SystemExit())
    when_fetched(monkeypatch, lambda: not is_alive("sealer"))
    crawl(config)
    assert len(Result(config).warcs()) > 2
    assert_whole(config, serving, MANY, before)


def test_a_watcher_of_room_that_fails_goes_on(
    serving: Serving,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It sees the shortage that comes after."""
    before, config = serving.log().counts(), begun(tmp_path, serving, FEW, host_delay_s=0.3)
    monkeypatch.setattr(watermarks, "LOOK_INTERVAL_S", 0.01)
    passes: list[bool] = []
    real = node.run_workers

    def run(*arguments: Any, **more: Any) -> Any:
        results = real(*arguments, **more)
        passes.append(any(result.paused for result in results))
        return results

    def shortage(*_: Any) -> str | None:
        return (
            "planted shortage"
            if threading.current_thread().name == "room-watch" and not passes
            else None
        )

    monkeypatch.setattr(node, "run_workers", run)
    monkeypatch.setattr(watermarks.FreeSpace, "shortage", shortage)
    fails_once_in(
        "room-watch", watermarks.FreeSpace, "shortage", monkeypatch, ZeroDivisionError("planted")
    )
    with caplog.at_level(logging.WARNING):
        crawl(config)
    assert passes == [True, False]
    assert "free room cannot be looked at: planted" in caplog.text
    assert_whole(config, serving, FEW, before)


@pytest.mark.filterwarnings(SILENT)
def test_without_its_watcher_of_room_the_task_ends_with_an_error(
    serving: Serving, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, config = serving.log().counts(), begun(tmp_path, serving, FEW)
    fails_once_in("room-watch", watermarks.FreeSpace, "shortage", monkeypatch, SystemExit())
    with pytest.raises(
        StorageError, match="node-0: the watch over its free room has ended; run the task again"
    ):
        crawl(config)
    assert not Result(config).segments()
    assert stages.status_of(config)["queues"]["node-0"]["progress"]["phase"] == "failed"
    crawl(config)
    assert_whole(config, serving, FEW, before, again=1)
