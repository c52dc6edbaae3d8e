"""Turns of addresses: fetchers keep the delay of an address with each other, and with a batch crawl."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import count, islice, pairwise
from pathlib import Path
from typing import Any

import pytest

from crawl_lib.config import FetchConfig
from crawl_lib.errors import KeyTablesError, ProtocolError
from crawl_lib.keys import SharedTurns
from crawl_lib.keys.sqlite import SqliteKeyServer
from crawl_lib.realtime import Client, TokenFile, turns
from crawl_lib.realtime.leases import wanted_parts
from crawl_lib.realtime.pages import part_of
from crawl_lib.realtime.protocol import (
    ALL_PARTS,
    AskTurn,
    Clock,
    Done,
    Grant,
    LineReader,
    Setup,
    ToFetcher,
    Turn,
)
from crawl_lib.realtime.remote import setup_of
from crawl_lib.realtime.service import fetcher_of, make_turn_table
from crawl_lib.realtime.tokens import RIGHTS
from crawl_lib.realtime.turns import AddressTurns
from tests.realtime.fake import Web, make_config
from tests.realtime.remote import NAME, Talk, remote
from tests.realtime.test_fetchers import NAMES, sections
from tests.realtime.test_gate import wanted
from tests.realtime.test_service import running, stores_of
from tests.web.hostile import HostileWeb
from tests.web.lookups import python_of
from tests.web.names import NameServer, Said
from tests.web.tenants import TenantServing

IP_DELAY_S, LATE_S = 0.25, 0.05
ADDRESS = "127.0.7.1"
FETCH = {
    "ip_delay_s": IP_DELAY_S,
    "host_delay_s": 0.0,
    "max_crawl_delay_s": 0.5,
    "allow_networks": ["127.0.0.0/8"],
    "robots": "ignore",
}


@contextmanager
def shared(tmp_path: Path) -> Iterator[SharedTurns]:
    """The turns of a node of a batch crawl, on the key server of `make_config`."""
    server = SqliteKeyServer(tmp_path / "0.sqlite")
    make_turn_table(server)
    server.close()
    with SharedTurns([server], FetchConfig(ip_delay_s=IP_DELAY_S)) as made:
        yield made


class Line:
    """The writer of a line, for `AddressTurns`: the transport too."""

    def __init__(self) -> None:
        self.transport, self.unread, self.is_cut = self, 0, False
        self.reader: LineReader[Any] = LineReader(ToFetcher, "the scheduler")
        self.reader.hello = object()  # type: ignore[assignment]
        self.said: asyncio.Queue[Turn] = asyncio.Queue()

    def write(self, line: bytes) -> None:
        for message in self.reader.feed(line):
            self.said.put_nowait(message)

    def get_write_buffer_size(self) -> int:
        return self.unread

    def abort(self) -> None:
        self.is_cut = True


def ask(address: str = ADDRESS, now_ms: int = 0) -> AskTurn:
    return AskTurn(address=address, turns=1, start_s=0.1, now_ms=now_ms)


def test_two_fetchers_never_have_an_address_at_once(tmp_path: Path) -> None:
    """Their clocks began at other times; each answer says when by the clock of who asked."""

    async def main() -> list[tuple[float, float]]:
        spans = []
        with ExitStack() as stack:
            lines = []
            for ahead_ms in (5_000_000, 90_000_000):
                mine = AddressTurns(lambda: stack.enter_context(shared(tmp_path)))
                mine.open()
                line: Any = Line()
                stack.enter_context(mine.told(line))
                lines.append((mine, line, ahead_ms))
            for mine, _, ahead_ms in lines:
                mine.ask(ask(now_ms=ahead_ms + round(1000 * time.monotonic())))
            for mine, line, ahead_ms in lines:
                turn = await asyncio.wait_for(line.said.get(), 30)
                spans.append(
                    (time.monotonic() + turn.wait_ms / 1000, (turn.until_ms - ahead_ms) / 1000)
                )
                mine.close()
        return sorted(spans)

    (_, first_end), (second_begin, second_end) = asyncio.run(main())
    assert second_begin >= first_end + IP_DELAY_S - 0.002
    assert second_end > second_begin


def test_a_fetcher_that_asks_and_asks_is_parted_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turns, "MOST_ASKED", 2)

    async def main() -> None:
        with pytest.raises(ProtocolError, match="shares none"):
            AddressTurns(None).ask(ask())
        with shared(tmp_path) as made:
            mine, line = AddressTurns(lambda: made), Line()
            mine.open()
            with mine.told(line):  # type: ignore[arg-type]
                mine.ask(ask("192.0.2.1"))
                line.unread = turns.MOST_UNREAD_BYTES + 1
                with pytest.raises(ProtocolError, match="reads no answers"):
                    mine.ask(ask("192.0.2.2"))
                line.unread = 0
                mine.ask(ask("192.0.2.2"))
                with pytest.raises(ProtocolError, match="reads no answers"):
                    mine.ask(ask("192.0.2.3"))

    asyncio.run(main())


def test_after_an_error_of_a_key_server_the_next_line_begins_anew(tmp_path: Path) -> None:
    async def main() -> None:
        made = []
        with ExitStack() as stack:

            def make() -> SharedTurns:
                made.append(stack.enter_context(shared(tmp_path)))
                return made[-1]

            mine, line = AddressTurns(make), Line()
            mine.open()
            mine.open()
            assert len(made) == 1
            made[0]._put(KeyTablesError("an older version"))
            with mine.told(line):  # type: ignore[arg-type]
                while not line.is_cut:
                    await asyncio.sleep(0)
            mine.open()
            assert len(made) == 2

    asyncio.run(main())


def setup(tmp_path: Path) -> Setup:
    return setup_of(
        make_config(tmp_path, fetch=FETCH, realtime={"share_turns": True}), "0" * 64, NAME
    )


def test_a_fetcher_sends_nothing_without_a_turn(tmp_path: Path) -> None:
    """Nor after the end of a turn, and after the loss of its scheduler it asks the next one."""
    with HostileWeb() as web, remote(tmp_path) as there:
        for is_lost in (True, False):
            with there.connect() as connection:
                talk = Talk(connection)
                talk.send(setup(tmp_path))
                until_ms = talk.hear(Clock).now_ms + 60_000
                talk.send(
                    Grant(parts=(ALL_PARTS,), until_ms=until_ms, unowned=(ALL_PARTS,)),
                    wanted(web.url("/ok")),
                )
                asked = talk.hear(AskTurn)
                assert asked.address == "127.0.0.1"
                talk.send(Turn(address=asked.address, wait_ms=0, until_ms=asked.now_ms))
                asked = talk.hear(AskTurn, Done)
                assert isinstance(asked, AskTurn), "the turn was over"
                talk.hear(Clock)
                assert not web.paths()
                if not is_lost:
                    talk.send(Turn(address=asked.address, wait_ms=0, until_ms=until_ms))
                    assert talk.hear(Done).hop.status == 200
    assert web.paths() == ["/ok"]


def test_the_fetcher_of_this_machine_waits_for_a_batch_crawl_too(tmp_path: Path) -> None:
    stores = stores_of(tmp_path, fetch=FETCH, realtime={"share_turns": True})
    token = TokenFile(stores.config.realtime.tokens).add("test", RIGHTS)
    with HostileWeb() as web, shared(tmp_path) as node:
        node.hear(0, {"ask": "ip 127.0.0.1", "turns": 20, "start_s": 0.1})
        while not (told := node.answers()):
            pass
        with running(stores, fetcher_of(stores)) as url, Client(url, token) as client:
            client.submit([web.url("/ok")])
            page = client.page(web.url("/ok"), wait_s=60)
            assert page is not None
            assert page.document is not None
        ((_, span),) = told
    assert web.requests[0].start >= span["ends_s"]


def domain_of(name: str) -> str:
    """A domain whose part should be with a fetcher."""
    domains = (f"d{number}.example" for number in range(50))
    return next(domain for domain in domains if part_of(domain) in wanted_parts(name, NAMES))


def test_two_fetchers_and_a_batch_crawl_keep_the_delay_of_an_address(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From start to start, by the server's log."""
    with ExitStack() as stack:
        web = stack.enter_context(TenantServing())
        names = stack.enter_context(NameServer(lambda name: Said([ADDRESS])))
        monkeypatch.setattr(sys, "executable", python_of(tmp_path / "python", names.address))
        there = [stack.enter_context(remote(tmp_path, name)) for name in sorted(NAMES)]
        given = sections(*there)
        stores = stores_of(
            tmp_path, fetch=FETCH, realtime={**given["realtime"], "share_turns": True}
        )
        token = TokenFile(stores.config.realtime.tokens).add("test", RIGHTS)
        node = stack.enter_context(shared(tmp_path))
        node.hear(0, {"ask": f"ip {ADDRESS}", "turns": 8, "start_s": 0.1})
        while not (told := node.answers()):
            pass
        url = stack.enter_context(running(stores, Web()))
        client = stack.enter_context(Client(url, token))
        hosts = [domain_of(name) for name in sorted(NAMES)]
        numbers = count()

        def fetch(pages: int) -> None:
            paths = [f"{web.port}/page/{number}" for number in islice(numbers, pages)]
            urls = [f"http://{host}:{path}" for path in paths for host in hosts]
            client.submit(urls)
            for one in urls:
                page = client.page(one, wait_s=60)
                assert page is not None
                assert page.document is not None
                assert page.document.outcome == "ok"

        while not all(
            any(one.place.spool.glob("krake-*")) for one in there
        ):  # until both have their hosts
            fetch(1)
        fetch(3)
        log = web.log()
    starts = sorted(request.start for request in log.requests)
    assert {request.host.partition(":")[0] for request in log.requests} == set(hosts)
    assert len(starts) >= len(hosts) * next(numbers)
    assert min(after - before for before, after in pairwise(starts)) >= IP_DELAY_S - LATE_S
    ((_, span),) = told
    assert starts[0] >= span["ends_s"] + IP_DELAY_S - LATE_S, (
        "the batch crawl has the address first"
    )
