"""Key-store maintenance: counts, comparison of replicas, repair of what a replica missed.

Replicas are compared interval by interval by digests of the keys of each two-digit prefix and state. Only prefixes
whose digests differ are read, in statements of bounded size, merged key by key: memory does not grow with the tables.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from functools import partial
from heapq import merge
from itertools import groupby, islice
from operator import itemgetter
from typing import Any, TypeVar

from crawl_lib.errors import KeyServerDownError, KeyStoreError
from crawl_lib.keys.base import STATEMENT_KEYS, KeyServer, PrefixSum, ServerCounts
from crawl_lib.keys.ring import KEY_BYTES, bounds
from crawl_lib.keys.sharded import ShardedKeyStore, state_of
from crawl_lib.states import KeyState

_T = TypeVar("_T")
SAMPLES = 3
_Sums = Mapping[int, PrefixSum]
"""Digests of one prefix by keyinfo."""


@dataclass
class MaintenanceReport:
    """What a check or a repair saw and did.

    `servers`: counts per server, taken before a repair. `compared`: prefixes of which at least two replicas were
    compared; `differing`: those that were not alike. `missing`: keys that a server should hold and does not, by
    server; `behind`: keys whose state is lower there than on another replica. `filled`, `raised`: how many of them a
    repair mended. `created`: servers whose tables a repair created. `misplaced`: keys on a server that does not own
    them, by server; `misplaced_samples`: a few of them in hex. They do no harm and are left alone: they come from a
    change of `key_storage.servers` or `replication`, and their owners may not know them. `failed`: servers that
    could not be looked at or mended, with the reason.
    """

    kind: str
    replication: int
    servers: list[ServerCounts] = field(default_factory=list)
    compared: int = 0
    differing: int = 0
    missing: Counter[str] = field(default_factory=Counter)
    behind: Counter[str] = field(default_factory=Counter)
    filled: Counter[str] = field(default_factory=Counter)
    raised: Counter[str] = field(default_factory=Counter)
    created: list[str] = field(default_factory=list)
    misplaced: Counter[str] = field(default_factory=Counter)
    misplaced_samples: dict[str, list[str]] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        """Whether nothing is left to do: every server answered, and what was missing or behind is mended."""
        mended = self.filled == self.missing and self.raised == self.behind
        return not self.failed and not self.misplaced and mended

    def raise_if_failed(self) -> None:
        """Raise KeyServerDownError naming the servers that could not be looked at or mended, if there are any."""
        if self.failed:
            reasons = "; ".join(self.failed.values())
            raise KeyServerDownError(f"key servers were left out: {reasons}: run `krake keys repair` when they answer")

    def to_mapping(self) -> dict[str, Any]:
        """The report in plain dicts, lists, numbers and texts (JSON)."""
        plain: dict[str, Any] = {item.name: getattr(self, item.name) for item in fields(self)}
        plain["servers"] = [asdict(counts) for counts in self.servers]
        for name, value in plain.items():
            if isinstance(value, Counter):
                plain[name] = dict(value)
        return {**plain, "ok": self.ok}

    def to_text(self) -> str:
        """The report for people: a line per server, then what differs and what to do."""
        lines = [_server_line(counts) for counts in self.servers]
        lines.append(f"replicas: {self.replication}; prefixes compared: {self.compared}, differing: {self.differing}")
        for word, counts in (
            ("missing", self.missing),
            ("behind in state", self.behind),
            ("filled", self.filled),
            ("state raised", self.raised),
        ):
            lines += [f"{name}: {count} keys {word}" for name, count in sorted(counts.items())]
        lines += [f"{name}: key tables created" for name in self.created]
        for name, count in sorted(self.misplaced.items()):
            samples = ", ".join(self.misplaced_samples.get(name, ()))
            lines.append(
                f"{name}: {count} keys of other servers, e.g. {samples}:"
                " key_storage.servers or replication is not what these keys were stored with"
            )
        lines += [f"left out: {reason}" for reason in self.failed.values()]
        lines.append(self._verdict())
        return "\n".join(lines)

    def _verdict(self) -> str:
        if self.ok:
            return "all replicas are whole"
        if self.failed:
            return "not all servers could be looked at: run `krake keys repair` when they answer"
        if self.misplaced:
            return "keys stand on servers that do not own them: see above"
        return "replicas differ: run `krake keys repair`"


def check(store: ShardedKeyStore) -> MaintenanceReport:
    """Count, and compare the replicas. Changes nothing. Servers that fail are reported in `failed`, never raised."""
    return _Maintenance(store, "check", repairing=False).run()


def repair(store: ShardedKeyStore) -> MaintenanceReport:
    """Compare, copy missing keys to their replicas, and raise every replica's state to the highest.

    With replicas, a server without tables (a new disk) gets them. CRAWLED and GONE that differ end as GONE, the
    higher number. May be run at any time, also while others write, and again. Servers that fail are reported in
    `failed` and the rest is mended: call `raise_if_failed` where that has to be an error.
    """
    return _Maintenance(store, "repair", repairing=True).run()


class _Maintenance:
    """One run over one store."""

    def __init__(self, store: ShardedKeyStore, kind: str, *, repairing: bool) -> None:
        self.servers: Sequence[KeyServer] = store.servers
        self.store = store
        self.repairing = repairing
        self.report = MaintenanceReport(kind, store.replication)

    def run(self) -> MaintenanceReport:
        if self.repairing and self.store.replication > 1:
            self._create_missing_tables()
        self.report.servers = self.store.counts()
        self.report.failed.update({counts.server: counts.error for counts in self.report.servers if not counts.up})
        for first in range(len(self.servers)):
            self._interval(first)
        for place, server in enumerate(self.servers):
            self._attempt(server, partial(self._look_for_misplaced, place=place))
        return self.report

    def _look_for_misplaced(self, server: KeyServer, place: int) -> None:
        """Count keys in intervals that are not this server's; normally there are none, and this costs nothing."""
        for first in range(len(self.servers)):
            if place in self.store.places(first):
                continue
            low, high = bounds(first, len(self.servers))
            count = sum(part.count for part in server.prefix_sums(low, high).values())
            if count:
                self.report.misplaced[server.name] += count
                samples = self.report.misplaced_samples.setdefault(server.name, [])
                samples += [key.hex() for key, _ in islice(server.scan(low, high), SAMPLES - len(samples))]

    def _attempt(self, server: KeyServer, work: Callable[[KeyServer], _T]) -> _T | None:
        """Do something with a server that has not failed yet; a failure is noted, and None returned."""
        if server.name in self.report.failed:
            return None
        try:
            return work(server)
        except KeyStoreError as error:
            self.report.failed[server.name] = str(error)
            return None

    def _create_missing_tables(self) -> None:
        lacking = []
        standing = False
        for server in self.servers:
            try:
                stands = server.exists()
            except KeyStoreError:
                continue  # counts() reports it
            standing = standing or stands
            if not stands:
                lacking.append(server)
        for server in lacking if standing else ():
            if self._attempt(server, _create):
                self.report.created.append(server.name)

    def _interval(self, first: int) -> None:
        """Compare the replicas of one interval."""
        low, high = bounds(first, len(self.servers))
        views: dict[str, dict[int, _Sums]] = {}
        for place in self.store.places(first):
            server = self.servers[place]
            found = self._attempt(server, partial(_sums, low=low, high=high))
            if found is not None:
                views[server.name] = found
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
        """Read one range on all replicas side by side, note what differs, and mend it."""
        batches: dict[tuple[int, KeyState, bool], list[bytes]] = {}
        try:
            for key, states in _side_by_side(servers, low, high):
                highest = max(states.values())
                for place in range(len(servers)):
                    state = states.get(place)
                    if state == highest:
                        continue
                    batch = batches.setdefault((place, highest, state is None), [])
                    batch.append(key)
                    if len(batch) == STATEMENT_KEYS:
                        self._mend(servers[place], highest, batch, is_missing=state is None)
                        batch.clear()
        except _ScanError as error:
            self.report.failed[error.server] = str(error)
        for (place, highest, is_missing), batch in batches.items():
            if batch:
                self._mend(servers[place], highest, batch, is_missing=is_missing)

    def _mend(self, server: KeyServer, state: KeyState, keys: Sequence[bytes], *, is_missing: bool) -> None:
        """Count what differs and, in a repair, write it. `insert` adds and raises, and lowers nothing meanwhile."""
        found, mended = (
            (self.report.missing, self.report.filled) if is_missing else (self.report.behind, self.report.raised)
        )
        found[server.name] += len(keys)
        if self.repairing and self._attempt(server, partial(_insert, keys=keys, state=state)):
            mended[server.name] += len(keys)


class _ScanError(KeyStoreError):
    """A replica failed while it was read."""

    def __init__(self, server: str, reason: str) -> None:
        super().__init__(reason)
        self.server = server


def _create(server: KeyServer) -> bool:
    server.create()
    return True


def _insert(server: KeyServer, keys: Sequence[bytes], state: KeyState) -> bool:
    server.insert(keys, state)
    return True


def _sums(server: KeyServer, low: bytes, high: bytes) -> dict[int, _Sums]:
    """The digests of a range by prefix."""
    found: dict[int, dict[int, PrefixSum]] = {}
    for (prefix, state), part in server.prefix_sums(low, high).items():
        found.setdefault(int(prefix, 16), {})[state] = part
    return dict(found)


def _alike(views: Sequence[_Sums | None]) -> bool:
    return all(view == views[0] for view in views[1:])


def _key(number: int) -> bytes:
    return number.to_bytes(KEY_BYTES, "big")


def _side_by_side(servers: Sequence[KeyServer], low: bytes, high: bytes) -> Iterator[tuple[bytes, dict[int, KeyState]]]:
    """Each key of the range that any server has, with its state by the server's place in `servers`."""
    streams = [_stream(server, place, low, high) for place, server in enumerate(servers)]
    for key, rows in groupby(merge(*streams), key=itemgetter(0)):
        yield key, {place: state for _, place, state in rows}


def _stream(server: KeyServer, place: int, low: bytes, high: bytes) -> Iterator[tuple[bytes, int, KeyState]]:
    try:
        for key, keyinfo in server.scan(low, high):
            yield key, place, state_of(keyinfo)
    except KeyStoreError as error:
        raise _ScanError(server.name, str(error)) from error


def _server_line(counts: ServerCounts) -> str:
    if not counts.up:
        return f"{counts.server}: failed"
    states = ", ".join(f"{count} {word}" for word, count in counts.by_state.items())
    return f"{counts.server}: {counts.total} keys ({states})"
