"""Key-store maintenance: counts, comparison of replicas, repair of what a replica missed.

The work is cut by interval, one per server. The part of a server is its own interval: all replicas of it are compared,
by the number and a checksum of the keys of each two-digit prefix and state, and what is missing or behind on any of
them is filled from the others. Besides, the server's keys are counted, and those that it should not hold. So the
parts of all servers together are the whole, no two of them touch the same keys, and they may run at the same time, on
different machines, and again: each is a task of its own in Airflow.

Only prefixes whose digests differ are read, in statements of bounded size, merged key by key: memory does not grow
with the tables. Every digest is asked for by prefix too, so no statement takes longer than 1/256 of a table needs.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import TypeVar

from crawl_lib.errors import ConfigError, KeyStoreError, KeyTablesError
from crawl_lib.keys.intervals import KEY_BYTES, behind, bounds
from crawl_lib.keys.keystore import STATEMENT_KEYS, KeyServer, PrefixSum, ServerCounts
from crawl_lib.keys.report import MaintenanceReport
from crawl_lib.keys.sharded import ShardedKeyStore, counts_of
from crawl_lib.keys.sql import damaged
from crawl_lib.states import KeyState
from crawl_lib.stopping import Work

_T = TypeVar("_T")
SAMPLES = 3
_Sums = Mapping[int, PrefixSum]
"""Digests of one prefix by keyinfo."""


def check(store: ShardedKeyStore, server: str | None = None, work: Work | None = None) -> MaintenanceReport:
    """Count, and compare the replicas. Changes nothing. Servers that fail are reported in `failed`, never raised.

    `server`: the name of the one whose part is to be done, None for all. Raises ConfigError if there is none, and
    StoppedError. `work` gets a report at each prefix of each server.
    """
    return _Maintenance(store, "check", server, work or Work(), repairing=False).run()


def repair(store: ShardedKeyStore, server: str | None = None, work: Work | None = None) -> MaintenanceReport:
    """Compare, copy missing keys to their replicas, and raise every replica's state to the highest.

    With replicas, a server without tables (a new disk) gets them. CRAWLED and GONE that differ end as GONE, the
    higher number. May be run at any time, also while others write or repair, and again. `server`, `work`: see `check`.
    Servers that fail are reported in `failed` and the rest is repaired: call `raise_if_failed` where that has to be an
    error. Raises StoppedError after the statement that runs (see above how long those are).
    """
    return _Maintenance(store, "repair", server, work or Work(), repairing=True).run()


class _Maintenance:
    """One run over one store."""

    def __init__(self, store: ShardedKeyStore, kind: str, server: str | None, work: Work, *, repairing: bool) -> None:
        self.servers: Sequence[KeyServer] = store.servers
        self.store, self.work, self.repairing = store, work, repairing
        self.report = MaintenanceReport(kind, store.replication, server or "")
        self.parts = _places(store, server)
        self._seen: dict[tuple[int, int], dict[int, _Sums]] = {}

    def run(self) -> MaintenanceReport:
        for place in self.parts:
            if self.repairing and self.store.replication > 1:
                self._create_missing_tables(self.store.places(place))
            self._attempt(self.servers[place], _require_whole)
            self._interval(place)
        self.report.servers = [self._count(place) for place in self.parts]
        return self.report

    def _count(self, place: int) -> ServerCounts:
        """Count a server's keys, and those in intervals that are not its own; normally there are none."""
        name = self.servers[place].name
        by_keyinfo: Counter[int] = Counter()
        for first in range(len(self.servers)):
            views = self._sums_of(place, first)
            if views is None:
                return ServerCounts(name, up=False, error=self.report.failed[name])
            found: Counter[int] = Counter()
            for sums in views.values():
                found.update({state: part.count for state, part in sums.items()})
            by_keyinfo += found
            if found and place not in self.store.places(first):
                self.report.misplaced[name] += found.total()
                self._attempt(self.servers[place], partial(self._sample, first=first))
        return counts_of(name, by_keyinfo)

    def _sample(self, server: KeyServer, first: int) -> None:
        """Note a few keys that a server should not hold."""
        low, high = bounds(first, len(self.servers))
        samples = self.report.misplaced_samples.setdefault(server.name, [])
        samples += [key.hex() for key, _ in islice(server.scan(low, high), SAMPLES - len(samples))]

    def _sums_of(self, place: int, first: int) -> dict[int, _Sums] | None:
        """The digests of interval `first` on a server, as they were at the first look; None if it failed."""
        server = self.servers[place]
        if (place, first) not in self._seen:
            low, high = bounds(first, len(self.servers))
            found = self._attempt(server, partial(self._sums, low=low, high=high))
            if found is None:
                return None
            self._seen[place, first] = found
        return self._seen[place, first]

    def _sums(self, server: KeyServer, low: bytes, high: bytes) -> dict[int, _Sums]:
        """The digests of a range by prefix."""
        found: dict[int, dict[int, PrefixSum]] = {}
        for prefix in self.work.until_stopped(range(low[0], high[0] + 1)):
            self._tell(server, prefix)
            first, last = max(low, _key(prefix << 152)), min(high, _key(((prefix + 1) << 152) - 1))
            for (_, state), part in server.prefix_sums(first, last).items():
                found.setdefault(prefix, {})[state] = part
        return dict(found)

    def _tell(self, server: KeyServer, prefix: int) -> None:
        missing, behind = self.report.missing.total(), self.report.behind.total()
        self.work.report(server=server.name, prefix=f"{prefix:02x}", missing=missing, behind=behind)

    def _attempt(self, server: KeyServer, work: Callable[[KeyServer], _T]) -> _T | None:
        """Do something with a server that has not failed yet; a failure is noted, and None returned."""
        self.work.go_on()
        if server.name in self.report.failed:
            return None
        try:
            return work(server)
        except KeyStoreError as error:
            self.report.fail(server.name, error)
            return None

    def _create_missing_tables(self, places: Sequence[int]) -> None:
        """Create the tables that some replicas of an interval lack and others have."""
        servers = [self.servers[place] for place in places]
        tables = [self._attempt(server, lambda server: server.exists()) for server in servers]
        for server, exists in zip(servers, tables, strict=True):
            if exists is False and any(tables) and self._attempt(server, _create):
                self.report.created.append(server.name)

    def _interval(self, first: int) -> None:
        """Compare the replicas of one interval."""
        low, high = bounds(first, len(self.servers))
        views: dict[str, dict[int, _Sums]] = {}
        for place in self.store.places(first):
            found = self._sums_of(place, first)
            if found is not None:
                views[self.servers[place].name] = found
        if len(views) < 2:
            return
        prefixes = range(low[0], high[0] + 1)
        self.report.compared += len(prefixes)
        for prefix in prefixes:
            if not _alike([view.get(prefix) for view in views.values()]):
                self.report.differing += 1
                names = [name for name in views if name not in self.report.failed]
                servers = [server for server in self.servers if server.name in names]
                self._range(servers, max(low, _key(prefix << 152)), min(high, _key(((prefix + 1) << 152) - 1)))

    def _range(self, servers: Sequence[KeyServer], low: bytes, high: bytes) -> None:
        """Read one range on all replicas side by side, note what differs, and repair it."""
        scans = [self.work.until_stopped(_scan(server, low, high)) for server in servers]
        try:
            for place, state, is_missing, keys in behind(scans, range(len(servers)), STATEMENT_KEYS):
                self._fill(servers[place], state, keys, is_missing=is_missing)
        except _ScanError as error:
            self.report.fail(error.server, error.reason)

    def _fill(self, server: KeyServer, state: KeyState, keys: Sequence[bytes], *, is_missing: bool) -> None:
        """Count what differs and, in a repair, write it. `insert` adds and raises, and lowers nothing meanwhile."""
        report = self.report
        found, done = (report.missing, report.filled) if is_missing else (report.behind, report.raised)
        found[server.name] += len(keys)
        self._tell(server, keys[0][0])
        if self.repairing and self._attempt(server, partial(_insert, keys=keys, state=state)):
            done[server.name] += len(keys)


class _ScanError(KeyStoreError):
    """A replica failed while it was read."""

    def __init__(self, server: str, reason: KeyStoreError) -> None:
        super().__init__(str(reason))
        self.server = server
        self.reason = reason


def _places(store: ShardedKeyStore, server: str | None) -> Sequence[int]:
    """The places of the servers whose parts are to be done. Raises ConfigError for an unknown name."""
    names = [found.name for found in store.servers]
    if server is None:
        return range(len(names))
    if server not in names:
        raise ConfigError(f"key_storage.servers: there is no key server {server!r}; there are {', '.join(names)}")
    return [names.index(server)]


def _require_whole(server: KeyServer) -> None:
    for problem in server.problems():
        raise damaged(server.name, problem)


def _create(server: KeyServer) -> bool:
    """Create the tables; False if another repair was faster."""
    try:
        server.create()
    except KeyTablesError:
        if not server.exists():
            raise
        return False
    return True


def _insert(server: KeyServer, keys: Sequence[bytes], state: KeyState) -> bool:
    server.insert(keys, state)
    return True


def _alike(views: Sequence[_Sums | None]) -> bool:
    return all(view == views[0] for view in views[1:])


def _key(number: int) -> bytes:
    return number.to_bytes(KEY_BYTES, "big")


def _scan(server: KeyServer, low: bytes, high: bytes) -> Iterator[tuple[bytes, int]]:
    try:
        yield from server.scan(low, high)
    except KeyStoreError as error:
        raise _ScanError(server.name, error) from error
