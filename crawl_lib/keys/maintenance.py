"""Key-store maintenance: counts, comparison of replicas, repair of what a replica missed.

The work is cut by interval, one per server. The part of a server is its own interval: all replicas of it are compared,
by the number and a checksum of the keys of each two-digit prefix and state, and what is missing or behind on any of
them is filled from the others. The server's keys are counted too, and those that it should not hold. So the
parts of all servers together are the whole, no two of them touch the same keys, and they may run at the same time, on
different machines, and again: each is a task of its own in Airflow.

Only prefixes whose digests differ are read, in statements of bounded size, merged key by key: memory does not grow
with the tables. A server's digests are asked for by prefix, so no statement takes longer than 1/256 of a table needs;
those of a SQLite file are made from its keys, read like that.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import field

from crawl_lib.dataclass import dataclass
from crawl_lib.errors import (
    ConfigError,
    DamagedKeysError,
    KeyAccessError,
    KeyServerDownError,
    KeyStoreError,
    KeyTablesError,
)
from crawl_lib.keys.intervals import KEY_BYTES, behind, bounds
from crawl_lib.keys.server import STATEMENT_KEYS, KeyServer, PrefixSum, ServerCounts, damaged
from crawl_lib.keys.sharded import ShardedKeyStore, counts_of
from crawl_lib.stopping import Work

_Sums = dict[int, dict[int, PrefixSum]]
"""Digests of a range, by prefix and keyinfo."""


@dataclass
class MaintenanceReport:
    """Report of a check or a repair.

    `server`: whose interval alone was looked at, "" for all. `servers`: counts per server, taken before a repair; of
    one server's report, that one's. `compared`: prefixes of which at least two replicas were compared; `differing`:
    those that were not alike. `missing`: keys that a server should hold and does not, by server; `behind`: keys whose
    state is lower there than on another replica: a repair has filled and raised them, but for servers in `failed`.
    `created`: servers whose tables a repair created. `misplaced`: keys on a server that does not own them, by server.
    They do no harm and are left alone: they come from a change of `key_storage.servers` or `replication`, and their
    owners may not know them. `failed`: servers that could not be looked at or repaired, with the error.
    """

    kind: str
    replication: int
    server: str = ""
    servers: list[ServerCounts] = field(default_factory=list)
    compared: int = 0
    differing: int = 0
    missing: Counter[str] = field(default_factory=Counter)
    behind: Counter[str] = field(default_factory=Counter)
    created: list[str] = field(default_factory=list)
    misplaced: Counter[str] = field(default_factory=Counter)
    failed: dict[str, KeyStoreError] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        """Whether every server answered, and all differences are repaired."""
        whole = self.kind == "repair" or not (self.missing or self.behind)
        return whole and not self.failed and not self.misplaced

    def raise_if_failed(self) -> None:
        """Raise the error of failed servers, naming all.

        KeyAccessError or KeyTablesError if one of them waits for the operator, else KeyServerDownError.
        """
        if self.failed:
            kinds = (KeyAccessError, DamagedKeysError, KeyTablesError)
            by_hand = (
                kind for kind in kinds for error in self.failed.values() if isinstance(error, kind)
            )
            kind = next(by_hand, KeyServerDownError)
            reasons = "; ".join(map(str, self.failed.values()))
            raise kind(
                f"key servers were left out: {reasons}: run `krake fsck --repair` when they answer"
            )

    def to_text(self) -> str:
        """Return the report for people, a line per server.

        Differences and remedies follow.
        """
        lines = []
        for counts in self.servers:
            states = ", ".join(f"{count} {word}" for word, count in counts.by_state.items())
            lines.append(
                f"{counts.server}: "
                + (f"{counts.total} keys ({states})" if counts.up else "failed")
            )
        lines.append(
            f"replicas: {self.replication}; prefixes compared: {self.compared}, differing: {self.differing}"
        )
        misplaced = "of other servers: key_storage.servers or replication has changed since these keys were stored"
        for word, by_server in (
            ("missing", self.missing),
            ("behind in state", self.behind),
            (misplaced, self.misplaced),
        ):
            lines += [f"{name}: {count} keys {word}" for name, count in sorted(by_server.items())]
        lines += [f"{name}: key tables created" for name in self.created]
        lines += [f"left out: {reason}" for reason in self.failed.values()]
        verdict = f"all replicas{f' of the keys of {self.server}' if self.server else ''} are whole"
        for is_so, problem in (
            (not self.ok, "replicas differ: run `krake fsck --repair`"),
            (self.misplaced, "some keys are on wrong servers: see above"),
            (
                self.failed,
                "not all servers could be looked at: run `krake fsck --repair` when they answer",
            ),
        ):
            verdict = problem if is_so else verdict
        return "\n".join([*lines, verdict])


def check(
    store: ShardedKeyStore, server: str | None = None, work: Work | None = None
) -> MaintenanceReport:
    """Count keys, and compare the replicas. Change nothing.

    Servers that fail are reported in `failed`, never raised.

    `server`: the name of the one whose part is to be done, None for all. Raises ConfigError for an unknown name, and
    StoppedError. `work` gets a report at each prefix that a server has keys of.
    """
    return _Maintenance(store, "check", server, work or Work()).run()


def repair(
    store: ShardedKeyStore, server: str | None = None, work: Work | None = None
) -> MaintenanceReport:
    """Compare replicas, copy missing keys, and raise lower states.

    With replicas, a server without tables (a new disk) gets them. CRAWLED and GONE that differ end as GONE, the higher
    number. May be run at any time, also while others write or repair, and again. `server`, `work`: see `check`. Servers
    that fail are reported in `failed` and the rest is repaired: call `raise_if_failed` where that has to be an error.
    Raises StoppedError after the statement that runs (see above how long those are).
    """
    return _Maintenance(store, "repair", server, work or Work()).run()


class _Maintenance:
    """One run over one store."""

    def __init__(self, store: ShardedKeyStore, kind: str, server: str | None, work: Work) -> None:
        names = [found.name for found in store.servers]
        if server is not None and server not in names:
            raise ConfigError(
                f"key_storage.servers: there is no key server {server!r}; there are {', '.join(names)}"
            )
        self.store, self.work, self.repairing = store, work, kind == "repair"
        self.report = MaintenanceReport(kind, store.replication, server or "")
        self.parts = range(len(names)) if server is None else [names.index(server)]
        self._seen: dict[tuple[int, int], _Sums] = {}

    def run(self) -> MaintenanceReport:
        for place in self.parts:
            if self.repairing and self.store.replication > 1:
                self._create_missing_tables(
                    [self.store.servers[one] for one in self.store.rings[place]]
                )
            with self._noted_if_it_fails(self.store.servers[place]):
                for problem in self.store.servers[place].problems():
                    raise damaged(self.store.servers[place].name, problem)
            self._interval(place)
        self.report.servers = [self._count(place) for place in self.parts]
        return self.report

    @contextmanager
    def _noted_if_it_fails(self, server: KeyServer) -> Iterator[None]:
        """Leave a server out after a failure."""
        self.work.go_on()
        try:
            yield
        except KeyStoreError as error:
            self.report.failed.setdefault(server.name, error)

    def _count(self, place: int) -> ServerCounts:
        """Count a server's keys, and keys outside its own intervals.

        Normally there are none outside.
        """
        name = self.store.servers[place].name
        by_keyinfo: Counter[int] = Counter()
        for first in range(len(self.store.servers)):
            found: Counter[int] = Counter()
            for sums in (self._sums(place, first) or {}).values():
                found.update({state: part.count for state, part in sums.items()})
            by_keyinfo += found
            if found and place not in self.store.rings[first]:
                self.report.misplaced[name] += found.total()
        if error := self.report.failed.get(name):
            return ServerCounts(name, up=False, error=str(error))
        return counts_of(name, by_keyinfo)

    def _sums(self, place: int, first: int) -> _Sums | None:
        """Return interval `first`'s digests of a server.

        The digests are those of the first look; None if it failed.
        """
        server = self.store.servers[place]
        if (place, first) not in self._seen and server.name not in self.report.failed:
            found: _Sums = {}
            low, high = bounds(first, len(self.store.servers))
            with self._noted_if_it_fails(server):
                for prefix, sums in self.work.until_stopped(server.prefix_sums(low, high)):
                    self._tell(server, prefix)
                    found[prefix] = sums
                self._seen[place, first] = found
        return self._seen.get((place, first))

    def _tell(self, server: KeyServer, prefix: int) -> None:
        missing, behind = self.report.missing.total(), self.report.behind.total()
        self.work.report(server=server.name, prefix=f"{prefix:02x}", missing=missing, behind=behind)

    def _create_missing_tables(self, servers: Sequence[KeyServer]) -> None:
        """Create tables on replicas without, if another replica has them."""
        tables = {}
        for server in (server for server in servers if server.name not in self.report.failed):
            with self._noted_if_it_fails(server):
                tables[server] = server.exists()
        for server, exists in tables.items():
            if not exists and any(tables.values()):
                # Another repair may be faster; what else is wrong is seen when the tables are read.
                with self._noted_if_it_fails(server), suppress(KeyTablesError):
                    server.create()
                    self.report.created.append(server.name)

    def _interval(self, first: int) -> None:
        """Compare the replicas of one interval."""
        places = self.store.rings[first]
        views = {
            place: found for place in places if (found := self._sums(place, first)) is not None
        }
        for prefix, low, high in (
            _prefixes(first, len(self.store.servers)) if len(views) > 1 else ()
        ):
            self.report.compared += 1
            parts = [view.get(prefix) for view in views.values()]
            if any(part != parts[0] for part in parts):
                self.report.differing += 1
                self._range([self.store.servers[place] for place in views], low, high)

    def _range(self, servers: Sequence[KeyServer], low: bytes, high: bytes) -> None:
        """Compare one range on all replicas, and repair it.

        `insert` adds and raises, and lowers nothing meanwhile.
        """
        servers = [server for server in servers if server.name not in self.report.failed]
        for place, state, is_missing, keys in behind(
            [self._scan(server, low, high) for server in servers],
            range(len(servers)),
            STATEMENT_KEYS,
        ):
            server = servers[place]
            if server.name not in self.report.failed:
                (self.report.missing if is_missing else self.report.behind)[server.name] += len(
                    keys
                )
                self._tell(server, keys[0][0])
                if self.repairing:
                    with self._noted_if_it_fails(server):
                        server.insert(keys, state)

    def _scan(self, server: KeyServer, low: bytes, high: bytes) -> Iterator[tuple[bytes, int]]:
        with self._noted_if_it_fails(server):
            yield from self.work.until_stopped(server.scan(low, high))


def _prefixes(first: int, count: int) -> Iterator[tuple[int, bytes, bytes]]:
    """Yield an interval's first bytes with their key bounds.

    A bound is the lowest or highest key in the interval.
    """
    low, high = bounds(first, count)
    for prefix in range(low[0], high[0] + 1):
        lowest, highest = (bytes([prefix]).ljust(KEY_BYTES, end) for end in (b"\0", b"\xff"))
        yield prefix, max(low, lowest), min(high, highest)
