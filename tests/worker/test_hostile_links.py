"""Links of a hostile page, redirect or robots.txt: the work is linear, in short steps, and kills no worker for good."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from crawl_lib.config import Config
from crawl_lib.errors import StorageError
from crawl_lib.records import Fetched
from crawl_lib.segment import PartWriter, Spool
from crawl_lib.segment.parts import Part
from crawl_lib.segment.tables import read_blocks
from crawl_lib.states import Outcome
from crawl_lib.urls import LinkResolver, key_of
from crawl_lib.worker import reading
from crawl_lib.worker.large import ReadingNotes
from crawl_lib.worker.reading import BARRED, places
from tests.parse.links import written
from tests.segment.helpers import INFO
from tests.web.hostile_urls import MOST_RATIO, draw, ratio
from tests.worker.test_large_pages import config, errors, handler_of, item, rows

__all__ = ["config"]
SEEDS = range(200)
BAD = "the-one-that-kills"
ROBOTS = "http://a.example/robots.txt"


def test_twice_the_links_take_about_twice_the_time(config: Config, tmp_path: Path) -> None:
    """From the bytes of a page to its rows, of shapes drawn by seed."""
    with PartWriter(tmp_path, "p", INFO, config.segment, clock=lambda: 1.0) as writer:
        taken, fetched = item(0, b"")
        position = writer.append(taken, fetched)

        def work_of(seed: int) -> Callable[[int], Callable[[], object]]:
            half = draw(seed).page(Random(seed), 2500, link_chars=300)

            def work(times: int) -> Callable[[], object]:
                pieces = (half.replace(b'">x', b'%d">x' % number) for number in range(times))
                page = (taken, item(0, b"".join(pieces))[1], position)
                return lambda: handler_of(config, writer, None).handle_all([page])

            return work

        found = {draw(seed).name: ratio(work_of(seed), 1) for seed in SEEDS}
        assert writer._open is not None
        writer._open.abandon()
        writer._open = None
    assert {name: times for name, times in found.items() if times > MOST_RATIO} == {}


def test_slices_are_bounded_in_number_and_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "SLICE_LINKS", 10)
    monkeypatch.setattr(reading, "SLICE_BYTES", 1000)
    few, large = written([("ax", "", "")] * 25), written([("a" + "y" * 396, "", "")] * 7)
    assert [(start, len(part) // 5) for start, part in places(few)] == [(0, 10), (10, 10), (20, 5)]
    assert [(start, len(part) // 400) for start, part in places(large)] == [(0, 3), (3, 3), (6, 1)]
    assert list(places(b"")) == [(0, b"")]
    assert b"".join(part for _, part in places(few + large)) == few + large
    assert b"".join(part for _, part in places(few + b"not whole\0")) == few + b"not whole\0"


def test_a_turn_ends_by_time(
    config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where each link is slow, pages after the first are left for other turns, and a turn goes through one slice."""
    now, turns = [0.0], list[int]()
    monkeypatch.setattr(time, "thread_time", lambda: now[0])
    monkeypatch.setattr(time, "monotonic", lambda: now[0])  # no CPU is used without time
    true = LinkResolver.find

    def slow(self: LinkResolver, text: str) -> object:
        now[0] += 1.0
        turns[-1] += 1
        return true(self, text)

    monkeypatch.setattr(LinkResolver, "find", slow)
    items = [item(number, b"<a href=/%d>x</a>" % number) for number in range(5)]

    async def main() -> None:
        handler.large.attach(asyncio.get_running_loop())
        turns.append(0)
        positions = [(taken, fetched, writer.append(taken, fetched)) for taken, fetched in items]
        assert handler.handle_all(positions, 0.1) == 5
        while not handler.large.is_idle:
            turns.append(0)
            await asyncio.sleep(0)
        handler.large.detach()

    with PartWriter(tmp_path, "p", INFO, config.segment, clock=lambda: 1.0) as writer:
        handler = handler_of(config, writer, None)
        writer.before_close = handler.drain
        asyncio.run(main())
    assert max(turns) == 1
    assert len(rows(tmp_path, Part.LINKS_SUFFIX)) == 5


def bad_items(kind: str) -> tuple[list[tuple[object, Fetched]], Fetched | None]:
    """Pages of which one, at position 3, holds the link that kills; or a robots.txt that does."""
    bodies = [b"<title>t</title><a href=/%d>x</a>" % number for number in range(6)]
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n"
    location = b"HTTP/1.1 302 Found\r\nLocation: /" + BAD.encode() + b"\r\n"
    if kind != "robots":
        bodies[3] += b"<a href=/%b>x</a>" % BAD.encode() * (5000 if kind == "long" else 1)
        bodies[3] += b" " * (300_000 if kind == "large" else 0)
    items = [item(number, body, head) for number, body in enumerate(bodies)]
    if kind == "redirect":
        items[3] = item(3, b"", location, Outcome.REDIRECT)
    body = b"Sitemap: http://a.example/%b\n" % BAD.encode() * 3
    robots = Fetched(
        ROBOTS, 1.0, Outcome.OK, 200, "192.0.2.1", b"GET", head + b"\r\n", body, attempts=1
    )
    return items, robots if kind == "robots" else None


def visit(config: Config, spool: Path, items: list, robots: Fetched | None) -> None:
    config = replace(config, parse=replace(config.parse, sitemaps=True))
    with PartWriter(spool, "p", INFO, config.segment, clock=lambda: 1.0) as writer:
        handler = handler_of(config, writer, None)
        writer.before_close = handler.drain
        for taken, fetched, position in writer.recovered():
            if taken is None:
                handler.robots(fetched)
            else:
                handler.handle_all([(taken, fetched, position)])
        if robots is not None:
            writer.append(None, robots)
            handler.robots(robots)
        handler.handle_all(
            [(taken, fetched, writer.append(taken, fetched)) for taken, fetched in items]
        )


def failing(monkeypatch: pytest.MonkeyPatch, error: type[BaseException]) -> None:
    true = LinkResolver.find

    def find(self: LinkResolver, text: str) -> object:
        if BAD in text:
            raise error("planted")
        return true(self, text)

    monkeypatch.setattr(LinkResolver, "find", find)


@pytest.mark.parametrize("kind", ["small", "large", "long", "redirect", "robots"])
def test_links_that_kill_a_worker_twice_are_not_resolved_again(
    kind: str, config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing(monkeypatch, MemoryError)
    items, robots = bad_items(kind)
    with pytest.raises(MemoryError):
        visit(config, tmp_path, items, robots)
    with pytest.raises(MemoryError):
        visit(config, tmp_path, [], None)
    visit(config, tmp_path, items if robots else [], None)
    assert errors(tmp_path) == {
        str(number): BARRED if number == 3 and not robots else None for number in range(6)
    }
    sources = {row[0] for row in rows(tmp_path, Part.LINKS_SUFFIX)}
    left = [number for number in range(6) if number != 3 or robots]
    assert sources == {key_of(f"http://a.example/{number}") for number in left}
    counts = [part.counts().rejections for part in Spool(tmp_path).parts()]
    assert sum(one["page_limit"] for one in counts) == (3 if robots else 0)
    if kind == "redirect":
        [part] = Spool(tmp_path).parts()
        found = [
            row for block in read_blocks(part.path(Part.PAGES_SUFFIX)) for row in block.to_pylist()
        ]
        assert [row["redirect_url"] for row in found] == [None] * 6


@pytest.mark.parametrize("kind", ["small", "large", "long", "redirect", "robots"])
def test_an_error_of_the_disk_is_not_the_fault_of_a_page(
    kind: str, config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    items, robots = bad_items(kind)
    with monkeypatch.context() as patch:
        failing(patch, StorageError)
        for number in range(3):
            with pytest.raises(StorageError):
                visit(config, tmp_path, [] if number else items, None if number else robots)
    visit(config, tmp_path, items if robots else [], None)
    assert errors(tmp_path) == {str(number): None for number in range(6)}


def test_a_stop_is_not_the_fault_of_pages_whose_links_wait(config: Config, tmp_path: Path) -> None:
    items, _ = bad_items("long")

    async def main() -> None:
        handler.large.attach(asyncio.get_running_loop())
        found = list(writer.recovered()) or [(*one, writer.append(*one)) for one in items]
        handler.handle_all(found)
        handler.large.detach()

    for _ in range(3):
        with PartWriter(tmp_path, "p", INFO, config.segment, clock=lambda: 1.0) as writer:
            handler = handler_of(config, writer, None)
            asyncio.run(main())
            next(handler.large._steps[0])
            handler.large.withdraw()
            assert writer._open is not None
            writer._open.abandon()
            writer._open = None
        assert not ReadingNotes(writer.notes_path).is_barred(3)


def test_notes_are_read_back(tmp_path: Path) -> None:
    notes = ReadingNotes(tmp_path / "notes")
    for _ in range(3):
        with notes.over(1), pytest.raises(MemoryError), notes.over(2):
            raise MemoryError
        with notes.over(3):
            pass
    notes.close()
    for found in (notes, ReadingNotes(tmp_path / "notes")):
        assert [found.is_barred(name) for name in (1, 2, 3)] == [False, True, False]
