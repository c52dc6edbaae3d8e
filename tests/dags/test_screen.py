"""What `make crawl` shows on a terminal: its own progress, and nothing that Airflow writes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.screens import SIZES, run_in_terminal

CRAWL = """\
import logging
import sys
from pathlib import Path
from types import SimpleNamespace

from krake_airflow.display import Display
from krake_airflow.run import _airflow_prints_to

with _airflow_prints_to(Path(sys.argv[1])) as console:
    task = SimpleNamespace(task_id="linker", run_needs_it=True, refusals=())
    with Display(console, lambda: None) as display:
        logging.basicConfig(level=logging.INFO)
        display.started(task)
        for done in range(206):
            logging.getLogger("airflow").info("record %d", done)
            print("printed", done)
            display.progressed(task, {"stage": "graph.arcs", "done": done, "total": 206, "unit": "arcs"})
            display.progressed(task, {"node": f"node-{done:03}", "phase": "fetch", "taken": 100, "fetched": done})
        display.finished(task, {"arcs": 206})
"""
"""A crawl whose stage logs and prints as Airflow does, on more nodes than a terminal has lines."""


@pytest.mark.parametrize("size", SIZES)
def test_records_of_airflow_go_to_its_log_alone(tmp_path: Path, size: tuple[int, int]) -> None:
    """rich's Live takes `sys.stdout` and `sys.stderr` over, unless it is told not to."""
    log = tmp_path / "log"
    terminal = run_in_terminal(CRAWL, [log], size)
    assert terminal.finish() == 0, terminal.written
    assert "record" not in terminal.written
    assert "printed" not in terminal.written
    assert log.read_text().count("record ") == log.read_text().count("printed ") == 206
    assert any(line.startswith("done linker") for line in terminal.screen.lines)
    assert terminal.screen.cursor_is_shown
