"""The table `krakepages` on a MySQL or MariaDB server."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

from pymysql.connections import Connection

from crawl_lib.errors import KeyTablesError
from crawl_lib.keys import MySqlServer
from crawl_lib.realtime.pages import (
    EVENT_LIMIT_S,
    STATEMENT_DOCUMENTS,
    Finished,
    PageServer,
    Wish,
    lacks_table,
    max_age_ms,
    statement_of,
    statements_of,
)

_T = TypeVar("_T")


class MySqlPages(MySqlServer, PageServer):
    """A database on a server, by a single connection. `options`: as `MySqlServer` has them."""

    NOW = "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(3)) DIV 1000"

    def __init__(
        self, name: str, *, clock: Callable[[], float] = time.monotonic, **options: Any
    ) -> None:
        MySqlServer.__init__(self, name, **options)
        PageServer.__init__(self, clock=clock)

    def ensure(self) -> None:
        """Create the tables where there are none. Raises KeyTablesError, KeyStoreError."""
        with suppress(KeyTablesError):
            self._selected("SELECT 1 FROM krakerates LIMIT 1")  # the youngest of the tables
            if self._selected("SELECT 1 FROM krakepagesepoch"):
                self._require_version()
                return
        for statement in statements_of("create.sql"):
            self._write(statement)
        self._require_version()

    def exists(self) -> bool:
        """Say whether the table is there. Raises KeyServerDownError."""
        try:
            return bool(self._selected("SELECT version FROM krakepagesversion"))
        except KeyTablesError:
            return False

    def next_epoch(self) -> int:
        """Return an epoch above all epochs of this server.

        The statement's answer belongs to its connection.
        """
        return self._repeated(partial(_next_epoch, self.NOW))

    def _repeated(self, work: Callable[[Connection[Any]], _T]) -> _T:
        try:
            return super()._repeated(work)
        except KeyTablesError as error:
            if type(error) is not KeyTablesError:  # the database itself is not there
                raise
            raise lacks_table(self.name) from error

    def close(self, *, at_once: bool = False) -> None:
        """Close the connection."""
        super().close(at_once=at_once)

    def _changed(self, statement: str) -> int:
        return self._write(statement)

    def _selected(self, statement: str) -> Sequence[Any]:
        return self._rows(statement)

    def _submit(self, wishes: Sequence[Wish], counted: str) -> None:
        rows = ",".join(
            f"(x'{wish.key.hex()}',{wish.part},{self.NOW},{self.NOW}-{max_age_ms(wish)},{self.NOW},{wish.shares},"
            f"x'{wish.request.hex()}')"
            for wish in wishes
        )
        statement = self._text("submit.sql", rows=rows)
        if counted:
            self._repeated(lambda connection: _together(connection, [statement, counted]))
        else:
            self._write(statement)

    def _finish(self, documents: Sequence[Finished]) -> None:
        for start in range(0, len(documents), STATEMENT_DOCUMENTS):
            self._finish_some(documents[start : start + STATEMENT_DOCUMENTS])

    def _finish_some(self, documents: Sequence[Finished]) -> None:
        rows = " UNION ALL ".join(
            f"SELECT x'{one.key.hex()}' AS hash, {one.again_ms} AS again_ms, {one.epoch} AS epoch,"
            f" {one.made_ms} AS made_ms, x'{one.data.hex()}' AS data, {one.stays_due:d} AS stays_due"
            for one in documents
        )
        statement = statement_of("finish.sql").replace(":now", self.NOW).replace(":rows", rows)
        self._repeated(lambda connection: connection.query(_limited(connection, statement)))


def _limited(connection: Connection[Any], statement: str) -> str:
    """Give a statement its time limit.

    MySQL has no such limit; there, only the wait for locks is limited.
    """
    if "MariaDB" in connection.get_server_info():  # type: ignore[no-untyped-call]
        return f"SET STATEMENT max_statement_time={EVENT_LIMIT_S:g} FOR {statement}"
    return statement


def _together(connection: Connection[Any], statements: Sequence[str]) -> None:
    """Run statements in one transaction."""
    connection.begin()
    for statement in statements:
        connection.query(statement)
    connection.commit()


def _next_epoch(now: str, connection: Connection[Any]) -> int:
    # Leases have their times as epochs: a service without leases may follow on one with leases.
    connection.query(
        f"UPDATE krakepagesepoch SET epoch = LAST_INSERT_ID(GREATEST(epoch + 1, {now}))"
    )
    return int(connection.insert_id())  # type: ignore[no-untyped-call]
