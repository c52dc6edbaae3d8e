"""A run that `make crawl` was carrying out when it was killed is over for the scheduler of `make ui`."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from krake_airflow.database import end_dead_runs
from krake_airflow.settings import PROJECT

RUNS = {
    "dead": ("running", "TEST"),
    "done": ("success", "TEST"),
    "of-the-ui": ("running", "REST_API"),
    "of-a-schedule": ("queued", "TIMETABLE"),
}
TASKS = [
    ("dead", "running"),
    ("dead", "success"),
    ("dead", None),
    ("of-the-ui", "running"),
    ("done", "success"),
]


@pytest.fixture
def database(tmp_path: Path) -> Path:
    path = tmp_path / "airflow.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE dag_run (dag_id, run_id, state, triggered_by, end_date)")
        connection.execute("CREATE TABLE task_instance (dag_id, run_id, state, end_date)")
        runs = [(name, *state) for name, state in RUNS.items()]
        connection.executemany("INSERT INTO dag_run VALUES ('d', ?, ?, ?, NULL)", runs)
        connection.executemany("INSERT INTO task_instance VALUES ('d', ?, ?, NULL)", TASKS)
        connection.commit()
    return path


def test_only_what_no_scheduler_had_begun_is_ended(database: Path) -> None:
    end_dead_runs(database)
    with closing(sqlite3.connect(database)) as connection:
        runs = dict(connection.execute("SELECT run_id, state FROM dag_run"))
        tasks = connection.execute("SELECT run_id, state FROM task_instance").fetchall()
    assert runs == {
        "dead": "failed",
        "done": "success",
        "of-the-ui": "running",
        "of-a-schedule": "queued",
    }
    assert tasks == [("dead", "failed"), *TASKS[1:]]


def test_a_database_that_is_not_made_yet_is_left_alone(tmp_path: Path) -> None:
    end_dead_runs(tmp_path / "airflow.db")
    assert not (tmp_path / "airflow.db").exists()
    (tmp_path / "airflow.db").write_bytes(b"")
    end_dead_runs(tmp_path / "airflow.db")


ASKED = """
from datetime import datetime
from sqlalchemy import create_engine, func
from krake_airflow.database import compare_milliseconds

compare_milliseconds()
with create_engine("sqlite://").connect() as connection:
    (text,) = connection.exec_driver_sql(f"SELECT {func.now().compile(connection)}").one()
    datetime.strptime(text, "%Y-%m-%d %H:%M:%S.%f")
"""


def test_a_run_that_was_triggered_need_not_wait_for_the_next_second() -> None:
    """In a process of its own, since it changes SQLAlchemy."""
    variables = {**os.environ, "PYTHONPATH": str(PROJECT / "plugins")}
    subprocess.run([sys.executable, "-c", ASKED], check=True, env=variables)
