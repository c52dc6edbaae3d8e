"""What a node remembers of hosts from one iteration to the next: when they were last asked, and their robots.txt.

One SQLite file, shared by the node's processes. A host's row is written every few seconds and at the end; an answer to
robots.txt at once. `begin` leaves a durable mark that only `finish` takes away. If the mark is found at the next
`begin`, the rows may be too old, so every host counts as asked at that moment.

What was written later than now, by a clock that was ahead, is not believed: a host counts as asked now, and its
robots.txt is asked for again. So is what is not of its column's type.

It lies in the folder `hosts` of the node's directory, with the turns: the only place but the spool that a fetching
process may write to, and SQLite makes files of its own there. Older versions had them next to the queue.
"""

import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from crawl_lib.durable import fsync_dir, reached
from crawl_lib.errors import SQLITE_ERRORS, StorageError, os_errors
from crawl_lib.fetch.turns import TURNS_FILE
from crawl_lib.frontier import NodeDirectory

FILE_NAME = "hosts.sqlite"
HOSTS_TABLES = {
    "hosts": "host, last_end, delay_s",
    "robots": "authority, verdict, body, error, fetched, expires",
    "marks": "name, value",
}
"""Its tables with their columns."""
_FILES = (f"{FILE_NAME}-wal", f"{FILE_NAME}-shm", TURNS_FILE, FILE_NAME)
_KEPT_S = 30 * 86400.0

_SCHEMA = """
CREATE TABLE IF NOT EXISTS hosts (host TEXT PRIMARY KEY, last_end REAL NOT NULL, delay_s REAL NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS robots (authority TEXT PRIMARY KEY, verdict TEXT NOT NULL, body BLOB NOT NULL,
    error TEXT NOT NULL, fetched REAL NOT NULL, expires REAL NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS marks (name TEXT PRIMARY KEY, value REAL NOT NULL) WITHOUT ROWID;
"""


class HostRow(NamedTuple):
    """When a host's last response ended (POSIX seconds), and the delay that it is owed then (seconds)."""

    host: str
    last_end: float
    delay_s: float


class RobotsRow(NamedTuple):
    """An answer to robots.txt of one `scheme://host[:port]`. `verdict`: see `robots.Verdict`. Times: POSIX seconds."""

    authority: str
    verdict: str
    body: bytes
    error: str
    fetched: float
    expires: float


def make_hosts_folder(node_dir: Path) -> Path:
    """The folder `hosts` of a node's directory, made if it is missing; files of before are moved into it.

    SQLite's belong together, so a move that was killed goes on before anything is opened. The caller holds the node's
    lock. Raises StorageError naming the path; the operator looks at the disk.
    """
    folder = NodeDirectory(node_dir).hosts
    with os_errors(folder, "cannot be made"):
        folder.mkdir(exist_ok=True)
        for name in filter(lambda name: (node_dir / name).exists(), _FILES):
            (node_dir / name).rename(folder / name)
            reached("hosts.moved")
        fsync_dir(folder)
        fsync_dir(node_dir)
    return folder


def host_stores(node_dir: Path) -> list[Path]:
    """The files of host stores in a node's directory, where they are and where they were before: none, or one."""
    paths = (NodeDirectory(node_dir).hosts / FILE_NAME, node_dir / FILE_NAME)
    return [path for path in paths if path.exists()]


def _without_programs(action: int, first: str | None, second: str | None, base: str | None, inner: str | None) -> int:
    """Deny what a trigger or view would do: fetching processes write the file, and one without end would hold us up."""
    return sqlite3.SQLITE_DENY if inner else sqlite3.SQLITE_OK


class HostStore:
    """The store in `folder` (which is there). Several processes may have one open.

    `wall`: POSIX seconds. `robots_ttl_s`: an answer to robots.txt that would hold for longer than so many seconds from
    now is not believed. Every method raises StorageError naming the file; the operator looks at the disk.
    """

    def __init__(
        self, folder: Path, *, wall: Callable[[], float] = time.time, robots_ttl_s: float = float("inf")
    ) -> None:
        self.path = Path(folder) / FILE_NAME
        self._wall = wall
        self._robots_ttl_s = robots_ttl_s
        with self._translated():
            self._db = sqlite3.connect(self.path, timeout=30.0, isolation_level=None, check_same_thread=False)
            try:
                self._db.set_authorizer(_without_programs)
                self._db.execute("PRAGMA journal_mode=WAL")
                self._db.executescript(_SCHEMA)
            except BaseException:
                self._db.close()
                raise

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except SQLITE_ERRORS as error:
            raise StorageError(f"{self.path}: {error}; it may be deleted while no task of the node runs") from error

    @contextmanager
    def _transaction(self, *, durable: bool = False) -> Iterator[None]:
        with self._translated():
            self._db.execute(f"PRAGMA synchronous={'FULL' if durable else 'NORMAL'}")
            self._db.execute("BEGIN IMMEDIATE")
            yield
            self._db.execute("COMMIT")

    def _row(self, query: str, *values: str | float) -> Any:
        with self._translated():
            return self._db.execute(query, values).fetchone()

    def __enter__(self) -> "HostStore":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file. Takes no mark away: only `finish` says that the stop was clean."""
        with self._translated():
            self._db.close()

    def begin(self, *, hold: bool = False) -> bool:
        """Set the durable mark, once a node before its processes fetch. Returns whether every host waits from now.

        They do, for one delay, after an unclean stop, or if `hold` says so. Rows older than 30 days are forgotten, and
        times later than now become now.
        """
        hold = hold or self._mark("dirty") is not None
        now = self._wall()
        with self._transaction(durable=True):
            marks = ("dirty", "hold_from") if hold else ("dirty",)
            self._db.executemany("INSERT OR REPLACE INTO marks VALUES (?, ?)", [(mark, now) for mark in marks])
            self._db.execute("DELETE FROM hosts WHERE last_end < ?", (now - _KEPT_S,))
            self._db.execute("DELETE FROM robots WHERE expires < ?", (now - _KEPT_S,))
            self._db.execute("UPDATE hosts SET last_end = ?1 WHERE last_end > ?1", (now,))
            self._db.execute("UPDATE marks SET value = ?1 WHERE value > ?1", (now,))
        reached("hosts.begun")
        return hold

    def finish(self) -> None:
        """Take the mark away, durably: every process has ended well and written its rows."""
        with self._transaction(durable=True):
            self._db.execute("DELETE FROM marks WHERE name = 'dirty'")
        self._row("PRAGMA wal_checkpoint(TRUNCATE)")
        reached("hosts.finished")

    def hold_from(self) -> float:
        """POSIX seconds at which every host counts as asked (the last unclean stop was found then); 0 if never."""
        return self._mark("hold_from") or 0.0

    def _mark(self, name: str) -> float | None:
        row = self._row("SELECT value FROM marks WHERE name = ?", name)
        return None if row is None else row[0] if isinstance(row[0], float) else self._wall()

    def host(self, host: str) -> HostRow | None:
        """What is known of a host."""
        row = self._row(
            "SELECT host, last_end, delay_s FROM hosts"
            " WHERE host = ? AND typeof(last_end) = 'real' AND typeof(delay_s) = 'real'",
            host,
        )
        return None if row is None else HostRow(*row)

    def save_hosts(self, rows: Iterable[HostRow]) -> None:
        """Write rows of hosts, replacing older ones."""
        now = self._wall()
        with self._transaction():
            self._db.executemany(
                "INSERT INTO hosts VALUES (?, ?, ?) ON CONFLICT (host) DO UPDATE SET"
                " last_end = max(min(last_end, ?), excluded.last_end), delay_s = excluded.delay_s",
                [(*row, now) for row in rows],
            )

    def robots(self, authority: str) -> RobotsRow | None:
        """The last answer to an authority's robots.txt, expired or not; None too where its times cannot be."""
        now = self._wall()
        row = self._row(
            "SELECT authority, verdict, body, error, fetched, expires FROM robots WHERE authority = ?"
            " AND typeof(verdict) = 'text' AND typeof(body) = 'blob' AND typeof(error) = 'text'"
            " AND typeof(fetched) = 'real' AND typeof(expires) = 'real' AND fetched <= ? AND expires <= ?",
            *(authority, now, now + self._robots_ttl_s),
        )
        return None if row is None else RobotsRow(*row)

    def save_robots(self, row: RobotsRow, host: HostRow) -> None:
        """Write an answer to robots.txt and its host's row, at once."""
        with self._transaction():
            self._db.execute("INSERT OR REPLACE INTO robots VALUES (?, ?, ?, ?, ?, ?)", row)
            self._db.execute("INSERT OR REPLACE INTO hosts VALUES (?, ?, ?)", host)
        reached("hosts.robots")
