"""The table `krakepages` in a SQLite file, for one machine."""

import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from crawl_lib.errors import DamagedKeysError, KeyStoreError, KeyTablesError, os_errors
from crawl_lib.keys import translated
from crawl_lib.realtime.pages import (
    Finished,
    PageServer,
    Row,
    Wish,
    lacks_table,
    max_age_ms,
    rows_of,
    statement_of,
    statements_of,
)


class SqlitePages(PageServer):
    """A file, by a single connection. `timeout_s`: how long a statement waits for other writers."""

    NOW = "CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER)"
    SUFFIX = ".sqlite.sql"
    IS_FILE = True

    def __init__(
        self, path: Path, *, timeout_s: float = 30.0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__(clock=clock)
        self.name, self.path = str(path), path
        self._timeout_s = timeout_s
        self._connection: sqlite3.Connection | None = None

    def ensure(self) -> None:
        """Create file and table where there are none. Raises KeyTablesError, KeyStoreError."""
        with os_errors(self.path, "cannot be created (key_storage.servers)", KeyStoreError):
            self.path.parent.mkdir(parents=True, exist_ok=True)
        if not self.path.exists():
            with translated(self.name), closing(sqlite3.connect(self.path)) as new:
                new.execute("PRAGMA journal_mode = WAL")
        with self._writing() as connection:
            for statement in statements_of("create.sqlite.sql"):
                connection.execute(statement)
        self._require_version()

    def exists(self) -> bool:
        """Say whether the file and its table are there."""
        return self.path.exists() and bool(
            self._selected("SELECT 1 FROM sqlite_master WHERE name = 'krakepagesversion'")
        )

    def next_epoch(self) -> int:
        """Return an epoch above all epochs of this file."""
        with self._writing() as connection:
            # Leases have their times as epochs: a service without leases may follow on one with leases.
            ((epoch,),) = connection.execute(
                f"UPDATE krakepagesepoch SET epoch = max(epoch + 1, {self.NOW}) RETURNING epoch"
            ).fetchall()
        return int(epoch)

    def problem(self) -> str:
        """Return why the file cannot be used, "" if it can.

        All pages of the file are read.
        """
        return self.damage() or super().problem()

    def damage(self) -> str:
        """Return the damage of the file.

        "": no problem, or no file.
        """
        try:
            answers = self._selected("PRAGMA quick_check(1)") if self.path.exists() else [("ok",)]
        except DamagedKeysError as error:
            return str(error)
        return "" if answers[0][0] == "ok" else str(_damaged(self.name, str(answers[0][0])))

    def close(self) -> None:
        """Close the connection."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def read(self, keys: Sequence[bytes]) -> dict[bytes, Row]:
        """Return the rows of known keys, with documents."""
        return self._by_key("read.sql", keys)

    def states(self, keys: Sequence[bytes]) -> dict[bytes, Row]:
        """Return the rows of known keys, without documents."""
        return self._by_key("states.sql", keys)

    def _by_key(self, name: str, keys: Sequence[bytes]) -> dict[bytes, Row]:
        """Return rows by a prepared statement.

        To prepare a statement takes longer than to read a row.
        """
        statement = statement_of(name).replace(":keys", ",".join("?" * len(keys)))
        with self._open() as connection:
            return rows_of(connection.execute(statement, keys))

    def _changed(self, statement: str) -> int:
        with self._open() as connection:
            return connection.execute(statement).rowcount

    def _selected(self, statement: str) -> Sequence[Any]:
        with self._open() as connection:
            return connection.execute(statement).fetchall()

    def _submit(self, wishes: Sequence[Wish], counted: str) -> None:
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
        self._write_all("submit.sqlite.sql", values, counted)

    def _finish(self, documents: Sequence[Finished]) -> None:
        values = [
            {
                "hash": one.key,
                "data": one.data,
                "again_ms": one.again_ms,
                "epoch": one.epoch,
                "made_ms": one.made_ms,
                "stays_due": one.stays_due,
            }
            for one in documents
        ]
        self._write_all("finish.sqlite.sql", values)

    def _write_all(self, name: str, values: Sequence[dict[str, Any]], then: str = "") -> None:
        """Run a statement with all values, then another, in one transaction."""
        statement = statement_of(name).replace(":now", self.NOW)
        with self._writing() as connection:
            connection.executemany(statement, values)
            connection.execute(then)

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
        try:
            with translated(self.name):
                if self._connection is None:
                    self._connection = self._connect()
                yield self._connection
        except DamagedKeysError as error:
            raise _damaged(self.name, str(error.__cause__)) from error
        except KeyTablesError as error:
            raise lacks_table(self.name) from error

    def _connect(self) -> sqlite3.Connection:
        if not self.path.exists():
            raise lacks_table(self.name)
        uri = f"{self.path.absolute().as_uri()}?mode=rw"
        connection = sqlite3.connect(
            uri, uri=True, timeout=self._timeout_s, isolation_level=None, check_same_thread=False
        )
        try:
            for pragma in ("journal_mode = WAL", "synchronous = FULL", "cache_size = -65536"):
                connection.execute(f"PRAGMA {pragma}")
        except BaseException:
            connection.close()
            raise
        return connection


def _damaged(name: str, problem: str) -> DamagedKeysError:
    return DamagedKeysError(
        f"{name}: the table krakepages is damaged: {problem}: stop the service, and run `krake realtime fill`, which"
        " keeps the file, and makes the table again"
    )
