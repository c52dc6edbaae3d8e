"""One program at a time: the second is refused, and told by whom."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from krake_airflow.alone import alone
from krake_airflow.run import lock_of
from krake_airflow.settings import PROJECT

from crawl_lib.errors import KrakeError
from tests.dags.crawls import small_config


def test_the_second_is_refused_and_told_who_the_first_is(tmp_path: Path) -> None:
    lock = tmp_path / "home" / "lock"
    with alone(lock, "the first"):
        with pytest.raises(KrakeError, match=rf"the first \(process {os.getpid()}\) runs already"):
            alone(lock, "the second", patience_s=0).__enter__()
        with alone(tmp_path / "home" / "other", "another", patience_s=0):
            pass
    with alone(lock, "the third", patience_s=0):
        assert lock.read_text() == f"the third (process {os.getpid()})\n"


def test_programs_that_share_it_keep_a_third_one_out(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    with (
        alone(lock, "the first", shared=True),
        alone(lock, "the second", patience_s=0, shared=True),
        pytest.raises(KrakeError, match="the second"),
    ):
        alone(lock, "the third", patience_s=0).__enter__()
    with alone(lock, "the third", patience_s=0), pytest.raises(KrakeError, match="the third"):
        alone(lock, "the first", patience_s=0, shared=True).__enter__()


def start(
    program: str, config: Path, home: Path, **variables: str
) -> subprocess.CompletedProcess[str]:
    found = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("AIRFLOW", "KRAKE"))
    }
    found |= {
        "KRAKE_AIRFLOW_HOME": str(home.parent),
        "PYTHONPATH": f"{PROJECT / 'plugins'}{os.pathsep}{PROJECT}",
    }
    command = [sys.executable, "-m", "krake_airflow", program, "--config", str(config)]
    return subprocess.run(
        command, env=found | variables, capture_output=True, text=True, timeout=200
    )


@pytest.mark.parametrize(("program", "first"), [("crawl", "crawl"), ("ui", "ui"), ("ui", "crawl")])
def test_a_program_that_runs_already_is_not_started_again(
    program: str, first: str, tmp_path: Path
) -> None:
    """Two of them on one database of Airflow would end each other's runs."""
    _, path = small_config(tmp_path)
    home = tmp_path / "home" / "ui"
    home.mkdir(parents=True)
    lock = lock_of(home, path) if program == "crawl" else home / "lock"
    with alone(lock, "the first", shared=first != program):
        done = start(program, path, home)
    assert done.returncode == 1
    assert done.stdout.count("\n") == 1
    assert "the first (process" in done.stdout
    assert "Traceback" not in done.stdout + done.stderr


def test_the_address_of_a_killed_ui_is_not_given_to_a_crawl(tmp_path: Path) -> None:
    """From the lock on until Airflow answers, `make crawl` waits for a new address."""
    _, path = small_config(tmp_path)
    home = tmp_path / "home" / "ui"
    home.mkdir(parents=True)
    (home / "url").write_text("http://127.0.0.1:9\n")
    done = start("ui", path, home, AIRFLOW_PORT="none")
    assert "not a port" in done.stdout
    assert not (home / "url").exists()
