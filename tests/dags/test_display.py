"""`krake_airflow.display`: when a run of `make crawl` is over."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from krake_airflow.display import Display
from rich.console import Console


class Shown:
    """A display, and how often it said that the run is over."""

    def __init__(self) -> None:
        self.over = 0
        self.asked = 0
        self.display = Display(Console(quiet=True), self._end)

    def _end(self) -> None:
        self.over += 1

    def task(self, *, run_needs_it: bool = True) -> Any:
        """A task that begins."""
        task = SimpleNamespace(task_id="inject", run_needs_it=run_needs_it, ask_to_stop=self._ask)
        self.display.started(task)
        return task

    def _ask(self) -> None:
        self.asked += 1


@pytest.mark.parametrize(("final", "run_needs_it"), [(False, True), (True, False), (True, True)])
def test_only_the_last_failure_of_a_task_that_all_others_need_ends_the_run(final: bool, run_needs_it: bool) -> None:
    shown = Shown()
    shown.display.failed(shown.task(run_needs_it=run_needs_it), "why", final=final)
    assert shown.over == (final and run_needs_it)


def test_a_run_that_is_asked_to_stop_is_over_once_its_task_has_stopped() -> None:
    shown = Shown()
    task = shown.task(run_needs_it=False)
    shown.display.stop()
    assert (shown.asked, shown.over) == (1, 0)
    shown.display.failed(task, "stopped", final=False)
    assert shown.over == 1


def test_between_two_tasks_it_is_over_at_once() -> None:
    shown = Shown()
    shown.display.finished(shown.task(), {})
    shown.display.stop()
    assert (shown.asked, shown.over) == (0, 1)
