"""`make crawl`: the whole DAG in one process, on embedded stores; its exit code is the run's state."""

import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from krake_airflow.run import _join, _synthetic_web, seeds_text
from krake_airflow.settings import PROJECT
from rich.console import Console

from crawl_lib.config import Config
from crawl_lib.errors import KrakeError
from demo import Serving
from tests.dags.conftest import Reference
from tests.dags.crawls import (
    ITERATIONS,
    MOST_ITERATIONS,
    WEB,
    exported_bytes,
    exports,
    rows,
    small_config,
    taken_in_order,
)
from tests.dags.loaded import AirflowForks
from tests.e2e.crawl import Result
from tests.forks import Forked
from tests.harms import all_flipped

pytestmark = pytest.mark.timeout(900)
LIMIT_S = 400


def variables(home: Path) -> dict[str, str]:
    found = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("AIRFLOW", "KRAKE"))
    }
    return found | {
        "KRAKE_AIRFLOW_HOME": str(home),
        "PYTHONPATH": f"{PROJECT / 'plugins'}{os.pathsep}{PROJECT}",
    }


PROGRAM = "import sys; from krake_airflow.__main__ import main; sys.exit(main(sys.argv[1:]))"


def start(airflow: AirflowForks, config: Path, *arguments: str) -> Forked:
    return airflow.start(
        PROGRAM, ["crawl", "--config", str(config), *arguments], variables(airflow.home)
    )


def start_fresh(home: Path, config: Path, *arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "krake_airflow", "crawl", "--config", str(config), *arguments]
    return subprocess.Popen(
        command, env=variables(home), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def finish(process: Forked | subprocess.Popen[str]) -> tuple[int | None, str]:
    output, _ = process.communicate(timeout=LIMIT_S)
    return process.returncode, output


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """An Airflow home without a database."""
    return tmp_path / "home"


@pytest.fixture
def crawl(tmp_path: Path) -> tuple[Config, Path]:
    return small_config(tmp_path)


def test_a_whole_crawl_equals_one_without_airflow(
    home: Path, crawl: tuple[Config, Path], serving: Serving, reference: Reference, tmp_path: Path
) -> None:
    config, path = crawl
    seeds = tmp_path / "seeds.txt"
    seeds.write_text("\n".join(serving.seeds))
    code, output = finish(
        start_fresh(home, path, "--seeds", str(seeds), "--iterations", str(ITERATIONS))
    )
    assert code == 0, output
    [export] = exports(config)
    assert exported_bytes(config, export) == reference.exported
    assert rows(config, "pages") == reference.pages
    assert rows(config, "links") == reference.links
    assert "pages fetched" in output
    assert f"{config.dfs_primary}/crawl/<iteration>/<node>/" in output
    assert f"{config.dfs_primary}/export/{export}/" in output
    assert f"iteration_{ITERATIONS + 1}" not in output
    assert "WARNING" not in output.upper(), "Airflow's own words go to its log"


def test_a_failed_task_is_named_and_the_next_run_goes_on(
    airflow: AirflowForks, crawl: tuple[Config, Path], serving: Serving, reference: Reference
) -> None:
    """node-1's lock cannot be opened, so its crawl fails while node-0's batch is there."""
    config, path = crawl
    blocked = Path(config.queue.local_dir) / "node-1" / "lock"
    blocked.mkdir(parents=True)
    arguments = ["--seeds", " ".join(serving.seeds), "--iterations", str(ITERATIONS)]
    code, output = finish(start(airflow, path, *arguments))
    assert code == 1
    assert "iteration_1.crawl.node-1: " in output
    assert str(blocked) in output
    assert "Traceback" not in output
    blocked.rmdir()
    code, output = finish(start(airflow, path, *arguments))
    assert code == 0, output
    assert exported_bytes(config, exports(config)[-1]) == reference.exported


def test_an_interrupt_stops_it_and_the_next_run_goes_on(
    airflow: AirflowForks, tmp_path: Path, serving: Serving, reference: Reference
) -> None:
    config, path = small_config(tmp_path / "slow")
    path.write_text(path.read_text().replace("host_delay_s: 0.0", "host_delay_s: 0.5"))
    arguments = ["--seeds", " ".join(serving.seeds), "--iterations", str(ITERATIONS)]
    process = start(airflow, path, *arguments)
    assert process.stdout is not None
    said = []
    while not any("iteration_1.commit" in line for line in said[-1:]):
        said.append(process.stdout.readline())
        assert said[-1], "".join(said)
    wait_for_spool(Path(config.queue.local_dir))
    process.send_signal(signal.SIGINT)
    code, output = finish(process)
    assert code == 130, output
    assert "Stopped" in output
    assert "Traceback" not in output
    assert not said_nothing_to_run(airflow.home), (
        "Airflow looked for other tasks, a second each time"
    )
    code, output = finish(start(airflow, path, *arguments))
    assert code == 0, output
    assert exported_bytes(config, exports(config)[-1]) == reference.exported


def said_nothing_to_run(home: Path) -> bool:
    """Whether Airflow slept, in the newest run of a home, since no task could be run."""
    newest = max(
        (home / "ui" / "logs").glob("crawl-*.log"), key=lambda path: path.stat().st_mtime_ns
    )
    return "No tasks to run" in newest.read_text()


def test_a_run_that_cannot_go_on_ends_at_once(
    airflow: AirflowForks, crawl: tuple[Config, Path]
) -> None:
    config, path = crawl
    crawl_dir = Path(config.dfs_primary) / "crawl"
    crawl_dir.parent.mkdir(parents=True)
    crawl_dir.write_text("in the way")
    code, output = finish(
        start(airflow, path, "--seeds", "http://127.0.0.1:1/", "--iterations", "1")
    )
    assert code == 1
    assert "inject: " in output
    assert str(crawl_dir) in output
    assert "The run failed" in output
    assert output.count("FAILED inject") == 1, (
        "a file in the way is for people: it is not tried again"
    )
    assert "iteration_1" not in output


def test_a_run_succeeds_without_a_node_and_the_next_one_finds_the_rest(
    airflow: AirflowForks, tmp_path: Path, serving: Serving, reference: Reference
) -> None:
    """node-1's lock cannot be opened in the first run; skipped iterations stay skipped though commits run on."""
    config, path = small_config(tmp_path, crawl={"min_nodes": 0.5})
    blocked = Path(config.queue.local_dir) / "node-1" / "lock"
    blocked.mkdir(parents=True)
    arguments = ["--seeds", " ".join(serving.seeds), "--iterations", str(ITERATIONS)]
    code, output = finish(start(airflow, path, *arguments))
    assert code == 0, output
    folders = sorted(Result(config).crawl_dir.glob("[0-9]*"), key=lambda folder: int(folder.name))
    assert len(folders) == ITERATIONS
    assert [json.loads((folder / "index.json").read_text())["missing"] for folder in folders] == [
        ["node-1"]
    ] * 2
    assert len(exports(config)) == 1

    blocked.rmdir()
    code, output = finish(start(airflow, path, "--iterations", str(MOST_ITERATIONS)))
    assert code == 0, output
    assert all((folder / "node-1" / "manifest.json").exists() for folder in folders), (
        "it left an empty segment in each"
    )
    visited = Result(config).visited()
    assert set(visited) == set(serving.truth().visits)
    assert set(visited.values()) == {1}
    assert exported_bytes(config, exports(config)[-1]) == reference.exported


def wait_for_spool(queue: Path) -> None:
    """Until a node has begun to fetch."""
    until_s = time.monotonic() + LIMIT_S
    while not list(queue.glob("*/spool*/**/*.warc.gz")):
        assert time.monotonic() < until_s, list(queue.rglob("*"))
        time.sleep(0.02)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--iterations", "0"], "ITERATIONS is 0"),
        (["--iterations", "99"], f"crawl.max_iterations, {MOST_ITERATIONS}"),
        (
            ["--seeds", "nowhere.txt"],
            "seeds: nowhere.txt: no such file or directory, and not a URL",
        ),
    ],
)
def test_bad_arguments_are_one_line(
    airflow: AirflowForks, crawl: tuple[Config, Path], arguments: list[str], says: str
) -> None:
    code, output = finish(start(airflow, crawl[1], *arguments))
    assert code == 2
    assert says in output
    assert len(output.strip().splitlines()) == 1


def test_a_missing_config_is_one_line(airflow: AirflowForks, tmp_path: Path) -> None:
    code, output = finish(start(airflow, tmp_path / "nowhere.yml"))
    assert code == 2
    assert "nowhere.yml: cannot be read" in output
    assert len(output.strip().splitlines()) == 1


INTERRUPTED = """
import os, runpy, signal, sys

_, module, number, *words = sys.argv

class Interrupt:
    def find_spec(self, name, path=None, target=None):
        if name == module:
            os.kill(os.getpid(), signal.Signals[number])

sys.meta_path.insert(0, Interrupt())
sys.argv[1:] = words
runpy.run_module("krake_airflow", run_name="__main__", alter_sys=True)
"""
"""The program, which gets a signal when it begins to load a module."""


@pytest.mark.parametrize(
    ("program", "module", "number"),
    [("crawl", "yaml", "SIGINT"), ("crawl", "airflow", "SIGTERM"), ("ui", "psutil", "SIGINT")],
)
def test_a_signal_in_the_first_seconds_ends_it_without_a_traceback(
    home: Path, crawl: tuple[Config, Path], program: str, module: str, number: str
) -> None:
    """`make ui` loads Airflow in processes of its own only."""
    command = [
        sys.executable,
        "-c",
        INTERRUPTED,
        module,
        number,
        program,
        "--config",
        str(crawl[1]),
    ]
    done = subprocess.run(
        command, env=variables(home), capture_output=True, text=True, timeout=LIMIT_S
    )
    assert done.returncode == 128 + signal.Signals[number], done
    assert "Traceback" not in done.stdout + done.stderr
    assert done.stdout.count("\n") == (module == "airflow"), "what it said before"


def test_the_demo_again_goes_on_with_the_same_web(
    airflow: AirflowForks, crawl: tuple[Config, Path]
) -> None:
    """Its web got another port, so that all of it was new: finding 3. What is noted is with the crawl's data."""
    config, path = crawl
    program = f"""
from pathlib import Path
from krake_airflow import run
run.DEMO_CONFIG, run.DEMO_WEB = Path({str(path)!r}), {dataclasses.asdict(WEB)}
raise SystemExit(run.main(["--config", {str(path)!r}]))
"""
    beside = Path(config.dfs_primary).parent
    for _ in range(2):
        code, output = finish(airflow.start(program, [], variables(airflow.home)))
        assert code == 0, output
        assert "on this machine, port " in output
    visited = Result(config).visited()
    assert {url.split("/")[2].partition(":")[2] for url in visited} == {
        (beside / "web-port").read_text().strip()
    }
    assert (beside / "report.html").as_uri() in output
    assert "<svg" in (beside / "report.html").read_text()
    assert set(visited.values()) == {1}
    assert len({run for run, _ in taken_in_order(config)}) == 2
    assert len(exports(config)) == 1, "nothing was new"


def test_a_demo_whose_port_is_taken_says_what_to_do(crawl: tuple[Config, Path]) -> None:
    config, console = crawl[0], Console(quiet=True)
    with (
        _synthetic_web(config, console) as seeds,
        pytest.raises(KrakeError, match=r"had port \d+ .* delete what is in"),
    ):
        _synthetic_web(config, console).__enter__()
    with _synthetic_web(config, console) as again:
        assert again == seeds


def test_only_the_same_parameters_nodes_and_routing_go_on_with_an_unfinished_run(
    crawl: tuple[Config, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An iteration refuses other nodes than it began with: continued, the run would fail for ever."""
    config, path = crawl
    monkeypatch.setenv("KRAKE_CONFIG_PATH", str(path))
    params = {"seeds": "http://a/", "iterations": 1, "label": None}
    local = dataclasses.replace(config.frontier, routing="local")

    def begun(config: Config, params: dict[str, Any] = params) -> datetime:
        return _join(Console(quiet=True), tmp_path, config, params)[1]

    first = begun(config)
    assert begun(dataclasses.replace(config, servers=config.servers[::-1])) == first
    for other in (
        (dataclasses.replace(config, servers=("node-0",)),),
        (dataclasses.replace(config, frontier=local),),
    ):
        assert begun(*other) != first
        first = begun(config)
    assert begun(config, {**params, "iterations": 2}) != first


def test_a_damaged_note_of_an_unfinished_run_names_no_other_time(
    crawl: tuple[Config, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Iterations found by the time of another run would be taken for its own: each bit is sealed."""
    config, path = crawl
    monkeypatch.setenv("KRAKE_CONFIG_PATH", str(path))
    params = {"seeds": "http://a/", "iterations": 1, "label": None}
    note, first = _join(Console(quiet=True), tmp_path, config, params)
    whole = note.read_bytes()
    for bit, data in enumerate(all_flipped(whole)):
        note.write_bytes(data)
        now = datetime.now(UTC)
        begun = _join(Console(quiet=True), tmp_path, config, params)[1]
        assert begun == first or now <= begun <= datetime.now(UTC), f"bit {bit}: {begun}"


def test_seeds_of_a_command_line_are_a_path_or_urls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("seeds").write_text("")
    assert seeds_text("seeds") == str(tmp_path / "seeds")
    assert seeds_text("http://a/ https://b/") == "http://a/\nhttps://b/"
    assert seeds_text("no such file") == "no such file"
