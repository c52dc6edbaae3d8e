"""Krake under a running Airflow (`make ui`): real faults, retries, clears, backfill, a schedule.

Each ends in the same output as an untroubled run. One server and one config for all; a test begins with an empty crawl.
"""

import json
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from crawl_lib import stages
from crawl_lib.config import Config
from crawl_lib.stores import open_stores
from demo import Serving
from tests.dags.api import Ui
from tests.dags.conftest import Reference
from tests.dags.crawls import (
    ITERATIONS,
    MOST_ITERATIONS,
    exported_bytes,
    exports,
    reschedule,
    rows,
    small_config,
    taken_in_order,
    wipe,
)
from tests.e2e.crawl import Result
from tests.test_readme import ROOT, fences

pytestmark = pytest.mark.timeout(1200)
*_, WAITING = fences((ROOT / "docs" / "airflow.md").read_text(), "python")
SKIPPED = [
    f"iteration_{MOST_ITERATIONS}.{part}" for part in ("crawl.node-0", "crawl.node-1", "commit")
]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Config, Path]:
    return small_config(tmp_path_factory.mktemp("airflow"))


@pytest.fixture(scope="module")
def ui(
    made: tuple[Config, Path],
    airflow_database: Callable[[Path], Path],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Ui]:
    """With the DAG of `docs/airflow.md` that waits for exports, from a folder of its own."""
    folder = tmp_path_factory.mktemp("waiting")
    (folder / "waiting.py").write_text(WAITING)
    bundle = "airflow.dag_processing.bundles.local.LocalDagBundle"
    places = {"dags-folder": {}, "waiting": {"path": str(folder)}}
    bundles = [
        {"name": name, "classpath": bundle, "kwargs": place} for name, place in places.items()
    ]
    settings = {"AIRFLOW__DAG_PROCESSOR__DAG_BUNDLE_CONFIG_LIST": json.dumps(bundles)}
    with Ui(airflow_database(tmp_path_factory.mktemp("home")), made[1], settings) as running:
        yield running


@pytest.fixture
def config(made: tuple[Config, Path], ui: Ui) -> Config:
    """The crawl, empty; no run is active."""
    assert not [run for run, state in ui.runs().items() if state in ("queued", "running")]
    wipe(made[0])
    return made[0]


@pytest.fixture
def seeds(serving: Serving) -> str:
    return "\n".join(serving.seeds)


def assert_complete(config: Config, serving: Serving, reference: Reference, export: str) -> None:
    """All of the web was visited, each URL once, and the export is that of an untroubled run, byte for byte."""
    visited = Result(config).visited()
    assert set(visited) == set(serving.truth().visits)
    assert set(visited.values()) == {1}
    assert exported_bytes(config, export) == reference.exported


def states(tasks: dict[str, tuple[str, int]], chosen: list[str]) -> set[str]:
    return {tasks[task][0] for task in chosen}


def test_a_crawl_task_retried_alone_a_stage_cleared_and_an_early_task_cleared(
    ui: Ui, config: Config, serving: Serving, seeds: str, reference: Reference
) -> None:
    """node-1's lock cannot be opened at first; the export's name is taken by another export at first."""
    blocked = Path(config.queue.local_dir) / "node-1" / "lock"
    blocked.mkdir(parents=True)
    taken = Path(config.dfs_primary) / config.export.directory / "final"
    shutil.copytree(reference.export_folder, taken)

    run = ui.trigger(seeds=seeds, iterations=ITERATIONS, label="final")
    crawl = "iteration_1.crawl.node-1"
    ui.wait(
        lambda: ui.tasks(run)[crawl][0] in ("up_for_retry", "failed"),
        f"the first failure of {crawl}",
    )
    assert ui.tasks(run)[crawl][0] == "up_for_retry"
    blocked.rmdir()

    assert ui.wait_end(run) == "failed"
    tasks = ui.tasks(run)
    assert tasks[crawl] == ("success", 2)
    assert tasks["iteration_1.crawl.node-0"] == ("success", 1)
    assert tasks["export"] == ("failed", 1), "a name that is taken is not tried again"
    assert states(tasks, ["linker", "finalizer"]) == {"upstream_failed"}
    assert states(tasks, SKIPPED) == {"skipped"}

    shutil.rmtree(taken)
    ui.clear(run, "export", only_failed=True)
    assert ui.wait_end(run) == "success"
    assert states(ui.tasks(run), SKIPPED) == {"skipped"}
    assert_complete(config, serving, reference, "final")
    assert rows(config, "pages") == reference.pages
    assert rows(config, "links") == reference.links

    ui.clear(run, "iteration_1.crawl.node-0", only_failed=False)
    assert ui.wait_end(run) == "success"
    tasks = ui.tasks(run)
    assert tasks["iteration_1.crawl.node-0"] == ("success", 2)
    assert states(tasks, SKIPPED) == {"skipped"}, (
        "a clear does not bring skipped iterations to life"
    )
    assert exports(config) == ["final"]
    assert_complete(config, serving, reference, "final")
    assert rows(config, "pages") == reference.pages


def test_a_paused_run_goes_on_where_it_was_and_a_dag_that_waits_for_its_export_runs(
    ui: Ui, config: Config, serving: Serving, seeds: str, reference: Reference
) -> None:
    """Paused at once, as `docs/airflow.md` says: the switch of the DAG, and then a clear of what runs."""
    before = set(ui.of("pages_per_host").runs())
    slow = ui.config.read_text()
    ui.config.write_text(slow.replace("host_delay_s: 0.0", "host_delay_s: 2.0"))
    crawl = "iteration_2.crawl.node-0"
    try:
        run = ui.trigger(seeds=seeds, iterations=ITERATIONS)
        ui.wait(lambda: ui.tasks(run)[crawl][0] == "running", f"{crawl} runs")
        ui.ask("PATCH", f"/api/v2/dags/{ui.dag}", {"is_paused": True})
        running = [
            task for task, (state, _) in ui.tasks(run).items() if state in ("running", "queued")
        ]
        body = {"dry_run": False, "dag_run_id": run, "task_ids": running, "only_failed": False}
        ui.ask("POST", f"/api/v2/dags/{ui.dag}/clearTaskInstances", body)
        active = {"running", "restarting"}
        ui.wait(
            lambda: not active & {state for state, _ in ui.tasks(run).values()}, "no task runs", 20
        )
        fetched = len(serving.log().requests)
        waiting = {task: tries for task, tries in ui.tasks(run).items() if tries[0] != "success"}
        time.sleep(5)
        assert {task: ui.tasks(run)[task] for task in waiting} == waiting, "no task begins"
        assert len(serving.log().requests) == fetched
    finally:
        ui.ask("PATCH", f"/api/v2/dags/{ui.dag}", {"is_paused": False})
    assert ui.wait_end(run) == "success"
    ui.config.write_text(slow)
    [export] = exports(config)
    assert_complete(config, serving, reference, export)

    waits = ui.of("pages_per_host")
    ui.wait(
        lambda: "success" in {state for new, state in waits.runs().items() if new not in before},
        "what waits",
    )


def test_a_run_with_nothing_to_do_ends_its_rounds_and_so_does_one_that_fails(
    ui: Ui, config: Config, serving: Serving, seeds: str, reference: Reference
) -> None:
    """Cleared, in whatever way, it ends them again; what is cleared alone skips itself, also with other seeds there."""
    assert ui.wait_end(ui.trigger(seeds=seeds, iterations=ITERATIONS)) == "success"
    later = [
        f"iteration_{i}.{part}"
        for i in (2, 3)
        for part in ("crawl.node-0", "crawl.node-1", "commit")
    ]

    run = ui.trigger(seeds="", iterations=MOST_ITERATIONS)
    assert ui.wait_end(run) == "success"
    assert states(ui.tasks(run), later) == {"skipped"}
    assert ui.result(run, "iteration_1.commit")["ended"] == "nothing is queued"
    [export] = exports(config)
    assert_complete(config, serving, reference, export)

    stages.inject(open_stores(config), run_id="another", seeds=f"{serving.seeds[0]}another")
    for task, alone in (
        ("iteration_1.crawl.node-0", False),
        ("iteration_2.crawl.node-1", True),
        (later[-1], True),
    ):
        ui.clear(run, task, only_failed=False, alone=alone)
        assert ui.wait_end(run) == "success"
        assert states(ui.tasks(run), later) == {"skipped"}, task
    assert len(taken_in_order(config)) == ITERATIONS + 1

    failed = ui.trigger(seeds="nowhere", iterations=MOST_ITERATIONS)
    assert ui.wait_end(failed) == "failed"
    tasks = ui.tasks(failed)
    assert states(tasks, [task for task in tasks if task != "inject"]) == {"upstream_failed"}


def test_a_new_run_after_a_failed_one_and_the_death_of_the_scheduler(
    ui: Ui, config: Config, serving: Serving, seeds: str, reference: Reference
) -> None:
    """node-1's queue lies: its `state` counts URLs that are not there. No one repairs that by trying again.

    `make ui` starts a part of Airflow again that ended by itself.
    """
    lying = Path(config.queue.local_dir) / "node-1"
    lying.mkdir(parents=True)
    (lying / "0").write_text("")
    (lying / "state").write_text("0\n7\n")

    failed = ui.trigger(seeds=seeds, iterations=ITERATIONS)
    assert ui.wait_end(failed) == "failed"
    assert ui.tasks(failed)["iteration_1.crawl.node-1"] == ("failed", 1)
    assert ui.tasks(failed)["iteration_1.crawl.node-0"] == ("success", 1)

    ui.part("scheduler").kill()
    shutil.rmtree(lying)
    assert ui.wait_end(ui.trigger(seeds=seeds, iterations=ITERATIONS)) == "success"
    [export] = exports(config)
    assert_complete(config, serving, reference, export)


def test_backfill_of_three_dates_beside_a_manual_run(
    ui: Ui, config: Config, serving: Serving, seeds: str, reference: Reference
) -> None:
    """Backfill does not respect the limit of one run at a time: several crawl at once, and only locks part them."""
    reschedule(ui, ui.config, "0 0 1 1 *")
    before = set(ui.runs())
    manual = ui.trigger(seeds=seeds, iterations=ITERATIONS)
    ui.backfill("2021-01-01", "2023-01-01", {"seeds": seeds, "iterations": 1})
    new = [run for run in ui.runs() if run not in before]
    assert sum(run.startswith("backfill__") for run in new) == 3
    reschedule(ui, ui.config, None)
    for run in [manual, *new]:
        assert ui.wait_end(run) == "success", run
    newest = max(exports(config), key=int)
    assert_complete(config, serving, reference, newest)


def test_a_second_scheduled_run_finds_the_export_of_the_first(
    ui: Ui, config: Config, serving: Serving, seeds: str, reference: Reference
) -> None:
    """The seeds are injected by hand, and the schedule does the rest; the second run finds nothing new."""
    stages.inject(open_stores(config), run_id="by hand", seeds=seeds)
    before = set(ui.runs())
    reschedule(ui, ui.config, "* * * * *")

    def new() -> list[str]:
        return [run for run in ui.runs() if run not in before]

    ui.wait(lambda: len(new()) >= 2, "two scheduled runs")
    reschedule(ui, ui.config, None)
    for run in new():
        assert run.startswith("scheduled__")
        assert ui.wait_end(run) == "success", ui.tasks(run)
    [export] = exports(config)
    assert_complete(config, serving, reference, export)


def test_ctrl_c_leaves_no_process_behind(ui: Ui) -> None:
    """The last test here: the server is stopped."""
    assert ui.stop(signal.SIGINT) == []
    assert ui.process.returncode == 0
    assert "Airflow's scheduler ended by itself (-9)" in ui.output
    assert "Stopped." in ui.output


def test_no_secret_is_readable_by_others(ui: Ui) -> None:
    for name in ("jwt-secret", "api-secret"):
        assert (ui.home / "ui" / name).stat().st_mode & 0o777 == 0o600
