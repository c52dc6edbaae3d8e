"""Counts of the URLs that a node has admitted, by host, registered domain, and group of `traps`.

The counts of domains follow from those of hosts: each method that changes the counts of hosts changes both.
"""

import sqlite3
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from functools import lru_cache
from itertools import chain, islice
from pathlib import Path

from crawl_lib.errors import DamagedFileError, StorageError, sqlite_errors
from crawl_lib.findings import sqlite_problem
from crawl_lib.frontier.directory import NodeDirectory
from crawl_lib.urls import PATTERN_MARK, budget_domain_of

_TABLES_OF_FILE = {"hosts": "host, admitted", "begun": "host, admitted", "applied": "move_id"}
"""The tables of the file with their columns."""
_TABLES = (
    "hosts (host TEXT PRIMARY KEY, admitted INTEGER NOT NULL)",
    "applied (move_id TEXT PRIMARY KEY)",
    "lowered (name TEXT PRIMARY KEY)",
    "begun (host TEXT PRIMARY KEY, admitted INTEGER NOT NULL)",
)
_ADD = "INSERT INTO {} VALUES (?, ?) ON CONFLICT (host) DO UPDATE SET admitted = admitted + excluded.admitted"
_ASK, _ADD_ROWS = 500, 10_000
DOMAIN_MARK, HOSTS_MARK = b"@", b"@@"
"""Marks before a domain in the names of its two counts: of URLs, and of hosts with URLs. No host begins with `@`."""
_IS_HOST = "host NOT LIKE '%/%' AND host NOT LIKE '@%'"
Count = tuple[bytes, int]


def host_of_line(url: bytes) -> bytes:
    """Return the host of a canonical URL, without port.

    URL and host are bytes; IPv6 is in brackets.
    """
    host = url.split(b"/", 3)[2]
    if b":" in host and not host.endswith(b"]"):
        host = host[: host.rindex(b":")]
    return host


class HostCounts:
    """URLs admitted by name: a host, a group (`admission`), which begins with a host and a slash, or a domain.

    Each move adds its counts exactly once, however often it is carried out. The counts of an intake under way are
    apart, in the table `begun`: on the disk, since there may be as many groups as URLs.
    """

    def __init__(self, directory: Path) -> None:
        """`directory`: the node's. The file is made at the first write."""
        self.path = NodeDirectory(directory).host_counts

    def problem(self) -> str | None:
        """Return what is wrong with the file, in words.

        None: it is sound or missing.
        """
        return sqlite_problem(self.path, _TABLES_OF_FILE) if self.path.exists() else None

    def get(self, names: Collection[bytes]) -> dict[bytes, int]:
        """Return the counts of names, including the current intake's.

        A name without a count is left out.
        """
        found: dict[bytes, int] = {}
        if names and self.path.exists():
            with self._open() as base:
                for name, admitted in chain(
                    *(_found(base, table, [*names]) for table in ("hosts", "begun"))
                ):
                    found[name] = found.get(name, 0) + admitted
        return found

    def begin(self) -> None:
        """Begin an intake, and forget the notes of a killed one."""
        if self.path.exists():
            with self._open() as base:
                if base.execute(
                    "SELECT 1 FROM begun"
                ).fetchone():  # else SQLite would write all the same
                    base.execute("DELETE FROM begun")

    def note(self, counts: Mapping[bytes, int]) -> None:
        """Add to the counts of the intake under way."""
        if counts:
            with self._open() as base:
                _add(base, "begun", counts.items(), ("hosts", "begun"))

    def noted(self) -> Iterator[bytes]:
        """Yield the current intake's counts, as a move's file.

        See `counts_bytes`. Counts of domains follow from these.
        """
        if self.path.exists():
            with self._open() as base:
                rows = base.execute(
                    "SELECT host, admitted FROM begun WHERE host NOT LIKE '@%' ORDER BY host"
                )
                for name, admitted in rows:
                    yield b"%b\t%d\n" % (name.encode(), admitted)

    def add(self, move_id: str, counts: Callable[[], Iterable[Count]]) -> None:
        """Add a move's counts once, durably."""
        with self._open() as base:
            if (
                base.execute("SELECT 1 FROM applied WHERE move_id = ?", (move_id,)).fetchone()
                is None
            ):
                _add(base, "hosts", counts(), ("hosts",))
                base.execute("DELETE FROM begun")
                base.execute("DELETE FROM applied")
                base.execute("INSERT INTO applied VALUES (?)", (move_id,))

    def patterns(self, count: int) -> list[str]:
        """Return the patterns with at least `count` admitted URLs, sorted.

        See `urls.pattern_of`.
        """
        if not self.path.exists():
            return []
        with self._open() as base:
            rows = base.execute(
                "SELECT host FROM hosts WHERE admitted >= ? AND instr(host, ?) ORDER BY host",
                (count, PATTERN_MARK.decode()),
            )
            return [name for (name,) in rows]

    def lower(self, name: str, counts: Mapping[bytes, int]) -> None:
        """Take URLs out of hosts' and domains' counts, durably.

        The subtraction happens once by `name`. No count falls below 0. The groups of these URLs are unknown: all groups
        of the hosts begin at 0 again.
        """
        if not self.path.exists():
            return
        with self._open() as base:
            if base.execute("INSERT OR IGNORE INTO lowered VALUES (?)", (name,)).rowcount:
                base.executemany(
                    "UPDATE hosts SET admitted = max(0, admitted - ?) WHERE host = ?",
                    _lowered(base, counts),
                )
                # Names of groups begin with the host and a slash, and 0 is the character behind that.
                ranges = ((f"{host.decode()}/", f"{host.decode()}0") for host in counts)
                base.executemany("DELETE FROM hosts WHERE host > ? AND host < ?", ranges)

    def begin_groups(self) -> None:
        """Reset all groups to 0.

        This is for URLs that were counted, lost, and will be found once more. A file that is damaged is left as it is:
        when it is repaired, groups begin at 0 too.
        """
        if self.path.exists():
            with suppress(StorageError), self._open() as base:
                base.execute("DELETE FROM hosts WHERE host LIKE '%/%'")

    def all(self) -> dict[str, int]:
        """Return every host with its count, for tests and reports."""
        if not self.path.exists():
            return {}
        with self._open() as base:
            return dict(
                base.execute(f"SELECT host, admitted FROM hosts WHERE {_IS_HOST} ORDER BY host")
            )

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        """Open the tables within one transaction."""
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


@lru_cache(1 << 14)
def names_of_domain(host: bytes) -> tuple[bytes, bytes]:
    """Return the names that count a host's domain.

    One counts URLs, the other one hosts.
    """
    # A host may be empty in a queue made by hand.
    domain = budget_domain_of(host.decode()).encode() if host else b""
    return DOMAIN_MARK + domain, HOSTS_MARK + domain


def _found(base: sqlite3.Connection, table: str, names: Sequence[bytes]) -> Iterator[Count]:
    """Read the counts of names in one table.

    Names without a row are left out.
    """
    for start in range(0, len(names), _ASK):
        some = [name.decode() for name in names[start : start + _ASK]]
        marks = ",".join("?" * len(some))
        rows = base.execute(f"SELECT host, admitted FROM {table} WHERE host IN ({marks})", some)
        yield from ((name.encode(), admitted) for name, admitted in rows)


def _add(
    base: sqlite3.Connection, table: str, counts: Iterable[Count], known: Sequence[str]
) -> None:
    """Add counts of hosts and groups, and their domains' counts.

    `known`: tables whose hosts are not new.
    """
    source = iter(counts)
    while some := list(islice(source, _ADD_ROWS)):
        hosts = {name: count for name, count in some if count and b"/" not in name}
        there = {
            name for one in known for name, admitted in _found(base, one, [*hosts]) if admitted
        }
        domains: Counter[bytes] = Counter()
        for host, count in hosts.items():
            pages, names = names_of_domain(host)
            domains[pages] += count
            domains[names] += host not in there
        rows = chain(some, domains.items())
        base.executemany(_ADD.format(table), ((name.decode(), count) for name, count in rows))


def _lowered(base: sqlite3.Connection, counts: Mapping[bytes, int]) -> list[tuple[int, str]]:
    """Return the decrements of hosts' and domains' counts.

    They are pairs of a number and a name.
    """
    lower: Counter[bytes] = Counter()
    for host, admitted in _found(base, "hosts", [*counts]):
        gone = min(admitted, counts[host])
        pages, names = names_of_domain(host)
        lower[host] += gone
        lower[pages] += gone
        lower[names] += 0 < admitted == gone
    return [(count, name.decode()) for name, count in lower.items()]


def counts_bytes(counts: Mapping[bytes, int]) -> bytes:
    """Encode a move's counts as sorted `host \\t count` lines."""
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
