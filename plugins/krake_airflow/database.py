"""Whether Airflow's database is there, made by the Airflow that is installed: to ask Airflow costs seconds."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path


class DatabaseMark:
    """A file in an Airflow home which says that the database was made, or migrated, by this version.

    `home`: the AIRFLOW_HOME. `database`: the file without which the mark means nothing.
    """

    def __init__(self, home: Path, database: Path) -> None:
        self.database = database
        self._mark = home / f"migrated-{version('apache-airflow')}"

    def is_set(self) -> bool:
        """Whether there is nothing to make."""
        return self._mark.exists() and self.database.exists()

    def set(self) -> None:
        """Say that the database is made."""
        self._mark.touch()
