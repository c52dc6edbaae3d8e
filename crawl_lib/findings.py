"""Findings of a check: an inconsistency each, with the command to repair the damage."""

import sqlite3
from collections.abc import Mapping
from contextlib import closing
from enum import StrEnum
from pathlib import Path

from crawl_lib.dataclass import dataclass
from crawl_lib.errors import SQLITE_ERRORS

PARTS = ("queue", "folders", "segments", "keys")
"""The parts that `krake fsck --repair` can repair, each also alone."""


class Severity(StrEnum):
    """How bad a finding is. Errors and warnings make `krake fsck` end with exit code 1."""

    ERROR = "error"
    """Data is lost or wrong, or a stage will fail or fetch twice."""
    WARNING = "warning"
    """Nothing is lost and every stage goes on; data is left over, or less is known than could be."""
    NOTE = "note"
    """Nothing is inconsistent; the finding is for information."""


@dataclass(frozen=True)
class Finding:
    """One inconsistency.

    `room`: `queue`, `segment`, `keys`, `export`, `text` or `crawldb`. `name`: the kind of damage, a word that stays the
    same in every version. `where`: the file, folder or server. `problem`: the fault, for people. `repair`: the command,
    or another remedy. `count`: how many places of `where` have the damage; `problem` names the first place.
    """

    room: str
    name: str
    where: str
    problem: str
    repair: str
    severity: Severity = Severity.ERROR
    count: int = 1

    def to_text(self) -> str:
        """Return one line for people."""
        more = f" ({self.count:,} of them)" if self.count > 1 else ""
        return f"{self.severity}: {self.name}: {self.where}: {self.problem}{more}; {self.repair}"


class Findings:
    """Findings of one room; the same damage at the same place is one finding with a count."""

    def __init__(self, room: str, repair: str) -> None:
        """Set the default remedy: `repair` of most findings of this room."""
        self._room, self.repair = room, repair
        self._found: dict[tuple[str, str], Finding] = {}

    def add(
        self,
        name: str,
        where: str,
        problem: str,
        *,
        repair: str | None = None,
        severity: Severity = Severity.ERROR,
        count: int = 1,
    ) -> None:
        """Note a damage; among several at one place the first problem is kept."""
        problem = problem.removeprefix(f"{where}: ")  # errors begin with the place
        before = self._found.get((name, where))
        if before is not None:
            problem, count = before.problem, before.count + count
        repair = self.repair if repair is None else repair
        self._found[name, where] = Finding(
            self._room, name, where, problem, repair, severity, count
        )

    def list(self) -> list[Finding]:
        """Return all findings in the order of their first occurrence."""
        return list(self._found.values())


def open_to_read(path: Path) -> closing[sqlite3.Connection]:
    """Open a SQLite file to read, without making a journal."""
    how = "mode=ro" if path.with_name(f"{path.name}-wal").exists() else "immutable=1"
    return closing(sqlite3.connect(f"{path.absolute().as_uri()}?{how}", uri=True, timeout=1.0))


def sqlite_problem(path: Path, columns: Mapping[str, str]) -> str | None:
    """Return why an unused SQLite file is invalid, or None.

    `columns`: the columns of each table, by table. A missing table is valid: the first writer makes the table.
    """
    try:
        with open_to_read(path) as base:
            answer = str(base.execute("PRAGMA quick_check(1)").fetchone()[0])
            there = {
                name
                for (name,) in base.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
            }
            for table in there & columns.keys():
                base.execute(f"SELECT {columns[table]} FROM {table} LIMIT 1")
    except SQLITE_ERRORS as error:
        return str(error)
    return None if answer == "ok" else answer
