"""`make crawl` and `make ui` have one database: while `make ui` runs, runs are there; else it shows them later."""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from krake_airflow.settings import PROJECT

from crawl_lib.config import Config
from demo import Serving
from tests.dags.api import Ui
from tests.dags.conftest import Reference
from tests.dags.crawls import ITERATIONS, exported_bytes, exports, small_config, wipe

pytestmark = pytest.mark.timeout(1200)
LIMIT_S = 400


def start(home: Path, config: Path, *arguments: str) -> subprocess.Popen[str]:
    variables = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("AIRFLOW", "KRAKE"))
    }
    variables |= {
        "KRAKE_AIRFLOW_HOME": str(home),
        "PYTHONPATH": f"{PROJECT / 'plugins'}{os.pathsep}{PROJECT}",
    }
    command = [sys.executable, "-m", "krake_airflow", "crawl", "--config", str(config), *arguments]
    return subprocess.Popen(
        command, env=variables, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def finish(process: subprocess.Popen[str]) -> tuple[int, str]:
    output, _ = process.communicate(timeout=LIMIT_S)
    return process.returncode, output


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Config, Path]]:
    folder = tmp_path_factory.mktemp("crawls")
    return {
        name: small_config(folder / name, crawl={"name": name})
        for name in ("before", "during", "killed")
    }


@pytest.fixture(scope="module")
def ui(
    made: dict[str, tuple[Config, Path]],
    serving: Serving,
    airflow_database: Callable[[Path], Path],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Ui]:
    """Begun after a whole run of one crawl, and the death of a run of another one; told of the third alone."""
    home = airflow_database(tmp_path_factory.mktemp("home"))
    arguments = ["--seeds", " ".join(serving.seeds), "--iterations", str(ITERATIONS)]
    code, output = finish(start(home, made["before"][1], *arguments))
    assert code == 0, output
    killed = start(home, made["killed"][1], *arguments)
    assert killed.stdout is not None
    assert any(line.startswith("done inject") for line in killed.stdout)
    killed.kill()
    killed.communicate()
    with Ui(home, made["during"][1]) as running:
        yield running


def test_runs_of_before_are_shown_and_the_dead_one_is_over(ui: Ui) -> None:
    assert list(ui.of("before_crawl").runs().values()) == ["success"]
    assert list(ui.of("killed_crawl").runs().values()) == ["failed"]


def test_while_the_ui_runs_a_crawl_is_triggered_there(
    ui: Ui,
    made: dict[str, tuple[Config, Path]],
    serving: Serving,
    reference: Reference,
    tmp_path: Path,
) -> None:
    """The seeds are in a file that who triggers a DAG may not name."""
    config, path = made["during"]
    seeds = tmp_path / "seeds.txt"
    seeds.write_text("\n".join(serving.seeds))
    code, output = finish(
        start(ui.home, path, "--seeds", str(seeds), "--iterations", str(ITERATIONS))
    )
    assert code == 0, output
    assert f"`make ui` runs, at {ui.url}" in output
    assert list(ui.of("during_crawl").runs().values()) == ["success"]
    assert "done iteration_1.crawl.node-0" in output
    assert "pages fetched" in output
    [export] = exports(config)
    assert exported_bytes(config, export) == reference.exported


def test_a_failure_is_named_and_an_interrupt_ends_the_run_there(
    ui: Ui, made: dict[str, tuple[Config, Path]], serving: Serving, reference: Reference
) -> None:
    """And the same command goes on."""
    (config, path), api = made["killed"], ui.of("killed_crawl")
    wipe(config)
    lying = Path(config.queue.local_dir) / "node-1"
    lying.mkdir(parents=True)
    (lying / "0").write_text("")
    (lying / "state").write_text("0\n7\n")
    arguments = ["--seeds", " ".join(serving.seeds), "--iterations", str(ITERATIONS)]
    code, output = finish(start(ui.home, path, *arguments))
    assert code == 1, output
    assert "iteration_1.crawl.node-1: " in output
    assert str(lying) in output
    shutil.rmtree(lying)

    path.write_text(path.read_text().replace("host_delay_s: 0.0", "host_delay_s: 3.0"))
    process = start(ui.home, path, *arguments)
    ui.wait(
        lambda: list(api.runs().values())[1:] and list(api.runs().values())[-1] == "running",
        "the second run",
    )
    time.sleep(3)
    begun_s = time.monotonic()
    process.send_signal(signal.SIGINT)
    code, output = finish(process)
    assert code == 130, output
    assert time.monotonic() - begun_s < 5
    assert "the same command goes on" in output
    assert list(api.runs().values())[-1] == "failed"

    code, output = finish(start(ui.home, path, *arguments))
    assert code == 0, output
    assert exported_bytes(config, exports(config)[-1]) == reference.exported
