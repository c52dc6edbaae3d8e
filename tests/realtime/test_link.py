"""The scheduler's end of a line to a fetcher: how lines are written, and what a cancelled caller says."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import msgspec
import pytest

from crawl_lib.errors import StoppedError
from crawl_lib.realtime.link import FetcherDiedError, FetcherLink
from crawl_lib.realtime.protocol import Cancel, Done, Fetch, Hop, Refused, ToFetcher
from crawl_lib.urls import key_of

_lines = msgspec.json.Decoder(ToFetcher)


class Writer:
    """The writer of a line. `writes`: the lines of each write."""

    def __init__(self) -> None:
        self.writes: list[list[Any]] = []

    def is_closing(self) -> bool:
        return False

    def write(self, data: bytes) -> None:
        self.writes.append([_lines.decode(line) for line in data.splitlines()])

    def write_eof(self) -> None:
        self.writes.append([])


def asked(link: FetcherLink, number: int) -> asyncio.Task[Done | Refused]:
    url = f"http://a.example/{number}"
    return asyncio.create_task(link.fetch(url=url, key=key_of(url).hex()))


async def turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def of_one_turn() -> None:
    link, writer = FetcherLink(lambda: None), Writer()  # type: ignore[arg-type,return-value]
    link._writer = cast("asyncio.StreamWriter", writer)
    link._ready.set()
    waiting = [asked(link, number) for number in range(20)]
    await turns()
    [lines] = writer.writes
    assert [line.url for line in lines] == [f"http://a.example/{number}" for number in range(20)]
    assert all(isinstance(line, Fetch) for line in lines)
    waiting[3].cancel()
    await turns()
    assert writer.writes[1:] == [[Cancel(id=lines[3].id)]], "the fetch is taken back"
    done = Done(id=lines[5].id, hop=Hop(url="http://a.example/5", key=lines[5].key, outcome="ok"))
    link._take(done)
    assert await waiting[5] == done
    waiting[5].cancel()
    late = asked(link, 21)
    await asyncio.sleep(0)
    await link.stop()
    await turns()
    assert writer.writes[2:] == [[]], "after the end of the lines nothing is written"
    link._fail_all()
    with pytest.raises(FetcherDiedError):
        await late
    ends = await asyncio.gather(*waiting, return_exceptions=True)
    assert [type(end) for end in ends].count(FetcherDiedError) == 18
    with pytest.raises(StoppedError):
        await asked(link, 22)


def test_urls_of_one_turn_are_one_write() -> None:
    asyncio.run(of_one_turn())
