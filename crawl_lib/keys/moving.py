"""`krake keys reshard`: servers were added or removed, or `replication` changed; keys move to where they belong now.

Both rings cut the keys into ranges; of each range it is known who held it and who is to hold it. Only keys that a new
holder lacks are written, and only on servers that are not holders any more are they deleted.

1. The notes of all servers say what they are moving to (`keys.reshard.noted`): from now on every stage refuses to use
   the tables, on every machine, with the old config and the new one. A task that has opened them before sees that
   within `sharded.LOOK_S`; the caller holds what nodes he can, and gives time (`patience_s`) where others may run.
2. Range by range: what the old holders have is written to the new holders, the highest state of each key
   (`keys.reshard.copied`); then it is deleted from those that hold it no more (`keys.reshard.deleted`), after what
   they got since was copied too; and at the end once more.
3. Servers of the new ring get notes of their new place (`keys.reshard.settled`), those that left an empty one
   (`keys.reshard.left`). As long as a note says that something moves, the next run goes on: it finds by digests which
   ranges are done, and by a note of the new ring that all are.

Killed or stopped anywhere: run it again. A key is never deleted before all its new holders have it.
"""

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from itertools import islice

from crawl_lib.dataclass import dataclass
from crawl_lib.durable import reached
from crawl_lib.errors import ConfigError, KeyServerDownError, KeyTablesError
from crawl_lib.keys.intervals import KEY_BYTES, behind, bounds, interval, ring
from crawl_lib.keys.ring import Ring, RingNote, names_of, other_crawl, read_ring
from crawl_lib.keys.server import STATEMENT_KEYS, KeyServer
from crawl_lib.keys.sharded import ShardedKeyStore
from crawl_lib.stopping import Work

RANGES_PER_INTERVAL = 16
"""An interval moves in so many pieces, so that progress is seen, and little is looked at again after a kill."""
_TELL_S = 1.0


@dataclass
class ReshardReport:
    """Report of a change of servers, also of a dry run.

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
    if change.is_needed():
        change.carry_out(patience_s)
    else:
        change.report.done_already = True
        change.sweep()
    return change.report


class _Change:
    """What the keys were written for, as the notes say, and who holds them; and how they move from there.

    `notes`: of all servers, old and new, by name; `has_tables`: names of those that have tables. `before`, `to`: the
    rings. `holders`: the servers that hold the keys, by place in `before`. `is_moved`: all keys are where they belong.
    """

    def __init__(
        self, store: ShardedKeyStore, old: ShardedKeyStore | None, report: ReshardReport, work: Work
    ) -> None:
        self.store, self.old, self.report, self.work = store, old, report, work
        self.known = {
            server.name: server for server in [*(old.servers if old else ()), *store.servers]
        }
        self.has_tables: set[str] = set()
        self.notes = {name: self._note_of(server) for name, server in self.known.items()}
        for name, note in self.notes.items():
            if problem := other_crawl(self.known[name], note, store.crawl):
                raise KeyTablesError(problem)
        self.to = Ring(0, names_of(store.servers), store.replication, store.crawl)
        self.before = self._ring_before()
        self.to = replace(self.to, generation=self.before.generation + 1)
        report.before, report.after = self.before.to_text(), self.to.to_text()
        self.is_moved = any(note and note.ring == self.to for note in self.notes.values())
        self.holders: Mapping[int, KeyServer] = {}

    def is_needed(self) -> bool:
        """Find the holders of keys; False if the ring is current."""
        places = [
            note and (note.place, note.moving_to) for note in map(self.notes.get, self.to.names)
        ]
        if self.before.same_places(self.to) and places == [
            (place, None) for place in range(len(self.to.names))
        ]:
            self.to = self.before
            return False
        if not self.is_moved:
            self.holders = self._find_holders()
            self._require_all_keys()
            self._refuse_strangers()
        return True

    def _note_of(self, server: KeyServer) -> RingNote | None:
        """Return a server's note.

        A leaving server may be gone, if others have all its keys.
        """
        try:
            if not server.exists():
                return None
        except KeyServerDownError:
            if server in self.store.servers:
                raise
            return None
        self.has_tables.add(server.name)
        return read_ring(server)

    def _ring_before(self) -> Ring:
        under_way = [note for note in self.notes.values() if note and note.moving_to and note.ring]
        for note in under_way:
            goal = note.moving_to
            if goal is not None and (goal.names, goal.replication) != (
                self.to.names,
                self.to.replication,
            ):
                raise KeyTablesError(
                    f"a change of the key servers to {goal.to_text()} is under way: finish that first, with"
                    " key_storage as it was then"
                )
        placed = under_way or [
            note for note in self.notes.values() if note and note.ring and note.place is not None
        ]
        rings = {note.ring for note in placed if note.ring}
        rings = {one for one in rings if one.generation == max(other.generation for other in rings)}
        if len(rings) == 1:
            return rings.pop()
        if rings:
            several = "; ".join(sorted(one.to_text() for one in rings))
            raise KeyTablesError(
                f"the key servers are of different crawls: {several}: correct key_storage.servers"
            )
        if self.old is None:
            raise ConfigError(
                "the key tables do not say which servers they were filled for: name the config as it was then:"
                " `krake keys reshard --from FILE`"
            )
        return Ring(0, names_of(self.old.servers), self.old.replication)

    def _find_holders(self) -> dict[int, KeyServer]:
        """Find the server at each place of the old ring.

        Its note decides, else its name in the old config.
        """
        holders = {}
        for place, name in enumerate(
            names_of(self.old.servers)[: len(self.before.names)] if self.old else ()
        ):
            if self.notes[name] is None and name in self.has_tables:
                holders[place] = self.known[name]
        for name, note in self.notes.items():
            if note and note.ring == self.before and note.place is not None:
                holders[note.place] = self.known[name]
        return holders

    def _require_all_keys(self) -> None:
        count = len(self.before.names)
        self.report.lost = [
            name for place, name in enumerate(self.before.names) if place not in self.holders
        ]
        if not all(
            set(ring(first, count, self.before.replication)) & set(self.holders)
            for first in range(count)
        ):
            raise KeyTablesError(
                f"the keys of {', '.join(self.report.lost)} are on no server of this config: name the"
                " config that has them (`krake keys reshard --from FILE`); if they are lost for good, run"
                " `krake keys create --drop` and `krake fsck --repair`"
            )

    def _refuse_strangers(self) -> None:
        """Refuse a joining server with keys.

        Its keys would be of another crawl, or older than a later forget.
        """
        for server in self._joining():
            if server.name in self.has_tables and (count := sum(server.counts().values())):
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
        ranges = [] if self.is_moved else list(_ranges(len(self.before.names), len(self.to.names)))
        for number, (low, high) in enumerate(self.work.until_stopped(ranges)):
            self._range(self._sources(low), self._targets(low), low, high)
            self.work.report(
                stage="keys.move",
                done=number + 1,
                total=len(ranges),
                unit="ranges",
                copied=self.report.copied.total(),
            )
        if not self.report.dry_run:
            if ranges:
                self._wait(begun_s + patience_s)
            for low, high in self.work.until_stopped(ranges):
                self._leave(self._sources(low), self._targets(low), low, high)
            self.work.go_on()
            self._settle()

    def _wait(self, until_s: float) -> None:
        """Wait until tasks elsewhere see that keys are being moved."""
        while (left_s := until_s - time.monotonic()) > 0:
            self.work.report(waits_s=round(left_s), copied=self.report.copied.total())
            self.work.stop.wait(min(left_s, _TELL_S))
            self.work.go_on()

    def _joining(self) -> list[KeyServer]:
        """New servers whose tables no earlier run made for this change."""
        holding = set(names_of(self.holders.values()))
        notes = (
            (server, self.notes[server.name])
            for server in self.store.servers
            if server.name not in holding
        )
        return [
            server for server, note in notes if not (note and note.moving_to and note.place is None)
        ]

    def _note_all(self) -> None:
        for server in self._joining():
            server.create(drop=server.name in self.has_tables)
            self.report.created.append(server.name)
        holding = set(names_of(self.holders.values()))
        joining = [(None, server) for server in self.store.servers if server.name not in holding]
        for place, server in [*self.holders.items(), *joining]:
            server.write_note(RingNote(self.before, place, self.to).to_text())
        reached("keys.reshard.noted")

    def _settle(self) -> None:
        for place, server in enumerate(self.store.servers):
            server.write_note(RingNote(self.to, place).to_text())
            reached("keys.reshard.settled")
        for name in sorted(self.has_tables - set(self.to.names)):
            if self.notes[name] != RingNote(None, None):
                self.known[name].write_note(RingNote(None, None).to_text())
        reached("keys.reshard.left")

    def sweep(self) -> None:
        """Move keys off servers outside the keys' range.

        Such keys are older than the servers' notes.
        """
        for first in range(len(self.to.names)):
            low, high = bounds(first, len(self.to.names))
            targets = self._targets(low)
            others = [server for server in self.store.servers if server not in targets]
            for server in self.work.until_stopped(others):
                if any(server.prefix_sums(low, high)):
                    self._range([server], targets, low, high)

    def _range(
        self, sources: Sequence[KeyServer], targets: Sequence[KeyServer], low: bytes, high: bytes
    ) -> None:
        """Move a range: copy its keys, then delete them elsewhere.

        Only differing targets get keys.
        """
        there = [
            server
            for server in targets
            if server.name in self.has_tables or not self.report.dry_run
        ]
        both = [*sources, *(server for server in there if server not in sources)]
        sums = [dict(server.prefix_sums(low, high)) for server in self.work.until_stopped(both)]
        if any(view != sums[0] for view in sums) or len(there) < len(targets):
            # A dry run has made no tables: what joins lacks all keys.
            tables = [*both, *(server for server in targets if server not in both)]
            scans = [
                self.work.until_stopped(table.scan(low, high) if table in both else ())
                for table in tables
            ]
            self._bring(
                tables, scans, [place for place, table in enumerate(tables) if table in targets]
            )
        reached("keys.reshard.copied")
        self._leave(sources, targets, low, high)
        reached("keys.reshard.deleted")

    def _leave(
        self, sources: Sequence[KeyServer], targets: Sequence[KeyServer], low: bytes, high: bytes
    ) -> None:
        """Take a range off the servers that hold it no more."""
        for server in sources:
            if server not in targets:
                self._delete(server, targets, low, high)

    def _sources(self, low: bytes) -> list[KeyServer]:
        places = ring(
            interval(low, len(self.before.names)), len(self.before.names), self.before.replication
        )
        return [self.holders[place] for place in places if place in self.holders]

    def _targets(self, low: bytes) -> list[KeyServer]:
        return [
            self.store.servers[place]
            for place in self.store.rings[interval(low, len(self.to.names))]
        ]

    def _bring(
        self,
        tables: Sequence[KeyServer],
        scans: Sequence[Iterable[tuple[bytes, int]]],
        places: Sequence[int],
    ) -> None:
        """Raise the tables at `places` to each key's highest state."""
        for place, state, is_missing, keys in behind(scans, places, STATEMENT_KEYS):
            self.work.go_on()
            (self.report.copied if is_missing else self.report.raised)[tables[place].name] += len(
                keys
            )
            if not self.report.dry_run:
                tables[place].insert(keys, state)

    def _delete(
        self, server: KeyServer, targets: Sequence[KeyServer], low: bytes, high: bytes
    ) -> None:
        """Delete a range from a server.

        Keys that a running task added since the copy first go to their holders.
        """
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
    """Yield the ranges that lie in one interval of both rings.

    Both ends are included.
    """
    pieces = max(before, after) * RANGES_PER_INTERVAL
    starts = sorted(
        {bounds(index, count)[0] for count in (before, after, pieces) for index in range(count)}
    )
    for start, following in zip(starts, [*starts[1:], None], strict=True):
        end = (1 << 8 * KEY_BYTES) if following is None else int.from_bytes(following, "big")
        yield start, (end - 1).to_bytes(KEY_BYTES, "big")
