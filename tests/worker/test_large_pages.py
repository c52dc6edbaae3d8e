"""Large pages hold the loop for a moment only, give the rows of a reading in place, and kill nothing for good."""

from __future__ import annotations

import asyncio
import gc
import gzip
import io
import os
import random
import signal
import time
import zlib
from dataclasses import asdict
from hashlib import sha1
from pathlib import Path
from typing import Any

import pytest
import uvloop

from crawl_lib import stages
from crawl_lib.config import Config, from_mapping
from crawl_lib.frontier import TakeHeader
from crawl_lib.parse import PageParser, ParsedPage
from crawl_lib.records import Fetched, QueuedUrl, TakenUrl
from crawl_lib.rounds import start_iteration
from crawl_lib.segment import PartWriter, Position, Spool
from crawl_lib.segment.parts import Part
from crawl_lib.segment.tables import read_blocks
from crawl_lib.states import Outcome
from crawl_lib.stores import open_stores
from crawl_lib.urls import UrlFilter, key_of
from crawl_lib.walls import data_bytes
from crawl_lib.worker import aside as aside_module
from crawl_lib.worker import reading
from crawl_lib.worker.aside import Aside
from crawl_lib.worker.discovery import Discovery
from crawl_lib.worker.large import Handled, LargePages, ReadingNotes, Steps
from crawl_lib.worker.page import PageHandler
from crawl_lib.worker.reading import BARRED, UNREAD, Pieces, Reading
from crawl_lib.worker.worker import _Worker
from crawl_lib.worker.workers import WorkerTask
from tests.e2e.crawl import Result, make_config
from tests.frontier.helpers import held
from tests.parse.links import each_link, written
from tests.segment.helpers import INFO
from tests.web.hostile import HostileWeb
from tests.worker.children import run_stage

FACTS = ("image_url", "author", "published", "modified", "language")
HTML = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n"
Item = tuple[TakenUrl, Fetched]


@pytest.fixture
def config(tmp_path: Path) -> Config:
    return from_mapping(
        {
            "servers": ["node"],
            "dfs_primary": "dfs",
            "key_storage": {"servers": ["0.sqlite"]},
            "urls": {"scope": "any"},
        },
        base=tmp_path,
    )


def page(count: int, seed: int = 0) -> bytes:
    """A page of links, some of them several times."""
    rng = random.Random(seed)
    links = (
        f"<a href='/{rng.randrange(count)}?{'x' * 20}'>a link</a><img src='i'>\n"
        for _ in range(count)
    )
    said = f"<html lang=de><meta name=author content='A {seed}'><meta property=og:image content='/{count}.png'>"
    return f"{said}<title>t</title><meta name=description content=d>{''.join(links)}".encode()


def item(position: int, body: bytes, head: bytes = HTML, outcome: Outcome = Outcome.OK) -> Item:
    url = f"http://a.example/{position}"
    fetched = Fetched(url, 1.0, outcome, 200, "192.0.2.1", b"GET", head + b"\r\n", body, attempts=1)
    return TakenUrl(position, key_of(url), QueuedUrl(url)), fetched


def chunked(body: bytes, size: int) -> bytes:
    chunks = (body[at : at + size] for at in range(0, len(body), size))
    return b"".join(b"%x\r\n%s\r\n" % (len(chunk), chunk) for chunk in chunks) + b"0\r\n\r\n"


def compressed(body: bytes) -> bytes:
    """The same bytes whenever it is called."""
    return gzip.compress(body, mtime=0)


def kinds() -> list[Item]:
    """Small and large, of every coding, whole and damaged; HTML and not; links few and many."""
    small, large, many = page(5), page(3000), page(9000, 1)
    zipped = HTML + b"Content-Encoding: gzip\r\n"
    twice = HTML + b"Content-Encoding: gzip, gzip\r\n"
    in_chunks = HTML + b"Transfer-Encoding: chunked\r\n"
    image = b"HTTP/1.1 200 OK\r\nContent-Type: image/png\r\n"
    bodies = [
        *[(body, HTML) for body in (small, large, many, large[:-9], b"")],
        *[(compressed(body), zipped) for body in (small, large, many, b" " * (3 << 20))],
        (compressed(compressed(b" " * (3 << 20))), twice),
        (compressed(large)[:-2000], zipped),
        (zlib.compress(large), HTML + b"Content-Encoding: deflate\r\n"),
        *[(chunked(body, size), in_chunks) for body in (small, large) for size in (1, 5000)],
        *[(body, image) for body in (b"\x89PNG\r\n\x1a\n" + large, b"GIF89a")],
        (compressed(b"GIF89a" + large), image + b"Content-Encoding: gzip\r\n"),
        (large, HTML + b"X-Robots-Tag: nofollow\r\n"),
    ]
    found = [item(position, *given) for position, given in enumerate(bodies)]
    return [*found, item(len(found), large, outcome=Outcome.GONE)]


def handler_of(config: Config, writer: PartWriter, aside: Aside | None) -> PageHandler:
    return PageHandler(config, ["node"], 0, UrlFilter(config.urls, ()), writer, aside=aside)


def read(
    config: Config, spool: Path, items: list[Item], *, aside: bool = True, cut: bool = False
) -> None:
    """Write items and their rows, without a loop; `cut`: end as a kill would, before the part is closed."""
    spool.mkdir(exist_ok=True)
    with (
        Aside(config, spool, data_bytes()) as process,
        PartWriter(spool, "p", INFO, config.segment, clock=lambda: 1.0) as writer,
    ):
        handler = handler_of(config, writer, process if aside else None)
        writer.before_close = handler.drain
        for taken, fetched, position in writer.recovered():
            assert taken is not None
            handler.handle_all([(taken, fetched, position)])
        for taken, fetched in items:
            handler.handle_all([(taken, fetched, writer.append(taken, fetched))])
        if cut:
            assert writer._open is not None
            writer._open.abandon()
            writer._open = None


def rows(spool: Path, suffix: str = Part.PAGES_SUFFIX) -> list[tuple[object, ...]]:
    """Rows of a table, sorted, without places in files: these depend on random ids."""
    found = named_rows(spool, suffix)
    return sorted(
        (tuple(v for name, v in row.items() if not name.startswith("warc_")) for row in found),
        key=repr,
    )


def named_rows(spool: Path, suffix: str) -> list[dict[str, object]]:
    """Return the rows of a table by column."""
    parts = [block for part in Spool(spool).parts() for block in read_blocks(part.path(suffix))]
    return [row for block in parts for row in block.to_pylist()]


def outlinks(spool: Path) -> list[str]:
    runs = [run for part in Spool(spool).parts() for run in part.runs(".outlinks")]
    return sorted(line for run in runs for line in run.read_text().splitlines())


def errors(spool: Path) -> dict[str, str | None]:
    [part] = Spool(spool).parts()
    found = [
        row for block in read_blocks(part.path(Part.PAGES_SUFFIX)) for row in block.to_pylist()
    ]
    return {row["url"].rpartition("/")[2]: row["parse_error"] for row in found}


@pytest.fixture
def low_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sizes at which pages count as large, small enough for quick tests."""
    monkeypatch.setattr(reading, "IN_PLACE_BYTES", 20_000)
    monkeypatch.setattr(reading, "LEGACY_IN_PLACE_BYTES", 5_000)
    monkeypatch.setattr(reading, "NOTED_BYTES", 10_000)
    monkeypatch.setattr("crawl_lib.worker.page.NOTED_BYTES", 10_000)
    monkeypatch.setattr(reading, "SLICE_LINKS", 100)
    monkeypatch.setattr("crawl_lib.worker.page.SLICE_LINKS", 100)


@pytest.mark.parametrize("max_bytes", [64 << 20, 100_000, 15_000])
def test_what_is_read_aside_gives_the_rows_of_a_reading_in_place(tmp_path, low_limits, max_bytes):
    limits = {
        "fetch": {"max_decompressed_bytes": max_bytes},
        "parse": {"max_links_per_page": 5000, "facts": True},
    }
    base = {"servers": ["node"], "dfs_primary": "dfs", "key_storage": {"servers": ["0.sqlite"]}}
    config = from_mapping({**base, **limits, "urls": {"scope": "any"}}, base=tmp_path)
    for name, aside in (("aside", True), ("in place", False)):
        read(config, tmp_path / name, kinds(), aside=aside)
    for suffix in (Part.PAGES_SUFFIX, Part.LINKS_SUFFIX):
        assert rows(tmp_path / "aside", suffix) == rows(tmp_path / "in place", suffix)
    assert outlinks(tmp_path / "aside") == outlinks(tmp_path / "in place")
    if max_bytes > 100_000:
        said = {
            tuple(row[name] for name in FACTS)
            for row in named_rows(tmp_path / "aside", Part.PAGES_SUFFIX)
        }
        assert {("http://a.example/9000.png", "A 1", None, None, "de"), (None,) * 5} < said
    [counts] = [[part.counts() for part in Spool(tmp_path / name).parts()] for name in ["aside"]]
    assert counts == [part.counts() for part in Spool(tmp_path / "in place").parts()]


def test_a_bomb_is_noticed_by_bounded_work_and_read_aside(config, tmp_path, monkeypatch):
    limits = []
    true = reading.decode_content
    monkeypatch.setattr(
        reading,
        "decode_content",
        lambda *given, max_bytes: limits.append(max_bytes) or true(*given, max_bytes=max_bytes),
    )
    content = b" " * (64 << 20)
    body = gzip.compress(content)
    assert len(body) < 70_000
    read(config, tmp_path / "spool", [item(0, body, HTML + b"Content-Encoding: gzip\r\n")])
    assert limits == [reading.IN_PLACE_BYTES]
    [row] = [row for part in Spool(tmp_path / "spool").parts() for row in _dicts(part)]
    assert (row["length"], row["digest"]) == (len(content), sha1(content).digest())


def _dicts(part):
    return [row for block in read_blocks(part.path(Part.PAGES_SUFFIX)) for row in block.to_pylist()]


def test_the_loop_goes_on_while_large_pages_are_read(config, tmp_path):
    """No turn of the loop takes a quarter of the CPU of four pages: two bombs, and two with 70,000 links together."""
    read(
        config, tmp_path / "before", [item(0, page(5))]
    )  # at its first array Arrow imports pandas, where there is one
    gc.collect()
    gc.freeze()  # what other tests left is not looked through again in a turn
    zipped = HTML + b"Content-Encoding: gzip\r\n"
    links = b"".join(b"<a href=/%d>x</a>" % number for number in range(50_000))
    hostile = [
        gzip.compress(body)
        for body in (b" " * (64 << 20), links, b"x" * (3 << 20), links[: 500 << 10])
    ]
    turns = []

    async def main() -> None:
        handler.large.attach(asyncio.get_running_loop())
        before = time.thread_time()
        for number, body in enumerate(hostile):
            taken, fetched = item(number, body, zipped)
            handler.add(taken, fetched, writer.append(taken, fetched))
        while not handler.is_empty():
            await asyncio.sleep(0)
            turns.append(time.thread_time() - before)
            before = time.thread_time()
        handler.large.detach()

    with (
        Aside(config, tmp_path, data_bytes()) as process,
        PartWriter(tmp_path, "p", INFO, config.segment, clock=lambda: 1.0) as writer,
    ):
        handler = handler_of(config, writer, process)
        writer.before_close = handler.drain
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(main())
    gc.unfreeze()
    assert handler.large.failed is None
    assert len(rows(tmp_path, Part.LINKS_SUFFIX)) > 70_000
    assert [errors(tmp_path)[str(number)] for number in (1, 3)] == [None, None]
    assert max(turns) < sum(turns) / 4, sorted(turns)[-5:]


def test_a_part_is_not_closed_without_the_links_that_failed_in_a_turn(
    config, tmp_path, monkeypatch
):
    """Also where the run is over, or a part is full, before the run could be told."""
    true = Discovery.links

    def links(self, taken, page, nofollow, start=0, **more):
        if start:
            raise MemoryError("planted")
        true(self, taken, page, nofollow, start, **more)

    monkeypatch.setattr(Discovery, "links", links)
    taken, fetched = item(
        0, b"".join(b"<a href=/%d>x</a>" % number for number in range(2 * reading.SLICE_LINKS))
    )

    async def main() -> None:
        handler.large.attach(asyncio.get_running_loop())
        handler.handle_all([(taken, fetched, writer.append(taken, fetched))])
        while handler.large.failed is None:
            await asyncio.sleep(0)
        handler.large.detach()

    with PartWriter(tmp_path, "p", INFO, config.segment, clock=lambda: 1.0) as writer:
        handler = handler_of(config, writer, None)
        writer.before_close = handler.drain
        asyncio.run(main())
        assert not handler.is_empty()
        with pytest.raises(MemoryError, match="planted"):
            writer.close()
        assert writer._open is not None
        writer._open.abandon()
        writer._open = None
    assert not Spool(tmp_path).parts()[0].is_closed


def test_an_answer_of_a_child_is_divided_again_and_read_as_far_as_it_is_whole(monkeypatch):
    """A child that was taken over may write all links in one line, or half a link."""
    monkeypatch.setattr(reading, "SLICE_LINKS", 10)
    lines = [written([("ax", "", "")] * 25), written([("ay", "", "")] * 5) + b"az\0"]
    pages = [
        ParsedPage("utf-8", None, None, None, None, "http://a.example/", links, False, 0)
        for links in lines
    ]
    file = io.BytesIO("".join(f"{page.to_json()}\n" for page in pages).encode())
    pieces = [(start, len(each_link(piece))) for start, piece in aside_module._pieces(file)]
    assert pieces == [(0, 10), (10, 10), (20, 5), (25, 5)]


def dying(monkeypatch, kind: str) -> None:
    """Have the reading of pages whose URL ends in /3 end its process, or pass a limit."""
    true = PageParser.page
    monkeypatch.setattr(aside_module, "CPU_S", 1)
    monkeypatch.setattr(aside_module, "ANSWER_BYTES", 1 << 20)

    def page(self, headers, url, content, mime, time):
        while url.endswith("/3") and kind == "time":
            pass
        if url.endswith("/3") and kind == "memory":
            return [bytes(16 << 20) for _ in range(100)]
        if url.endswith("/3") and kind == "signal":
            os.kill(os.getpid(), signal.SIGSEGV)
        found = true(self, headers, url, content, mime, time)
        if url.endswith("/3") and kind == "answer":
            return found._replace(base="x" * (2 << 20))
        return found

    monkeypatch.setattr(PageParser, "page", page)


@pytest.mark.parametrize("kind", ["time", "memory", "signal", "answer"])
def test_a_page_that_kills_its_reader_is_a_row_without_links_and_so_again(
    config, tmp_path, low_limits, monkeypatch, kind
):
    dying(monkeypatch, kind)
    items = [item(position, page(1000, position)) for position in range(6)]
    read(config, tmp_path, items, cut=True)
    for _ in range(2):  # the second part was never open: nothing is left to do
        read(config, tmp_path, [])
        assert errors(tmp_path) == {str(n): BARRED if n == 3 else None for n in range(6)}
        pages = _dicts(Spool(tmp_path).parts()[0])
        assert all(row["length"] == len(page(1000)) or row["digest"] for row in pages)
        [bad] = [row for row in pages if row["parse_error"]]
        assert (bad["title"], bad["mime_detected"]) == (None, "text/html")
        sources = {row[0] for row in rows(tmp_path, Part.LINKS_SUFFIX)}
        assert sources == {key_of(f"http://a.example/{n}") for n in range(6) if n != 3}


def test_a_worker_that_is_stopped_while_a_page_is_read_ends_soon_and_does_not_blame_the_page(
    config, tmp_path, low_limits, monkeypatch
):
    """As often as that happens, and where the spool is read again too."""
    with PartWriter(tmp_path, "p", INFO, config.segment, clock=lambda: 1.0) as writer:
        for taken, fetched in [item(position, page(1000)) for position in (3, 4)]:
            writer.append(taken, fetched)
        assert writer._open is not None
        writer._open.abandon()
        writer._open = None
    (tmp_path / "spool").mkdir()
    (tmp_path / "hosts").mkdir()
    header = TakeHeader("t", "one", 1, "1", 1, node="node")
    takes = held(tmp_path).takes
    takes.write_scope(takes.write(header, []), [])
    task = WorkerTask(
        config.to_mapping(), ["node"], "node", str(tmp_path), str(tmp_path), "p", 0, 1, 9.0,
        asdict(INFO),
    )  # fmt: skip
    with monkeypatch.context() as patch:
        dying(patch, "time")
        patch.setattr(aside_module, "CPU_S", 20)
        begun = property(
            lambda worker: worker.writer.notes_path.exists(), lambda worker, value: None
        )
        patch.setattr(_Worker, "stopping", begun, raising=False)
        began_s = time.monotonic()
        for _ in range(3):
            final = _Worker(task, data_bytes(), config).run()
            assert final.stopped
            assert not Spool(tmp_path).parts()[0].is_closed
        assert time.monotonic() - began_s < 15, "the page would have been read for 60 s"
    read(config, tmp_path, [])
    assert errors(tmp_path) == {"3": None, "4": None}


def test_a_signal_to_all_processes_of_a_task_does_not_end_the_reading_of_a_page(
    config, tmp_path, low_limits, monkeypatch
):
    true = PageParser.page

    def page_(self, headers, url, content, mime, time):
        os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getppid(), signal.SIGTERM)
        return true(self, headers, url, content, mime, time)

    monkeypatch.setattr(PageParser, "page", page_)
    read(config, tmp_path, [item(0, page(1000))])
    assert errors(tmp_path) == {"0": None}


@pytest.mark.parametrize("size", [300 << 10, 2 << 20])
def test_a_page_at_which_the_fetching_process_died_twice_is_skipped_and_named(tmp_path, size):
    """The first time when it is fetched, the second time when the spool is read again."""
    config = make_config(tmp_path, nodes=1, fetch={"host_delay_s": 0.0})
    heavy = page(size // 50)
    assert len(heavy) > size
    with HostileWeb() as web:
        paths = [f"/{number}" for number in range(6)]
        for path in paths:
            web.on(
                path,
                lambda talk: talk.reply(
                    body=heavy if talk.seen.path == "/3" else b"<a href=/next>x</a>"
                ),
            )
        (tmp_path / "seeds").write_text("".join(f"{web.url(path)}\n" for path in paths))
        stages.inject(open_stores(config), run_id="run", seeds=str(tmp_path / "seeds"))
        start_iteration(open_stores(config), run_id="run", iteration=1)
        crawl = {"run_id": "run", "iteration": 1, "node": "node-0"}
        for _ in range(2):
            assert run_stage(config, "crawl_node", kill_at="page.noted", **crawl) != 0
        assert run_stage(config, "crawl_node", **crawl) == 0
        assert sorted(path for path in web.paths() if path in paths) == paths, (
            "each was fetched once"
        )
    found = Result(config).rows("pages", ["url", "outcome", "parse_error", "length"])
    assert {row["url"].rpartition("/")[2]: row["parse_error"] for row in found} == {
        str(number): BARRED if number == 3 else None for number in range(6)
    }
    assert {row["outcome"] for row in found} == {"ok"}
    assert max(row["length"] for row in found) == len(heavy)


def die_on_the_second_page(path: Path) -> None:
    with ReadingNotes(path).in_turn() as noted:
        noted.go_on(4)
        noted.go_on(5)
        raise MemoryError


def test_pages_are_noted_in_turn(tmp_path: Path) -> None:
    path = tmp_path / "notes"
    with ReadingNotes(path).in_turn() as noted:
        noted.go_on(1)
        noted.go_on(2)
        noted.end()
        noted.go_on(3)
    assert path.read_text() == "+1\n-1\n+2\n-2\n+3\n-3\n"
    for _ in range(2):
        with pytest.raises(MemoryError):
            die_on_the_second_page(path)
    assert [number for number in range(7) if ReadingNotes(path).is_barred(number)] == [5]


def die_on_the_second_of_three(path: Path) -> None:
    with ReadingNotes(path).in_turn((4, 5, 6)) as noted:
        noted.go_on(4)
        noted.go_on(5)
        raise MemoryError


def test_of_pages_noted_together_only_the_deadly_one_is_barred(tmp_path: Path) -> None:
    path = tmp_path / "notes"
    with ReadingNotes(path).in_turn((1, 2)) as noted:
        noted.go_on(1)
        noted.go_on(2)
        noted.go_on(3)
    assert sorted(path.read_text().split()) == ["+1", "+2", "+3", "-1", "-2", "-3"]
    for barred in ([], [5], [5]):
        with pytest.raises(MemoryError):
            die_on_the_second_of_three(path)
        assert [number for number in range(7) if ReadingNotes(path).is_barred(number)] == barred


class _Answers:
    """An aside whose answers are there at once."""

    def fileno(self) -> int:
        return 0

    def ask(self, *_: object, **__: object) -> None:
        pass

    def answer(self) -> tuple[Reading, Pieces]:
        return UNREAD, iter(())


class _NoTurns:
    """A loop that calls nothing."""

    def add_reader(self, *_: object) -> None:
        pass

    remove_reader = call_soon = add_reader


def test_any_number_of_large_pages_may_wait_when_the_loop_ends(tmp_path: Path) -> None:
    """Each waiting page once took frames of the stack, so that 300 of them ended the process."""
    answers: Any = _Answers()
    loop: Any = _NoTurns()
    done = list[int]()

    def write(handled: Handled, _reading: Reading, _pieces: Pieces) -> Steps:
        done.append(handled[0].position)
        yield

    pages = LargePages(answers, ReadingNotes(tmp_path / "notes"), write)
    pages.attach(loop)
    for position in range(2000):
        pages.read(*item(position, b""), Position("a", 0, 0))
    pages.detach()
    pages.drain()
    assert done == [*range(2000)]
