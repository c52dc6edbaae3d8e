"""What a new owner must know of a host: robots.txt, delay and back-off, by the table `krakehosts`."""

from __future__ import annotations

import asyncio
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from crawl_lib.fetch import HostState
from crawl_lib.fetch.hoststore import BackOff, HostRow, RobotsRow
from crawl_lib.realtime.hostnews import HostNews
from crawl_lib.realtime.pages import Mark, part_of
from crawl_lib.realtime.protocol import Clock, Done, Fetch, Grant, Refused
from crawl_lib.realtime.store import PageStore
from crawl_lib.urls import key_of
from tests.realtime.remote import Talk, remote
from tests.realtime.test_gate import setup
from tests.web.hostile import HostileWeb

ALL = ((0, 255),)


def state(host: str, authority: str) -> HostState:
    now = time.time()
    robots = RobotsRow(
        authority, "rules", b"User-agent: *\nDisallow: /secret\n", "", now, now + 3600
    )
    return HostState(HostRow(host, now, 0.3, 0.1), BackOff(0.0, 0), robots)


def test_the_first_url_of_a_lease_brings_what_is_known(connect: Any) -> None:
    connect()
    authority = "http://a.example"

    async def main() -> None:
        store = PageStore([connect])
        news = HostNews(store)
        assert await news.first(authority, 1) == {"is_first": True, "known": None}
        assert await news.first(authority, 1) == {}
        known = state("a.example", authority)
        await news.keep(authority, known)
        await news.keep("http://b.example", known)
        assert await news.first(authority, 2) == {"is_first": True, "known": known}, "another lease"
        assert (await news.first("http://b.example", 2))["known"] is None, (
            "an answer tells of its own host only"
        )
        await store.put_host(authority, b"damaged")
        assert await news.first(authority, 3) == {"is_first": True}
        await store.close()

    asyncio.run(main())


def test_hosts_without_news_are_forgotten(connect: Any) -> None:
    pages = connect()
    pages.put_hosts({"http://a.example": b"{}", "http://b.example": b"{}"})
    keys = [key_of(name) for name in ("http://a.example", "http://b.example")]
    pages._changed(f"UPDATE krakehosts SET seen_ms = 1 WHERE hash = x'{keys[0].hex()}'")
    assert set(pages.hosts(keys)) == set(keys)
    pages.sweep(Mark(), 0, 1)
    assert set(pages.hosts(keys)) == set(keys[1:])


@pytest.mark.parametrize("is_known", [True, False])
def test_a_new_owner_knows_robots_and_delay(tmp_path: Path, is_known: bool) -> None:
    fetch = {
        "host_delay_s": 0.01,
        "max_crawl_delay_s": 0.6,
        "allow_networks": ["127.0.0.0/8"],
        "robots": "obey",
    }
    with ExitStack() as stack:
        web = stack.enter_context(HostileWeb())
        there = stack.enter_context(remote(tmp_path))
        talk = Talk(stack.enter_context(there.connect()))
        talk.send(setup(tmp_path, fetch=fetch))
        clock = talk.hear(Clock)
        talk.send(Grant(parts=ALL, until_ms=clock.now_ms + 60_000))
        authority = web.url("")
        known = state("127.0.0.1", authority) if is_known else None
        for number, path in enumerate(("/ok", "/secret"), 1):
            url = web.url(path)
            part, is_first = part_of("127.0.0.1"), number == 1
            given = {"is_first": is_first, "known": known if is_first else None}
            talk.send(Fetch(id=number, url=url, key=key_of(url).hex(), part=part, **given))
        first, second = (talk.hear(Done, Refused) for _ in range(2))
        if second.id == 1:
            first, second = second, first
        assert first.hop.outcome == "ok"
        assert first.learned is not None
        assert (first.learned.host.host, first.learned.robots.authority) == ("127.0.0.1", authority)
        assert second.learned is None, "nothing has changed"
    if is_known:
        assert second.hop.outcome == "robots_denied"
        assert web.paths() == ["/ok"], "robots.txt was known"
        assert first.waited_ms >= 250, "the host's own delay comes first"
    else:
        assert web.paths() == ["/robots.txt", "/ok", "/secret"]
        assert first.waited_ms >= 550, "a host of which nothing is known waits longest"
