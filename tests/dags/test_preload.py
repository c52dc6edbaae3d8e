"""`krake_airflow.preload`: what the processes of tasks find loaded, and that a fork is safe there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from krake_airflow.settings import PROJECT, environment

from tests.dags.crawls import small_config

LOADED = """
import json, os, sys
from airflow import __main__
from krake_airflow.preload import preload
preload("scheduler")
threads = {open(f"/proc/self/task/{one}/comm").read().strip() for one in os.listdir("/proc/self/task")}
before = set(sys.modules)
from airflow.dag_processing.dagbag import DagBag
bag = DagBag(dag_folder=sys.argv[1])
assert not bag.import_errors, bag.import_errors
from crawl_lib import stages
for name in stages.__all__:
    getattr(stages, name)
print(json.dumps({"threads": sorted(threads), "loaded": sorted(before), "new": sorted(set(sys.modules) - before)}))
"""
"""What the scheduler has loaded, the names of its threads then, and what a task of any stage loads besides."""


def packages(names: list[str]) -> set[str]:
    """The packages of modules."""
    return {name.partition(".")[0] for name in names}


def test_a_task_loads_next_to_nothing_by_itself_and_its_parent_may_fork(tmp_path: Path) -> None:
    """A process for each of a dozen tasks would take 0.1 to 0.2 s of CPU for that, more than most tasks work.

    A fork takes along one thread only, with whatever locks the others hold. That of jemalloc, which comes with Arrow,
    knows of forks.
    """
    _, config = small_config(tmp_path)
    variables = {**os.environ, **environment(tmp_path / "home", config)}
    command = [sys.executable, "-c", LOADED, str(PROJECT / "dags" / "krake_crawl_dag.py")]
    done = subprocess.run(command, env=variables, capture_output=True, text=True)
    assert not done.returncode, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    assert set(found["threads"]) <= {"python", "jemalloc_bg_thd"}
    assert {"duckdb", "httpx", "numpy", "pyarrow"} <= packages(found["loaded"])
    assert "pandas" not in packages(found["loaded"])
    assert not packages(found["new"]) & {
        "duckdb",
        "httpx",
        "jinja2",
        "numpy",
        "pandas",
        "pyarrow",
        "rich",
    }
    ours = [name for name in found["new"] if name.startswith(("crawl_lib.", "krake_airflow."))]
    assert ours == [
        "crawl_lib.rounds.iterations",
        "crawl_lib.rounds.shown",
        "crawl_lib.rounds.status",
    ], "no task asks for them"
