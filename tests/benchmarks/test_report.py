"""The table of `make bench` says of each budget whether it is met, and goes into a text between its marks."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import __main__ as bench
from benchmarks.report import Row, _autogroups, ahead, markdown, measure


@pytest.mark.parametrize(
    ("row", "verdict"),
    [
        (Row("a", "3", "2", met=True), "met"),
        (Row("a", "1", "2", met=False), "MISSED"),
        (Row("a", "1", "2"), "not judged"),
        (Row("a", "1"), ""),
    ],
)
def test_a_budget_that_this_run_says_nothing_about_is_neither_met_nor_missed(
    row: Row, verdict: str
) -> None:
    assert row.verdict == verdict


def test_a_report_replaces_the_figures_and_nothing_else(tmp_path: Path) -> None:
    text = tmp_path / "text.md"
    text.write_text(f"before\n{bench.MARKS[0]}\nold\n{bench.MARKS[1]}\nafter\n")
    bench.replace_figures(text, markdown([Row("what", "1 s", "2 s", met=True)]))
    table = "| what | figure | budget | |\n|---|---|---|---|\n| what | 1 s | 2 s | met |"
    assert text.read_text() == f"before\n{bench.MARKS[0]}\n{table}\n{bench.MARKS[1]}\nafter\n"


def test_after_a_figure_by_the_clock_all_priorities_are_as_before() -> None:
    before = os.getpriority(os.PRIO_PROCESS, 0)
    with ahead() as granted:
        if granted:
            assert os.getpriority(os.PRIO_PROCESS, 0) < before
    assert os.getpriority(os.PRIO_PROCESS, 0) == before


def test_a_process_without_a_session_has_no_priority_of_a_session(tmp_path: Path) -> None:
    (tmp_path / "empty").write_text("")
    (tmp_path / "told").write_text("/autogroup-41 nice -5\n")
    notes = [tmp_path / name for name in ("empty", "told", "missing")]
    assert _autogroups(notes) == [(tmp_path / "told", "-5")]


def burn_in_a_child_that_stays() -> None:
    """A step whose child has used a second of CPU, and then waits for nothing."""
    code = (
        "import os, time\nwhile time.process_time() < 1: pass\nos.write(1, b'.')\ntime.sleep(1000)"
    )
    child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    assert child.stdout is not None
    child.stdout.read(1)


def test_the_cpu_of_children_that_stay_counts() -> None:
    assert measure(burn_in_a_child_that_stays).cpu_s >= 1
