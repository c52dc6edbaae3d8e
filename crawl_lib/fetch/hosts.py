"""What a node remembers of hosts from one iteration to the next: when they were last asked, and their robots.txt.

One SQLite file in the node's directory, shared by the node's processes. A host's row is written every few seconds and
at the end; an answer to robots.txt at once. `begin` leaves a durable mark that only `finish` takes away. If the mark
is found at the next `begin`, the rows may be too old, so every host counts as asked at that moment.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from crawl_lib.durable import reached
from crawl_lib.errors import StorageError

FILE_NAME = "hosts.sqlite"
_KEPT_S = 30 * 86400.0

_SCHEMA = """
CREATE TABLE IF NOT EXISTS hosts (host TEXT PRIMARY KEY, last_end REAL NOT NULL, delay_s REAL NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS robots (authority TEXT PRIMARY KEY, verdict TEXT NOT NULL, body BLOB NOT NULL,
    error TEXT NOT NULL, fetched REAL NOT NULL, expires REAL NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS marks (name TEXT PRIMARY KEY, value REAL NOT NULL) WITHOUT ROWID;
"""


@dataclass(frozen=True, slots=True)
class HostRow:
    """When a host's last response ended (POSIX seconds), and the delay that it is owed then (seconds)."""

    host: str
    last_end: float
    delay_s: float


@dataclass(frozen=True, slots=True)
class RobotsRow:
    """An answer to robots.txt of one `scheme://host[:port]`. `verdict`: see `robots.Verdict`. Times: POSIX seconds."""

    authority: str
    verdict: str
    body: bytes
    error: str
    fetched: float
    expires: float


class HostStore:
    """The store in `node_dir` (a directory that is there). Several processes may have one open.

    `wall`: POSIX seconds. Every method raises StorageError naming the file; the operator looks at the disk.
    """

    def __init__(self, node_dir: Path, *, wall: Callable[[], float] = time.time) -> None:
        self.path = Path(node_dir) / FILE_NAME
        self._wall = wall
        with self._translated():
            self._db = sqlite3.connect(self.path, timeout=30.0, isolation_level=None, check_same_thread=False)
            try:
                self._db.execute("PRAGMA journal_mode=WAL")
                self._db.execute("PRAGMA synchronous=NORMAL")
                self._db.executescript(_SCHEMA)
            except BaseException:
                self._db.close()
                raise

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise StorageError(f"{self.path}: {error}; it may be deleted while no task of the node runs") from error

    def __enter__(self) -> HostStore:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the file. Takes no mark away: only `finish` says that the stop was clean."""
        with self._translated():
            self._db.close()

    def begin(self) -> bool:
        """Set the durable mark, once a node before its processes fetch. Returns whether the last stop was unclean.

        After an unclean stop every host waits one delay from now. Rows older than 30 days are forgotten.
        """
        with self._translated():
            unclean = self._mark("dirty") is not None
            now = self._wall()
            self._db.execute("PRAGMA synchronous=FULL")
            self._db.execute("BEGIN IMMEDIATE")
            self._db.execute("INSERT OR REPLACE INTO marks VALUES ('dirty', ?)", (now,))
            if unclean:
                self._db.execute("INSERT OR REPLACE INTO marks VALUES ('hold_from', ?)", (now,))
            self._db.execute("DELETE FROM hosts WHERE last_end < ?", (now - _KEPT_S,))
            self._db.execute("DELETE FROM robots WHERE expires < ?", (now - _KEPT_S,))
            self._db.execute("COMMIT")
            self._db.execute("PRAGMA synchronous=NORMAL")
        reached("hosts.begun")
        return unclean

    def finish(self) -> None:
        """Take the mark away, durably: every process has ended well and written its rows."""
        with self._translated():
            self._db.execute("PRAGMA synchronous=FULL")
            self._db.execute("DELETE FROM marks WHERE name = 'dirty'")
            self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            self._db.execute("PRAGMA synchronous=NORMAL")
        reached("hosts.finished")

    def hold_from(self) -> float:
        """POSIX seconds at which every host counts as asked (the last unclean stop was found then); 0 if never."""
        with self._translated():
            return self._mark("hold_from") or 0.0

    def _mark(self, name: str) -> float | None:
        row = self._db.execute("SELECT value FROM marks WHERE name = ?", (name,)).fetchone()
        return None if row is None else float(row[0])

    def host(self, host: str) -> HostRow | None:
        """What is known of a host."""
        with self._translated():
            row = self._db.execute("SELECT host, last_end, delay_s FROM hosts WHERE host = ?", (host,)).fetchone()
        return None if row is None else HostRow(*row)

    def save_hosts(self, rows: Iterable[HostRow]) -> None:
        """Write rows of hosts, replacing older ones."""
        with self._translated():
            self._db.execute("BEGIN IMMEDIATE")
            self._db.executemany(
                "INSERT INTO hosts VALUES (?, ?, ?) ON CONFLICT (host) DO UPDATE SET"
                " last_end = max(last_end, excluded.last_end), delay_s = excluded.delay_s",
                [(row.host, row.last_end, row.delay_s) for row in rows],
            )
            self._db.execute("COMMIT")

    def robots(self, authority: str) -> RobotsRow | None:
        """The last answer to an authority's robots.txt, expired or not."""
        with self._translated():
            row = self._db.execute("SELECT * FROM robots WHERE authority = ?", (authority,)).fetchone()
        return None if row is None else RobotsRow(*row)

    def save_robots(self, row: RobotsRow, host: HostRow) -> None:
        """Write an answer to robots.txt and its host's row, at once."""
        with self._translated():
            self._db.execute("BEGIN IMMEDIATE")
            self._db.execute(
                "INSERT OR REPLACE INTO robots VALUES (?, ?, ?, ?, ?, ?)",
                (row.authority, row.verdict, row.body, row.error, row.fetched, row.expires),
            )
            self._db.execute("INSERT OR REPLACE INTO hosts VALUES (?, ?, ?)", (host.host, host.last_end, host.delay_s))
            self._db.execute("COMMIT")
        reached("hosts.robots")
