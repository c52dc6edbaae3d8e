"""The fetcher: a process behind walls that fetches what lines say, keeps records, and tells what it saw."""

from __future__ import annotations

import contextlib
import os
import select
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from crawl_lib.config import Config
from crawl_lib.frontier import NodeDirectory
from crawl_lib.realtime.fetcher import start_fetcher
from crawl_lib.realtime.places import live_spool
from crawl_lib.realtime.protocol import (
    ALL_PARTS,
    PROTOCOL_VERSION,
    Body,
    Cancel,
    ClosedPart,
    Done,
    Fetch,
    Grant,
    Hello,
    LineReader,
    Message,
    Refused,
    ToScheduler,
)
from crawl_lib.segment import Spool
from crawl_lib.segment.recover import read_groups
from crawl_lib.urls import key_of
from tests.e2e.crawl import make_config
from tests.realtime.test_picture import PNG
from tests.web.hostile import HostileWeb, Talk

LIMIT_S = 20.0


class Line:
    """The scheduler's end of the line to a fetcher of a test."""

    def __init__(self, directory: Path, config: Config, **more: Any) -> None:
        self.node = directory / "node"
        self.node.mkdir(exist_ok=True)
        with (directory / "lock").open("wb") as lock:
            given = {
                "name": "live-0",
                "digest": "0" * 64,
                "log_path": directory / "log",
                "lock": lock.fileno(),
            }
            self.process = start_fetcher(config, self.node, **given, **more)
        self.log = directory / "log"
        self.reader: LineReader[ToScheduler] = LineReader(ToScheduler, "the fetcher")
        self.said: list[Message] = []
        self.count = 0
        self.send(Hello(version=PROTOCOL_VERSION), Grant(parts=(ALL_PARTS,)))

    def send(self, *messages: Message) -> None:
        self.process.socket.sendall(b"".join(message.to_line() for message in messages))

    def ask(self, url: str, **fields: Any) -> int:
        self.count += 1
        self.send(Fetch(id=self.count, url=url, key=key_of(url).hex(), **fields))
        return self.count

    def hear(self, *kinds: type[Message], number: int | None = None) -> Any:
        """The next line of one of these types, and of a number."""
        while True:
            for message in self.said:
                if isinstance(message, kinds) and number in (None, getattr(message, "id", None)):
                    self.said.remove(message)
                    return message
            assert select.select([self.process.socket], [], [], LIMIT_S)[0], "nothing is said"
            data = self.process.socket.recv(1 << 18)
            assert data, f"the line has ended: {self.log.read_text()}"
            self.said += self.reader.feed(data)

    def fetch(self, url: str, **fields: Any) -> Done:
        number = self.ask(url, **fields)
        done = self.hear(Done, number=number)
        assert isinstance(done, Done)
        return done

    def rest(self) -> list[Message]:
        """What is said until the end."""
        while select.select([self.process.socket], [], [], LIMIT_S)[0]:
            data = self.process.socket.recv(1 << 18)
            if not data:
                return self.said
            self.said += self.reader.feed(data)
        raise AssertionError("it does not end")


@pytest.fixture
def web() -> Iterator[HostileWeb]:
    with HostileWeb() as web:
        yield web


@contextlib.contextmanager
def fetcher(directory: Path, **more: Any) -> Iterator[Line]:
    part_s = more.pop("part_s", 300.0)
    line = Line(
        directory, make_config(directory, nodes=1, urls={"scope": "any"}, **more), part_s=part_s
    )
    try:
        yield line
    finally:
        line.process.kill()
        line.process.socket.close()


def page(talk: Talk, body: bytes, headers: bytes = b"Content-Type: text/html\r\n") -> bool:
    return talk.reply(headers=headers, body=body)


HEAD = b"<html><head><title>A title</title><meta name=description content='What it is'>"
HEAD += b"<meta property=og:image content=/a.png><meta property=og:image:width content=3>"


def test_each_kind_of_answer_is_told_with_its_hop_and_its_target(
    tmp_path: Path, web: HostileWeb
) -> None:
    web.on("/page", lambda talk: page(talk, HEAD, b'Content-Type: text/html\r\nETag: "1"\r\n'))
    web.on("/moved", lambda talk: talk.reply("301 Moved", b"Location: /page\r\n", b""))
    web.on(
        "/meta",
        lambda talk: page(talk, HEAD + b"<meta http-equiv=refresh content='0; url=/page#x'>"),
    )
    web.on(
        "/field",
        lambda talk: page(talk, b"", b"Content-Type: text/plain\r\nRefresh: 0; url=/page\r\n"),
    )
    web.on(
        "/quiet",
        lambda talk: page(
            talk, HEAD + b"<meta name=robots content='noindex, nosnippet, noarchive'>"
        ),
    )
    with fetcher(tmp_path) as line:
        done = line.fetch(web.url("/page"))
        assert (done.hop.outcome, done.hop.status, done.hop.url) == ("ok", 200, web.url("/page"))
        sources = {"title": "html title", "description": "description", "image": "og:image"}
        image = {"url": web.url("/a.png"), "width": 3}
        assert done.facts == {
            "title": "A title",
            "description": "What it is",
            "image": image,
            "sources": sources,
        }
        assert (done.mime, done.length, done.etag, done.attempts) == (
            "text/html",
            len(HEAD),
            '"1"',
            1,
        )
        assert done.place is not None
        assert done.hop.time_ms > 1_600_000_000_000
        for path, how in (("/moved", "redirect"), ("/meta", "refresh"), ("/field", "refresh")):
            done = line.fetch(web.url(path))
            assert done.target is not None, path
            assert (done.target.url, done.target.how) == (web.url("/page"), how)
            assert done.target.key == key_of(web.url("/page")).hex()
        quiet = line.fetch(web.url("/quiet"))
        del sources["description"]
        assert (quiet.robots.noindex, quiet.robots.noarchive, quiet.robots.nosnippet) == (
            True,
            True,
            True,
        )
        assert quiet.facts == {"title": "A title", "image": image, "sources": sources}
        gone = line.fetch(web.url("/nothing"))
        assert (gone.hop.outcome, gone.retry_at, gone.target) == ("gone", None, None)
        assert sum(path == "/robots.txt" for path in web.paths()) == 1


def test_records_lie_in_parts_whose_rows_are_still_to_be_made(
    tmp_path: Path, web: HostileWeb
) -> None:
    with fetcher(tmp_path, part_s=0.3) as line:
        url = web.url("/ok")
        line.fetch(url)
        part = line.hear(ClosedPart)
        line.fetch(web.url("/ok?more"))
        line.process.stop()
        assert [message.pages for message in line.rest() if isinstance(message, ClosedPart)] == [1]
        spool = live_spool(line.node, "live-0")
    parts = Spool(spool).parts()
    assert len(parts) == 2
    assert part.name == parts[0].stem.name
    assert all(part.is_rowless and not part.is_closed for part in parts)
    groups = [group for group in read_groups(parts[0].warc) if not isinstance(group, int)]
    (taken,) = [group.taken for group in groups if group.taken is not None]
    assert (taken.queued.url, taken.queued.list_name) == (url, "live")


def test_what_is_not_granted_or_cancelled_is_refused(tmp_path: Path, web: HostileWeb) -> None:
    with fetcher(
        tmp_path,
        fetch={"host_delay_s": 60.0, "allow_networks": ["127.0.0.0/8"], "robots": "ignore"},
    ) as line:
        line.send(Grant(parts=((3, 5), (7, 7))))
        refused = line.hear(Refused, number=line.ask(web.url("/ok"), part=6))
        assert (refused.rule, refused.reason) == ("not_granted", "part 6")
        line.fetch(web.url("/ok"), part=7)
        waits = line.ask(web.url("/ok?2"), part=5)
        line.send(Cancel(id=waits), Cancel(id=waits), Cancel(id=999))
        assert line.hear(Refused).rule == "cancelled"
        waits = line.ask(web.url("/ok?3"), part=5)
        line.process.stop()
        assert [(one.id, one.rule) for one in line.rest() if isinstance(one, Refused)] == [
            (waits, "stopping")
        ]
        assert line.process.forked.wait(LIMIT_S) == 0
    assert len(web.paths()) == 1


def test_limits_and_conditions_of_one_url(tmp_path: Path, web: HostileWeb) -> None:
    web.on(
        "/same",
        lambda talk: talk.reply(
            "304 Not Modified" if b'If-None-Match: "1"' in talk.seen.head else "200 OK"
        ),
    )
    with fetcher(tmp_path) as line:
        assert line.fetch(web.url("/same"), etag='"1"').hop.outcome == "not_modified"
        assert line.fetch(web.url("/same")).hop.outcome == "ok"
        assert line.fetch(web.url("/ok"), max_body_bytes=3).truncated == "length"
        assert line.fetch(web.url("/ok"), mime_types=("IMAGE/*",)).hop.outcome == "mime_refused"
        timeout = line.fetch(web.url("/hang-in-body"), left_s=0.3)
        assert (timeout.hop.outcome, timeout.attempts) == ("timeout", 1)
        assert 250 < timeout.spent_ms < 15_000


def test_a_bare_fetch_tells_the_bytes_and_leaves_no_record(tmp_path: Path, web: HostileWeb) -> None:
    body = bytes(range(256)) * 2000
    web.on("/bytes", lambda talk: page(talk, body, b"Content-Type: image/png\r\n"))
    with fetcher(tmp_path, fetch={"robots": "ignore", "allow_networks": ["127.0.0.0/8"]}) as line:
        done = line.fetch(web.url("/bytes"), is_bare=True)
        pieces = [one for one in line.said if isinstance(one, Body)]
        assert b"".join(one.data for one in pieces if not one.is_head) == body
        assert b"".join(one.data for one in pieces if one.is_head).startswith(b"HTTP/1.1 200")
        assert done.place is None
        line.process.stop()
        assert not any(isinstance(one, ClosedPart) for one in line.rest())


def test_a_picture_is_probed_by_its_beginning(tmp_path: Path, web: HostileWeb) -> None:
    picture = PNG + bytes(200_000)
    web.on("/picture", lambda talk: page(talk, picture, b"Content-Type: image/png\r\n"))
    web.on("/small", lambda talk: page(talk, PNG, b"Content-Type: text/plain\r\n"))
    web.on("/no-picture", lambda talk: page(talk, HEAD))
    fetch = {"mime_types": ["text/html"], "allow_networks": ["127.0.0.0/8"], "host_delay_s": 0.02}
    with fetcher(tmp_path, fetch=fetch) as line:
        done = line.fetch(web.url("/picture"), is_probe=True)
        assert done.facts == {"type": "image/png", "width": 3, "height": 2, "length": len(picture)}
        assert done.truncated == "length"
        done = line.fetch(web.url("/small"), is_probe=True)
        assert done.facts == {"type": "image/png", "width": 3, "height": 2, "length": len(PNG)}
        assert line.fetch(web.url("/no-picture"), is_probe=True).facts == {
            "type": "text/html",
            "length": len(HEAD),
        }
        line.process.stop()
        line.rest()
        (part,) = Spool(live_spool(line.node, "live-0")).parts()
    groups = [group for group in read_groups(part.warc) if not isinstance(group, int)]
    assert {group.taken.queued.hop for group in groups if group.taken is not None} == {"E"}


def test_a_killed_fetcher_is_seen_at_its_socket_and_its_part_is_closed_by_the_next(
    tmp_path: Path, web: HostileWeb
) -> None:
    with fetcher(tmp_path) as line:
        line.fetch(web.url("/ok"))
        os.kill(line.process.forked.pid, signal.SIGKILL)
        assert [one for one in line.rest() if not isinstance(one, Hello)] == []
        spool = live_spool(line.node, "live-0")
    (part,) = Spool(spool).parts()
    assert not part.is_rowless
    with fetcher(tmp_path) as line:
        line.fetch(web.url("/ok?2"))
        assert part.is_rowless
        assert len(Spool(spool).parts()) == 2
    part.require_log()


def test_a_malformed_line_ends_the_fetcher_with_its_part_closed(
    tmp_path: Path, web: HostileWeb
) -> None:
    with fetcher(tmp_path) as line:
        line.fetch(web.url("/ok"))
        line.process.socket.sendall(b"nonsense\n")
        assert any(isinstance(one, ClosedPart) for one in line.rest())
        assert line.process.forked.wait(LIMIT_S) == 1
        assert "a malformed line" in line.log.read_text()


def test_inner_addresses_are_refused(tmp_path: Path, web: HostileWeb) -> None:
    with fetcher(tmp_path, fetch={"allow_networks": []}) as line:
        assert line.fetch(web.url("/ok")).hop.outcome == "address_refused"
    assert not web.requests


def test_the_fetcher_is_behind_the_walls_and_has_no_secret(
    tmp_path: Path, web: HostileWeb, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KRAKE_SECRET_OF_A_TEST", "hidden")
    with fetcher(tmp_path) as line:
        line.fetch(web.url("/ok"))
        pid = line.process.forked.pid
        assert b"hidden" not in Path(f"/proc/{pid}/environ").read_bytes()
        status = Path(f"/proc/{pid}/status").read_text()
        assert "NoNewPrivs:\t1" in status
        assert "Seccomp:\t2" in status
        assert NodeDirectory(line.node).live.is_dir()
