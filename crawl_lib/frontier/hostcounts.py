"""How many URLs of each host this node has admitted, for `urls.max_pages_per_host`, and of each group of `traps`."""

import sqlite3
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from crawl_lib.errors import DamagedFileError, StorageError, sqlite_errors
from crawl_lib.frontier.directory import NodeDirectory
from crawl_lib.urls import PATTERN_MARK

COUNTS_TABLES = {"hosts": "host, admitted", "begun": "host, admitted", "applied": "move_id"}
"""The tables of the file with their columns."""
_TABLES = (
    "hosts (host TEXT PRIMARY KEY, admitted INTEGER NOT NULL)",
    "applied (move_id TEXT PRIMARY KEY)",
    "lowered (name TEXT PRIMARY KEY)",
    "begun (host TEXT PRIMARY KEY, admitted INTEGER NOT NULL)",
)
_ADD = "INSERT INTO {} VALUES (?, ?) ON CONFLICT (host) DO UPDATE SET admitted = admitted + excluded.admitted"
_ASK = 500


def host_of_line(url: bytes) -> bytes:
    """The host of a canonical URL in bytes, without port (IPv6 in brackets)."""
    host = url.split(b"/", 3)[2]
    if b":" in host and not host.endswith(b"]"):
        host = host[: host.rindex(b":")]
    return host


class HostCounts:
    """URLs admitted by name: a host, or a group (`admission`), which begins with a host and a slash.

    Each move adds its counts exactly once, however often it is carried out. Those of an intake under way are apart from
    them, in the table `begun`: on the disk, since there may be as many groups as URLs.
    """

    def __init__(self, directory: Path) -> None:
        """`directory`: the node's. The file is made at the first write."""
        self.path = NodeDirectory(directory).host_counts

    def get(self, names: Collection[bytes]) -> dict[bytes, int]:
        """The counts of these names, with those of the intake under way; what has none is left out."""
        wanted = [name.decode() for name in names]
        if not wanted or not self.path.exists():
            return {}
        found: dict[bytes, int] = {}
        with self._open() as base:
            for start in range(0, len(wanted), _ASK):
                some = wanted[start : start + _ASK]
                for table in ("hosts", "begun"):
                    marks = ",".join("?" * len(some))
                    rows = base.execute(f"SELECT host, admitted FROM {table} WHERE host IN ({marks})", some)
                    for name, admitted in rows:
                        found[name.encode()] = found.get(name.encode(), 0) + admitted
        return found

    def begin(self) -> None:
        """No intake is under way: what a killed one has noted is forgotten."""
        if self.path.exists():
            with self._open() as base:
                base.execute("DELETE FROM begun")

    def note(self, counts: Mapping[bytes, int]) -> None:
        """Add to the counts of the intake under way."""
        if counts:
            with self._open() as base:
                base.executemany(_ADD.format("begun"), ((name.decode(), count) for name, count in counts.items()))

    def noted(self) -> Iterator[bytes]:
        """The counts of the intake under way as a move's file: see `counts_bytes`."""
        if self.path.exists():
            with self._open() as base:
                for name, admitted in base.execute("SELECT host, admitted FROM begun ORDER BY host"):
                    yield b"%b\t%d\n" % (name.encode(), admitted)

    def add(self, move_id: str, counts: Callable[[], Iterable[tuple[bytes, int]]]) -> None:
        """Add a move's counts, unless this move's were added before. Durable when it returns."""
        with self._open() as base:
            if base.execute("SELECT 1 FROM applied WHERE move_id = ?", (move_id,)).fetchone() is None:
                base.executemany(_ADD.format("hosts"), ((name.decode(), count) for name, count in counts()))
                base.execute("DELETE FROM begun")
                base.execute("DELETE FROM applied")
                base.execute("INSERT INTO applied VALUES (?)", (move_id,))

    def patterns(self, count: int) -> list[str]:
        """The names of patterns (`urls.pattern_of`) of which so many URLs were admitted, sorted."""
        if not self.path.exists():
            return []
        with self._open() as base:
            rows = base.execute(
                "SELECT host FROM hosts WHERE admitted >= ? AND instr(host, ?) ORDER BY host",
                (count, PATTERN_MARK.decode()),
            )
            return [name for (name,) in rows]

    def lower(self, name: str, counts: Mapping[bytes, int]) -> None:
        """Take URLs out of the counts of hosts, once by `name`, never below 0. Durable when it returns.

        Which groups these URLs were in is not known: all groups of the hosts begin at 0 again.
        """
        if not self.path.exists():
            return
        with self._open() as base:
            if base.execute("INSERT OR IGNORE INTO lowered VALUES (?)", (name,)).rowcount:
                base.executemany(
                    "UPDATE hosts SET admitted = max(0, admitted - ?) WHERE host = ?",
                    ((count, host.decode()) for host, count in counts.items()),
                )
                # Names of groups begin with the host and a slash, and 0 is the character behind that.
                ranges = ((f"{host.decode()}/", f"{host.decode()}0") for host in counts)
                base.executemany("DELETE FROM hosts WHERE host > ? AND host < ?", ranges)

    def begin_groups(self) -> None:
        """All groups begin at 0 again: for URLs that were counted, lost, and will be found once more.

        A file that is damaged is left as it is: when it is repaired, groups begin at 0 too.
        """
        if self.path.exists():
            with suppress(StorageError), self._open() as base:
                base.execute("DELETE FROM hosts WHERE host LIKE '%/%'")

    def all(self) -> dict[str, int]:
        """Every host with its count, for tests and reports."""
        if not self.path.exists():
            return {}
        with self._open() as base:
            return dict(base.execute("SELECT host, admitted FROM hosts WHERE host NOT LIKE '%/%' ORDER BY host"))

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        """The tables, within one transaction."""
        with (
            sqlite_errors(self.path, "if it stays, run `krake fsck --repair`"),
            closing(sqlite3.connect(self.path, isolation_level=None, timeout=30.0)) as base,
        ):
            base.execute("PRAGMA synchronous=FULL")
            base.execute("BEGIN IMMEDIATE")
            for table in _TABLES:
                base.execute(f"CREATE TABLE IF NOT EXISTS {table} WITHOUT ROWID")
            yield base
            base.execute("COMMIT")


def counts_bytes(counts: Mapping[bytes, int]) -> bytes:
    """A move's counts as a file: `host \\t count` lines, sorted."""
    return b"".join(b"%b\t%d\n" % (host, counts[host]) for host in sorted(counts))


def read_counts(path: Path) -> Iterator[tuple[bytes, int]]:
    """Stream such a file. Raises DamagedFileError naming it."""
    with path.open("rb") as file:
        for line in file:
            host, _, count = line.partition(b"\t")
            if not (host and count.endswith(b"\n") and count.strip().isdigit()):
                problem = f"not a line of counts of hosts: {line[:200]!r}"
                raise DamagedFileError(f"{path}: {problem}; run `krake fsck --repair`")
            yield host, int(count)
