"""A node's memory of hosts from one iteration to the next: when they were last asked, back-offs, robots.txt.
`pagetables` has the tables of pages.

One SQLite file, shared by the node's processes. A host's row is written every few seconds and at the end; its back-off
and an answer to robots.txt at once. `begin` leaves a durable mark, removed by `finish` alone. If the mark is found
at the next `begin`, the rows may be too old, so every host counts as asked at that moment.

A time later than now, from a clock that was ahead, is not trusted: a host counts as asked now, and its robots.txt is
asked for again. The same holds for a value of the wrong type, and for a back-off longer than any can be.

It lies in the folder `hosts` of the node's directory, with the turns: the only place but the spool for writes of a
fetching process; SQLite makes its own files there. Older versions had both next to the queue.
"""

import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from crawl_lib.durable import fsync_dir, reached
from crawl_lib.errors import os_errors, sqlite_errors
from crawl_lib.fetch.pagetables import REMEDY, PageTables, Tables
from crawl_lib.fetch.retry import GROWS
from crawl_lib.findings import open_to_read
from crawl_lib.frontier import NodeDirectory
from crawl_lib.urls import host_of

FILE_NAME = "hosts.sqlite"
HOSTS_TABLES = {
    "hosts": "host, last_end, delay_s",
    "back_offs": "host, until, times",
    "robots": "authority, verdict, body, error, fetched, expires",
    "marks": "name, value",
}
"""Its tables with their columns."""
_KEPT_S = 30 * 86400.0

_SCHEMA = """
CREATE TABLE IF NOT EXISTS hosts (host TEXT PRIMARY KEY, last_end REAL NOT NULL, delay_s REAL NOT NULL,
    answer_s REAL NOT NULL DEFAULT 0) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS back_offs (host TEXT PRIMARY KEY, until REAL NOT NULL, times INTEGER NOT NULL,
    since REAL NOT NULL DEFAULT 0) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS asked (host TEXT PRIMARY KEY, until REAL NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS robots (authority TEXT PRIMARY KEY, verdict TEXT NOT NULL, body BLOB NOT NULL,
    error TEXT NOT NULL, fetched REAL NOT NULL, expires REAL NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS sketches (pattern TEXT, time INTEGER, sketch BLOB NOT NULL, PRIMARY KEY (pattern, time))
    WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS texts (domain INTEGER, words INTEGER, page INTEGER, time INTEGER NOT NULL,
    PRIMARY KEY (domain, words, page)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS full_texts (domain INTEGER, words INTEGER, PRIMARY KEY (domain, words)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS full_pages (page INTEGER PRIMARY KEY, domain INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS finders (domain INTEGER, url INTEGER, page INTEGER NOT NULL, PRIMARY KEY (domain, url))
    WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS marks (name TEXT PRIMARY KEY, value REAL NOT NULL) WITHOUT ROWID;
"""
_LATER_COLUMNS = (("hosts", "answer_s"), ("back_offs", "since"))
"""Columns missing from files of older versions."""
_IN_BACK_OFF = (
    "SELECT host, until FROM back_offs WHERE until > ? AND until <= ? AND typeof(host) = 'text'"
    " AND typeof(until) = 'real' ORDER BY until, host"
)
_SINCE = "SELECT min(since) FROM back_offs WHERE until > ? AND until <= ? AND typeof(since) = 'real' AND since > 0"
_ASKED_UNTIL = (
    "SELECT host, until FROM asked WHERE until > ? AND until "
    "<= ? AND typeof(host) = 'text' AND typeof(until) = 'real'"
)
_FAILED_ROBOTS = "SELECT authority FROM robots WHERE verdict NOT IN ('rules', 'allow') AND typeof(authority) = 'text'"


class HostRow(NamedTuple):
    """When a host's last response ended (POSIX seconds), the delay that it is owed then, and how long its answers take
    on average (seconds; 0: not known)."""

    host: str
    last_end: float
    delay_s: float
    answer_s: float = 0.0


class BackOff(NamedTuple):
    """Until when a host is left alone (POSIX seconds), and how many times in a row it was."""

    until: float
    times: int


NO_BACK_OFF = BackOff(0.0, 0)


class RobotsRow(NamedTuple):
    """An answer to robots.txt of one `scheme://host[:port]`. `verdict`: see `robots.Verdict`. Times: POSIX seconds."""

    authority: str
    verdict: str
    body: bytes
    error: str
    fetched: float
    expires: float


class HostState(NamedTuple):
    """The facts about a host, for another fetcher. `robots`: of one of the host's authorities; None: not known."""

    host: HostRow
    back_off: BackOff
    robots: RobotsRow | None


def make_hosts_folder(node_dir: Path) -> Path:
    """Return a node's folder `hosts`, made if missing.

    The caller holds the node's lock. Raises StorageError naming the path; the operator looks at the disk.
    """
    folder = NodeDirectory(node_dir).hosts
    with os_errors(folder, "cannot be made"):
        # `HeldQueue.finish_open_move` has made the name of a killed task's folder durable.
        if not folder.is_dir():
            folder.mkdir()
            fsync_dir(node_dir)
    return folder


def host_store_file(node_dir: Path) -> Path:
    """Return the path of a node's host store, whether it exists or not."""
    return NodeDirectory(node_dir).hosts / FILE_NAME


@contextmanager
def read_hosts(node_dir: Path) -> Iterator["HostStore | None"]:
    """Open a node's memory of hosts, without changes to files.

    A task of the node may run meanwhile. The result is None if the node remembers nothing yet. Raises StorageError
    naming the file.
    """
    path = host_store_file(node_dir)
    if not path.exists():
        yield None
        return
    with sqlite_errors(path, REMEDY), open_to_read(path) as base:
        base.set_authorizer(_without_programs)
        is_made = base.execute("SELECT 1 FROM sqlite_master WHERE name = 'back_offs'").fetchone()
        yield HostStore(path.parent, base=base) if is_made else None


def hosts_in_back_off(node_dir: Path, now: float, longest_s: float) -> dict[str, float]:
    """Return the hosts to leave alone, without changes to files.

    See `HostStore.in_back_off`. Raises StorageError as that method does.
    """
    with read_hosts(node_dir) as store:
        return store.in_back_off(now, longest_s) if store is not None else {}


def _without_programs(
    action: int, first: str | None, second: str | None, base: str | None, inner: str | None
) -> int:
    """Deny the actions of triggers and views.

    Fetching processes write the file, and an endless program in it would block this process.
    """
    return sqlite3.SQLITE_DENY if inner else sqlite3.SQLITE_OK


def _connected(path: Path) -> sqlite3.Connection:
    with sqlite_errors(path, REMEDY):
        return sqlite3.connect(path, timeout=30.0, isolation_level=None, check_same_thread=False)


class HostStore(Tables):
    """The store in `folder` (which is there). Several processes may have one open. `base`: open already, to be read.

    `wall`: POSIX seconds. `robots_ttl_s`: an answer to robots.txt that would hold for longer than so many seconds from
    now is not believed. `pages`: the tables of pages. Every method raises StorageError naming the file; the operator
    looks at the disk.
    """

    def __init__(
        self,
        folder: Path,
        *,
        wall: Callable[[], float] = time.time,
        robots_ttl_s: float = float("inf"),
        base: sqlite3.Connection | None = None,
    ) -> None:
        path = Path(folder) / FILE_NAME
        super().__init__(path, base if base is not None else _connected(path))
        self.pages = PageTables(path, self._db)
        self._wall = wall
        self._robots_ttl_s = robots_ttl_s
        if base is not None:
            return
        with sqlite_errors(self.path, REMEDY):
            try:
                self._db.set_authorizer(_without_programs)
                self._db.execute(
                    "PRAGMA synchronous=NORMAL"
                )  # tables that a loss of power takes are made again
                self._db.execute("PRAGMA journal_mode=WAL")
                self._db.executescript(_SCHEMA)
                for table, column in _LATER_COLUMNS:
                    if not self._has_column(table, column):
                        self._db.execute(
                            f"ALTER TABLE {table} ADD COLUMN {column} REAL NOT NULL DEFAULT 0"
                        )
            except BaseException:
                self._db.close()
                raise

    def _has_column(self, table: str, column: str) -> bool:
        return column in {name for _, name, *_ in self._db.execute(f"PRAGMA table_info({table})")}

    def __enter__(self) -> "HostStore":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file, and leave the mark.

        Only `finish` records a clean stop.
        """
        with sqlite_errors(self.path, REMEDY):
            self._db.close()

    def begin(self, *, hold: bool = False) -> bool:
        """Set the durable mark before the processes of a node fetch.

        Returns whether every host waits from now. They do, for one delay, after an unclean stop, or if `hold` says so.
        Rows older than 30 days are forgotten, and times later than now become now.
        """
        hold = hold or self._mark("dirty") is not None
        now = self._wall()
        with self._transaction(durable=True):
            marks = ("dirty", "hold_from") if hold else ("dirty",)
            self._db.executemany(
                "INSERT OR REPLACE INTO marks VALUES (?, ?)", [(mark, now) for mark in marks]
            )
            self._db.execute("DELETE FROM hosts WHERE last_end < ?", (now - _KEPT_S,))
            self._db.execute("DELETE FROM robots WHERE expires < ?", (now - _KEPT_S,))
            self._db.execute("DELETE FROM back_offs WHERE until < ?", (now - _KEPT_S,))
            self._db.execute("DELETE FROM asked WHERE until < ?", (now,))
            self._db.execute("UPDATE hosts SET last_end = ?1 WHERE last_end > ?1", (now,))
            self._db.execute("UPDATE marks SET value = ?1 WHERE value > ?1", (now,))
        reached("hosts.begun")
        return hold

    def finish(self) -> None:
        """Remove the mark durably after a clean stop.

        By then every process has ended and saved its rows.
        """
        with self._transaction(durable=True):
            self._db.execute("DELETE FROM marks WHERE name = 'dirty'")
        self._row("PRAGMA wal_checkpoint(TRUNCATE)")
        reached("hosts.finished")

    def hold_from(self) -> float:
        """Return the time at which every host counts as asked.

        At that time the last unclean stop was found, in POSIX seconds; 0: never.
        """
        return self._mark("hold_from") or 0.0

    def _mark(self, name: str) -> float | None:
        row = self._row("SELECT value FROM marks WHERE name = ?", name)
        return None if row is None else row[0] if isinstance(row[0], float) else self._wall()

    def host(self, host: str) -> HostRow | None:
        """Return the facts about a host."""
        row = self._row(
            "SELECT host, last_end, delay_s, answer_s FROM hosts WHERE host = ?"
            " AND typeof(last_end) = 'real' AND typeof(delay_s) = 'real' AND typeof(answer_s) = 'real'",
            host,
        )
        return None if row is None else HostRow(*row)

    def save_hosts(self, rows: Iterable[HostRow]) -> None:
        """Write rows of hosts, replacing older ones."""
        now = self._wall()
        with self._transaction():
            self._db.executemany(
                "INSERT INTO hosts VALUES (?, ?, ?, ?) ON CONFLICT (host) DO UPDATE SET answer_s = excluded.answer_s,"
                " last_end = max(min(last_end, ?), excluded.last_end), delay_s = excluded.delay_s",
                [(*row, now) for row in rows],
            )

    def back_off(self, host: str) -> BackOff:
        """Return the back-off of a host, past or current."""
        row = self._row(
            "SELECT until, max(0, min(times, ?)) FROM back_offs WHERE host = ?"
            " AND typeof(until) = 'real' AND typeof(times) = 'integer'",
            *(GROWS, host),
        )
        return NO_BACK_OFF if row is None else BackOff(*row)

    def save_back_off(self, host: str, back_off: BackOff) -> None:
        """Save the back-off of a host at once.

        A back-off of no times is deleted. The first one of a row records since when the host fails.
        """
        with self._transaction():
            if back_off.times in (0, 1):
                self._db.execute("DELETE FROM back_offs WHERE host = ?", (host,))
            if back_off.times:
                self._db.execute(
                    "INSERT INTO back_offs VALUES (?, ?, ?, ?) ON CONFLICT (host) DO UPDATE SET until = excluded.until,"
                    " times = excluded.times",
                    (host, *back_off, self._wall()),
                )

    def in_back_off(self, now: float, longest_s: float) -> dict[str, float]:
        """Return the hosts to leave alone, with the ends.

        The earliest are first. A back-off of more than `longest_s` from now comes from a clock that was ahead: it is
        over.
        """
        with sqlite_errors(self.path, REMEDY):
            return dict(self._db.execute(_IN_BACK_OFF, (now, now + longest_s)).fetchall())

    def back_offs_since(self, now: float, longest_s: float) -> float | None:
        """Return since when the first host left alone fails.

        In POSIX seconds; None: unknown.
        """
        with sqlite_errors(self.path, REMEDY):
            if not self._has_column("back_offs", "since"):
                return None
            since: float | None = self._db.execute(_SINCE, (now, now + longest_s)).fetchone()[0]
            return since

    def note_asked(self, host: str, until: float) -> None:
        """Record until when a host asked to be left alone (Retry-After).

        In POSIX seconds; the latest time counts.
        """
        with self._transaction():
            self._db.execute(
                "INSERT INTO asked VALUES (?, ?) ON CONFLICT (host) DO UPDATE SET until = max(until, excluded.until)",
                (host, until),
            )

    def asked_until(self, now: float, longest_s: float) -> dict[str, float]:
        """Return the hosts that asked to be left alone, with the ends.

        No time is later than `longest_s` from now.
        """
        with sqlite_errors(self.path, REMEDY):
            if not self._has_column("asked", "until"):
                return {}
            return dict(self._db.execute(_ASKED_UNTIL, (now, now + longest_s)).fetchall())

    def let_go(self, names_host: Callable[[str], bool], asked: Mapping[str, float]) -> None:
        """End the back-offs of hosts, durably, and forget failures of robots.txt.

        Delays of hosts still hold.

        `names_host`: chooses the hosts. `asked`: hosts to leave alone until the requested time; requests of other hosts
        are forgotten, too. How often a host was left alone stays known, so that the next back-off is longer. Known
        rules stay.
        """
        now = self._wall()
        with self._transaction(durable=True):
            hosts = [
                host
                for (host,) in self._db.execute(
                    "SELECT host FROM back_offs WHERE typeof(host) = 'text'"
                )
            ]
            rows = [(asked.get(host, now), host) for host in hosts if names_host(host)]
            self._db.executemany("UPDATE back_offs SET until = min(until, ?) WHERE host = ?", rows)
            told = [
                host
                for (host,) in self._db.execute(
                    "SELECT host FROM asked WHERE typeof(host) = 'text'"
                )
            ]
            over = [(host,) for host in told if names_host(host) and host not in asked]
            self._db.executemany("DELETE FROM asked WHERE host = ?", over)
            failed = [site for (site,) in self._db.execute(_FAILED_ROBOTS)]
            free = [
                (site,)
                for site in failed
                if names_host(host_of(site)) and host_of(site) not in asked
            ]
            self._db.executemany("DELETE FROM robots WHERE authority = ?", free)

    def robots(self, authority: str) -> RobotsRow | None:
        """Return the last answer to an authority's robots.txt, expired or not.

        The result is also None if the row's times are impossible.
        """
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
            self._db.execute("INSERT OR REPLACE INTO hosts VALUES (?, ?, ?, ?)", host)
        reached("hosts.robots")
