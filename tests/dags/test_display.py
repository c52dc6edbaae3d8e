"""`krake_airflow.display`: when a run of `make crawl` is over."""

from __future__ import annotations

import io
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from krake_airflow import run
from krake_airflow.display import HINTS, NOTHING, NOTHING_DUE, Display, summary
from rich.console import Console

from crawl_lib.ask import refused_hosts
from crawl_lib.config import from_mapping, load_config, short_path
from crawl_lib.stores import open_stores
from crawl_lib.urls import host_of
from tests.cli.conftest import Krake, run_in_process


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
        task = SimpleNamespace(
            task_id="inject", run_needs_it=run_needs_it, ask_to_stop=self._ask, refusals=()
        )
        self.display.started(task)
        return task

    def _ask(self) -> None:
        self.asked += 1


@pytest.mark.parametrize(("final", "run_needs_it"), [(False, True), (True, False), (True, True)])
def test_only_the_last_failure_of_a_task_that_all_others_need_ends_the_run(
    final: bool, run_needs_it: bool
) -> None:
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


def test_what_was_refused_is_a_warning_below_the_line_of_its_task() -> None:
    console = Console(width=200, record=True, file=io.StringIO())
    task = SimpleNamespace(task_id="inject", run_needs_it=True, refusals=("rejected", "examples"))
    with Display(console, lambda: None) as display:
        display.started(task)
        display.finished(
            task, {"accepted": 2, "rejected": {"scheme": 1}, "examples": ["seeds:3: scheme"]}
        )
        display.started(task)
        display.finished(task, {"accepted": 2, "rejected": {}, "examples": []})
    done, *warnings, again = console.export_text().splitlines()
    assert (done.split()[-2:], again.split()[-2:]) == (["accepted", "2"], ["accepted", "2"])
    assert [line.strip() for line in warnings] == [
        "warning rejected: scheme 1",
        "warning examples: seeds:3: scheme",
    ]


@pytest.mark.parametrize("terminal", [False, True])
@pytest.mark.parametrize(
    "progress", [{"checking": "[/x]: [a]"}, {"node": "[node-a]", "phase": "[/x]: [a]"}]
)
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


def shown_at_the_end(directory: Path, outcomes: dict[str, int], **more: object) -> str:
    config = from_mapping({"servers": ["node"], "dfs_primary": "dfs"}, base=directory)
    console = Console(width=400, record=True, file=io.StringIO())
    console.print(
        summary(config, {"iteration_1.commit": {"folder": "1", "outcomes": outcomes, **more}})
    )
    return " ".join(console.export_text().replace("│", "|").split())


def test_who_sees_no_page_is_told_why(tmp_path: Path) -> None:
    """Both happen when one crawls a server of an inner network, forgets to allow it, and tries again."""
    refused = shown_at_the_end(tmp_path, {"ok": 2, "address_refused": 1})
    assert f"1{HINTS['address_refused']}" in refused
    assert NOTHING not in refused
    assert NOTHING in shown_at_the_end(tmp_path, {})


@pytest.mark.parametrize(
    ("outcomes", "says_so"),
    [({}, True), ({"timeout": 2}, True), ({"robots_denied": 1}, True), ({"gone": 1}, False)],
)
def test_a_run_that_fetched_nothing_is_a_warning_of_the_summary(
    outcomes: dict[str, int], says_so: bool, tmp_path: Path
) -> None:
    assert (
        "| warning | this run fetched nothing |" in shown_at_the_end(tmp_path, outcomes)
    ) is says_so


def test_a_url_counts_once_and_its_other_tries_apart(tmp_path: Path) -> None:
    shown = shown_at_the_end(
        tmp_path, {"ok": 7, "timeout": 5}, retried={"timeout": 4}, passed_over=3
    )
    assert "| pages fetched | 8 |" in shown
    assert "| ok | 7 |" in shown
    assert "| timeout | 5 tries, 1 ended (4 tried again later) |" in shown


def test_what_is_not_due_yet_is_not_nothing(tmp_path: Path) -> None:
    """`krake forget` would be the wrong advice."""
    shown = shown_at_the_end(tmp_path, {}, passed_over=3)
    assert NOTHING_DUE in shown
    assert NOTHING not in shown


def test_iterations_that_ended_early_say_why(tmp_path: Path) -> None:
    assert "| iterations | 1, then nothing is queued |" in shown_at_the_end(
        tmp_path, {}, ended="nothing is queued"
    )


def test_an_iteration_of_few_answers_is_named_at_the_end(tmp_path: Path) -> None:
    shown = shown_at_the_end(
        tmp_path, {"timeout": 60}, warning="only 0 of 60 URLs were answered at all"
    )
    assert "| warning | iteration 1: only 0 of 60 URLs were answered at all |" in shown


def test_what_waits_is_said_once_as_the_last_commit_saw_it(tmp_path: Path) -> None:
    config = from_mapping({"servers": ["node"], "dfs_primary": "dfs"}, base=tmp_path)
    console = Console(width=400, record=True, file=io.StringIO())
    waits = {"1": "1 URL waits", "2": "2 URLs wait"}
    commits = {
        f"iteration_{folder}.commit": {"folder": folder, "waiting": text}
        for folder, text in waits.items()
    }
    console.print(summary(config, commits))
    shown = console.export_text()
    assert [text in shown for text in waits.values()] == [False, True]


def test_lines_end_between_words_on_a_terminal_and_are_whole_in_a_file() -> None:
    text = "done " + "captures 123 " * 20
    terminal, file = (
        Console(width=80, record=True, file=io.StringIO(), force_terminal=is_terminal)
        for is_terminal in (True, False)
    )
    for console in (terminal, file):
        Display(console, lambda: None).note(text)
    lines = terminal.export_text().splitlines()
    assert len(lines) > 3
    assert {word for line in lines for word in line.split()} == {"done", "captures", "123"}
    assert file.export_text().splitlines() == [text]


def test_hosts_that_were_refused_are_named_with_the_network_and_the_option(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """In the summary of `make crawl`, too."""
    krake, seed = (
        Krake(tmp_path, lambda words: run_in_process(capsys, words)),
        "http://127.0.0.9:8005/",
    )
    krake.configure(servers=["node-a"], fetch={"allow_networks": []})
    krake.ok("inject", seed, "--run-id", "one")
    krake.ok("crawl", "--run-id", "one", "--iterations", "1")
    path, config = krake.file, load_config(str(krake.file))
    folder = open_stores(config).crawl.newest()
    crawl = run._Crawl(ExitStack(), Console(file=io.StringIO()), path, config, tmp_path / "log")
    hint = crawl._hints(
        {"iteration_1.commit": {"folder": folder, "outcomes": {"address_refused": 1}}}
    )
    host = host_of(seed)
    assert hint == {
        "address_refused": f' (if 127.0.0.0/8 is yours: allow_networks: ["127.0.0.0/8"] under fetch in'
        f" {short_path(path)}; run `krake forget {host} --yes`, and the same command again)"
    }
    assert crawl._hints({"iteration_1.commit": {"folder": folder, "outcomes": {"ok": 1}}}) == HINTS
    assert refused_hosts(open_stores(config), []) == {}
