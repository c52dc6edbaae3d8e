"""`krake_airflow.display`: when a run of `make crawl` is over."""

from __future__ import annotations

import io
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from krake_airflow.display import HINTS, NOTHING, Display, summary
from rich.console import Console

from crawl_lib.config import from_mapping


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


@pytest.mark.parametrize("terminal", [False, True])
@pytest.mark.parametrize("progress", [{"checking": "[/x]: [a]"}, {"node": "[node-a]", "phase": "[/x]: [a]"}])
def test_what_stands_in_brackets_is_shown(progress: dict[str, str], terminal: bool) -> None:
    """To the console it could be a style, which is left out, or the end of one, which is an error."""
    console = Console(width=200, record=True, file=io.StringIO(), force_terminal=terminal)
    task = SimpleNamespace(task_id="export", run_needs_it=True)
    with Display(console, lambda: None) as display:
        display.started(task)
        display.progressed(task, progress)
        display.failed(task, "servers: [node-a, node-b]: [/y]", final=True)
    text = console.export_text()
    assert "FAILED export: servers: [node-a, node-b]: [/y]" in text
    assert "[/x]: [a]" in text


def shown_at_the_end(directory: Path, outcomes: dict[str, int]) -> str:
    config = from_mapping({"servers": ["node"], "dfs_primary": "dfs"}, base=directory)
    console = Console(width=400, record=True, file=io.StringIO())
    console.print(summary(config, {"iteration_1.commit": {"folder": "1", "outcomes": outcomes}}))
    return console.export_text()


def test_who_sees_no_page_is_told_why(tmp_path: Path) -> None:
    """Both happen to whoever crawls a server of an inner network, forgets to allow it, and tries again."""
    refused = shown_at_the_end(tmp_path, {"ok": 2, "address_refused": 1})
    assert f"1{HINTS['address_refused']}" in refused
    assert NOTHING not in refused
    assert NOTHING in shown_at_the_end(tmp_path, {})
