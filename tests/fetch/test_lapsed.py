"""A live run whose leases on hosts begin and end: a request is written while the lease lasts, and never otherwise."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

from crawl_lib.fetch.classify import Failure
from crawl_lib.records import Fetched
from tests.fetch.driver import CONFIG, FakeCarrier, answer
from tests.fetch.test_live import Live, live
from tests.web.hostile import HostileWeb


def test_a_host_waits_without_a_connection_until_it_may_be_asked(tmp_path: Path) -> None:
    allowed: set[str] = {"b.test"}
    carrier = FakeCarrier(lambda *_: answer())

    async def script(web: Live) -> None:
        web.submit("http://a.test/1")
        web.submit("http://b.test/1")
        await asyncio.sleep(100)
        assert web.order == ["http://b.test/1"]
        allowed.add("a.test")
        assert await web.all() == ["ok", "ok"]

    live(tmp_path, script, carrier=carrier, may_send=allowed.__contains__)
    assert min(sent.start for sent in carrier.sent if "a.test" in sent.url) >= 1100


def test_a_lease_that_ends_while_a_connection_is_made_has_nothing_sent(tmp_path: Path) -> None:
    looks: list[bool] = []

    def may_send(host: str) -> bool:
        looks.append(len(looks) not in (1, 2))
        return looks[-1]

    with HostileWeb() as web:

        async def script(run: Live) -> None:
            run.submit(web.url("/ok"))
            assert await run.all() == ["ok"]
            assert run.fetched[0].attempts == 1, "what was not sent is no try"

        live(tmp_path, script, may_send=may_send)
        assert web.paths() == ["/ok"]
    assert looks[:3] == [True, False, False]


def test_a_redirect_of_robots_txt_to_a_host_of_others_ends(tmp_path: Path) -> None:
    def respond(url: str, _number: int) -> tuple[Fetched, Failure]:
        moved = answer(301, b"Location: http://b.test/robots.txt\r\n")
        return moved if url.endswith("robots.txt") else answer()

    async def script(web: Live) -> None:
        web.submit("http://a.test/1")
        assert await web.all() == ["robots_unreachable"]

    config, carrier = replace(CONFIG, robots="obey"), FakeCarrier(respond)
    found = live(tmp_path, script, config, carrier, may_send=lambda host: host == "a.test")
    assert [sent.url for sent in carrier.sent] == ["http://a.test/robots.txt"]
    assert found.left == 0
