"""Kills through Airflow: `make crawl`, task processes, and a whole Airflow, by SIGKILL at random instants.

    make torture AIRFLOW=16

takes some twenty minutes. Each crawl ends as if nothing had happened: the same iterations, one export with the bytes
of the untroubled one, and no page was asked for twice but where a kill broke its fetch (I1, I2, I4).
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path

import psutil
import pytest
from krake_airflow.settings import PROJECT

from crawl_lib.config import Config
from demo import RequestLog, Serving
from tests.cluster.processes import wait_until
from tests.dags import crawls
from tests.dags.api import Ui
from tests.dags.conftest import serving
from tests.dags.crawls import (
    ITERATIONS,
    exported_bytes,
    exports,
    rows,
    small_config,
    taken_in_order,
)
from tests.e2e.crawl import run_crawl
from tests.torture.checks import refetched

__all__ = ["serving"]
pytestmark = pytest.mark.timeout(3000)
WEB = crawls.WEB
KILLS_OF_MAKE_CRAWL = int(os.environ.get("KILLS", "16"))
KILLS_OF_TASKS = KILLS_OF_AIRFLOW = 2
"""Each costs a task one of its seven attempts, and on a busy machine Airflow loses one now and then by itself."""
END_S = 900
QUICK = {"AIRFLOW__CORE__MAX_TASK_RETRY_DELAY": "10"}
"""Else tasks that were killed several times wait minutes before they are tried again."""
SAID = {
    "inject": 0.3,
    "iteration_1": 0.3,
    "iteration_1.commit": 0.3,
    "iteration_2.crawl": 0.3,
    "settle": 0.0,
}
SAID |= {"export": 0.0, "linker": 0.0}
"""Words of `make crawl`, and how long it may go on after each, in seconds; near the end all takes about a second."""
SEED = 5


@pytest.fixture(scope="module")
def untroubled(
    serving: Serving, tmp_path_factory: pytest.TempPathFactory
) -> tuple[dict[str, bytes], list[object]]:
    """What the same crawl leaves that no one killed."""
    config, _ = small_config(tmp_path_factory.mktemp("untroubled"))
    result = run_crawl(config, serving.seeds, ITERATIONS)
    return exported_bytes(config, result.export), list(rows(config, "pages"))


def slow_config(directory: Path, delay_s: float) -> tuple[Config, Path]:
    """With a delay between requests, so that kills hit fetches, too."""
    config, path = small_config(directory)
    path.write_text(path.read_text().replace("host_delay_s: 0.0", f"host_delay_s: {delay_s}"))
    return config, path


def kill_all(process: psutil.Process) -> None:
    """SIGKILL a process and all that it started."""
    with suppress(psutil.NoSuchProcess):
        everybody = [*process.children(recursive=True), process]
        process.suspend()  # nothing new is started meanwhile
        for one in everybody:
            with suppress(psutil.NoSuchProcess):
                one.kill()


def assert_as_if_nothing_had_happened(
    config: Config,
    serving: Serving,
    untroubled: tuple[dict[str, bytes], list[object]],
    start_s: float,
    *,
    deaths: list,
) -> None:
    [export] = exports(config)
    assert exported_bytes(config, export) == untroubled[0]
    assert [iteration for _, iteration in taken_in_order(config)] == list(range(1, ITERATIONS + 1))
    assert len({run for run, _ in taken_in_order(config)}) == 1
    assert list(rows(config, "pages")) == untroubled[1]
    log = RequestLog([request for request in serving.log().requests if request.start >= start_s])
    assert refetched(log, deaths)[1] == []


def test_make_crawl_killed_and_typed_again(
    serving: Serving, untroubled: tuple[dict[str, bytes], list[object]], tmp_path: Path
) -> None:
    """It joins the unfinished run. Where it got to the end before it could be killed, another crawl bears the rest."""
    rng, kills = random.Random(SEED), []
    while sum(kills) < KILLS_OF_MAKE_CRAWL:
        config, path = slow_config(tmp_path / str(len(kills)), 0.3)
        crawl = MakeCrawl(tmp_path / "home", path, serving.seeds)
        start_s = time.monotonic()
        deaths = crawl.killed_and_typed_again(rng, KILLS_OF_MAKE_CRAWL - sum(kills))
        kills.append(len(deaths))
        assert ("Going on with the unfinished run" in crawl.output) == bool(deaths)
        assert_as_if_nothing_had_happened(config, serving, untroubled, start_s, deaths=deaths)
        crawl.type().wait(END_S)
        assert "unfinished" not in crawl.output, "a run that is done is not continued"


class MakeCrawl:
    """`make crawl`, typed again and again."""

    def __init__(self, home: Path, config: Path, seeds: Sequence[str]) -> None:
        self._home = home
        self._variables = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("AIRFLOW", "KRAKE"))
        }
        path = f"{PROJECT / 'plugins'}{os.pathsep}{PROJECT}"
        self._variables |= {"KRAKE_AIRFLOW_HOME": str(home), "PYTHONPATH": path}
        self._command = [sys.executable, "-m", "krake_airflow", "crawl", "--config", str(config)]
        self._command += ["--seeds", " ".join(seeds), "--iterations", str(ITERATIONS)]
        self._output = config.with_name("output")

    @property
    def output(self) -> str:
        """What it has said since it was typed last."""
        return self._output.read_text()

    def type(self) -> subprocess.Popen[bytes]:
        with self._output.open("w") as file:
            return subprocess.Popen(
                self._command, env=self._variables, stdout=file, stderr=subprocess.STDOUT
            )

    def killed_and_typed_again(self, rng: random.Random, most: int) -> list[tuple[float, float]]:
        """To its end, after at most so many kills; returns when they were."""
        deaths: list[tuple[float, float]] = []
        while True:
            process = self.type()
            if len(deaths) == most:
                process.wait(END_S)
            else:
                self._wait_for_a_word(process, rng)
                self._kill_before_its_end(process)
            if process.returncode == 0:
                return deaths
            assert process.returncode == -signal.SIGKILL, self.output
            deaths.append((time.monotonic(),) * 2)

    def _kill_before_its_end(self, process: subprocess.Popen[bytes]) -> None:
        """A run that is over is not continued, though the process may still be saying so: that one is let be."""
        if process.poll() is None:
            victim = psutil.Process(process.pid)
            victim.suspend()
            if list(self._home.glob("ui/unfinished-*.json")):
                kill_all(victim)
            else:
                victim.resume()
            process.wait(END_S)

    def _wait_for_a_word(self, process: subprocess.Popen[bytes], rng: random.Random) -> None:
        word = rng.choice(list(SAID))
        wait_until(
            f"{word!r} is said",
            lambda: process.poll() is not None or word in self.output,
            END_S,
            pause_s=0.02,
        )
        with suppress(subprocess.TimeoutExpired):
            process.wait(rng.uniform(0, SAID[word]))


def working(ui: Ui) -> list[psutil.Process]:
    """The processes that do a task: Airflow's, which runs the stage, and the fetching ones.

    Not the executor's own, of which Airflow has a fixed number: where one is killed, its task counts as running until
    its heartbeat is missed for 300 s.
    """
    found = []
    for process in psutil.Process(ui.process.pid).children(recursive=True):
        with suppress(psutil.NoSuchProcess, psutil.AccessDenied):
            above = " ".join(process.parent().cmdline())
            if "LocalExecutor" in above or "crawl_lib.worker.process" in " ".join(
                process.cmdline()
            ):
                found.append(process)
    return found


def killed(found: Sequence[psutil.Process], rng: random.Random) -> tuple[float, float] | None:
    """Kill one of them; returns when, None if there is none any more."""
    with suppress(psutil.NoSuchProcess, IndexError):
        began_s = time.monotonic()
        rng.choice(found).kill()
        return began_s, time.monotonic()
    return None


def works_or_ended(ui: Ui, run: str) -> bool:
    """Whether a node's task is under way, which is tried again as often as it takes; or the run is over."""
    crawls = any(
        ".crawl." in task and state == "running" for task, (state, _) in ui.tasks(run).items()
    )
    return (crawls and bool(working(ui))) or is_over(ui, run)


def is_over(ui: Ui, run: str) -> bool:
    return ui.runs()[run] in ("success", "failed")


def test_tasks_and_all_of_airflow_killed(
    serving: Serving, untroubled: tuple[dict[str, bytes], list[object]], tmp_path: Path
) -> None:
    """The run that was triggered before the kills ends well after them, without anybody's help."""
    config, path = slow_config(tmp_path, 12.0)
    rng, deaths, start_s = random.Random(SEED), [], time.monotonic()
    plan = ["task"] * KILLS_OF_TASKS + ["airflow"] * KILLS_OF_AIRFLOW
    rng.shuffle(plan)
    run = ""
    while True:
        with ExitStack() as stack:
            ui = stack.enter_context(Ui(tmp_path / "home", path, QUICK))
            run = run or ui.trigger(seeds="\n".join(serving.seeds), iterations=ITERATIONS)
            while plan and (kind := plan.pop()) == "task":
                ui.wait(partial(works_or_ended, ui, run), "a task", END_S)
                assert not is_over(ui, run), (
                    "it was over before the kills",
                    ui.runs()[run],
                    ui.tasks(run),
                )
                time.sleep(rng.random())
                if death := killed(working(ui), rng):
                    deaths.append(death)
                else:
                    plan.append(kind)  # the task was done by then
            if not plan and kind == "task":
                ui.wait(partial(is_over, ui, run), "the end", END_S)
                assert ui.runs()[run] == "success", ui.tasks(run)
                break
            time.sleep(rng.uniform(0, 10))
            kill_all(psutil.Process(ui.process.pid))
            ui.process.communicate()
            deaths.append((time.monotonic(),) * 2)
            if not plan:
                plan.append("task")
    assert_as_if_nothing_had_happened(config, serving, untroubled, start_s, deaths=deaths)
