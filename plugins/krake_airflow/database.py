"""Airflow's database of one machine: whether the installed Airflow has made the database, and ends of dead runs.

To ask Airflow costs seconds.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from importlib.metadata import version
from pathlib import Path


class DatabaseMark:
    """A file in an Airflow home: this version has made or migrated the database.

    `home`: the AIRFLOW_HOME. `database`: the database file; without this file the mark means nothing.
    """

    def __init__(self, home: Path, database: Path) -> None:
        self.database = database
        self._mark = home / f"migrated-{version('apache-airflow')}"

    def is_set(self) -> bool:
        """Return whether the database is made."""
        return self._mark.exists() and self.database.exists()

    def set(self) -> None:
        """Note that the database is made."""
        self._mark.touch()


def compare_milliseconds() -> None:
    """Let this process's queries of SQLite compare times by milliseconds.

    The scheduler begins runs whose `run_after` is at most `now()`. SQLAlchemy's `now()` for SQLite is
    CURRENT_TIMESTAMP, in whole seconds: a triggered run would wait for the next second, half a second on average.
    """
    from sqlalchemy.ext.compiler import compiles  # noqa: PLC0415 - `make ui` needs no more of SQLAlchemy
    from sqlalchemy.sql.functions import now  # noqa: PLC0415

    compiles(now, "sqlite")(lambda *_, **__: "strftime('%Y-%m-%d %H:%M:%f', 'now')")


_OPEN = "'running', 'queued', 'scheduled', 'up_for_retry'"
_DEAD_TASKS = f"""
UPDATE task_instance SET state = 'failed', end_date = CURRENT_TIMESTAMP WHERE state IN ({_OPEN}) AND EXISTS (
    SELECT 1 FROM dag_run WHERE dag_run.dag_id = task_instance.dag_id AND dag_run.run_id = task_instance.run_id
    AND dag_run.triggered_by = 'TEST' AND dag_run.state IN ({_OPEN}))
"""
_DEAD_RUNS = f"""
UPDATE dag_run SET state = 'failed', end_date = CURRENT_TIMESTAMP WHERE triggered_by = 'TEST' AND state IN ({_OPEN})
"""


def end_dead_runs(database: Path) -> None:
    """Mark the runs of a killed or stopped `make crawl` as failed: a scheduler would go on with such runs.

    Only runs that `make crawl` carried out itself. The caller holds the lock that such a `make crawl` shares, so no
    such run is alive.
    """
    if not database.exists():
        return
    with closing(sqlite3.connect(database, timeout=60)) as connection:
        if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'dag_run'").fetchone():
            return  # the database is not made yet
        for statement in (_DEAD_TASKS, _DEAD_RUNS):
            connection.execute(statement)
        connection.commit()
