"""One suite for every key server: a subclass says how servers are made, and inherits all tests.

`servers(n)` returns n new servers with tables, behind a `Switch` each: `switch.down = True` makes one silent.
`again(server)` opens the same server as another process would; `raw(server)` reads its rows without Krake's code.
"""

from __future__ import annotations

import hashlib
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise, product

import pytest

from crawl_lib.errors import KeyServerDownError, KeyTablesError
from crawl_lib.keys import (
    STATEMENT_KEYS,
    KeyServer,
    PrefixSum,
    ShardedKeyStore,
    check,
    repair,
    replicas,
)
from crawl_lib.keys.server import SlotEnd, SlotWish
from crawl_lib.states import KeyState

QUEUED, CRAWLED, GONE = KeyState
HIGHEST = b"\xff" * 20
LOWEST = bytes(20)


def make_keys(count: int, start: int = 0) -> list[bytes]:
    return [hashlib.sha1(b"%d" % number).digest() for number in range(start, start + count)]


class Switch(KeyServer):
    """A key server that can be made silent, and that notes and checks what it was asked."""

    def __init__(self, server: KeyServer) -> None:
        self.inner = server
        self.name = server.name
        self.down = False
        self.calls: list[str] = []

    def _pass(self, method, *arguments, **named):
        self.calls.append(method)
        if self.down:
            raise KeyServerDownError(f"{self.name}: switched off")
        keys = (
            arguments[0]
            if arguments and isinstance(arguments[0], list) and method != "turns"
            else []
        )
        assert len(keys) <= STATEMENT_KEYS
        assert all(low < high for low, high in pairwise(keys))
        return getattr(self.inner, method)(*arguments, **named)

    def _rows(self, statement):
        return self._pass("_rows", statement)

    def known(self, keys):
        return self._pass("known", keys)

    def states(self, keys):
        return self._pass("states", keys)

    def insert(self, keys, state):
        return self._pass("insert", keys, state)

    def set_state(self, keys, state):
        return self._pass("set_state", keys, state)

    def claim(self, keys):
        return self._pass("claim", keys)

    def delete(self, keys):
        return self._pass("delete", keys)

    def counts(self):
        return self._pass("counts")

    def scan(self, low, high):
        return self._pass("scan", low, high)

    def prefix_sums(self, low, high):
        return self._pass("prefix_sums", low, high)

    def read_note(self):
        return self._pass("read_note")

    def write_note(self, text):
        return self._pass("write_note", text)

    def exists(self):
        return self._pass("exists")

    def create(self, *, drop=False):
        return self._pass("create", drop=drop)

    def turns(self, wishes, ends=()):
        return self._pass("turns", wishes, ends)

    def has_slots(self):
        return self._pass("has_slots")

    def make_slots(self):
        return self._pass("make_slots")

    def close(self):
        self.inner.close()


class Clock:
    now = 100.0

    def __call__(self):
        return self.now


class KeyStoreContract:
    """What KeyStore and KeyServer promise. Subclasses give the fixtures `new_server`, `again` and `raw`."""

    @pytest.fixture
    def new_server(self):
        raise NotImplementedError("a subclass makes servers")

    @pytest.fixture
    def servers(self, new_server):
        made = []

        def make(count):
            made.extend(Switch(new_server()) for _ in range(count))
            for switch in made[-count:]:
                switch.create()
            return made[-count:]

        yield make
        for switch in made:
            switch.close()

    @pytest.fixture
    def store(self, servers):
        return ShardedKeyStore(servers(3), 2)

    # What the store remembers

    def test_a_key_is_new_until_it_is_inserted(self, store):
        keys = make_keys(12_000)
        assert store.unknown(keys).new == set(keys)
        assert store.insert(keys[:7_000]) == {}
        answer = store.unknown(keys)
        assert (answer.known, answer.new, answer.undecided) == (
            set(keys[:7_000]),
            set(keys[7_000:]),
            set(),
        )

    def test_no_keys_are_no_work(self, store):
        answer = store.unknown([])
        assert (answer.new, answer.known, answer.undecided) == (set(), set(), set())
        assert store.claim([]).ours == set()
        assert store.insert([]) == {}
        assert store.set_state([], GONE) == {}
        assert store.forget([]) == 0
        assert store.states([]) == {}

    def test_duplicates_and_any_order_are_allowed(self, store):
        keys = make_keys(10)
        store.insert([*reversed(keys), *keys])
        assert store.claim([*keys, *keys]).theirs == set(keys)
        assert sum(counts.total for counts in store.counts()) == 2 * len(keys)

    def test_rows_are_lower_case_hex_on_the_servers_of_the_ring(self, store, raw):
        keys = make_keys(300)
        store.insert(keys)
        expected: list[set] = [set(), set(), set()]
        for key in keys:
            for place in replicas(key, 3, 2):
                expected[place].add((key.hex(), 1))
        assert [set(raw(switch.inner)) for switch in store.servers] == expected

    def test_every_pair_of_state_and_write_ends_as_the_table_says(self, store):
        table = {  # (before, write, state written) -> after
            (None, "insert", QUEUED): QUEUED,
            (None, "insert", CRAWLED): CRAWLED,
            (None, "insert", GONE): GONE,
            (QUEUED, "insert", QUEUED): QUEUED,
            (QUEUED, "insert", CRAWLED): CRAWLED,
            (QUEUED, "insert", GONE): GONE,
            (CRAWLED, "insert", QUEUED): CRAWLED,
            (CRAWLED, "insert", CRAWLED): CRAWLED,
            (CRAWLED, "insert", GONE): GONE,
            (GONE, "insert", QUEUED): GONE,
            (GONE, "insert", CRAWLED): GONE,
            (GONE, "insert", GONE): GONE,
            (None, "set_state", QUEUED): QUEUED,
            (None, "set_state", CRAWLED): CRAWLED,
            (None, "set_state", GONE): GONE,
            (QUEUED, "set_state", QUEUED): QUEUED,
            (QUEUED, "set_state", CRAWLED): CRAWLED,
            (QUEUED, "set_state", GONE): GONE,
            (CRAWLED, "set_state", QUEUED): CRAWLED,
            (CRAWLED, "set_state", CRAWLED): CRAWLED,
            (CRAWLED, "set_state", GONE): GONE,
            (GONE, "set_state", QUEUED): GONE,
            (GONE, "set_state", CRAWLED): CRAWLED,
            (GONE, "set_state", GONE): GONE,
        }
        cases = list(product([None, *KeyState], ["insert", "set_state"], KeyState))
        assert set(table) == set(cases)
        for number, (before, write, state) in enumerate(cases):
            keys = make_keys(3, start=10 * number)
            if before is not None:
                store.set_state(keys, before)
            for _ in range(2):  # every write may be repeated
                getattr(store, write)(keys, state)
                assert set(store.states(keys).values()) == {table[before, write, state]}, (
                    before,
                    write,
                    state,
                )

    def test_states_of_unknown_keys_are_none(self, store):
        known, unknown = make_keys(2)
        store.insert([known])
        assert store.states([known, unknown]) == {known: QUEUED, unknown: None}

    def test_forget_makes_keys_new_on_every_replica(self, store, raw):
        keys = make_keys(20)
        store.insert(keys)
        assert store.forget([*keys[:5], *make_keys(3, start=900)]) == 5
        assert store.unknown(keys).new == set(keys[:5])
        assert sum(len(raw(switch.inner)) for switch in store.servers) == 2 * 15

    def test_what_one_store_wrote_another_one_reads(self, store, again):
        keys = make_keys(100)
        store.insert(keys)
        store.close()
        with ShardedKeyStore([again(switch.inner) for switch in store.servers], 2) as other:
            assert other.unknown(keys).known == set(keys)
        assert store.unknown(keys).known == set(keys), "a closed store may be used again"

    def test_counts_add_up_by_state(self, servers):
        store = ShardedKeyStore(servers(1))
        keys = make_keys(10)
        store.insert(keys)
        store.set_state(keys[:3], CRAWLED)
        store.set_state(keys[3:4], GONE)
        [counts] = store.counts()
        assert (counts.up, counts.total) == (True, 10)
        assert counts.by_state == {"queued": 6, "crawled": 3, "gone": 1}

    # Two writers

    def test_of_two_claims_the_second_is_told_theirs(self, store):
        keys = make_keys(6_000)
        first = store.claim(keys[:4_000])
        assert (first.ours, first.theirs, first.unsure) == (set(keys[:4_000]), set(), set())
        second = store.claim(keys)
        assert (second.ours, second.theirs, second.unsure) == (
            set(keys[4_000:]),
            set(keys[:4_000]),
            set(),
        )
        assert check(store).ok, "the other replicas have what was claimed"

    def test_concurrent_claims_give_every_key_to_exactly_one_writer(self, servers, again):
        """Four writers claim overlapping, shuffled sets at the same time; one more inserts other keys."""
        inner = [switch.inner for switch in servers(2)]
        writers = 4
        gate = threading.Barrier(writers + 1, timeout=60)

        def claim(number):
            with ShardedKeyStore([again(server) for server in inner], 2) as store:
                ours, unsure = [], []
                for round_number in range(6):
                    keys = make_keys(1_500, start=1_000 * round_number + 100 * number)
                    gate.wait()
                    answer = store.claim(keys)
                    assert answer.ours | answer.theirs | answer.unsure == set(keys)
                    ours += answer.ours
                    unsure += answer.unsure
                return ours, unsure

        def insert():
            with ShardedKeyStore([again(server) for server in inner], 2) as store:
                for round_number in range(6):
                    gate.wait()
                    store.insert(make_keys(1_500, start=100_000 + 500 * round_number))

        with ThreadPoolExecutor(writers + 1) as pool:
            others = pool.submit(insert)
            answers = list(pool.map(claim, range(writers)))
            others.result()
        ours = [key for mine, _ in answers for key in mine]
        assert [key for _, unsure in answers for key in unsure] == []
        assert len(ours) == len(set(ours)), "a key was given to two writers"
        assert set(ours) == set(make_keys(5_000 + 300 + 1_500))
        with ShardedKeyStore([again(server) for server in inner], 2) as store:
            assert check(store).ok

    def test_concurrent_inserts_and_marks_lose_nothing(self, servers, again):
        inner = servers(1)[0].inner
        keys = make_keys(4_000)
        gate = threading.Barrier(4, timeout=60)

        def write(number):
            with ShardedKeyStore([again(inner)]) as store:
                gate.wait()
                for start in range(0, 4_000, 500):
                    part = (
                        keys[start : start + 500]
                        if number % 2
                        else keys[3_500 - start : 4_000 - start]
                    )
                    store.insert(part)
                    store.set_state(part, CRAWLED)

        with ThreadPoolExecutor(4) as pool:
            list(pool.map(write, range(4)))
        with ShardedKeyStore([again(inner)]) as store:
            assert set(store.states(keys).values()) == {CRAWLED}

    # Servers that are down

    def test_a_key_is_known_if_any_replica_knows_it(self, store):
        keys = make_keys(100)
        store.insert(keys)
        for switch in store.servers[1:]:
            switch.create(drop=True)
        on_first = {key for key in keys if 0 in replicas(key, 3, 2)}
        answer = store.unknown(keys)
        assert (answer.known, answer.new) == (on_first, set(keys) - on_first)

    def test_a_key_is_new_if_all_answering_replicas_say_so(self, store):
        keys = make_keys(100)
        store.servers[0].down = True
        answer = store.unknown(keys)
        assert (answer.new, answer.undecided) == (set(keys), set())

    def test_a_key_is_undecided_if_no_replica_answers(self, store):
        keys = make_keys(100)
        store.servers[0].down = store.servers[1].down = True
        nowhere = {key for key in keys if set(replicas(key, 3, 2)) == {0, 1}}
        answer = store.unknown(keys)
        assert nowhere
        assert (answer.undecided, answer.new) == (nowhere, set(keys) - nowhere)

    @pytest.mark.parametrize("write", ["insert", "set_state"])
    def test_writes_leave_out_a_server_that_is_down_and_count_it(self, store, write):
        keys = make_keys(100)
        store.servers[1].down = True
        report = getattr(store, write)(keys, CRAWLED)
        expected = sum(1 in replicas(key, 3, 2) for key in keys)
        assert report == {store.servers[1].name: expected}
        assert set(store.states(keys).values()) == {CRAWLED}

    @pytest.mark.parametrize("write", ["insert", "set_state"])
    def test_a_write_fails_only_if_no_replica_took_some_key_and_writes_the_rest(self, store, write):
        keys = make_keys(100)
        for switch in store.servers[:2]:
            switch.down = True
        with pytest.raises(KeyServerDownError, match="switched off"):
            getattr(store, write)(keys, CRAWLED)
        nowhere = {key for key in keys if set(replicas(key, 3, 2)) == {0, 1}}
        assert store.unknown(keys).known == set(keys) - nowhere

    def test_claim_is_decided_by_the_next_replica_if_the_first_is_down(self, store):
        keys = make_keys(20_000)
        store.servers[0].down = True
        first = store.claim(keys)
        assert first.ours == set(keys)
        assert first.missed == {
            store.servers[0].name: sum(0 in replicas(key, 3, 2) for key in keys)
        }
        store.servers[0].down = False
        store._clock = Clock()
        store._clock.now = float("inf")
        second = store.claim(keys)
        assert second.theirs == set(keys), "the first replica is back and empty, the others know"
        assert second.ours == set()

    def test_claim_without_any_answer_is_unsure_and_unreached(self, store):
        keys = make_keys(100)
        for switch in store.servers:
            switch.down = True
        answer = store.claim(keys)
        assert (answer.unsure, answer.unreached) == (set(keys), set(keys))
        assert not answer.ours | answer.theirs

    def test_forget_deletes_nothing_while_a_replica_is_down(self, store, raw):
        keys = make_keys(50)
        store.insert(keys)
        store.servers[2].down = True
        with pytest.raises(KeyServerDownError, match="switched off") as caught:
            store.forget(keys)
        assert store.servers[2].name in str(caught.value)
        assert sum(len(raw(switch.inner)) for switch in store.servers) == 2 * 50

    def test_a_silent_server_is_left_alone_for_a_while_then_asked_again(self, servers):
        clock = Clock()
        [switch] = servers(1)
        store = ShardedKeyStore([switch], down_s=5, clock=clock)
        keys = make_keys(3 * STATEMENT_KEYS)
        switch.down = True
        switch.calls.clear()
        assert store.unknown(keys).undecided == set(keys)
        assert switch.calls == ["known"], "one wait for the whole group"
        switch.down = False
        clock.now += 4.9
        assert store.unknown(keys).undecided == set(keys)
        clock.now += 0.2
        assert store.unknown(keys).new == set(keys)

    # The note

    def test_a_server_keeps_one_note_beside_its_keys(self, servers, again):
        server = servers(1)[0].inner
        server.insert([LOWEST], QUEUED)
        assert server.read_note() is None
        for text in ('{"place": 0}', "it's \\ new", "x" * 60_000):
            server.write_note(text)
            assert server.read_note() == text
            assert again(server).read_note() == text
        assert server.counts() == {1: 1}
        server.create(drop=True)
        assert server.read_note() is None, "new tables know nothing of the old ones"

    def test_a_key_table_of_an_older_version_gets_a_note_when_one_is_written(
        self, servers, drop_note_table
    ):
        server = servers(1)[0].inner
        drop_note_table(server)
        assert server.read_note() is None
        server.write_note("first")
        assert server.read_note() == "first"

    def test_a_server_without_tables_is_left_out_while_another_replica_answers(
        self, store, new_server
    ):
        """It came back with an empty disk: a crawl goes on, what it misses is counted, and repair finds it."""
        keys = make_keys(300)
        store.insert(keys[:200])
        blank = Switch(new_server())
        store.servers[1] = blank
        share = sum(1 in replicas(key, 3, 2) for key in keys)
        assert store.unknown(keys).known == set(keys[:200])
        assert store.claim(keys).ours == set(keys[200:])
        assert store.insert(keys) == {blank.name: share}
        assert store.set_state(keys, CRAWLED) == {blank.name: share}
        assert set(store.states(keys).values()) == {CRAWLED}
        with pytest.raises(KeyTablesError, match="krake keys create"):
            store.forget(keys[:3])
        assert set(store.states(keys).values()) == {CRAWLED}
        assert repair(store).missing == {blank.name: share}
        assert check(store).ok
        blank.close()

    def test_where_every_replica_lacks_its_tables_the_operator_has_to_act(
        self, servers, new_server
    ):
        blanks = [Switch(new_server()) for _ in range(2)]
        store = ShardedKeyStore([*servers(1), *blanks], 2)
        for request in (store.unknown, store.insert, store.claim, store.states):
            with pytest.raises(KeyTablesError, match="krake keys create"):
                request(make_keys(100))
        blanks[1].down = True
        assert store.unknown(make_keys(100)).undecided, "the one that is down may have them"
        with pytest.raises(KeyServerDownError, match="switched off"):
            store.insert(make_keys(100))
        for blank in blanks:
            blank.close()

    # Tables

    def test_create_makes_what_is_missing_and_touches_no_other_table(self, store, new_server):
        keys = make_keys(10)
        store.insert(keys)
        mixed = ShardedKeyStore([Switch(new_server()), *store.servers])
        assert mixed.create() == [mixed.servers[0].name]
        assert mixed.create() == []
        assert store.unknown(keys).known == set(keys)
        mixed.servers[0].close()

    def test_create_with_drop_makes_empty_tables(self, store):
        keys = make_keys(10)
        store.insert(keys)
        store.create(drop=True)
        assert store.unknown(keys).new == set(keys)

    def test_one_server_refuses_too(self, store):
        with pytest.raises(KeyTablesError, match=r"krake keys create --drop"):
            store.servers[0].create()

    def test_without_tables_every_request_says_what_to_run(self, new_server):
        server = new_server()
        store = ShardedKeyStore([server])
        assert store.exists() is False
        for request in (store.unknown, store.insert, store.claim, store.forget, store.states):
            with pytest.raises(KeyTablesError, match="run `krake keys create`") as caught:
                request(make_keys(1))
            assert server.name in str(caught.value)
        [counts] = store.counts()
        assert (counts.up, counts.total) == (False, 0)
        assert "krake keys create" in counts.error
        store.create()
        assert store.exists() is True
        store.close()

    # Maintenance

    def test_scan_gives_every_key_of_a_range_once_and_in_order(self, servers):
        server = servers(1)[0].inner
        keys = sorted(make_keys(2 * STATEMENT_KEYS))
        ShardedKeyStore([server]).insert([*keys, LOWEST, HIGHEST])
        assert [key for key, _ in server.scan(LOWEST, HIGHEST)] == [LOWEST, *keys, HIGHEST]
        part = keys[7 : STATEMENT_KEYS + 7]
        assert list(server.scan(part[0], part[-1])) == [(key, 1) for key in part]
        assert list(server.scan(keys[3], keys[3])) == [(keys[3], 1)]

    def test_prefix_sums_are_what_the_contract_says(self, servers):
        server = servers(1)[0].inner
        keys = sorted(make_keys(3_000))
        store = ShardedKeyStore([server])
        store.insert([*keys, HIGHEST])
        store.set_state(keys[::3], GONE)
        low, high = keys[100], keys[2_900]
        found = list(server.prefix_sums(low, high))
        assert found == list(KeyServer.prefix_sums(server, low, high))
        assert [prefix for prefix, _ in found] == sorted({key[0] for key in keys[100:2_901]})
        tail = (1 << 60) - 1
        chosen = [key for key in keys[100:2_901] if key not in keys[::3] and key[0] == 0x80]
        assert dict(found)[0x80][1] == PrefixSum(
            len(chosen), sum(int.from_bytes(key, "big") & tail for key in chosen)
        )

    def test_check_of_whole_replicas_is_ok_and_reads_no_key(self, store):
        store.insert(make_keys(1_000))
        for switch in store.servers:
            switch.calls.clear()
        report = check(store)
        assert report.ok
        assert (report.differing, report.compared >= 256) == (0, True)
        assert all("scan" not in switch.calls for switch in store.servers)
        assert sum(counts.total for counts in report.servers) == 2_000

    def test_repair_copies_missing_keys_and_the_highest_state(self, servers):
        store = ShardedKeyStore(servers(3), 3)
        keys = sorted(make_keys(6_000))
        store.insert(keys)
        store.set_state(keys[1_000:2_000], CRAWLED)
        first, second, third = store.servers
        first.delete(keys[:1_500])
        second.set_state(
            keys[3_000:3_002], GONE
        )  # an even number of equal changes must not cancel out
        third.create(drop=True)
        found = check(store)
        names = [switch.name for switch in store.servers]
        assert not found.ok
        assert found.missing == {names[0]: 1_500, names[2]: 6_000}
        assert found.behind == {names[0]: 2}
        assert check(store).missing == found.missing, "a check changes nothing"
        done = repair(store)
        assert (done.missing, done.behind, done.ok) == (found.missing, found.behind, True)
        assert check(store).ok
        expected = dict.fromkeys(keys, QUEUED) | dict.fromkeys(keys[1_000:2_000], CRAWLED)
        expected |= dict.fromkeys(keys[3_000:3_002], GONE)
        for switch in store.servers:
            assert dict(switch.scan(LOWEST, HIGHEST)) == expected
        assert repair(store).missing == {}

    def test_a_server_that_is_down_is_reported_and_the_others_are_compared(self, servers):
        store = ShardedKeyStore(servers(3), 3)
        keys = make_keys(50)
        store.insert(keys)
        store.servers[0].delete(sorted(keys)[:5])
        store.servers[2].down = True
        report = repair(store)
        assert report.missing == {store.servers[0].name: 5}
        assert list(report.failed) == [store.servers[2].name]
        assert not report.ok
        with pytest.raises(KeyServerDownError, match="switched off"):
            report.raise_if_failed()
        assert "left out" in report.to_text()

    def test_repair_gives_a_blank_server_its_tables_and_keys(self, servers, new_server):
        old = servers(2)
        store = ShardedKeyStore(old, 2)
        keys = make_keys(50)
        store.insert(keys)
        blank = Switch(new_server())
        store.servers[1] = blank
        assert list(check(store).failed) == [blank.name]
        report = repair(store)
        assert report.created == [blank.name]
        assert report.missing == {blank.name: 50}
        assert check(store).ok
        blank.close()

    def test_without_replicas_a_blank_server_stays_an_error(self, servers, new_server):
        blank = Switch(new_server())
        store = ShardedKeyStore([*servers(1), blank], 1)
        report = repair(store)
        assert report.created == []
        assert list(report.failed) == [blank.name]
        blank.close()

    def test_keys_of_other_servers_are_reported_and_left_alone(self, store, raw):
        keys = make_keys(300)
        store.insert(keys)
        strangers = sorted(key for key in keys if 0 not in replicas(key, 3, 2))[:7]
        store.servers[0].insert(strangers, QUEUED)
        before = len(raw(store.servers[0].inner))
        report = repair(store)
        assert report.misplaced == {store.servers[0].name: 7}
        assert not report.ok
        assert len(raw(store.servers[0].inner)) == before

    # Turns that nodes share

    def test_a_slot_is_reserved_from_its_next_turn_on_and_never_twice(self, new_server, again):
        """By the server's clock; the next one to reserve gets what comes after."""
        one = new_server()
        one.create()
        other = again(one)
        slot = make_keys(1)[0]
        (first,) = one.turns([SlotWish(slot, 5_000, 60_000)])
        (second,) = other.turns([SlotWish(slot, 1_000, 60_000)])
        (third,) = one.turns([SlotWish(slot, 500, 60_000)])
        assert (first.granted, second.granted, third.granted) == (True, True, True)
        assert abs(first.next_ms - first.now_ms - 5_000) < 2_000
        assert (second.next_ms, third.next_ms) == (first.next_ms + 1_000, first.next_ms + 1_500)
        assert abs(first.now_ms / 1000 - time.time()) < 5
        for server in (one, other):
            server.close()

    def test_what_is_reserved_for_longer_than_wished_is_refused(self, servers):
        (server,) = servers(1)
        slots = make_keys(3)
        server.turns([SlotWish(slots[0], 60_000)])
        refused, free = server.turns([SlotWish(slots[0], 1_000, 30_000), SlotWish(slots[1], 1_000)])
        assert (refused.granted, free.granted) == (False, True)
        assert 30_000 < refused.next_ms - refused.now_ms <= 60_000
        twice = server.turns([SlotWish(slots[2], 1_000), SlotWish(slots[2], 1_000)])
        assert [answer.granted for answer in twice] == [True, False]

    def test_a_slot_is_given_back_by_who_reserved_it_last(self, servers):
        (server,) = servers(1)
        slot = make_keys(1)[0]
        (held,) = server.turns([SlotWish(slot, 60_000)])
        assert server.turns([], [SlotEnd(slot, held.next_ms - 1, 0)]) == []
        assert not server.turns([SlotWish(slot, 1_000, 30_000)])[0].granted
        server.turns([], [SlotEnd(slot, held.next_ms, 2_000)])
        (after,) = server.turns([SlotWish(slot, 1_000, 2_500)])
        assert after.granted
        assert 2_000 < after.next_ms - after.now_ms <= 3_000

    def test_many_at_once_reserve_a_slot_one_after_the_other(self, new_server, again):
        first = new_server()
        first.create()
        everybody = [first, *(again(first) for _ in range(3))]
        slots = make_keys(5)

        def reserve(server):
            wishes = [
                SlotWish(slot, 100, 10**9) for slot in (slots if server is first else slots[::-1])
            ]
            return [
                answer
                for _ in range(10)
                for answer in zip(wishes, server.turns(wishes), strict=True)
            ]

        with ThreadPoolExecutor(len(everybody)) as pool:
            given = [pair for pairs in pool.map(reserve, everybody) for pair in pairs]
        for slot in slots:
            ends = [answer.next_ms for wish, answer in given if wish.slot == slot]
            assert all(later - sooner >= 100 for sooner, later in pairwise(sorted(ends)))
        for server in everybody:
            server.close()

    def test_a_table_of_turns_that_is_missing_can_be_made(self, servers, drop_slot_table):
        (server,) = servers(1)
        assert server.has_slots()
        drop_slot_table(server.inner)
        assert not server.has_slots()
        with pytest.raises(KeyTablesError, match=r"has no table of turns.*krake fsck --repair"):
            server.turns([SlotWish(make_keys(1)[0], 1_000)])
        for _ in range(2):
            server.make_slots()
        assert server.has_slots()
        assert server.turns([SlotWish(make_keys(1)[0], 1_000)])[0].granted
