"""Leases: at each moment at most one fetcher may ask a host, whatever is killed, stopped or set."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from crawl_lib.config import FetchConfig
from crawl_lib.fetch import HostStore
from crawl_lib.fetch.hoststore import HostRow
from crawl_lib.realtime.held import Held
from crawl_lib.realtime.leases import (
    GRANT_S,
    LEASE_S,
    MEET_S,
    SEEN_S,
    Leases,
    LeaseTable,
    Lessee,
    ranges_of,
    wanted_parts,
)
from crawl_lib.realtime.pages import PARTS, PageServer, part_of
from crawl_lib.realtime.pages_sqlite import SqlitePages
from crawl_lib.realtime.protocol import Grant

NAMES = ("live-1", "live-2", "live-3")
ALL, TWO = frozenset(NAMES), frozenset(NAMES[:2])
HOST = "www.a.example"
PART = part_of(HOST)


def ms(seconds: float) -> int:
    return round(1000 * seconds)


def test_a_member_more_moves_its_own_parts_only() -> None:
    owners = {part: name for name in NAMES for part in wanted_parts(name, ALL)}
    assert sorted(owners) == list(range(PARTS))
    assert min(len(wanted_parts(name, ALL)) for name in NAMES) > PARTS // 5
    before = {part: name for name in NAMES[:2] for part in wanted_parts(name, TWO)}
    assert all(owners[part] in (before[part], NAMES[2]) for part in range(PARTS))


def test_ranges() -> None:
    assert ranges_of([]) == ()
    assert ranges_of({5, 1, 2, 3, 255}) == ((1, 3), (5, 5), (255, 255))


def set_clock(server: PageServer, now_ms: int) -> None:
    """Let a server have another time."""
    server.NOW = str(now_ms)


def test_fetchers_that_start_together_take_no_part_from_each_other(tmp_path: Path) -> None:
    async def taken() -> list[dict[int, int]]:
        leases = Leases(lambda: SqlitePages(tmp_path / "pages.sqlite"))
        first = asyncio.create_task(leases.renew(lessees[0]))
        await asyncio.sleep(MEET_S / 3)
        second = leases.renew(lessees[1])
        try:
            return list(await asyncio.gather(first, second))
        finally:
            leases.close()

    lessees = [Lessee(name) for name in NAMES[:2]]
    parts = [set(of_one) for of_one in asyncio.run(taken())]
    assert parts == [set(wanted_parts(name, TWO)) for name in NAMES[:2]]
    assert [lessee.unowned >= own for lessee, own in zip(lessees, parts, strict=True)] == [
        True,
        True,
    ], "no host of such a part waits"


def test_a_lease_is_taken_renewed_lapses_and_is_given_back(
    connect: Callable[..., PageServer],
) -> None:
    one, other = connect(), connect()
    tables, lessees = (LeaseTable(one), LeaseTable(other)), [Lessee(name) for name in NAMES]

    def renew(number: int, now_ms: int) -> dict[int, int]:
        set_clock((one, other)[number], now_ms)
        return tables[number].renew(lessees[number])

    began = 1_800_000_000_000
    first = renew(0, began)
    assert sorted(first) == list(range(PARTS))
    assert set(first.values()) == {began}
    assert renew(1, began + 100) == {}, "all is leased"
    both = set(wanted_parts(NAMES[0], TWO))
    assert renew(0, began + 500) == dict.fromkeys(both, began), (
        "only what it should have is renewed"
    )
    assert renew(1, began + ms(LEASE_S)) == {}, "the lease has not ended yet"
    taken = renew(1, began + ms(LEASE_S) + 1)
    assert set(taken) == set(range(PARTS)) - both
    assert set(taken.values()) == {began + ms(LEASE_S) + 1}, "a new epoch"
    renew(1, began + 4000)
    later = renew(1, began + 500 + ms(SEEN_S))
    assert set(later) == set(range(PARTS)), "the first was silent"
    tables[1].give_back(lessees[1])
    again = renew(0, began + 501 + ms(SEEN_S))
    assert sorted(again) == list(range(PARTS))
    assert all(epoch > began for epoch in again.values())


def test_the_newest_line_alone_renews_with_new_epochs(connect: Callable[..., PageServer]) -> None:
    server = connect()
    table, first, second = LeaseTable(server), Lessee(NAMES[0]), Lessee(NAMES[0])
    began = 1_800_000_000_000
    set_clock(server, began)
    old = table.renew(first)
    assert first.unowned == set(range(PARTS))
    set_clock(server, began + 100)
    new = table.renew(second)
    assert second.unowned == frozenset()
    assert all(new[part] > old[part] for part in range(PARTS))
    assert table.renew(first) == {}, "another line has replaced this one"
    table.give_back(first)
    assert table.renew(second) == new, "what an older line gives back is not its own any more"
    assert all(epoch > began + 100 for epoch in table.renew(first).values()), (
        "the living line comes again"
    )
    assert table.renew(second) == {}


def test_parts_that_a_fetcher_asks_no_more_are_free_at_once(
    connect: Callable[..., PageServer],
) -> None:
    server = connect()
    table, first, second = LeaseTable(server), Lessee(NAMES[0]), Lessee(NAMES[1])
    began = 1_800_000_000_000
    set_clock(server, began)
    all_parts = frozenset(table.renew(first))
    assert table.renew(second) == {}
    mine = set(wanted_parts(NAMES[0], TWO))
    first.asked = all_parts
    assert set(table.renew(first)) == mine
    assert table.renew(second) == {}, "the fetcher may not have read its smaller grant yet"
    first.asked = frozenset(mine)
    assert set(table.renew(first)) == mine
    set_clock(server, began + 1)
    assert set(table.renew(second)) == all_parts - mine


def test_a_table_of_members_without_lines_is_made_anew(connect: Callable[..., PageServer]) -> None:
    server = connect()
    server._changed(
        "CREATE TABLE krakemembers (fetcher CHAR(64) NOT NULL PRIMARY KEY, seen_ms BIGINT NOT NULL)"
    )
    server._changed("INSERT INTO krakemembers VALUES ('live-1', 1)")
    first, second = Lessee(NAMES[0]), Lessee(NAMES[1])
    table = LeaseTable(server)
    assert len(table.renew(first)) == PARTS
    assert LeaseTable(connect()).renew(second) == {}, "all is leased"
    assert set(table.renew(first)) == set(wanted_parts(NAMES[0], TWO)), (
        "the second scheduler kept the table"
    )


@dataclass
class Fetcher:
    """A fetcher of the model. `ahead_ms`, `pace`: its clock.

    `asked`: its `Clock`s on their way, with the time of arrival and the number of the last grant that it has read;
    `granted`: grants on their way, with the time of arrival; `sent`, `parts`: number and parts of the last grant.
    """

    name: str
    held: Held
    clock: list[int]
    ahead_ms: int
    pace: float
    is_alive: bool = True
    stopped_until_ms: int = 0
    asked: list[tuple[int, int, int]] = field(default_factory=list)
    granted: list[tuple[int, Grant]] = field(default_factory=list)
    heard: int = 0
    sent: int = 0
    parts: frozenset[int] = frozenset()
    lessee: Lessee = field(default_factory=lambda: Lessee(""))


class World:
    """Fetchers, a table of leases with a clock of its own, and lines between them that are slow or cut."""

    def __init__(self, directory: Path, seed: int) -> None:
        self.random = random.Random(seed)
        self.now_ms = 0
        self.server = SqlitePages(directory / "leases.sqlite")
        self.table = LeaseTable(self.server)
        self.down_until_ms = 0
        self.store = HostStore(directory)
        self.config = FetchConfig(host_delay_s=0.5, max_crawl_delay_s=0.5)
        self.fetchers = [self.new(name) for name in NAMES]
        self.requests: list[tuple[int, str]] = []

    def new(self, name: str) -> Fetcher:
        """A fetcher whose clock began somewhere and runs up to 1 % too fast or too slow."""
        clock = [0]
        held = Held(self.config, self.store, lambda: clock[0])
        pace = self.random.uniform(0.99, 1.01)
        return Fetcher(name, held, clock, self.random.randrange(1 << 40), pace, lessee=Lessee(name))

    def step(self) -> None:
        """Let 50 ms pass."""
        self.now_ms += 50
        for fetcher in self.fetchers:
            fetcher.clock[0] = fetcher.ahead_ms + round(self.now_ms * fetcher.pace)
            self.renew(fetcher)
            if fetcher.is_alive and self.now_ms >= fetcher.stopped_until_ms:
                self.hear(fetcher)
        owners = [
            one for one in self.fetchers if one.is_alive and self.now_ms >= one.stopped_until_ms
        ]
        sending = [one.name for one in owners if one.held.may_send(HOST)]
        assert len(sending) <= 1, f"{self.now_ms}: {sending}"
        self.requests += [(self.now_ms, name) for name in sending]
        holding = [sum(one.held.has(part) for one in owners) for part in range(0, PARTS, 16)]
        assert max(holding) <= 1, self.now_ms

    def renew(self, fetcher: Fetcher) -> None:
        """Carry out what has arrived at the server, though the fetcher may be stopped meanwhile."""
        if fetcher.asked and self.now_ms >= max(fetcher.asked[0][0], self.down_until_ms):
            _, clock_ms, heard = fetcher.asked.pop()
            fetcher.lessee.asked = fetcher.parts if heard and heard == fetcher.sent else None
            set_clock(self.server, 1_800_000_000_000 + self.now_ms)
            held = self.table.renew(fetcher.lessee)
            unowned = ranges_of(fetcher.lessee.unowned & held.keys())
            fetcher.sent, fetcher.parts = fetcher.sent + 1, frozenset(held)
            grant = Grant(
                parts=ranges_of(held),
                until_ms=clock_ms + ms(GRANT_S),
                unowned=unowned,
                number=fetcher.sent,
            )
            earlier_ms = fetcher.granted[-1][0] if fetcher.granted else 0
            fetcher.granted.append((max(earlier_ms, self.now_ms + self.delay_ms()), grant))

    def hear(self, fetcher: Fetcher) -> None:
        """Read grants, and say the time twice a second; some words take up to a second."""
        while fetcher.granted and fetcher.granted[0][0] <= self.now_ms:
            _, grant = fetcher.granted.pop(0)
            fetcher.held.grant(grant.parts, grant.until_ms, grant.unowned)
            fetcher.heard = grant.number
        if not fetcher.asked and self.now_ms % 500 == 0:
            fetcher.asked.append((self.now_ms + self.delay_ms(), fetcher.clock[0], fetcher.heard))

    def delay_ms(self) -> int:
        """How long a word takes."""
        return 50 * self.random.randrange(1, 20) if self.random.random() < 0.2 else 0

    def act(self) -> None:
        """Kill, stop or start a fetcher, or the server."""
        number = self.random.randrange(len(self.fetchers))
        fetcher = self.fetchers[number]
        match self.random.randrange(4):
            case 0:
                fetcher.is_alive = False
            case 1 | 2 if fetcher.is_alive:
                fetcher.stopped_until_ms = self.now_ms + 50 * self.random.randrange(2, 200)
            case 3:
                self.down_until_ms = self.now_ms + 50 * self.random.randrange(0, 60)
            case _:
                self.fetchers[number] = self.new(fetcher.name)


@pytest.mark.parametrize("seed", [0, 1, 3])
def test_a_host_never_has_two_fetchers(tmp_path: Path, seed: int) -> None:
    world = World(tmp_path, seed)
    for number in range(1000):
        world.step()
        if number % 40 == 39:
            world.act()
    for fetcher in world.fetchers:
        fetcher.stopped_until_ms = world.down_until_ms = 0
        fetcher.is_alive = True
    quiet_from = world.now_ms
    for _ in range(200):
        world.step()
    assert len({name for _, name in world.requests}) > 1
    changes = [
        (before, after)
        for before, after in zip(world.requests, world.requests[1:], strict=False)
        if before[1] != after[1]
    ]
    assert changes
    assert all(after[0] - before[0] >= 500 for before, after in changes), (
        "a new owner waits the host's delay first"
    )
    assert next(at for at, _ in world.requests if at > quiet_from) - quiet_from <= 8000
    world.server.close()
    world.store.close()


def test_a_new_owner_waits_the_known_delay_of_each_host(tmp_path: Path) -> None:
    now = [10_000]
    with HostStore(tmp_path) as store:
        store.save_hosts([HostRow("slow.a.example", 0.0, 7.0, 0.0)])
        held = Held(FetchConfig(host_delay_s=1.0, max_crawl_delay_s=30.0), store, lambda: now[0])
        assert not held.may_send(HOST)
        held.grant([(PART, PART)], 20_000)
        now[0] = 11_000
        assert not held.may_send(HOST), "nobody has told of its delay, which may be 30 s"
        for host in (HOST, "slow.a.example"):
            held.tell(host, is_known=True)
        held.tell("new.a.example", is_known=False)
        now[0] = 10_000
        assert [held.may_send(host) for host in (HOST, "slow.a.example")] == [False, False]
        now[0] = 11_000
        assert [held.may_send(host) for host in (HOST, "slow.a.example")] == [True, False]
        assert not held.may_send("new.a.example")
        held.grant([(0, 255)], 21_000)
        now[0] = 17_000
        assert held.may_send("slow.a.example"), "a renewed grant begins nothing again"
        now[0] = 21_000
        assert not held.may_send(HOST), "the grant has ended"
        held.grant([(PART, PART)], 30_000)
        assert not held.may_send(HOST), "somebody else may have had it meanwhile"
        held.grant([], 31_000)
        now[0] = 25_000
        assert not held.may_send(HOST)
        held.grant([(PART, PART)], 32_000)
        now[0] = 27_000
        assert not held.may_send(HOST), "what was told belonged to an earlier lease"
        held.grant([], 33_000)
        held.grant([(PART, PART)], 34_000, [(0, 255)])
        assert held.may_send(HOST), "no fetcher ever had it"
        held.grant([(0, 255)], None)
        assert held.may_send(HOST), "the only fetcher, on the scheduler's machine"
