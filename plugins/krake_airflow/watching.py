"""How a running task is watched: by its log and the task state store always, by a display where there is one.

`make crawl` runs the DAG in its own process and sets a `Watcher`; under a scheduler there is none.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from typing import Any, Protocol

log = logging.getLogger("krake")

REPORT_INTERVAL_S = 5.0
STATE_KEY = "progress"


class Watcher(Protocol):
    """What is told of tasks that run in this process."""

    @property
    def stopping(self) -> bool:
        """Whether someone asked for the end: then no task tries again."""

    def started(self, task: Any) -> None:
        """A task's stage begins."""

    def progressed(self, task: Any, progress: Mapping[str, Any]) -> None:
        """About once a second, what the stage is at."""

    def finished(self, task: Any, result: Mapping[str, Any]) -> None:
        """The stage is done."""

    def failed(self, task: Any, message: str, *, final: bool) -> None:
        """The stage failed; the message is one line. `final`: the task is not tried again."""

    def stop(self) -> None:
        """The process was asked to end."""


class _Silent:
    """Watches nothing: the watcher of a task under a scheduler."""

    stopping = False

    def started(self, task: Any) -> None:
        """Nothing."""

    def progressed(self, task: Any, progress: Mapping[str, Any]) -> None:
        """Nothing."""

    def finished(self, task: Any, result: Mapping[str, Any]) -> None:
        """Nothing."""

    def failed(self, task: Any, message: str, *, final: bool) -> None:
        """Nothing."""

    def stop(self) -> None:
        """Nothing."""


_current: list[Watcher] = [_Silent()]


def watcher() -> Watcher:
    """The watcher of this process."""
    return _current[-1]


def watch_with(new: Watcher) -> None:
    """Have tasks of this process watched."""
    _current.append(new)


class Reporter:
    """The progress callback of one task: to the watcher at once, to log and state store every few seconds.

    `state_store`: Airflow's `context["task_state_store"]`, or None. A report that the server refuses (an attempt that
    was cleared gets a 404) must not end the stage before it has flushed, so it is noted and forgotten.
    """

    def __init__(self, task: Any, state_store: Any) -> None:
        self._task = task
        self._state_store = state_store
        self._last_s = float("-inf")

    def __call__(self, progress: Mapping[str, Any]) -> None:
        """Report; `progress` holds names and numbers."""
        watcher().progressed(self._task, progress)
        if time.monotonic() - self._last_s < REPORT_INTERVAL_S:
            return
        self._last_s = time.monotonic()
        log.info("%s", "  ".join(f"{name} {value}" for name, value in progress.items()))
        if self._state_store is None:
            return
        try:
            self._state_store.set(STATE_KEY, dict(progress))
        except Exception as error:  # whatever the server answers, the crawl goes on
            log.warning("progress was not kept: %s", type(error).__name__)
