"""A key server that is a MySQL or MariaDB database, over PyMySQL.

Simple statements commit by themselves, and are sent once more over a new connection if the old one was lost: each may
be repeated. `claim` is a transaction at READ COMMITTED: select what is there, insert the rest; where a row of another
writer came between, fewer rows are inserted than were missing, and the transaction starts again. InnoDB makes an insert
wait for an uncommitted row of the same key, so two writers never both count it. A connection that is lost before COMMIT
was sent has added nothing; one that is lost after that leaves the keys unsure.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from itertools import groupby
from typing import Any, TypeVar

from pymysql.connections import Connection

from crawl_lib.errors import ConfigError, KeyTablesError
from crawl_lib.keys.mysql_errors import (
    CONTENTION,
    FOREIGN,
    NoDatabaseError,
    code_of,
    is_lost,
    translate,
)
from crawl_lib.keys.mysql_tls import GuardedConnection
from crawl_lib.keys.server import (
    NOTE_TABLE,
    SLOT_TABLE,
    STATEMENT_KEYS,
    TABLE,
    TABLES_EXIST,
    Claim,
    KeyServer,
    PrefixSum,
    SlotAnswer,
    SlotEnd,
    SlotWish,
    from_hex,
    from_rows,
    hex_list,
    sql_file,
)
from crawl_lib.states import KeyState

_T = TypeVar("_T")
DEFAULT_PORT = 3306
_SERVER = re.compile(
    r"(?:\[(?P<address>[0-9A-Fa-f:.]+)\]|(?P<host>[^\s:\[\]]+))(?::(?P<port>[0-9]{1,5}))?"
)
CONNECT_TIMEOUT_S = 10.0
_SESSION = (
    # As the columns are: nothing is converted, which saves the server a fifth.
    "SET NAMES ascii COLLATE ascii_bin",
    f"SET SESSION group_concat_max_len = {STATEMENT_KEYS * 40}",
    "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED",
)
_RIGHTS = (
    f"INSERT INTO {TABLE} SELECT * FROM {TABLE} WHERE 1 = 0",
    f"UPDATE {TABLE} SET keyinfo = keyinfo WHERE 1 = 0",
    f"DELETE FROM {TABLE} WHERE 1 = 0",
)
"""What a crawl does with the tables, to no row: a server looks at rights first. All tables have the same ones."""
TRIES = 20
"""Tries of a statement that met a deadlock or another writer: each try lets at least one writer finish."""


class MySqlServer:
    """A database on a server, with one connection that is made at the first statement and again after its loss.

    `name`: `host[:port]`, `[address]:port` for IPv6; port 3306 if none is given. `database`, `user`, `password`: of the
    tables; the password is shown nowhere. `timeout_s`: how long a statement may take. `tls`, `ca_file`: see
    `keys.mysql_tls`. Raises ConfigError for a name that is no server. For one thread at a time.
    """

    def __init__(
        self,
        name: str,
        *,
        database: str,
        user: str,
        password: str | None = None,
        timeout_s: float = 30.0,
        tls: str = "prefer",
        ca_file: str | None = None,
    ) -> None:
        self.name = name
        self._host, self._port = parse_server(name)
        self._database = database
        self._user = user
        self._password = (password or "").encode("utf-8")
        self._timeout_s = timeout_s
        self._tls, self._ca_file = tls, ca_file
        self._connection: Connection[Any] | None = None

    def close(self, *, at_once: bool = False) -> None:
        """Close the connection.

        `at_once`: forget a connection that may be broken, without waiting for a farewell.
        """
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(*FOREIGN):
                (connection._force_close if at_once else connection.close)()  # type: ignore[attr-defined]

    def _write(self, statement: str) -> int:
        """Send a repeatable statement; return the number of affected rows."""
        return self._repeated(lambda connection: connection.query(statement))

    def _rows(self, statement: str) -> Sequence[Any]:
        return self._repeated(lambda connection: _fetch(connection, statement))

    def _repeated(self, work: Callable[[Connection[Any]], _T]) -> _T:
        """Do repeatable work, again after a lost connection or deadlock.

        Once after a lost connection, some times after a deadlock.
        """
        started = time.monotonic()
        reconnected = False
        contended = 0
        while True:
            fresh = self._connection is None
            try:
                if self._connection is None:
                    self._connection = self._connect(self._database)
                return work(self._connection)
            except FOREIGN as error:
                if (
                    code_of(error) in CONTENTION
                    and contended < TRIES
                    and self._connection is not None
                ):
                    contended += 1
                    with suppress(*FOREIGN):  # a connection that is lost fails again, as lost
                        self._connection.rollback()
                    continue
                self.close(at_once=True)
                # Waiting for a server that hangs is paid for once only; one that refused a new connection is down.
                in_time = time.monotonic() - started < min(self._timeout_s, CONNECT_TIMEOUT_S)
                if is_lost(error) and not reconnected and not fresh and in_time:
                    reconnected = True
                    continue
                raise translate(self.name, self._user, self._database, error) from error

    def _connect(self, database: str | None) -> Connection[Any]:
        connection: Connection[Any] = GuardedConnection(
            tls=self._tls,
            ca_file=self._ca_file,
            host=self._host,
            port=self._port,
            user=self._user,
            password=self._password,
            database=database,
            charset="utf8mb4",  # of user name and messages
            use_unicode=False,
            autocommit=True,
            connect_timeout=min(self._timeout_s, CONNECT_TIMEOUT_S),
            read_timeout=self._timeout_s,
            write_timeout=self._timeout_s,
        )
        try:
            for statement in _SESSION:
                connection.query(statement)
        except BaseException:
            connection._force_close()  # type: ignore[attr-defined]
            raise
        return connection


class MySqlKeyServer(MySqlServer, KeyServer):
    """One database on one server, with the tables of keys and of turns (`KeyServer`)."""

    def known(self, keys: Sequence[bytes]) -> set[bytes]:
        return self._repeated(lambda connection: self._known(connection, keys))

    def states(self, keys: Sequence[bytes]) -> dict[bytes, int]:
        return dict(from_rows(self.name, self._rows(_select("hash, keyinfo", keys))))

    def insert(self, keys: Sequence[bytes], state: KeyState) -> None:
        if keys and state is KeyState.QUEUED:
            self._write(_insert("INSERT IGNORE", keys, state))
        elif keys:
            update = (
                " ON DUPLICATE KEY UPDATE keyinfo = GREATEST(COALESCE(keyinfo, 0), VALUES(keyinfo))"
            )
            self._write(_insert("INSERT", keys, state) + update)

    def set_state(self, keys: Sequence[bytes], state: KeyState) -> None:
        if state is KeyState.QUEUED:
            self.insert(keys, state)
        else:
            self._repeated(lambda connection: _mark(connection, keys, state))

    def delete(self, keys: Sequence[bytes]) -> int:
        return self._write(f"DELETE FROM {TABLE} WHERE hash IN ({_quoted(keys)})")

    def claim(self, keys: Sequence[bytes]) -> Claim:
        for _ in range(TRIES):
            claim = self._repeated(lambda connection: self._try_claim(connection, keys))
            if claim is not None:
                return claim
        return Claim(unsure=set(keys))

    def _known(self, connection: Connection[Any], keys: Sequence[bytes]) -> set[bytes]:
        """Return the known keys by one long text.

        5,000 rows would cost the client 4 us each.
        """
        text = _fetch(connection, _select("GROUP_CONCAT(hash SEPARATOR '')", keys))[0][0] or b""
        return set(from_hex(self.name, [text]))

    def _try_claim(self, connection: Connection[Any], keys: Sequence[bytes]) -> Claim | None:
        """Claim keys in one transaction; None after a conflict.

        Another writer came between, and nothing was added.
        """
        connection.begin()
        theirs = self._known(connection, keys)
        ours = [key for key in keys if key not in theirs]
        if ours and connection.query(_insert("INSERT IGNORE", ours, KeyState.QUEUED)) < len(ours):
            connection.rollback()
            return None
        try:
            connection.commit()
        except FOREIGN:
            # Sent, and no answer: the server has either done it or not. Nothing may be raised that makes a caller,
            # or `_repeated`, send it again.
            self.close(at_once=True)
            return Claim(theirs=theirs, unsure=set(ours))
        return Claim(ours=set(ours), theirs=theirs)

    def prefix_sums(self, low: bytes, high: bytes) -> Iterator[tuple[int, dict[int, PrefixSum]]]:
        rows = self._by_ranges("prefixes.sql", low.hex(), high.hex(), digits=2)
        for prefix, parts in groupby(rows, key=lambda row: int(row[0], 16)):
            sums: dict[int, PrefixSum] = {}
            for _, state, count, total in parts:
                before = sums.get(state or 0, PrefixSum(0, 0))
                sums[state or 0] = PrefixSum(before.count + count, before.total + int(total))
            yield prefix, sums

    def write_note(self, text: str) -> None:
        statement = f"REPLACE INTO {NOTE_TABLE} VALUES (1, 0x{text.encode('ascii').hex()})"
        try:
            self._write(statement)
        except KeyTablesError:
            for made in [*sql_file("note.sql"), statement]:
                self._write(made)

    def turns(self, wishes: Sequence[SlotWish], ends: Sequence[SlotEnd] = ()) -> list[SlotAnswer]:
        return self._repeated(lambda connection: self._try_turns(connection, wishes, ends))

    def _try_turns(
        self, connection: Connection[Any], wishes: Sequence[SlotWish], ends: Sequence[SlotEnd]
    ) -> list[SlotAnswer]:
        connection.begin()
        answers = self._turns(
            wishes, ends, run=connection.query, rows=lambda query: _fetch(connection, query)
        )
        connection.commit()
        return answers

    def has_slots(self) -> bool:
        return self._has_table(SLOT_TABLE)

    def make_slots(self) -> None:
        self._write(sql_file("slots.sql")[0])

    def exists(self) -> bool:
        return self._has_table(TABLE)

    def _has_table(self, name: str) -> bool:
        query = (
            f"SELECT 1 FROM information_schema.tables WHERE "
            f"table_schema = '{self._database}' AND table_name = '{name}'"
        )
        try:
            return bool(self._rows(query))
        except NoDatabaseError:
            return False

    def require_rights(self) -> None:
        for statement in _RIGHTS:
            self._write(statement)

    def create(self, *, drop: bool = False) -> None:
        if not drop and self.exists():
            raise KeyTablesError(f"{self.name}: {TABLES_EXIST}")
        try:
            self._repeated(lambda connection: None)
        except NoDatabaseError as missing:
            try:
                with closing(self._connect(database=None)) as connection:
                    connection.query(f"CREATE DATABASE IF NOT EXISTS `{self._database}`")
            except FOREIGN as error:
                # Without the right to: what an administrator has to do.
                translated = translate(self.name, self._user, self._database, error)
                raise (
                    missing if isinstance(translated, NoDatabaseError) else translated
                ) from error
        drops = sql_file("drop.sql")
        for statement in [*(drops if drop else drops[1:]), *sql_file("create.sql")]:
            self._write(statement)


def parse_server(name: str) -> tuple[str, int]:
    """Host and port of `host[:port]` or `[address]:port`. Raises ConfigError."""
    found = _SERVER.fullmatch(name)
    port = int(found["port"] or DEFAULT_PORT) if found else 0
    if not found or not 0 < port < 65536:
        raise ConfigError(
            f"key_storage.servers: {name!r} is no server: write host or host:port, [IPv6 address]:port"
        )
    return found["address"] or found["host"], port


def _quoted(keys: Sequence[bytes]) -> str:
    return f"'{hex_list(keys, chr(39) + ',' + chr(39))}'"


def _select(columns: str, keys: Sequence[bytes]) -> str:
    return f"SELECT {columns} FROM {TABLE} WHERE hash IN ({_quoted(keys)})"


def _insert(verb: str, keys: Sequence[bytes], state: KeyState) -> str:
    rows = hex_list(keys, f"',{int(state)}),('")
    return f"{verb} INTO {TABLE} VALUES ('{rows}',{int(state)})"


def _mark(connection: Connection[Any], keys: Sequence[bytes], state: KeyState) -> None:
    """Set a state other than QUEUED.

    Nearly always all keys are there in another state: then an update is enough, for two thirds of what an insert
    that finds each key costs the server. Where fewer rows changed, some are missing, or have the state already. Each of
    the two may be repeated, so they need no transaction, whose begin and end would take a round trip each.
    """
    # The index is forced, since a small table would be scanned, and meet the locks of other writers.
    update = f"UPDATE {TABLE} FORCE INDEX (PRIMARY) SET keyinfo = {int(state)} WHERE hash IN ({_quoted(keys)})"
    if connection.query(update) < len(keys):
        connection.query(
            _insert("INSERT", keys, state) + " ON DUPLICATE KEY UPDATE keyinfo = VALUES(keyinfo)"
        )


def _fetch(connection: Connection[Any], statement: str) -> Sequence[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(statement)
        rows: Sequence[tuple[Any, ...]] = cursor.fetchall()
    return rows
