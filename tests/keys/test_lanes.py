"""Several servers are asked at the same time: no more than allowed, the own one first, with the same answers."""

import threading

import pytest

from crawl_lib.errors import KeyServerDownError, KeyStoreError, KeyTablesError
from crawl_lib.keys import ShardedKeyStore
from crawl_lib.keys.lanes import Lanes
from crawl_lib.keys.sqlite import SqliteKeyServer
from crawl_lib.states import KeyState
from tests.contracts.keystore import Switch, make_keys

LONG_S = 60


def lanes(count, connections, first=0, release=lambda place: None):
    return Lanes(count, connections, first=first, release=release)


def test_lanes_of_different_servers_run_at_the_same_time():
    together = threading.Barrier(3, timeout=LONG_S)
    three = lanes(3, 3)
    assert three.run([0, 1, 2], lambda place: (together.wait() >= 0, place)) == {
        n: (True, n) for n in range(3)
    }
    three.close()


@pytest.mark.parametrize("connections", [1, 2, 5])
def test_no_more_lanes_run_than_there_are_connections(connections):
    running, most, lock = set(), [], threading.Lock()
    full = threading.Barrier(connections, timeout=LONG_S)

    def lane(place):
        with lock:
            running.add(place)
            most.append(len(running))
        full.wait()  # until as many as may run do run; 10 is a multiple of each number
        with lock:
            running.discard(place)
        return place

    ten = lanes(10, connections)
    assert ten.run(range(10), lane) == {place: place for place in range(10)}
    assert max(most) <= connections
    ten.close()


def test_the_own_server_s_lane_begins_first_and_the_ring_follows():
    begun = []
    one_at_a_time = lanes(4, 1, first=2)
    assert list(one_at_a_time.run([0, 1, 2, 3], begun.append)) == [0, 1, 2, 3], (
        "results are in the order of places"
    )
    assert begun == [2, 3, 0, 1]


@pytest.mark.parametrize("connections", [1, 4])
def test_every_lane_ends_before_the_error_of_the_lowest_place_is_raised(connections):
    ended = []

    def lane(place):
        ended.append(place)
        if place in (1, 3):
            raise KeyStoreError(f"server {place}")

    four = lanes(4, connections, first=3)
    with pytest.raises(KeyStoreError, match="server 1"):
        four.run(range(4), lane)
    assert sorted(ended) == [0, 1, 2, 3]
    four.close()


@pytest.mark.parametrize(("connections", "held"), [(2, []), (3, [0, 1, 2])])
def test_connections_are_given_back_where_there_are_more_servers_than_connections(
    connections, held
):
    open_ = set()
    three = lanes(3, connections, release=open_.discard)
    three.run(range(3), open_.add)
    assert sorted(open_) == held
    three.close()


def test_closed_lanes_leave_no_thread_and_may_run_again():
    before = threading.active_count()
    two = lanes(2, 2)
    for _ in range(2):
        assert two.run([0, 1], lambda place: place) == {0: 0, 1: 1}
        two.close()
        assert threading.active_count() == before


@pytest.mark.parametrize("connections", [1, 2, 3])
def test_every_number_of_connections_gives_the_same_answers(tmp_path, connections):
    """With a server down, one without tables, and half of the keys known."""
    switches = [Switch(SqliteKeyServer(tmp_path / f"{number}.sqlite")) for number in range(5)]
    for switch in switches[:4]:
        switch.create()
    switches[4].inner._create_file()
    switches[4].inner.create(drop=True)
    with switches[4].inner._open() as connection:
        connection.execute("DROP TABLE kraakekeys")
    switches[1].down = True
    store = ShardedKeyStore(switches, 3, connections=connections, first=2)
    keys = make_keys(20_000)
    report = store.insert(keys[:10_000])
    assert set(report) == {switches[1].name, switches[4].name}
    assert 11_000 < sum(report.values()) < 13_000, "two of five servers, three replicas each"
    answer = store.unknown(keys)
    assert (answer.known, answer.new, answer.undecided) == (
        set(keys[:10_000]),
        set(keys[10_000:]),
        set(),
    )
    claim = store.claim(keys)
    assert (claim.ours, claim.theirs, claim.unsure) == (
        set(keys[10_000:]),
        set(keys[:10_000]),
        set(),
    )
    assert set(store.states(keys).values()) == {KeyState.QUEUED}
    with pytest.raises((KeyServerDownError, KeyTablesError)):
        store.forget(keys[:100])
    store.close()


def test_opening_a_crawl_s_keys_holds_no_more_connections_than_allowed_and_waits_once(tmp_path):
    """Each stage first looks at the notes of all servers: with a hundred of them it must not stay connected to all."""
    switches = [Switch(SqliteKeyServer(tmp_path / f"{number}.sqlite")) for number in range(5)]
    store = ShardedKeyStore(switches, 2, connections=2)
    store.create()
    store.require_ring()
    for switch in switches:
        switch.close()
        switch.calls.clear()
    switches[1].down = True
    store.require_ring()
    assert [switch.name for switch in switches if switch.inner._connection is not None] == []
    asked = switches[1].calls.count("read_note")
    store.unknown(make_keys(100))
    assert (asked, "known" in switches[1].calls) == (1, False), (
        "one that did not answer is not waited for again"
    )
    store.close()
