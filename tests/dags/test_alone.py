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


@pytest.mark.parametrize("program", ["crawl", "ui"])
def test_a_program_that_runs_already_is_not_started_again(program: str, tmp_path: Path) -> None:
    """Two of them on one database of Airflow end each other's runs."""
    _, path = small_config(tmp_path)
    home = tmp_path / "home" / program
    home.mkdir(parents=True)
    found = {name: value for name, value in os.environ.items() if not name.startswith(("AIRFLOW", "KRAKE"))}
    found |= {"KRAKE_AIRFLOW_HOME": str(home.parent), "PYTHONPATH": f"{PROJECT / 'plugins'}{os.pathsep}{PROJECT}"}
    lock = lock_of(home, path) if program == "crawl" else home / "lock"
    with alone(lock, "the first"):
        command = [sys.executable, "-m", "krake_airflow", program, "--config", str(path)]
        done = subprocess.run(command, env=found, capture_output=True, text=True, timeout=200)
    assert done.returncode == 1
    assert done.stdout.count("\n") == 1
    assert "the first (process" in done.stdout
    assert "Traceback" not in done.stdout + done.stderr
