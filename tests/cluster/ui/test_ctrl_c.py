"""Ctrl-C of `make ui` while a task runs and another one waits: within 5 s nothing is left, and nothing is lost."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest

from demo import Serving
from tests.dags.api import Ui
from tests.dags.crawls import ITERATIONS, small_config
from tests.e2e.crawl import Result

pytestmark = pytest.mark.timeout(600)


def test_ctrl_c_while_a_task_runs_and_another_one_waits(tmp_path: Path, serving: Serving) -> None:
    """Finding 6: it took 30 s, and the task that waited began after it."""
    config, file = small_config(tmp_path, fetch={"host_delay_s": 1.5})
    one_at_a_time = {"AIRFLOW__CORE__DEFAULT_POOL_TASK_SLOT_COUNT": "1"}
    with Ui(tmp_path / "home", file, one_at_a_time) as ui:
        run = ui.trigger(seeds="\n".join(serving.seeds), iterations=ITERATIONS)

        def states() -> list[str]:
            return sorted(
                str(state) for task, (state, _) in ui.tasks(run).items() if ".crawl.node-" in task
            )

        ui.wait(
            lambda: "running" in states() and "scheduled" in states(),
            "a crawl task that runs, one that waits",
        )
        ui.wait(lambda: bool(queues(Path(config.queue.local_dir))), "its node's directory")
        begun = queues(Path(config.queue.local_dir))
        time.sleep(1.0)
        began_s = time.monotonic()
        assert ui.stop(signal.SIGINT) == []
        assert time.monotonic() - began_s < 5
        assert ui.process.returncode == 0
        assert ui.output.splitlines()[-1] == "Stopped."
        assert queues(Path(config.queue.local_dir)) == begun
    with Ui(tmp_path / "home", file, one_at_a_time) as ui:
        assert ui.wait_end(run) == "success", ui.tasks(run)
    visited = Result(config).visited()
    assert set(visited) == set(serving.truth().visits)
    assert set(visited.values()) == {1}


def queues(directory: Path) -> list[str]:
    """The nodes whose tasks have begun."""
    return sorted(path.name for path in directory.iterdir()) if directory.exists() else []
