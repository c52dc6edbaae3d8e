"""A key "server" that is a SQLite file: the embedded store, for one machine.

Several processes may use one file: WAL lets readers and one writer work at the same time, and a writer waits for
another up to the time limit. `synchronous=FULL` costs one fsync a statement of 5,000 keys (not measurable) and keeps
keys over a power loss; so the order "URL durable, then key durable" holds here too.
"""

import fcntl
import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

from crawl_lib.durable import fsync_dir
from crawl_lib.errors import (
    SQLITE_ERRORS,
    DamagedKeysError,
    KeyAccessError,
    KeyServerDownError,
    KeyServerFullError,
    KeyStoreError,
    KeyTablesError,
    os_error,
)
from crawl_lib.keys.server import (
    HIGHEST,
    LOWEST,
    MAKE,
    MAKE_SLOTS,
    NOTE_TABLE,
    SLOT_TABLE,
    TABLE,
    TABLES_EXIST,
    Claim,
    KeyServer,
    SlotAnswer,
    SlotEnd,
    SlotWish,
    damaged,
    from_rows,
    hex_list,
    sql_file,
)
from crawl_lib.states import KeyState

_SELECT = f"SELECT CAST(k.hash AS BLOB), k.keyinfo FROM json_each(?) j CROSS JOIN {TABLE} k ON k.hash = j.value"
_ADD = f"INSERT OR IGNORE INTO {TABLE} SELECT value, ? FROM json_each(?)"
_UPSERT = f"INSERT INTO {TABLE} SELECT value, ? FROM json_each(?) WHERE true ON CONFLICT (hash) DO UPDATE SET keyinfo ="
_RAISE = f"{_UPSERT} max(coalesce(keyinfo, 0), excluded.keyinfo)"
_SET = f"{_UPSERT} excluded.keyinfo"
_DELETE = f"DELETE FROM {TABLE} WHERE hash IN (SELECT value FROM json_each(?))"
_OUTSIDE = (
    f"SELECT 1 FROM {TABLE} WHERE hash IS NULL OR hash < '{LOWEST}' OR hash > '{HIGHEST}' LIMIT 1"
)


class SqliteKeyServer(KeyServer):
    """One SQLite file. `path`: the file; its folder is made if that folder's parent is there.

    `timeout_s`: how long a statement waits for another process that writes. Opens nothing before the first request.
    """

    HASH, NOTE = "CAST(hash AS BLOB)", "CAST(note AS BLOB)"
    DIALECT = ".sqlite.sql"

    def __init__(self, path: str | Path, *, timeout_s: float = 30.0) -> None:
        self.path = Path(path)
        self.name = str(path)
        self._timeout_s = timeout_s
        self._connection: sqlite3.Connection | None = None

    def known(self, keys: Sequence[bytes]) -> set[bytes]:
        return set(self.states(keys))

    def states(self, keys: Sequence[bytes]) -> dict[bytes, int]:
        return dict(from_rows(self.name, self._rows(_SELECT, _json(keys))))

    def _rows(self, statement: str, *values: str) -> Sequence[Any]:
        with self._open() as connection:
            return connection.execute(statement, values).fetchall()

    def insert(self, keys: Sequence[bytes], state: KeyState) -> None:
        self._note(keys, state, _RAISE)

    def set_state(self, keys: Sequence[bytes], state: KeyState) -> None:
        self._note(keys, state, _SET)

    def _note(self, keys: Sequence[bytes], state: KeyState, statement: str) -> None:
        with self._open() as connection:
            connection.execute(
                _ADD if state is KeyState.QUEUED else statement, (int(state), _json(keys))
            )

    def claim(self, keys: Sequence[bytes]) -> Claim:
        with self._open() as connection:
            with _undone_if_it_fails(connection):
                theirs = self.known(keys)
                ours = set(keys) - theirs
                connection.execute(_ADD, (int(KeyState.QUEUED), _json(sorted(ours))))
            try:
                connection.execute("COMMIT")
            except SQLITE_ERRORS:
                # An I/O error here leaves open whether the log has it; a new connection will see what the log says.
                self.close()
                return Claim(theirs=theirs, unsure=ours)
        return Claim(ours=ours, theirs=theirs)

    def delete(self, keys: Sequence[bytes]) -> int:
        with self._open() as connection:
            return connection.execute(_DELETE, (_json(keys),)).rowcount

    def problems(self) -> Iterator[str]:
        for (problem,) in self._rows("PRAGMA quick_check(3)"):
            if problem != "ok":
                yield str(problem)
        if self.exists():
            if self._rows(_OUTSIDE):
                yield "a hash in the file is no SHA-1 in hex"
            for _ in self.scan(bytes(20), b"\xff" * 20):
                pass

    def write_note(self, text: str) -> None:
        with self._open() as connection, _undone_if_it_fails(connection):
            for statement in [*sql_file("note.sql"), f"DELETE FROM {NOTE_TABLE}"]:
                connection.execute(statement)
            connection.execute(f"INSERT INTO {NOTE_TABLE} VALUES (1, ?)", (text,))
            connection.execute("COMMIT")

    def turns(self, wishes: Sequence[SlotWish], ends: Sequence[SlotEnd] = ()) -> list[SlotAnswer]:
        with self._open() as connection, _undone_if_it_fails(connection):
            answers = self._turns(
                wishes,
                ends,
                run=lambda statement: connection.execute(statement).rowcount,
                rows=lambda statement: connection.execute(statement).fetchall(),
            )
            connection.execute("COMMIT")
        return answers

    def has_slots(self) -> bool:
        return SLOT_TABLE in self._tables()

    def make_slots(self) -> None:
        with self._open() as connection:
            connection.execute(sql_file("slots.sql")[0])

    def _tables(self) -> set[str]:
        return {
            name for (name,) in self._rows("SELECT name FROM sqlite_master WHERE type = 'table'")
        }

    def exists(self) -> bool:
        if not self._file_is_there():
            return False
        tables = self._tables()
        if tables and TABLE not in tables:
            raise damaged(self.name, f"there is no {TABLE} in it, but another table")
        return bool(tables)

    def create(self, *, drop: bool = False) -> None:
        if not self._file_is_there() and self._create_file():
            return
        try:
            if self.exists() and not drop:
                raise KeyTablesError(f"{self.name}: {TABLES_EXIST}")
        except DamagedKeysError:
            if not drop:
                raise
            self.close()
            self.path.unlink()
            self._create_file()
            return
        with self._open() as connection, _undone_if_it_fails(connection):
            for statement in [*sql_file("drop.sql"), *sql_file("create.sqlite.sql"), "COMMIT"]:
                connection.execute(statement)

    def ensure(self) -> None:
        if not self._file_is_there():
            self._create_file()

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _file_is_there(self) -> bool:
        with self._usable():
            return self.path.exists()

    @contextmanager
    def _usable(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise KeyStoreError(
                f"{os_error(error, self.name, 'cannot be created or opened')}: the parent of its folder must exist and"
                " be writable (key_storage.servers)"
            ) from error

    def _create_file(self) -> bool:
        """Make the file with its table appear at once.

        False: another process was faster.
        """
        folder, name = self.path.parent, self.path.name
        temporary = folder / f".{name}.{os.getpid()}.tmp"
        with self._usable(), ExitStack() as stack:
            if not folder.is_dir():
                folder.mkdir(exist_ok=True)
                fsync_dir(folder.parent)
            # Only one process at a time makes a file there.
            descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
            stack.callback(os.close, descriptor)
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            if self.path.exists():
                return False
            # The log of a file that was deleted by hand must not be replayed into the new one.
            for old in (temporary, folder / f"{name}-wal", folder / f"{name}-shm"):
                old.unlink(missing_ok=True)
            stack.callback(temporary.unlink, missing_ok=True)
            with (
                translated(self.name),
                closing(sqlite3.connect(temporary, isolation_level=None)) as connection,
            ):
                for statement in ["PRAGMA journal_mode = WAL", *sql_file("create.sqlite.sql")]:
                    connection.execute(statement)
            temporary.rename(self.path)
            fsync_dir(folder)
        return True

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        """Give the open connection; errors inside are translated."""
        with translated(self.name):
            if self._connection is None:
                self._connection = self._connect()
            yield self._connection

    def _connect(self) -> sqlite3.Connection:
        if not self._file_is_there():
            raise KeyTablesError(f"{self.name}: no such file: {MAKE}")
        uri = f"{self.path.absolute().as_uri()}?mode=rw"
        connection = sqlite3.connect(
            uri, uri=True, timeout=self._timeout_s, isolation_level=None, check_same_thread=False
        )
        try:
            for pragma in ("journal_mode = WAL", "synchronous = FULL", "cache_size = -65536"):
                connection.execute(f"PRAGMA {pragma}")
            # With a type in the schema that is not ours, keys would be compared as numbers, and none be known.
            columns = connection.execute(
                f"SELECT name, type FROM pragma_table_info('{TABLE}')"
            ).fetchall()
            if columns and columns != [("hash", "CHAR(40)"), ("keyinfo", "TINYINT")]:
                raise damaged(self.name, "its columns are others")
        except BaseException:
            connection.close()
            raise
        return connection


@contextmanager
def _undone_if_it_fails(connection: sqlite3.Connection) -> Iterator[None]:
    """Roll back the caller's transaction after an exception."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        connection.rollback()
        raise


def _json(keys: Sequence[bytes]) -> str:
    return f'["{hex_list(keys, chr(34) + "," + chr(34))}"]' if keys else "[]"


@contextmanager
def translated(server: str) -> Iterator[None]:
    """Translate errors of sqlite3 within a block (`translate`)."""
    try:
        yield
    except SQLITE_ERRORS as error:
        raise translate(server, error) from error


_DISK = (KeyServerDownError, "{text}: look at the file's disk, then run again")
_BUSY = (
    KeyServerDownError,
    "another process has locked the file for longer than key_storage.timeout_s",
)
_NOT_WRITABLE = (KeyAccessError, "{text}: make file and folder writable for this user")
_ADVICE: dict[int, tuple[type[KeyStoreError], str]] = {
    sqlite3.SQLITE_BUSY: _BUSY,
    sqlite3.SQLITE_LOCKED: _BUSY,
    sqlite3.SQLITE_IOERR: _DISK,
    sqlite3.SQLITE_FULL: (KeyServerFullError, "{text}: make room on its disk, then run again"),
    sqlite3.SQLITE_READONLY: _NOT_WRITABLE,
    sqlite3.SQLITE_CANTOPEN: _NOT_WRITABLE,
    sqlite3.SQLITE_PERM: _NOT_WRITABLE,
}


def translate(server: str, error: Exception) -> KeyStoreError:
    """Return Krake's error for an error of sqlite3.

    It names the server and the remedy.
    """
    text = str(error)
    if f"no such table: {SLOT_TABLE}" in text:
        return KeyTablesError(f"{server}: has no table of turns: {MAKE_SLOTS}")
    if "no such table" in text:
        return KeyTablesError(f"{server}: has no key table: {MAKE}")
    if "already exists" in text:
        return KeyTablesError(f"{server}: {TABLES_EXIST}")
    if isinstance(error, UnicodeDecodeError) or any(
        sign in text for sign in ("no such column", "Could not decode", "malformed")
    ):
        return damaged(server, text)
    # The low byte is the error's class, the rest its detail: https://www.sqlite.org/rescode.html#pve
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
    if code in (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT):
        return damaged(server, text)
    kind, advice = _ADVICE.get(code, (KeyStoreError, "{text}"))
    return kind(f"{server}: {advice.format(text=text)}")
