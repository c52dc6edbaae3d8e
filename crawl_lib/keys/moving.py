"""`krake keys reshard`: servers were added or removed, or `replication` changed; keys move to where they belong now.

Both rings cut the keys into ranges; of each range it is known who held it and who is to hold it. Only keys that a new
holder lacks are written, and only on servers that are not holders any more are they deleted.

1. The notes of all servers say what they are moving to (`repair.reshard.noted`): from now on every stage refuses to use
   the tables, on every machine, with the old config and the new one. A task that has opened them before sees that
   within `sharded.LOOK_S`; the caller holds what nodes he can, and gives time (`patience_s`) where others may run.
2. Range by range: what the old holders have is written to the new holders, the highest state of each key
   (`repair.reshard.copied`); then it is deleted from those that hold it no more (`repair.reshard.deleted`), after what
   they got since was copied too; and at the end once more.
3. Servers of the new ring get notes of their new place (`repair.reshard.settled`), those that left an empty one
   (`repair.reshard.left`). As long as a note says that something moves, the next run goes on: it finds by digests which
   ranges are done, and by a note of the new ring that all are.

Killed or stopped anywhere: run it again. A key is never deleted before all its new holders have it.
"""

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any

from crawl_lib.durable import reached
from crawl_lib.errors import ConfigError, KeyServerDownError, KeyTablesError
from crawl_lib.keys.intervals import KEY_BYTES, behind, bounds, interval, ring
from crawl_lib.keys.keystore import STATEMENT_KEYS, KeyServer
from crawl_lib.keys.report import plain
from crawl_lib.keys.ring import Ring, RingNote, names_of, read_ring
from crawl_lib.keys.sharded import ShardedKeyStore
from crawl_lib.stopping import Work

RANGES_PER_INTERVAL = 16
"""An interval moves in so many pieces, so that progress is seen, and little is looked at again after a kill."""
_TELL_S = 1.0


@dataclass
class ReshardReport:
    """What a change of servers did, or would do.

    `before`, `after`: the rings in words. `copied`: keys written, by server; `raised`: those that had a lower state
    there. `deleted`: keys taken off servers that hold them no more. `lost`: old servers that are not there; other
    replicas had all they held. `done_already`: there was nothing to change.
    """

    dry_run: bool
    before: str = ""
    after: str = ""
    copied: Counter[str] = field(default_factory=Counter)
    raised: Counter[str] = field(default_factory=Counter)
    deleted: Counter[str] = field(default_factory=Counter)
    created: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    done_already: bool = False

    def to_mapping(self) -> dict[str, Any]:
        """The report as plain values."""
        return plain(self)


def reshard(
    store: ShardedKeyStore,
    old: ShardedKeyStore | None = None,
    *,
    dry_run: bool = False,
    patience_s: float = 0.0,
    work: Work | None = None,
) -> ReshardReport:
    """Move keys to the servers of `store`, as the config now says.

    `old`: the store of the config as it was; needed where servers leave, or where tables have no note. `patience_s`:
    how long after its beginning it looks once more for keys that tasks inserted which ran on. Raises
    KeyTablesError if servers are missing whose keys no other has, KeyServerDownError: run it again. StoppedError
    after the statement that runs.
    """
    change = _Change(store, old, ReshardReport(dry_run), work or Work())
    if change.plan():
        change.carry_out(patience_s)
    else:
        change.sweep()
    return change.report


class _Change:
    def __init__(self, store: ShardedKeyStore, old: ShardedKeyStore | None, report: ReshardReport, work: Work) -> None:
        self.store, self.old, self.report, self.work = store, old, report, work
        self.to = Ring(0, names_of(store.servers), store.replication)
        self.notes: dict[str, RingNote | None] = {}
        self.before = self.to
        self.holders: dict[int, KeyServer] = {}
        self.known: dict[str, KeyServer] = {}
        self.has_tables: dict[str, bool] = {}
        self.is_moved = False

    def plan(self) -> bool:
        """Find out what the keys were written for and who holds them; False if the ring is as it should be."""
        ours = set(names_of(self.store.servers))
        for server in [*self.store.servers, *(self.old.servers if self.old else ())]:
            if server.name not in self.notes:
                self.known[server.name] = server
                self.notes[server.name] = self._note_of(server, needed=server.name in ours)
        self.before = self._ring_before()
        self.to = replace(self.to, generation=self.before.generation + 1)
        self.report.before, self.report.after = self.before.to_text(), self.to.to_text()
        places = [note and (note.place, note.moving_to) for note in map(self.notes.get, names_of(self.store.servers))]
        if self.before.same_places(self.to) and places == [(place, None) for place in range(self.to.count)]:
            self.report.done_already = True
            self.to = self.before
            return False
        self.is_moved = any(note and note.ring == self.to for note in self.notes.values())
        if not self.is_moved:
            self._find_holders()
        return True

    def _note_of(self, server: KeyServer, *, needed: bool) -> RingNote | None:
        """A server's note. One that is to leave may be gone: others may have all its keys."""
        try:
            self.has_tables[server.name] = server.exists()
            return read_ring(server) if self.has_tables[server.name] else None
        except KeyServerDownError:
            if needed:
                raise
            self.has_tables[server.name] = False
            return None

    def _ring_before(self) -> Ring:
        under_way = [note for note in self.notes.values() if note and note.moving_to and note.ring]
        for note in under_way:
            goal = note.moving_to
            if goal is not None and (goal.names, goal.replication) != (self.to.names, self.to.replication):
                raise KeyTablesError(
                    f"a change of the key servers to {goal.to_text()} is under way: finish that first, with"
                    " key_storage as it was then"
                )
        placed = under_way or [note for note in self.notes.values() if note and note.ring and note.place is not None]
        rings = {note.ring for note in placed if note.ring}
        newest = max((one.generation for one in rings), default=0)
        rings = {one for one in rings if one.generation == newest}
        if len(rings) == 1:
            return rings.pop()
        if rings:
            several = "; ".join(sorted(one.to_text() for one in rings))
            raise KeyTablesError(f"the key servers are of different crawls: {several}: correct key_storage.servers")
        if self.old is None:
            raise ConfigError(
                "the key tables do not say which servers they were filled for: name the config as it was then:"
                " `krake keys reshard --from FILE`"
            )
        return Ring(0, names_of(self.old.servers), self.old.replication)

    def _find_holders(self) -> None:
        """Which server is which place of the old ring: by its note, else by its name in the old config."""
        for name, note in self.notes.items():
            if note and note.ring == self.before and note.place is not None:
                self.holders[note.place] = self.known[name]
        if self.old is not None:
            for place, name in enumerate(names_of(self.old.servers)[: self.before.count]):
                if self.notes[name] is None and self.has_tables[name]:
                    self.holders.setdefault(place, self.known[name])
        self._require_all_keys()
        self._refuse_strangers()

    def _require_all_keys(self) -> None:
        count, names = self.before.count, self.before.names
        missing = [place for place in range(count) if place not in self.holders]
        gone = [
            first
            for first in range(count)
            if not any(place in self.holders for place in ring(first, count, self.before.replication))
        ]
        if gone:
            raise KeyTablesError(
                f"the keys of {', '.join(names[place] for place in missing)} are on no server that is here: name the"
                " config that has them (`krake keys reshard --from FILE`); if they are lost for good, run"
                " `krake keys create --drop` and `krake fsck --repair`"
            )
        self.report.lost = [names[place] for place in missing]

    def _refuse_strangers(self) -> None:
        """A server that joins is empty: its keys would be of another crawl, or older than what was forgotten since."""
        holding = {server.name for server in self.holders.values()}
        for server in self.store.servers:
            if server.name in holding or not self.has_tables[server.name] or self._is_joining(server):
                continue
            count = sum(server.counts().values())
            if count:
                raise KeyTablesError(
                    f"{server.name}: is to join, and has {count} keys of another crawl, or of an older list of servers:"
                    " drop its tables first (sql/keys/drop.sql, or delete its file)"
                )

    # Carrying out

    def carry_out(self, patience_s: float) -> None:
        begun_s = time.monotonic()
        self.work.go_on()
        if not self.report.dry_run and not self.is_moved:
            self._note_all()
        ranges = [] if self.is_moved else list(_ranges(self.before.count, self.to.count))
        for number, (low, high) in enumerate(self.work.until_stopped(ranges)):
            self._range(low, high)
            self.work.report(range=number + 1, of=len(ranges), copied=self.report.copied.total())
        if not self.report.dry_run:
            if ranges:
                self._wait(begun_s + patience_s)
            for low, high in self.work.until_stopped(ranges):
                self._leave(low, high)
            self.work.go_on()
            self._settle()

    def _wait(self, until_s: float) -> None:
        """For tasks that run elsewhere to see that keys are being moved."""
        while (left_s := until_s - time.monotonic()) > 0:
            self.work.report(waits_s=round(left_s), copied=self.report.copied.total())
            self.work.stop.wait(min(left_s, _TELL_S))
            self.work.go_on()

    def _note_all(self) -> None:
        holding = {server.name for server in self.holders.values()}
        for server in self.store.servers:
            if server.name not in holding and not self._is_joining(server):
                server.create(drop=self.has_tables[server.name])
                self.report.created.append(server.name)
        for place, server in self.holders.items():
            server.write_note(RingNote(self.before, place, self.to).to_text())
        for server in self.store.servers:
            if server.name not in holding:
                server.write_note(RingNote(self.before, None, self.to).to_text())
        reached("repair.reshard.noted")

    def _is_joining(self, server: KeyServer) -> bool:
        """Whether an earlier run made its tables for this change."""
        note = self.notes.get(server.name)
        return note is not None and note.moving_to is not None and note.place is None

    def _settle(self) -> None:
        for place, server in enumerate(self.store.servers):
            server.write_note(RingNote(self.to, place).to_text())
            reached("repair.reshard.settled")
        staying = set(names_of(self.store.servers))
        for name, note in self.notes.items():
            if name not in staying and self.has_tables[name] and note != RingNote(None, None):
                self.known[name].write_note(RingNote(None, None).to_text())
        reached("repair.reshard.left")

    def sweep(self) -> None:
        """Move keys that lie on servers which do not hold their range: from before servers kept notes."""
        for first in range(len(self.store.servers)):
            low, high = bounds(first, len(self.store.servers))
            targets = [self.store.servers[place] for place in self.store.places(first)]
            for server in self.work.until_stopped(self.store.servers):
                if server not in targets and server.prefix_sums(low, high):
                    self._copy([server, *targets], targets, low, high)
                    reached("repair.reshard.copied")
                    self._delete(server, targets, low, high)

    def _range(self, low: bytes, high: bytes) -> None:
        sources, targets = self._sources(low), self._targets(low)
        there = [server for server in targets if self.has_tables[server.name]] if self.report.dry_run else targets
        both = [*sources, *(server for server in there if server not in sources)]
        sums = [server.prefix_sums(low, high) for server in self.work.until_stopped(both)]
        if any(view != sums[0] for view in sums) or len(there) < len(targets):
            self._copy(both, targets, low, high)
        reached("repair.reshard.copied")
        self._leave(low, high)
        reached("repair.reshard.deleted")

    def _leave(self, low: bytes, high: bytes) -> None:
        """Take a range off the servers that hold it no more."""
        targets = self._targets(low)
        for server in self._sources(low):
            if server not in targets:
                self._delete(server, targets, low, high)

    def _sources(self, low: bytes) -> list[KeyServer]:
        places = ring(interval(low, self.before.count), self.before.count, self.before.replication)
        return [self.holders[place] for place in places if place in self.holders]

    def _targets(self, low: bytes) -> list[KeyServer]:
        return [self.store.servers[place] for place in self.store.places(interval(low, self.to.count))]

    def _copy(self, servers: Sequence[KeyServer], targets: Sequence[KeyServer], low: bytes, high: bytes) -> None:
        """Bring the targets to the highest state that any server has of each key."""
        tables = [*servers, *(target for target in targets if target not in servers)]
        places = [place for place, table in enumerate(tables) if table in targets]
        scans = [self.work.until_stopped(table.scan(low, high) if table in servers else ()) for table in tables]
        self._bring(tables, scans, places)

    def _bring(
        self, tables: Sequence[KeyServer], scans: Sequence[Iterable[tuple[bytes, int]]], places: Sequence[int]
    ) -> None:
        for place, state, is_missing, keys in behind(scans, places, STATEMENT_KEYS):
            self.work.go_on()
            (self.report.copied if is_missing else self.report.raised)[tables[place].name] += len(keys)
            if not self.report.dry_run:
                tables[place].insert(keys, state)

    def _delete(self, server: KeyServer, targets: Sequence[KeyServer], low: bytes, high: bytes) -> None:
        """Take a range off a server. What it got since it was copied, of a task that ran on, its holders get first."""
        rows = server.scan(low, high)
        while found := dict(islice(rows, STATEMENT_KEYS)):
            self.work.go_on()
            self.report.deleted[server.name] += len(found)
            if self.report.dry_run:
                continue
            keys = list(found)
            late = [found.items(), *(sorted(target.states(keys).items()) for target in targets)]
            self._bring([server, *targets], late, range(1, len(late)))
            server.delete(keys)


def _ranges(before: int, after: int) -> Iterator[tuple[bytes, bytes]]:
    """The ranges (inclusive) of which each lies in one interval of both rings."""
    pieces = max(before, after) * RANGES_PER_INTERVAL
    starts = sorted({bounds(index, count)[0] for count in (before, after, pieces) for index in range(count)})
    for start, following in zip(starts, [*starts[1:], None], strict=True):
        end = (1 << 8 * KEY_BYTES) if following is None else int.from_bytes(following, "big")
        yield start, (end - 1).to_bytes(KEY_BYTES, "big")
