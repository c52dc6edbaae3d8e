"""What people read first in a running Airflow: the last lines of a task's log, and of each try, by the log API."""

from collections.abc import Callable
from pathlib import Path

import pytest

from crawl_lib.config import Config
from crawl_lib.frontier import NodeDirectory, NodeLock
from demo import Serving
from tests.dags.api import Ui
from tests.dags.crawls import small_config

pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Config, Path]:
    return small_config(tmp_path_factory.mktemp("airflow"), queue={"lock_timeout_s": 0.1})


def last_words(lines: list[str]) -> tuple[str, str]:
    """The message, whose lines end before the window of the page does, and the last line: what to do."""
    place = max(
        number for number, line in enumerate(lines) if line.endswith("Task failed with exception")
    )
    *message, cure = [line.removeprefix("error ") for line in lines[place + 1 :]]
    return " ".join(line.strip() for line in message), cure


def test_the_last_lines_are_message_and_cure_and_results_are_lines(
    made: tuple[Config, Path],
    serving: Serving,
    tmp_path: Path,
    airflow_database: Callable[[Path], Path],
) -> None:
    config, file = made
    crawl = "iteration_1.crawl.node-1"
    with Ui(airflow_database(tmp_path / "home"), file) as ui:
        run = ui.trigger(seeds="not-a-url", iterations=1)
        assert ui.wait_end(run) == "failed"
        message, cure = last_words(ui.log(run, "inject"))
        assert message.startswith("seeds: ")
        assert "'not-a-url' is neither a URL (" in message
        assert "Trigger a new run: a cleared task keeps its parameters." in message
        assert (
            cure
            == "If only a file was wrong, correct it, then clear this task with its downstream."
        )

        directory = NodeDirectory.make(Path(config.queue.local_dir), "node-1")
        with NodeLock(directory, "node-1", 1.0, what="a test"):
            run = ui.trigger(seeds="\n".join([*serving.seeds, "gopher://x/"]), iterations=1)
            ui.wait(lambda: ui.tasks(run)[crawl][0] == "up_for_retry", "a try that failed")
        message, again = last_words(ui.log(run, crawl))
        assert "node node-1 is locked by process" in message
        assert again.startswith("It is tried again by itself, and continues: try 2 of ")

        assert ui.wait_end(run) == "success"
        lines = ui.log(run, "inject")
        assert f"info accepted: {len(serving.seeds)}" in lines
        assert "warning rejected: scheme 1" in lines
        assert [line for line in lines if line.startswith("warning examples: ")]
