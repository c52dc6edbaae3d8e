"""A key server that is a MySQL or MariaDB database, over PyMySQL.

Simple statements commit by themselves and are sent once more over a new connection if the old one was lost: each may
be repeated. `claim` is a transaction at READ COMMITTED: select what stands, insert the rest; where a row of another
writer came between, fewer rows are inserted than were missing, and the transaction starts again. InnoDB makes an
insert wait for an uncommitted row of the same key, so two writers never both count it. A connection that is lost
before COMMIT was sent has added nothing; one that is lost after that leaves the keys unsure.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any, TypeVar

import pymysql
from pymysql.connections import Connection
from pymysql.constants import CR, ER

from crawl_lib.errors import ConfigError, KeyServerDownError, KeyStoreError, KeyTablesError
from crawl_lib.keys.base import STATEMENT_KEYS, Claim, KeyServer, PrefixSum
from crawl_lib.keys.texts import HIGHEST, LOWEST, TABLE, from_hex, hex_list, sql_file
from crawl_lib.states import KeyState

_T = TypeVar("_T")
DEFAULT_PORT = 3306
CONNECT_TIMEOUT_S = 10.0
TRIES = 20
"""Tries of a statement that met a deadlock or another writer: each try lets at least one writer finish."""

_CONTENTION = frozenset({ER.LOCK_DEADLOCK, 1020})  # 1020: MariaDB 11 ER_CHECKREAD, a row changed since the snapshot
_LOST = frozenset(
    {
        CR.CR_CONNECTION_ERROR,
        CR.CR_CONN_HOST_ERROR,
        CR.CR_UNKNOWN_HOST,
        CR.CR_SERVER_GONE_ERROR,
        CR.CR_SERVER_LOST,
        CR.CR_MALFORMED_PACKET,
        0,  # PyMySQL's InterfaceError for a connection that it closed itself
        ER.CON_COUNT_ERROR,
        ER.SERVER_SHUTDOWN,
        ER.NET_READ_ERROR,
        ER.NET_READ_INTERRUPTED,
        ER.NET_ERROR_ON_WRITE,
        ER.NET_WRITE_INTERRUPTED,
        ER.QUERY_INTERRUPTED,
        ER.LOCK_WAIT_TIMEOUT,
        1927,  # MariaDB ER_CONNECTION_KILLED
        2055,  # CR_SERVER_LOST_EXTENDED
    }
)
_READ_ONLY = frozenset({ER.OPTION_PREVENTS_STATEMENT, 1792, 1836})
_NO_RIGHT = frozenset({ER.TABLEACCESS_DENIED_ERROR, ER.COLUMNACCESS_DENIED_ERROR, ER.SPECIFIC_ACCESS_DENIED_ERROR})
_NO_ROOM = frozenset({ER.DISK_FULL, ER.RECORD_FILE_FULL})


class MySqlKeyServer(KeyServer):
    """One database on one server. `name`: `host[:port]`, `[address]:port` for IPv6; port 3306 if none is given.

    `database`, `user`, `password`: of the key tables; the password is shown nowhere. `timeout_s`: how long a
    statement may take. Connects at the first request. Raises ConfigError for a name that is no server.
    """

    def __init__(
        self, name: str, *, database: str, user: str, password: str | None = None, timeout_s: float = 30.0
    ) -> None:
        self.name = name
        self._host, self._port = parse_server(name)
        self._database = database
        self._user = user
        self._password = (password or "").encode("utf-8")
        self._timeout_s = timeout_s
        self._connection: Connection[Any] | None = None

    def __repr__(self) -> str:
        return f"MySqlKeyServer({self.name!r}, database={self._database!r})"

    def known(self, keys: Sequence[bytes]) -> set[bytes]:
        if not keys:
            return set()
        return set(from_hex(row[0] for row in self._rows(_select("hash", keys))))

    def states(self, keys: Sequence[bytes]) -> dict[bytes, int]:
        if not keys:
            return {}
        return dict(_pairs(self._rows(_select("hash, keyinfo", keys))))

    def insert(self, keys: Sequence[bytes], state: KeyState) -> None:
        if state is KeyState.QUEUED:
            self._write(_insert("INSERT IGNORE", keys, state), keys)
        else:
            update = " ON DUPLICATE KEY UPDATE keyinfo = GREATEST(COALESCE(keyinfo, 0), VALUES(keyinfo))"
            self._write(_insert("INSERT", keys, state) + update, keys)

    def mark(self, keys: Sequence[bytes], state: KeyState) -> None:
        if state is KeyState.QUEUED:
            self.insert(keys, state)
        else:
            update = " ON DUPLICATE KEY UPDATE keyinfo = VALUES(keyinfo)"
            self._write(_insert("INSERT", keys, state) + update, keys)

    def delete(self, keys: Sequence[bytes]) -> int:
        return self._write(f"DELETE FROM {TABLE} WHERE hash IN ({_quoted(keys)})", keys)

    def claim(self, keys: Sequence[bytes]) -> Claim:
        if not keys:
            return Claim()
        for _ in range(TRIES):
            claim = self._repeated(lambda connection: self._try_claim(connection, keys))
            if claim is not None:
                return claim
        return Claim(unsure=set(keys))

    def _try_claim(self, connection: Connection[Any], keys: Sequence[bytes]) -> Claim | None:
        """One transaction; None if another writer came between and nothing was added."""
        connection.begin()
        theirs = set(from_hex(row[0] for row in _fetch(connection, _select("hash", keys))))
        ours = [key for key in keys if key not in theirs]
        if ours and _execute(connection, _insert("INSERT IGNORE", ours, KeyState.QUEUED)) < len(ours):
            connection.rollback()
            return None
        try:
            connection.commit()
        except (pymysql.MySQLError, OSError):
            # Sent, and no answer: the server has either done it or not. Nothing may be raised that makes a caller,
            # or `_repeated`, send it again.
            self._drop_connection()
            return Claim(theirs=theirs, unsure=set(ours))
        return Claim(ours=set(ours), theirs=theirs)

    def counts(self) -> dict[int, int]:
        found: dict[int, int] = {}
        for state, count in self._rows(sql_file("counts.sql")[0]):
            found[state or 0] = found.get(state or 0, 0) + count
        return found

    def scan(self, low: bytes, high: bytes) -> Iterator[tuple[bytes, int]]:
        comparison, start = ">=", low
        while True:
            rows = self._rows(
                f"SELECT hash, keyinfo FROM {TABLE} WHERE hash {comparison} '{start.hex()}' AND hash <= '{high.hex()}'"
                f" ORDER BY hash LIMIT {STATEMENT_KEYS}"
            )
            pairs = _pairs(rows)
            yield from pairs
            if len(pairs) < STATEMENT_KEYS:
                return
            comparison, start = ">", pairs[-1][0]

    def prefix_sums(self, low: bytes, high: bytes) -> dict[tuple[str, int], PrefixSum]:
        statement = sql_file("prefixes.sql")[0].replace(LOWEST, low.hex()).replace(HIGHEST, high.hex())
        found: dict[tuple[str, int], PrefixSum] = {}
        for prefix, state, count, total in self._rows(statement):
            place = (prefix.decode("ascii"), state or 0)
            before = found.get(place, PrefixSum(0, 0))
            found[place] = PrefixSum(before.count + count, before.total + int(total))
        return found

    def exists(self) -> bool:
        query = (
            "SELECT 1 FROM information_schema.tables"
            f" WHERE table_schema = '{self._database}' AND table_name = '{TABLE}'"
        )
        try:
            return bool(self._rows(query))
        except _NoDatabaseError:
            return False

    def create(self, *, drop: bool = False) -> None:
        if not drop and self.exists():
            raise KeyTablesError(_tables_stand(self.name))
        self._create_database()
        for statement in [*(sql_file("drop.sql") if drop else []), *sql_file("create.sql")]:
            self._repeated(lambda connection, statement=statement: _execute(connection, statement))  # type: ignore[misc]

    def _create_database(self) -> None:
        """Create the database if it is not there; without the right to, say what an administrator has to do."""
        try:
            self._repeated(lambda connection: None)
        except _NoDatabaseError as missing:
            try:
                connection = self._connect(database=None)
                try:
                    _execute(connection, f"CREATE DATABASE IF NOT EXISTS `{self._database}`")
                finally:
                    connection.close()
            except (pymysql.MySQLError, OSError) as error:
                translated = self._translate(error)
                raise (missing if isinstance(translated, _NoDatabaseError) else translated) from error

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(pymysql.MySQLError, OSError):
                connection.close()

    def _write(self, statement: str, keys: Sequence[bytes]) -> int:
        """Send a statement that may be repeated, again after a deadlock; returns the number of affected rows."""
        if not keys:
            return 0
        return self._repeated(lambda connection: _execute(connection, statement))

    def _rows(self, statement: str) -> Sequence[Any]:
        return self._repeated(lambda connection: _fetch(connection, statement))

    def _repeated(self, work: Callable[[Connection[Any]], _T]) -> _T:
        """Do work that may be repeated: once more after a lost connection, some times after a deadlock."""
        started = time.monotonic()
        reconnected = False
        contended = 0
        while True:
            fresh = self._connection is None
            try:
                if self._connection is None:
                    self._connection = self._connect(self._database)
                return work(self._connection)
            except (pymysql.MySQLError, OSError) as error:
                if _code(error) in _CONTENTION and contended < TRIES:
                    contended += 1
                    self._roll_back()
                    continue
                self._drop_connection()
                # Waiting for a server that hangs is paid for once only; one that refused a new connection is down.
                in_time = time.monotonic() - started < min(self._timeout_s, CONNECT_TIMEOUT_S)
                if _is_lost(error) and not reconnected and not fresh and in_time:
                    reconnected = True
                    continue
                raise self._translate(error) from error

    def _connect(self, database: str | None) -> Connection[Any]:
        return pymysql.connect(
            host=self._host,
            port=self._port,
            user=self._user,
            password=self._password,  # type: ignore[arg-type]
            database=database,
            charset="utf8mb4",
            use_unicode=False,
            autocommit=True,
            connect_timeout=min(self._timeout_s, CONNECT_TIMEOUT_S),  # type: ignore[arg-type]
            read_timeout=self._timeout_s,  # type: ignore[arg-type]
            write_timeout=self._timeout_s,  # type: ignore[arg-type]
            init_command="SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED",
        )

    def _roll_back(self) -> None:
        if self._connection is not None:
            try:
                self._connection.rollback()
            except (pymysql.MySQLError, OSError):
                self._drop_connection()

    def _drop_connection(self) -> None:
        """Forget a connection that may be broken, without waiting for a farewell."""
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(pymysql.MySQLError, OSError):
                connection._force_close()

    def _translate(self, error: Exception) -> KeyStoreError:
        return translate(self.name, self._user, self._database, error)


class _NoDatabaseError(KeyTablesError):
    """The database is not there, or the user may not see it."""


def parse_server(name: str) -> tuple[str, int]:
    """Host and port of `host[:port]` or `[address]:port`. Raises ConfigError."""
    if name.startswith("["):
        host, _, rest = name[1:].partition("]")
        port = rest.removeprefix(":")
    else:
        host, _, port = name.partition(":")
    if not host or (port and not (port.isascii() and port.isdigit() and 0 < int(port) < 65536)):
        raise ConfigError(
            f"key_storage.servers: {name!r} is no server: write host or host:port, [address]:port for IPv6"
        )
    return host, int(port or DEFAULT_PORT)


def translate(server: str, user: str, database: str, error: Exception) -> KeyStoreError:
    """The error of Krake for one of PyMySQL or of a socket: names the server and what to do, never the password."""
    code = _code(error)
    text = " ".join(str(error.args[1] if len(error.args) > 1 else error).split())
    if code == ER.NO_SUCH_TABLE:
        return KeyTablesError(f"{server}: has no key table in database {database}: run `krake keys create`")
    if code == ER.TABLE_EXISTS_ERROR:
        return KeyTablesError(_tables_stand(server))
    if code == ER.BAD_DB_ERROR:
        return _NoDatabaseError(f"{server}: has no database {database}: run `krake keys create`")
    if code == ER.DBACCESS_DENIED_ERROR:
        return _NoDatabaseError(
            f"{server}: user {user!r} may not use database {database}: an administrator runs"
            f" CREATE DATABASE {database}; GRANT ALL ON {database}.* TO {user!r}"
        )
    if code == ER.ACCESS_DENIED_ERROR:
        return KeyStoreError(
            f"{server}: refuses user {user!r}: check key_storage.user and the password"
            " (KRAKE_KEY_STORAGE_PASSWORD or the Airflow connection krake_keys)"
        )
    if code in _READ_ONLY:
        return KeyStoreError(f"{server}: is read-only ({text}): make it writable, or name its primary in the config")
    if code in _NO_RIGHT:
        return KeyStoreError(f"{server}: {text}: an administrator runs GRANT ALL ON {database}.* TO {user!r}")
    if code in _NO_ROOM:
        return KeyStoreError(f"{server}: {text}: make room on its disk, then run again")
    if _is_lost(error):
        return KeyServerDownError(f"{server}: does not answer: {text}: start it, or look at the network")
    return KeyStoreError(f"{server}: {text} (error {code})")


def _code(error: Exception) -> int | None:
    first = error.args[0] if error.args else None
    return first if isinstance(error, pymysql.MySQLError) and isinstance(first, int) else None


def _is_lost(error: Exception) -> bool:
    return isinstance(error, OSError) or _code(error) in _LOST


def _tables_stand(server: str) -> str:
    return f"{server}: key tables stand there already; `krake keys create --drop` deletes them first"


def _quoted(keys: Sequence[bytes]) -> str:
    return f"'{hex_list(keys, chr(39) + ',' + chr(39))}'"


def _select(columns: str, keys: Sequence[bytes]) -> str:
    return f"SELECT {columns} FROM {TABLE} WHERE hash IN ({_quoted(keys)})"


def _insert(verb: str, keys: Sequence[bytes], state: KeyState) -> str:
    rows = hex_list(keys, f"',{int(state)}),('")
    return f"{verb} INTO {TABLE} VALUES ('{rows}',{int(state)})"


def _execute(connection: Connection[Any], statement: str) -> int:
    return connection.query(statement)


def _fetch(connection: Connection[Any], statement: str) -> Sequence[Any]:
    with connection.cursor() as cursor:
        cursor.execute(statement)
        return cursor.fetchall()


def _pairs(rows: Sequence[Any]) -> list[tuple[bytes, int]]:
    return list(zip(from_hex(row[0] for row in rows), (row[1] or 0 for row in rows), strict=True))
