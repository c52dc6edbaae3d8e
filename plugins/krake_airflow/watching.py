"""How a task is watched: always by its log and the task state store, and by a display if there is one.

The log ends with the lines that people look for: the result, a line for each count, or the problem and its remedy.

`make crawl` runs the DAG in its own process and sets a `Watcher`; under a scheduler no watcher is set.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Iterator, Mapping
from textwrap import TextWrapper
from typing import Any, Protocol

from crawl_lib.errors import StoppedError
from krake_airflow.progress import KeptProgress

log = logging.getLogger("krake")

LOG_INTERVAL_S = 5.0
REFUSALS = ("warning", "missing", "late_segments", "budgets")
"""Fields of results that are no success."""
REFUSED_SEEDS = ("rejected", "examples")
"""The same for the result of `inject`: a node rejects links too, without a fault."""


class Watcher(Protocol):
    """A watcher of the tasks in this process."""

    @property
    def stopping(self) -> bool:
        """Whether somebody asked for the end: then no task tries again."""

    def started(self, task: Any) -> None:
        """Note that a task's stage begins."""

    def progressed(self, task: Any, progress: Mapping[str, Any]) -> None:
        """Note the state of the stage, about once a second."""

    def finished(self, task: Any, result: Mapping[str, Any]) -> None:
        """Note that the stage is done."""

    def failed(self, task: Any, message: str, *, final: bool) -> None:
        """Note that the stage failed; the message is one line. `final`: the task is not tried again."""

    def stop(self) -> None:
        """Note that the process is told to end."""


class _Silent:
    """Watches nothing: the watcher of a task under a scheduler."""

    stopping = False

    def started(self, task: Any) -> None:
        """Ignore."""

    def progressed(self, task: Any, progress: Mapping[str, Any]) -> None:
        """Ignore."""

    def finished(self, task: Any, result: Mapping[str, Any]) -> None:
        """Ignore."""

    def failed(self, task: Any, message: str, *, final: bool) -> None:
        """Ignore."""

    def stop(self) -> None:
        """Ignore."""


_current: list[Watcher] = [_Silent()]


def watcher() -> Watcher:
    """Return the watcher of this process."""
    return _current[-1]


def watch_with(new: Watcher) -> None:
    """Add a watcher of the tasks of this process."""
    _current.append(new)


class Reporter:
    """The progress callback of one try of a task: to the watcher at once, to log and state store every few seconds.

    Use the reporter as a context manager around the whole work of the task: the state store then hears of every end,
    except the end of a killed process.

    `state_store`: Airflow's `context["task_state_store"]`, or None.
    """

    def __init__(self, task: Any, state_store: Any, try_number: int = 1) -> None:
        self._task = task
        self._kept = KeptProgress(state_store, try_number)
        self._logged_s = float("-inf")
        self._result: Mapping[str, Any] = {}

    def __call__(self, progress: Mapping[str, Any]) -> None:
        """Report; `progress` holds names and numbers."""
        watcher().progressed(self._task, progress)
        now_s = time.monotonic()
        if now_s - self._logged_s >= LOG_INTERVAL_S:
            self._logged_s = now_s
            log.info(
                "%s",
                "  ".join(f"{name} {value}" for name, value in without_zeros(progress).items()),
            )
        self._kept.report(progress)

    def take_result(self, result: Mapping[str, Any]) -> None:
        """Take the result of the stage, for the last report."""
        self._result = result

    def __enter__(self) -> Reporter:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is None:
            self._kept.end("done", counts=self._result)
        else:
            self._kept.end(_end_of(error), error=str(error) or type(error).__name__)


def _end_of(error: BaseException) -> str:
    """Name how a task ended with an error: stopped, skipped or failed."""
    # Airflow reads the environment at its import, after `make crawl` has set the environment.
    from airflow.sdk.exceptions import AirflowSkipException  # noqa: PLC0415

    if isinstance(error, StoppedError):
        return "stopped"
    return "skipped" if isinstance(error, AirflowSkipException) else "failed"


def in_lines(finding: str) -> list[str]:
    """Divide a finding into lines that Airflow's page shows whole."""
    return _IN_LINES.wrap(finding)


def result_lines(result: Mapping[str, Any], refusals: Collection[str]) -> Iterator[tuple[int, str]]:
    """Yield the result of a stage, a line for each name, with the level of logging; zeros are left out.

    `refusals`: the names of refused or missing things, shown as warnings.
    """
    counted = without_zeros(result)
    if result and not counted:
        yield logging.INFO, "all counts are 0"
    for name, value in counted.items():
        if isinstance(value, Mapping):
            lines = [", ".join(f"{inner} {number}" for inner, number in value.items()) or "none"]
        else:
            lines = list(map(str, value)) if isinstance(value, list | tuple) else [str(value)]
        for line in lines:
            yield (
                (logging.WARNING if name in refusals and value else logging.INFO),
                f"{name}: {line}",
            )


def without_zeros(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return values without zeros, also without zeros in inner mappings, and without mappings of zeros alone."""
    found = {}
    for name, value in values.items():
        kept = without_zeros(value) if isinstance(value, Mapping) else value
        is_zero = isinstance(kept, int | float) and not isinstance(kept, bool) and not kept
        if not is_zero and (kept or not isinstance(value, Mapping) or not value):
            found[name] = kept
    return found


def say_result(result: Mapping[str, Any], refusals: Collection[str]) -> None:
    """Log the result of a task, see `result_lines`."""
    for level, line in result_lines(result, refusals):
        log.log(level, "%s", line)


_IN_LINES = TextWrapper(
    88, subsequent_indent="    ", break_long_words=False, break_on_hyphens=False
)
"""Airflow's page cuts a line at the end of its window: 1280 pixels show so many characters next to the grid."""
_AGAIN = "It is tried again by itself, and continues: try %d of %d comes next."
_BY_HAND = "Correct the named problem, then clear this task with its downstream to continue."
NEW_RUN = "Trigger a new run: a cleared task keeps its parameters."
NEW_RUN_OR_FILE = (
    f"{NEW_RUN}\nIf only a file was wrong, correct it, then clear this task with its downstream."
)


def say_retry(context: Any) -> None:
    """Log, as the last lines of a failed try, the problem and the next try."""
    _last_words(context, _AGAIN, context["ti"].try_number + 1, context["ti"].max_tries + 1)


def say_failure(context: Any) -> None:
    """Log, as the last lines of a failed task, the problem and the error's `remedy`, or the usual remedy."""
    _last_words(context, getattr(context.get("exception"), "remedy", _BY_HAND))


def _last_words(context: Any, remedy: str, *numbers: int) -> None:
    """Log a problem and its remedy. Airflow has opened a group before this call, which its page shows folded."""
    # Airflow reads the environment at its import, after `make crawl` has set the environment.
    from airflow.sdk.exceptions import AirflowException  # noqa: PLC0415

    error = context.get("exception")
    if error is None:  # a process died: the scheduler's sentence is the only explanation
        return
    log.info("::endgroup::")
    text = str(error) if isinstance(error, AirflowException) else f"{type(error).__name__}: {error}"
    for finding in text.splitlines():
        for line in in_lines(finding):
            log.error("%s", line)
    for sentence in (remedy % numbers).splitlines():
        log.error("%s", sentence)
