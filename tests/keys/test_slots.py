"""Turns that nodes share: spans of an address, one request of a host; see `keys.slots`."""

from __future__ import annotations

import hashlib
import math
import select
import sqlite3
import threading
import time
from contextlib import ExitStack, closing
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawl_lib.config import FetchConfig
from crawl_lib.errors import KeyServerDownError, KeyTablesError, KrakeError
from crawl_lib.keys import SharedTurns, SqliteKeyServer, interval, slots
from tests.contracts.keystore import Switch

FETCH = FetchConfig(host_delay_s=0.05, ip_delay_s=0.02, time_limit_s=1.0, max_crawl_delay_s=0.1)
IP, HOST = "ip 127.0.0.1", "host a.test"
PATIENCE_S = 20.0


def ask(name: str, turns: int = 1, start_s: float = 0.25) -> dict[str, object]:
    return {"ask": name, "turns": turns, "start_s": start_s}


def over(name: str, rest_s: float) -> dict[str, object]:
    return {"over": name, "rest_s": rest_s}


@pytest.fixture
def nodes(tmp_path, monkeypatch):
    """Makes the turns of a node at the same servers; all are closed at the end."""
    monkeypatch.setattr(slots, "POLL_S", 0.02)
    monkeypatch.setattr(slots, "RETRY_S", 0.05)
    with ExitStack() as stack:

        def node(count: int = 1, fetch: FetchConfig = FETCH) -> SharedTurns:
            servers = [
                Switch(SqliteKeyServer(tmp_path / f"{place}.sqlite")) for place in range(count)
            ]
            for server in servers:
                server.inner.ensure()
                server.inner.close()
            return stack.enter_context(SharedTurns(servers, fetch))

        yield node


def answers(turns: SharedTurns, count: int = 1) -> list[tuple[int, dict]]:
    """The next answers, at least so many."""
    found: list[tuple[int, dict]] = []
    end_s = time.monotonic() + PATIENCE_S
    while len(found) < count and time.monotonic() < end_s:
        select.select([turns], [], [], 0.05)
        found += turns.answers()
    assert len(found) >= count
    return found


def span_of(
    turns: SharedTurns, name: str, count: int = 1, start_s: float = 0.25
) -> tuple[float, float]:
    turns.hear(0, ask(name, count, start_s))
    ((_, told),) = answers(turns)
    assert told["turn"] == name
    return told["begins_s"], told["ends_s"]


def test_spans_of_an_address_are_a_delay_apart_whichever_node_has_them(nodes, monkeypatch) -> None:
    """From the moment in which the last request may be sent to that in which the next one may."""
    monkeypatch.setattr(slots, "SEND_S", 0.05)
    first, second = nodes(), nodes()
    spans = set()
    for number in range(24):
        spans.add(span_of((first, second)[number % 2], IP, number % 4, start_s=0.01))
        time.sleep(0.01 * (number % 5))
    assert len(spans) > 6
    assert all(begins_s < ends_s for begins_s, ends_s in spans)
    assert (
        min(after[0] - before[1] for before, after in pairwise(sorted(spans))) >= FETCH.ip_delay_s
    )


def test_a_span_is_for_all_processes_of_a_node(nodes) -> None:
    turns = nodes()
    turns.hear(0, ask(IP, 200))
    turns.hear(1, ask(IP))
    told = answers(turns, 2)
    turns.hear(2, ask(IP))
    told += answers(turns)
    assert [who for who, _ in told] == [0, 1, 2]
    assert len({tuple(message.items()) for _, message in told}) == 1


def test_spans_grow_while_an_address_is_wanted_by_one_node_only(nodes, monkeypatch) -> None:
    """So a server is asked seldom; when another node comes, they are as short as possible again."""
    monkeypatch.setattr(slots, "SPAN_S", 1.0)
    fetch = replace(FETCH, ip_delay_s=0.1)
    first, second = nodes(fetch=fetch), nodes(fetch=fetch)
    lengths = []
    for _ in range(6):
        begins_s, ends_s = span_of(first, IP)
        lengths.append(ends_s - begins_s)
        time.sleep(max(0.0, ends_s - 0.1 - time.monotonic()))
    assert lengths[-1] > 2 * lengths[0]
    assert max(lengths) <= 1.0 + slots.SEND_S
    span_of(second, IP)
    span_of(first, IP)
    begins_s, ends_s = span_of(second, IP)
    assert ends_s - begins_s < 1.5 * lengths[0]


def test_a_host_is_reserved_for_one_request_until_its_delay_is_over(nodes) -> None:
    first, second = nodes(), nodes()
    begins_s, _ = span_of(first, HOST)
    assert begins_s <= time.monotonic()
    second.hear(0, ask(HOST))
    assert not select.select([second], [], [], 0.2)[0]
    ended_s = time.monotonic()
    first.hear(0, over(HOST, 0.3))
    ((_, told),) = answers(second)
    assert told["begins_s"] >= ended_s + 0.3
    assert time.monotonic() < ended_s + 5


def test_a_host_is_reserved_again_only_by_who_gave_it_back(nodes) -> None:
    """What another process says about it changes nothing."""
    turns = nodes()
    span_of(turns, HOST)
    turns.hear(1, over(HOST, 0.0))
    turns.hear(1, ask(HOST))
    assert not select.select([turns], [], [], 0.2)[0]
    turns.hear(0, over(HOST, 0.0))
    assert answers(turns)[0][0] == 1


def test_what_was_not_given_back_runs_out(nodes, monkeypatch) -> None:
    """Its holder is dead."""
    monkeypatch.setattr(slots, "WAIT_S", 0.1)
    brief = FetchConfig(host_delay_s=0.05, ip_delay_s=0.0, time_limit_s=0.2, max_crawl_delay_s=0.1)
    asked_s = time.monotonic()
    span_of(nodes(fetch=brief), HOST)
    begins_s, _ = span_of(nodes(fetch=brief), HOST)
    assert begins_s >= asked_s + 0.1 + 2 * 0.2 + 0.1


def test_what_is_given_back_at_the_end_reaches_the_server(tmp_path, nodes) -> None:
    with SharedTurns([SqliteKeyServer(tmp_path / "0.sqlite")], FETCH) as ending:
        nodes()
        span_of(ending, HOST)
        ending.hear(0, over(HOST, 0.0))
    begun_s = time.monotonic()
    assert span_of(nodes(), HOST)[0] < begun_s + 1.0


def test_a_server_that_is_down_holds_up_its_own_slots_only(nodes, caplog) -> None:
    """They are asked for again until it is back; no other server is asked for them."""
    turns = nodes(2)
    servers = turns._servers
    places = [interval(hashlib.sha1(f"ip 127.0.0.{n}".encode()).digest(), 2) for n in range(20)]
    away = servers[places[0]]
    away.down = True
    for number in range(20):
        turns.hear(0, ask(f"ip 127.0.0.{number}"))
    here = [f"ip 127.0.0.{number}" for number, place in enumerate(places) if place != places[0]]
    assert sorted(told["turn"] for _, told in answers(turns, len(here))) == sorted(here)
    assert not select.select([turns], [], [], 0.2)[0]
    assert away.calls.count("turns") > 1
    assert caplog.text.count("addresses whose turns it has wait") == 1
    away.down = False
    assert len(answers(turns, 20 - len(here))) == 20 - len(here)


def test_a_server_that_is_slow_holds_up_its_own_slots_only_and_not_the_end(
    nodes, monkeypatch
) -> None:
    turns, answered = nodes(2), threading.Event()
    names = [f"ip 127.0.0.{number}" for number in range(20)]
    slow = turns._servers[0].inner
    real = slow.turns
    monkeypatch.setattr(slow, "turns", lambda *asked: answered.wait(PATIENCE_S) and real(*asked))
    for name in names:
        turns.hear(0, ask(name))
    here = [name for name in names if interval(hashlib.sha1(name.encode()).digest(), 2) == 1]
    assert sorted(told["turn"] for _, told in answers(turns, len(here))) == sorted(here)
    begun_s = time.monotonic()
    turns.__exit__()
    assert time.monotonic() - begun_s < 5
    answered.set()


def test_a_server_that_came_back_empty_is_waited_for_and_one_without_a_table_of_turns_is_an_error(
    nodes, tmp_path
) -> None:
    turns = nodes()
    with closing(sqlite3.connect(tmp_path / "0.sqlite")) as connection:
        connection.execute("DROP TABLE kraakeslots")
        turns.hear(0, ask(IP))
        with pytest.raises(
            KeyTablesError,
            match=r"0\.sqlite: has no table of turns: run `krake fsck --repair`",
        ):
            answers(turns)
    other = nodes()
    (tmp_path / "0.sqlite").unlink()
    other.hear(0, ask(IP))
    time.sleep(0.2)
    assert other.answers() == []
    SqliteKeyServer(tmp_path / "0.sqlite").create()
    answers(other)


def test_a_server_that_goes_away_while_it_is_asked_what_it_has_is_waited_for(
    nodes, monkeypatch
) -> None:
    turns = nodes()
    server = turns._servers[0].inner
    real, asked = server.turns, threading.Event()

    def empty(*_: object) -> None:
        asked.set()
        raise KeyTablesError("no table")

    def away() -> bool:
        raise KeyServerDownError("no answer")

    monkeypatch.setattr(server, "turns", empty)
    monkeypatch.setattr(server, "exists", away)
    turns.hear(0, ask(IP))
    assert asked.wait(PATIENCE_S)
    assert not select.select([turns], [], [], 0.2)[0]
    monkeypatch.setattr(server, "turns", real)
    answers(turns)


@pytest.mark.parametrize("name", [IP, HOST])
def test_a_turn_that_is_too_far_away_is_not_believed(nodes, tmp_path, monkeypatch, name) -> None:
    """The server's clock was set back by years, or the row is damaged: the slot waits for its longest reservation."""
    monkeypatch.setattr(slots, "SPAN_S", 0.2)
    monkeypatch.setattr(slots, "WAIT_S", 0.2)
    turns = nodes(
        fetch=FetchConfig(
            host_delay_s=0.0, ip_delay_s=0.02, time_limit_s=0.2, max_crawl_delay_s=0.1
        )
    )
    slot = hashlib.sha1(name.encode()).hexdigest()
    with closing(sqlite3.connect(tmp_path / "0.sqlite", isolation_level=None)) as connection:
        connection.execute(
            "INSERT INTO kraakeslots VALUES (?, ?)", (slot, int((time.time() + 1e8) * 1000))
        )
    asked_s = time.monotonic()
    begins_s, _ = span_of(turns, name)
    assert asked_s + 0.2 <= begins_s <= asked_s + 5


def test_a_host_is_the_node_s_that_has_it_also_where_its_requests_may_last_longer_than_ours(
    nodes,
) -> None:
    patient, brief = nodes(fetch=replace(FETCH, time_limit_s=600.0)), nodes()
    span_of(patient, HOST)
    brief.hear(0, ask(HOST))
    assert not select.select([brief], [], [], 0.2)[0]
    ended_s = time.monotonic()
    patient.hear(0, over(HOST, 0.3))
    ((_, told),) = answers(brief)
    assert ended_s + 0.3 <= told["begins_s"] < ended_s + 5


def test_nothing_is_asked_before_a_process_asks(nodes) -> None:
    turns = nodes(2)
    assert turns.answers() == []
    assert [server.calls for server in turns._servers] == [[], []]


TEXT = st.text(
    st.characters(exclude_categories=[])
)  # JSON lets half of a pair of surrogates through
ANYTHING = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), TEXT, st.lists(st.integers())
)
SAID = st.one_of(
    st.dictionaries(st.sampled_from(["ask", "over", "turns", "rest_s", "start_s"]), ANYTHING),
    st.fixed_dictionaries(
        {"ask": TEXT.map("ip ".__add__), "turns": st.integers(), "start_s": st.floats()}
    ),
    st.fixed_dictionaries({"ask": TEXT.map("host ".__add__)}),
    st.fixed_dictionaries({"over": st.just(HOST), "rest_s": st.floats() | st.integers()}),
)


class Heard:
    """A server that notes what it is asked, and answers that it is granted."""

    def __init__(self) -> None:
        self.wishes: list[slots.SlotWish] = []
        self.ends: list[slots.SlotEnd] = []

    def turns(self, wishes, ends):
        self.wishes += wishes
        self.ends += ends
        return [slots.SlotAnswer(True, wish.hold_ms, 0) for wish in wishes]

    def close(self) -> None:
        pass


@given(st.lists(SAID, max_size=8))
def test_whatever_a_process_says_is_a_turn_or_an_error(said) -> None:
    """A process that was taken over reserves nothing for longer than any other, and breaks nothing."""
    server = Heard()
    with SharedTurns([server], FETCH) as turns:  # type: ignore[list-item]
        turns.hear(0, ask(HOST))
        answers(turns)
        for message in said:
            try:
                turns.hear(0, message)
            except KrakeError:
                continue
    longest_ms = 1000 * (slots.WAIT_S + 2 * FETCH.time_limit_s + 0.1) + 1000 * slots.SPAN_S * 3
    assert all(0 < wish.hold_ms <= longest_ms for wish in server.wishes)
    assert all(0 <= end.rest_ms <= longest_ms and math.isfinite(end.rest_ms) for end in server.ends)


def test_sqlite_s_clock_is_never_before_the_machine_s() -> None:
    """Its days are a float: half of the times it was a millisecond too low, and a turn as much too early."""
    turn = (Path(__file__).resolve().parents[2] / "sql/keys/turn.sqlite.sql").read_text()
    with closing(sqlite3.connect(":memory:")) as base:
        base.execute("CREATE TABLE kraakeslots AS SELECT ':slot' AS slot, 0 AS next_ms")
        seen: set[int] = set()
        while len(seen) < 50:
            before_ms = time.time_ns() // 1_000_000
            ((_, now_ms),) = base.execute(turn)
            assert before_ms <= now_ms <= time.time_ns() // 1_000_000
            seen.add(now_ms)
