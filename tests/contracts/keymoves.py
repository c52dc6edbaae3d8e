"""One suite for what moves keys between servers: rings and reshard; on every key server.

A subclass gives `new_server` (a new server without tables), as for `KeyStoreContract`.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import Event

import pytest

from crawl_lib.errors import (
    ConfigError,
    KeyTablesError,
    StoppedError,
)
from crawl_lib.keys import KeyServer, ShardedKeyStore, check, repair
from crawl_lib.keys.intervals import replicas
from crawl_lib.keys.moving import _ranges, reshard
from crawl_lib.keys.ring import read_ring, rewrite_notes
from crawl_lib.keys.sharded import LOOK_S
from crawl_lib.states import KeyState
from crawl_lib.stopping import Work
from tests.contracts.keystore import HIGHEST, LOWEST, Switch, make_keys

QUEUED, CRAWLED, GONE = KeyState
KEYS = [LOWEST, *sorted(make_keys(1_000)), HIGHEST]


class Died(BaseException):
    """Stands for the death of the process."""


class KeyMovesContract:
    """What holds of the tables whatever moved."""

    @pytest.fixture
    def new_server(self):
        raise NotImplementedError("a subclass makes servers")

    @pytest.fixture
    def servers(self, new_server):
        made = []

        def make(count):
            for number in range(len(made), len(made) + count):
                switch = Switch(new_server())
                switch.name = (
                    f"server-{number}"  # a name of its own, also where all are one MariaDB
                )
                made.append(switch)
            return made[-count:]

        yield make
        for switch in made:
            switch.close()

    @pytest.fixture
    def filled(self, servers) -> Callable[..., ShardedKeyStore]:
        """A store with keys in all states, and its notes."""

        def make(count: int, replication: int) -> ShardedKeyStore:
            store = ShardedKeyStore(servers(count), replication)
            store.create()
            store.require_ring()
            store.insert(KEYS)
            store.set_state(KEYS[::3], CRAWLED)
            store.set_state(KEYS[::7], GONE)
            return store

        return make

    # Rings

    def test_the_first_use_writes_notes_and_the_same_ring_is_accepted_under_other_names(
        self, filled
    ):
        store = filled(3, 2)
        notes = [read_ring(server) for server in store.servers]
        assert [(note.place, len(note.ring.names), note.ring.replication) for note in notes] == [
            (0, 3, 2), (1, 3, 2), (2, 3, 2)
        ]  # fmt: skip
        for server in store.servers:
            server.name += "-moved"
        store.require_ring()

    @pytest.mark.parametrize("change", ["fewer", "more", "order", "replication"])
    def test_another_ring_is_refused_and_names_what_to_run(self, filled, servers, change):
        store = filled(3, 2)
        first, second, third = store.servers
        chosen, replication = {
            "fewer": ([first, second], 2),
            "more": ([first, second, third, *servers(1)], 2),
            "order": ([second, first, third], 2),
            "replication": ([first, second, third], 1),
        }[change]
        with pytest.raises(KeyTablesError, match="krake keys reshard"):
            ShardedKeyStore(chosen, replication).require_ring()
        assert "key_storage" in (ShardedKeyStore(chosen, replication).ring_problem() or "")
        store.require_ring()

    def test_keys_of_another_crawl_are_refused_and_those_of_before_get_a_name(
        self, filled, servers
    ):
        """Also by a change of the key servers, which would take all of them along."""
        old = filled(2, 1)
        assert [read_ring(server).ring.crawl for server in old.servers] == [None, None]
        ours = ShardedKeyStore(old.servers, 1, crawl="ours")
        assert ours.other_crawls() == []
        ours.require_ring()
        assert [read_ring(server).ring.crawl for server in old.servers] == ["ours", "ours"]
        theirs = ShardedKeyStore(old.servers, 1, crawl="theirs")
        assert len(theirs.other_crawls()) == 2
        more = ShardedKeyStore([*old.servers, *servers(1)], 1, crawl="theirs")
        for act in (theirs.require_ring, lambda: reshard(more)):
            with pytest.raises(KeyTablesError, match=r"keys of the crawl 'ours', .* is 'theirs'"):
                act()
        moved = ShardedKeyStore([*old.servers, *servers(1)], 1, crawl="ours")
        reshard(moved)
        assert [read_ring(server).ring.crawl for server in moved.servers] == ["ours"] * 3

    def test_a_server_with_an_empty_disk_gets_its_note_again(self, filled):
        store = filled(3, 2)
        store.servers[1].create(drop=True)
        store.require_ring()
        assert read_ring(store.servers[1]).place == 1

    def test_a_server_that_is_down_is_not_asked(self, filled):
        store = filled(3, 2)
        store.servers[1].down = True
        store.require_ring()

    def test_a_comparison_says_where_it_is(self, filled):
        store, told = filled(2, 2), []
        store.servers[1].delete(KEYS[:3])
        check(store, work=Work(on_progress=told.append))
        assert {one["server"] for one in told} == {"server-0", "server-1"}
        assert {one["prefix"] for one in told} == {f"{key[0]:02x}" for key in KEYS}
        assert told[-1]["missing"] == 3

    # Reshard

    def holds(self, store: ShardedKeyStore) -> None:
        """Each key is on its servers, there only, in its state; and everybody may use them."""
        expected = (
            dict.fromkeys(KEYS, QUEUED)
            | dict.fromkeys(KEYS[::3], CRAWLED)
            | dict.fromkeys(KEYS[::7], GONE)
        )
        count = len(store.servers)
        for place, server in enumerate(store.servers):
            own = {
                key: int(expected[key])
                for key in KEYS
                if place in replicas(key, count, store.replication)
            }
            assert dict(server.scan(LOWEST, HIGHEST)) == own
        store.require_ring()
        assert check(store).ok

    @pytest.mark.parametrize(
        ("before", "replication", "chosen", "to"),
        [
            (2, 1, [0, 1, 2], 1),
            (3, 2, [0, 1, 2, 3], 2),
            (3, 2, [0, 2], 2),
            (3, 2, [0, 2], 1),
            (2, 1, [1, 0], 1),
            (3, 1, [0, 1, 2], 3),
            (3, 3, [0, 1, 2], 1),
            (1, 1, [1], 1),
            (2, 2, [2, 3, 4], 2),
        ],
    )
    def test_keys_move_to_where_they_belong(self, filled, servers, before, replication, chosen, to):
        old = filled(before, replication)
        pool = [*old.servers, *servers(max([0, *(number + 1 - before for number in chosen)]) or 1)]
        store = ShardedKeyStore([pool[number] for number in chosen], to)
        if set(chosen) & set(
            range(before)
        ):  # servers that are all new and empty look like a new crawl's
            with pytest.raises(KeyTablesError, match="krake keys reshard"):
                store.require_ring()
        rows = [rows_of(server) for server in old.servers]
        planned = reshard(store, old, dry_run=True)
        assert [rows_of(server) for server in old.servers] == rows, "a dry run changes nothing"
        done = reshard(store, old)
        self.holds(store)
        assert (planned.copied, planned.deleted) == (done.copied, done.deleted)
        moved = {
            server.name: sum(
                1
                for key in KEYS
                if place in replicas(key, len(chosen), to)
                and not (
                    chosen[place] < before and chosen[place] in replicas(key, before, replication)
                )
            )
            for place, server in enumerate(store.servers)
        }
        assert done.copied == {name: count for name, count in moved.items() if count}, (
            "only what must move was moved"
        )
        for number, server in enumerate(old.servers):
            if number not in chosen:
                assert server.counts() == {}, "who left has no keys any more"
        again = reshard(store)
        assert (again.done_already, sum(again.copied.values())) == (True, 0)

    @pytest.mark.parametrize(
        "step",
        [
            "keys.reshard.noted",
            "keys.reshard.copied:1",
            "keys.reshard.copied:20",
            "keys.reshard.deleted:1",
            "keys.reshard.deleted:31",
            "keys.reshard.settled:1",
            "keys.reshard.settled:3",
            "keys.reshard.left",
        ],
    )
    def test_killed_anywhere_it_is_run_again_and_nobody_uses_the_tables_meanwhile(
        self, filled, servers, monkeypatch, step
    ):
        old = filled(3, 2)
        store = ShardedKeyStore([old.servers[0], old.servers[2], *servers(1)], 2)
        name, _, times = step.partition(":")
        left = [int(times or 1)]

        def reached(one: str) -> None:
            left[0] -= one == name
            if left[0] == 0:
                left[0] = -1
                raise Died

        monkeypatch.setattr("crawl_lib.keys.moving.reached", reached)
        with pytest.raises(Died):
            reshard(store, old)
        if step not in {"keys.reshard.settled:3", "keys.reshard.left"}:
            with pytest.raises(KeyTablesError, match="krake keys reshard"):
                store.require_ring()
        with pytest.raises(KeyTablesError, match="krake keys reshard"):
            old.require_ring()
        monkeypatch.undo()
        reshard(store, old)
        self.holds(store)

    @pytest.mark.parametrize(
        ("method", "times"),
        [("prefix_sums", 5), ("insert", 1), ("insert", 12), ("delete", 1), ("delete", 12)],
    )
    def test_it_stops_behind_the_statement_that_runs_and_goes_on_when_it_is_run_again(
        self, filled, servers, monkeypatch, method, times
    ):
        """Ranges hold millions of keys: to stop only between two of them would take minutes."""
        monkeypatch.setattr("crawl_lib.keys.moving.STATEMENT_KEYS", 3)
        old = filled(3, 2)
        store = ShardedKeyStore([old.servers[0], old.servers[2], *servers(1)], 2)
        stop, left, later = Event(), [times], []
        for server in [*old.servers, store.servers[2]]:
            _note_calls(monkeypatch, server, stop, method, left, later)
        with pytest.raises(StoppedError):
            reshard(store, old, work=Work(stop=stop))
        assert later == []
        monkeypatch.undo()
        with pytest.raises(KeyTablesError, match="krake keys reshard"):
            store.require_ring()
        reshard(store, old)
        self.holds(store)

    def test_it_may_be_stopped_while_it_waits_for_tasks_elsewhere(self, filled, servers):
        old = filled(2, 1)
        store = ShardedKeyStore([*old.servers, *servers(1)], 1)
        stop, told = Event(), []

        def tell(progress):
            told.append(progress)
            if "waits_s" in progress:
                stop.set()

        with pytest.raises(StoppedError):
            reshard(store, patience_s=3600.0, work=Work(stop=stop, on_progress=tell))
        assert 3500 < told[-1]["waits_s"] <= 3600
        reshard(store)
        self.holds(store)

    @pytest.mark.parametrize("step_before", ["keys.reshard.copied", "keys.reshard.deleted"])
    def test_what_a_task_that_runs_on_inserts_is_not_lost(
        self, filled, servers, monkeypatch, step_before
    ):
        """Each range gets two keys after it was copied, before or after it is deleted where it was."""
        old = filled(2, 1)
        store = ShardedKeyStore([*old.servers, *servers(1)], 1)
        ranges = list(_ranges(2, 3))
        inserted: dict[bytes, KeyState] = {}

        def reached(step: str) -> None:
            if step == step_before:
                low = ranges[len(inserted) // 2][0]
                for state in (QUEUED, CRAWLED):
                    key = (int.from_bytes(low, "big") + state).to_bytes(20, "big")
                    old.insert([key], state)
                    inserted[key] = state

        monkeypatch.setattr("crawl_lib.keys.moving.reached", reached)
        report = reshard(store)
        assert len(inserted) == 2 * len(ranges)
        assert store.states(list(inserted)) == inserted
        assert check(store).ok
        assert report.copied.total() == report.deleted.total()

    @pytest.mark.parametrize("step_before", ["keys.reshard.copied", "keys.reshard.deleted"])
    def test_what_a_task_that_runs_on_marks_is_not_lost(
        self, filled, servers, monkeypatch, step_before
    ):
        """In each range a key that waits is fetched after it was copied, before or after it is deleted where it was."""
        old = filled(2, 1)
        store = ShardedKeyStore([*old.servers, *servers(1)], 1)
        ranges = iter(_ranges(2, 3))
        waiting = [key for key, state in old.states(KEYS).items() if state is QUEUED]
        marked: dict[bytes, KeyState] = {}

        def reached(step: str) -> None:
            if step == step_before:
                low, high = next(ranges)
                (key, other) = [key for key in waiting if low <= key <= high][:2]
                for one, state in ((key, CRAWLED), (other, GONE)):
                    old.set_state([one], state)
                    marked[one] = state

        monkeypatch.setattr("crawl_lib.keys.moving.reached", reached)
        report = reshard(store)
        assert next(ranges, None) is None
        assert store.states(list(marked)) == marked
        assert check(store).ok
        assert 0 < report.raised.total() < len(marked), "of keys that moved"

    def test_a_task_that_has_opened_the_tables_before_is_refused_soon(
        self, filled, servers, monkeypatch
    ):
        now = [0.0]
        old = filled(2, 1)
        running = ShardedKeyStore(old.servers, 1, clock=lambda: now[0])
        running.require_ring()
        monkeypatch.setattr("crawl_lib.keys.moving.reached", _die)
        with pytest.raises(Died):
            reshard(ShardedKeyStore([*old.servers, *servers(1)], 1))
        running.unknown(KEYS[:1])
        now[0] += LOOK_S
        requests = (
            running.unknown,
            running.insert,
            running.claim,
            lambda keys: running.set_state(keys, CRAWLED),
        )
        for request in requests:
            with pytest.raises(KeyTablesError, match="under way"):
                request(KEYS[:1])

    @pytest.mark.parametrize("broken", [0, 1, 2])
    def test_a_note_that_is_broken_in_the_middle_of_a_change_is_written_again(
        self, broken, filled, servers, monkeypatch
    ):
        """With the place of before, wherever the server is in the list now; one that joins has none."""
        first, second = filled(2, 1).servers
        store = ShardedKeyStore([second, *servers(1), first], 1)
        with monkeypatch.context() as patched:
            patched.setattr("crawl_lib.keys.moving.reached", _die)
            with pytest.raises(Died):
                reshard(store)
        before = [read_ring(server) for server in store.servers]
        store.servers[broken].write_note("{")
        assert rewrite_notes(store.servers, 1) == [store.servers[broken].name]
        assert [read_ring(server) for server in store.servers] == before
        reshard(store)
        self.holds(store)

    def test_while_one_change_is_under_way_another_is_refused(self, filled, servers, monkeypatch):
        old = filled(2, 1)
        more = servers(2)
        monkeypatch.setattr("crawl_lib.keys.moving.reached", _die)
        with pytest.raises(Died):
            reshard(ShardedKeyStore([*old.servers, more[0]], 1))
        monkeypatch.undo()
        with pytest.raises(KeyTablesError, match="under way: finish that first"):
            reshard(ShardedKeyStore([*old.servers, *more], 1))

    def test_a_lost_server_is_done_without_where_others_have_all_its_keys(self, filled):
        old = filled(3, 2)
        old.servers[1].down = True
        store = ShardedKeyStore([old.servers[0], old.servers[2]], 2)
        report = reshard(store)
        assert report.lost == ["server-1"]
        self.holds(store)

    def test_a_server_that_was_away_during_a_change_joins_empty(self, filled):
        """Its note is of an older ring, which is no other crawl's; what it holds may have been forgotten since."""
        first, second, away = filled(3, 2).servers
        away.down = True
        reshard(ShardedKeyStore([first, second], 2))
        away.down = False
        store = ShardedKeyStore([first, second, away], 2)
        with pytest.raises(KeyTablesError, match=f"{away.name}: is to join, and has [0-9]+ keys"):
            reshard(store)
        away.create(drop=True)
        reshard(store)
        self.holds(store)

    def test_a_server_that_was_away_during_changes_is_not_used_in_its_old_place(
        self, filled, servers
    ):
        """Where it was another one is since: that its keys are old, only the generation of its note tells."""
        first, second, away = filled(3, 2).servers
        away.down = True
        reshard(ShardedKeyStore([first, second], 2))
        reshard(ShardedKeyStore([first, second, *servers(1)], 2))
        away.down = False
        store = ShardedKeyStore([first, second, away], 2)
        with pytest.raises(
            KeyTablesError, match=f"{away.name}: was away while the key servers were changed"
        ):
            store.require_ring()
        away.create(drop=True)
        store.require_ring()
        repair(store)
        self.holds(store)

    def test_keys_that_nobody_has_are_an_error_before_anything_is_done(self, filled):
        old = filled(3, 1)
        rows = [rows_of(server) for server in old.servers]
        with pytest.raises(
            KeyTablesError, match=r"server-1 are on no server of this config.*--from"
        ):
            reshard(ShardedKeyStore([old.servers[0], old.servers[2]], 1))
        assert [rows_of(server) for server in old.servers] == rows
        old.require_ring()

    def test_a_server_that_joins_is_empty(self, filled, servers):
        old = filled(2, 1)
        [stranger] = servers(1)
        stranger.create()
        stranger.insert([HIGHEST], CRAWLED)
        with pytest.raises(KeyTablesError, match="server-2: is to join, and has 1 keys"):
            reshard(ShardedKeyStore([*old.servers, stranger], 1))
        assert stranger.counts() == {2: 1}

    def test_tables_without_notes_need_the_config_as_it_was(self, filled, servers):
        old = filled(2, 1)
        rows = {server.name: list(server.scan(LOWEST, HIGHEST)) for server in old.servers}
        for server in old.servers:
            server.create(drop=True)
            for state in KeyState:
                keys = [key for key, own in rows[server.name] if own == state]
                for start in range(0, len(keys), 5_000):
                    server.insert(keys[start : start + 5_000], state)
        store = ShardedKeyStore([*old.servers, *servers(1)], 1)
        with pytest.raises(ConfigError, match="--from"):
            reshard(store)
        reshard(store, old)
        self.holds(store)


def rows_of(server: KeyServer) -> dict[bytes, int]:
    """All rows of a server."""
    return dict(server.scan(LOWEST, HIGHEST))


def _note_calls(
    monkeypatch, server, stop: Event, method: str, left: list[int], later: list[str]
) -> None:
    """Set `stop` with the call of a method that counts `left` down, on whatever server; list the calls after it."""

    def noting(name, *arguments, **named):
        if stop.is_set():
            later.append(name)
        left[0] -= name == method
        if left[0] == 0:
            stop.set()
        return Switch._pass(server, name, *arguments, **named)

    monkeypatch.setattr(server, "_pass", noting)


def _die(step: str) -> None:
    raise Died(step)
