"""The table `krakepages` in a SQLite file, for one machine."""

import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from crawl_lib.errors import KeyStoreError, os_errors
from crawl_lib.keys import translated
from crawl_lib.realtime.pages import (
    Finished,
    Followed,
    PageServer,
    Wish,
    max_age_ms,
    statement_of,
    statements_of,
)


class SqlitePages(PageServer):
    """A file, by a single connection. `timeout_s`: how long a statement waits for other writers."""

    NOW = "CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER)"
    SUFFIX = ".sqlite.sql"

    def __init__(self, path: Path, *, timeout_s: float = 30.0, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(clock=clock)
        self.name, self.path = str(path), path
        self._timeout_s = timeout_s
        self._connection: sqlite3.Connection | None = None

    def ensure(self) -> None:
        """Create file and table where there are none. Raises KeyTablesError, KeyStoreError."""
        with os_errors(self.path, "cannot be created (key_storage.servers)", KeyStoreError):
            self.path.parent.mkdir(parents=True, exist_ok=True)
        with self._writing() as connection:
            for statement in statements_of("create.sqlite.sql"):
                connection.execute(statement)
        self._require_version()

    def close(self) -> None:
        """Close the connection."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def follow(self, hops: Sequence[Followed]) -> None:
        """Let rows wait for the targets of their redirects, in one transaction."""
        with self._writing():
            super().follow(hops)

    def _changed(self, statement: str) -> int:
        with self._open() as connection:
            return connection.execute(statement).rowcount

    def _selected(self, statement: str) -> Sequence[Any]:
        with self._open() as connection:
            return connection.execute(statement).fetchall()

    def _submit(self, wishes: Sequence[Wish]) -> None:
        values = [
            {
                "hash": wish.key,
                "part": wish.part,
                "request": wish.request,
                "shares": wish.shares,
                "max_age_ms": max_age_ms(wish),
            }
            for wish in wishes
        ]
        self._write_all("submit.sqlite.sql", values)

    def _finish(self, documents: Sequence[Finished]) -> None:
        values = [
            {"hash": one.key, "data": one.data, "again_ms": one.again_ms, "epoch": one.epoch} for one in documents
        ]
        self._write_all("finish.sqlite.sql", values)

    def _write_all(self, name: str, values: Sequence[dict[str, Any]]) -> None:
        statement = statement_of(name).replace(":now", self.NOW)
        with self._writing() as connection:
            connection.executemany(statement, values)

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        """Open a transaction, and commit at the end of the block."""
        with self._open() as connection:
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                connection.rollback()
                raise

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        with translated(self.name):
            if self._connection is None:
                self._connection = self._connect()
            yield self._connection

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self.path, timeout=self._timeout_s, isolation_level=None, check_same_thread=False)
        for pragma in ("journal_mode = WAL", "synchronous = FULL", "cache_size = -65536"):
            connection.execute(f"PRAGMA {pragma}")
        return connection
