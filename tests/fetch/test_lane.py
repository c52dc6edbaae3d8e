"""The slow lane: hosts that hang or drip delay no other, are asked as politely as any, and end in time."""

import asyncio
import resource
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from crawl_lib.fetch import lane
from crawl_lib.fetch.exchange import InflightBudget
from crawl_lib.fetch.lane import LOOK_S, SLOW_S, SlowLane
from crawl_lib.fetch.transport import Transport
from crawl_lib.states import Outcome
from tests.fetch.driver import CONFIG, FakeCarrier, answer, run, run_virtual
from tests.fetch.test_limits import job_of
from tests.fetch.test_politeness import POLITE, SLACK_S, gaps, of_hosts
from tests.web.hostile import OK_BODY, HostileWeb

HUNG = answer(0, code=28)
FEW = replace(POLITE, connections=8, ip_delay_s=0.0)


def is_hung(url: str) -> bool:
    return "//bad" in url


def crowd_carrier(slow_connections: int) -> FakeCarrier:
    """Bad hosts hang for a minute, good ones answer after a third of a second."""
    return FakeCarrier(
        lambda url, _: HUNG if is_hung(url) else answer(),
        lambda url: 60.0 if is_hung(url) else 0.33,
        slow_connections,
    )


# -- in a run, without network ----------------------------------------------------------------------------------------


def last_good_page_s(
    directory: Path, hosts: int, slow_connections: int, *, with_bad: bool
) -> float:
    """When the last good page came, of so many hosts with three pages each; every twentieth may be bad."""
    names = [f"bad{number}" if number % 20 == 7 else f"good{number}" for number in range(hosts)]
    urls = [
        f"http://{name}.test/{page}"
        for page in range(3)
        for name in names
        if with_bad or not is_hung(f"//{name}")
    ]
    carrier = crowd_carrier(slow_connections)
    directory.mkdir()
    run_virtual(directory, urls, replace(FEW, connections=64), carrier)
    return max(sent.end for sent in carrier.sent if not is_hung(sent.url)) - 1000.0


def test_hosts_that_hang_delay_the_last_good_page_by_a_ninth_at_most(tmp_path):
    alone_s = last_good_page_s(tmp_path / "alone", 1000, 512, with_bad=False)
    assert last_good_page_s(tmp_path / "lane", 1000, 512, with_bad=True) <= 1.11 * alone_s
    assert last_good_page_s(tmp_path / "slots", 1000, 0, with_bad=True) > 2 * alone_s, (
        "they need no lane"
    )


def test_there_are_never_more_requests_than_slots_and_the_lane(tmp_path):
    carrier = crowd_carrier(5)
    urls = [f"http://{kind}{number}.test/" for number in range(40) for kind in ("bad", "good")]
    found = run_virtual(tmp_path, urls, FEW, carrier)
    assert len(found.fetched) == 80
    assert carrier.peak == 8 + 5
    for sent in carrier.sent:
        others = [
            other for other in carrier.sent if other.start <= sent.start < other.end - SLACK_S
        ]
        assert (
            sum(
                not other.is_slow or sent.start < other.start + SLOW_S - SLACK_S for other in others
            )
            <= 8
        )


@pytest.mark.parametrize("robots", ["obey", "ignore"])
def test_a_host_in_the_lane_is_asked_as_politely_as_any(tmp_path, robots):
    """Its pages and its robots.txt: one request at a time, and its delay after each answer and each failed try."""
    urls = [
        f"http://{kind}{number}.test/{page}"
        for page in range(4)
        for number in range(6)
        for kind in ("bad", "good")
    ]
    carrier = FakeCarrier(
        lambda url, number: answer() if not is_hung(url) or number > 1 else HUNG,
        lambda url: 30.0 if is_hung(url) else 0.1,
        slow_connections=512,
    )
    found = run_virtual(tmp_path, urls, replace(FEW, robots=robots), carrier)
    assert len(found.fetched) == len(urls)
    assert any(sent.is_slow for sent in carrier.sent)
    for sent in of_hosts(carrier).values():
        assert min(gaps(sent)) >= FEW.host_delay_s - SLACK_S


def test_the_addresses_turn_holds_in_the_lane(tmp_path):
    urls = [f"http://{kind}{number}.test/" for number in range(20) for kind in ("bad", "good")]
    carrier = crowd_carrier(512)
    run_virtual(tmp_path, urls, replace(FEW, ip_delay_s=0.25), carrier)
    starts = sorted(sent.start for sent in carrier.sent)
    assert min(after - before for before, after in pairwise(starts)) >= 0.25 - SLACK_S


def test_at_the_deadline_what_is_in_the_lane_comes_to_its_end(tmp_path):
    carrier = crowd_carrier(512)
    urls = [f"http://bad{number}.test/" for number in range(100)]
    found = run_virtual(tmp_path, urls, replace(FEW, robots="ignore"), carrier, limit_s=6.0)
    assert max(sent.start for sent in carrier.sent) <= 1006.1
    assert 5 * 8 <= len(carrier.sent) <= 6 * 8
    assert found.left == 100  # each is to be tried a second time, and that may not begin any more
    assert carrier.running == 0


def test_stop_abandons_what_is_in_the_lane(tmp_path):
    """And the hosts are owed their delay: they may be busy with what was asked."""
    carrier = crowd_carrier(512)
    urls = [f"http://bad{number}.test/" for number in range(20)]
    found = run_virtual(
        tmp_path, urls, replace(FEW, robots="ignore"), carrier, stop=lambda: len(carrier.sent) == 20
    )
    assert (found.fetched, found.left, carrier.closed) == ([], 20, True)
    again = FakeCarrier(lambda *_: answer())
    begin = max(sent.start for sent in carrier.sent)
    run_virtual(tmp_path, urls, replace(FEW, robots="ignore"), again, start=begin)
    assert min(sent.start for sent in again.sent) >= begin + FEW.host_delay_s - 2 * LOOK_S


# -- what is slow -----------------------------------------------------------------------------------------------------


class Request:
    """What the lane sees of an `Exchange`: `arrives` adds bytes of a body to it."""

    def __init__(self, share: int = 1000) -> None:
        self.lines: list[bytes] = []
        self.parts: list[bytes] = []
        self.most = self.room = 1 << 20
        self.handle = self
        self.held = 0
        self.is_paused = self.is_slow = False
        self.quick_at, self.received_before = float("inf"), 0
        self.ended: Any = None

    def received(self) -> int:
        return sum(map(len, self.lines)) + self.most - self.room

    def arrives(self, count: int) -> None:
        self.parts.append(b"x")
        self.room -= count

    def close_opened(self) -> None:
        pass


class Watched:
    """A lane with requests, and its clock, which goes on by looks."""

    def __init__(self, count: int = 1, *, max_bytes: int = 1 << 20, **options: Any) -> None:
        self.requests = [Request() for _ in range(count)]
        self.running = {request: request for request in self.requests}
        config = replace(
            CONFIG,
            **{"slow_connections": 512, "min_bytes_per_s": 100, "min_speed_s": 5.0, **options},
        )
        self.now = 500.0
        budget = InflightBudget(max_bytes, 4)
        self.lane = SlowLane(config, budget, self.running, self.running.pop)  # type: ignore[arg-type]

    def goes_on(
        self, seconds: float, each_look: Callable[[Request], None] = lambda _: None
    ) -> None:
        for _ in range(round(seconds / LOOK_S)):
            for request in list(self.running):
                each_look(request)
            self.now += LOOK_S
            self.lane.look(self.now)


def bytes_per_s(count: float) -> Callable[[Request], None]:
    return lambda request: request.arrives(round(count * LOOK_S))


def test_a_request_without_a_byte_is_slow_after_a_second_and_stays_so():
    watched = Watched()
    [request] = watched.requests
    watched.goes_on(0.9)
    assert not request.is_slow
    watched.goes_on(0.3)
    assert request.is_slow
    watched.goes_on(20.0)
    assert request.ended is None, "how long an answer may take to begin is not a matter of speed"
    watched.goes_on(10.0, bytes_per_s(100_000))
    assert (request.is_slow, request.ended, watched.lane.count) == (True, None, 1)


@pytest.mark.parametrize(
    ("speed", "slow", "too_slow"), [(10, True, True), (90, True, True), (110, False, False)]
)
def test_a_drip_is_slow_after_a_second_and_too_slow_after_more(speed, slow, too_slow):
    watched = Watched()
    [request] = watched.requests
    watched.goes_on(1.5, bytes_per_s(speed))
    assert request.is_slow is slow
    watched.goes_on(3.0, bytes_per_s(speed))
    assert request.ended is None
    watched.goes_on(1.5, bytes_per_s(speed))
    assert (request.ended is not None) is too_slow
    if too_slow:
        assert request.ended[0] is Outcome.TOO_SLOW
        assert watched.running == {}


def test_an_answer_that_stops_for_good_after_a_quick_beginning_is_too_slow():
    watched = Watched()
    [request] = watched.requests
    watched.goes_on(10.0, bytes_per_s(10_000))
    assert not request.is_slow
    watched.goes_on(4.8)
    assert (request.is_slow, request.ended) == (True, None)
    watched.goes_on(0.5)
    assert request.ended == (Outcome.TOO_SLOW, "0 bytes in 5.0 s, after the first 100000")


def test_pieces_that_make_up_the_least_speed_are_enough_however_seldom_they_come():
    watched = Watched()
    [request] = watched.requests
    request.arrives(1)
    for _ in range(10):
        watched.goes_on(4.5)
        request.arrives(500)
        watched.goes_on(LOOK_S)
    assert request.ended is None


def test_without_a_least_speed_any_byte_keeps_the_slot_and_nothing_is_too_slow():
    watched = Watched(min_bytes_per_s=0)
    [request] = watched.requests
    for _ in range(20):
        request.arrives(1)
        watched.goes_on(0.9)
    assert not request.is_slow
    watched.goes_on(60.0)
    assert (request.is_slow, request.ended) == (True, None)


def test_time_in_which_the_loop_was_held_is_not_the_servers():
    watched = Watched()
    [request] = watched.requests
    request.arrives(1)
    for _ in range(4):
        watched.now += 60.0
        watched.lane.look(watched.now)
    assert (request.is_slow, request.ended) == (False, None)


def test_a_pause_is_not_the_servers_time():
    watched = Watched()
    [request] = watched.requests
    request.arrives(10)
    request.is_paused = True
    watched.goes_on(30.0)
    request.is_paused = False
    watched.goes_on(0.8)
    assert (request.is_slow, request.ended) == (False, None)


def test_the_lane_has_so_many_places_and_they_are_given_again():
    watched = Watched(5, slow_connections=3)
    watched.goes_on(3.0)
    assert (sum(request.is_slow for request in watched.requests), watched.lane.count) == (3, 3)
    gone = next(request for request in watched.requests if request.is_slow)
    del watched.running[gone]
    watched.lane.leave(gone)
    watched.goes_on(LOOK_S)
    assert (sum(request.is_slow for request in watched.requests), watched.lane.count) == (3, 3)


def test_a_request_keeps_its_slot_where_the_common_half_has_no_room_for_what_it_has():
    """The share of 4 slots is 1,000 bytes: else thousands of stalled bodies would be beyond all limits."""
    watched = Watched(12, max_bytes=8000)
    for request in watched.requests:
        request.arrives(1000)
    watched.goes_on(3.0)
    assert watched.lane.count == 4


def test_a_head_of_very_many_lines_keeps_its_slot_and_one_that_is_too_long_ends():
    watched = Watched(2)
    many, long = watched.requests
    many.lines += [b"a:\r\n"] * 300
    long.lines += [b"a" * 40_000 + b"\r\n"] * 2
    watched.goes_on(3.0)
    assert (many.is_slow, many.ended) == (False, None)
    assert long.ended[0] is Outcome.PROTOCOL_ERROR


# -- with sockets -----------------------------------------------------------------------------------------------------


@contextmanager
def quickly_slow(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with monkeypatch.context() as patch:
        patch.setattr(lane, "SLOW_S", 0.2)
        yield


async def until(is_so: Callable[[], bool], limit_s: float = 20.0) -> None:
    async with asyncio.timeout(limit_s):
        while not is_so():
            await asyncio.sleep(0.01)


@pytest.mark.parametrize(
    "path", ["/hang", "/hang-in-head", "/hang-in-body", "/drip-head", "/drip-body", "deaf"]
)
def test_whatever_brings_nothing_leaves_its_slot(monkeypatch, path):
    """Also a connection that no one accepts. 100 bytes a second come by drips, which is less than is asked for."""
    ended = []

    async def main(url):
        transport = Transport(
            replace(CONFIG, min_bytes_per_s=1000, slow_connections=1), ended.append
        )
        began = time.monotonic()
        transport.start(job_of(url), "127.0.0.1", lambda fetched, _: ended.append(fetched))
        await until(lambda: transport.slow == 1)
        assert time.monotonic() - began >= 0.2
        transport.close()

    with quickly_slow(monkeypatch), HostileWeb() as web, socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))
        deaf.listen(0)
        with socket.create_connection(deaf.getsockname()), socket.socket() as second:
            second.setblocking(False)
            second.connect_ex(deaf.getsockname())  # the kernel accepts one or two by itself
            url = web.url(path) if path != "deaf" else f"http://127.0.0.1:{deaf.getsockname()[1]}/"
            asyncio.run(main(url))
    assert ended == []


def found_none(error: BaseException) -> None:
    """For `failed` of a transport."""
    raise error


def test_the_slot_is_free_again_when_a_request_of_the_lane_has_ended(monkeypatch):
    async def main(web):
        transport, found = Transport(CONFIG, found_none), []
        transport.start(
            job_of(web.url("/late")), "127.0.0.1", lambda fetched, _: found.append(fetched)
        )
        await until(lambda: transport.slow == 1)
        go_on.set()
        await until(lambda: found != [])
        assert (found[0].outcome, found[0].body, transport.slow) == (Outcome.OK, OK_BODY, 0)
        transport.start(
            job_of(web.url("/ok")), "127.0.0.1", lambda fetched, _: found.append(fetched)
        )
        await until(lambda: len(found) == 2)
        assert (found[1].outcome, transport.slow) == (Outcome.OK, 0)
        transport.close()

    go_on = threading.Event()
    with quickly_slow(monkeypatch), HostileWeb() as web:
        web.on("/late", lambda talk: go_on.wait(20) and talk.reply())
        asyncio.run(main(web))


def descriptors() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def test_a_full_lane_takes_no_descriptors_and_no_kept_connections_from_others(monkeypatch):
    """A request in the lane has one descriptor; curl counts connections that are kept together with those in use."""

    async def main(web):
        transport, found = (
            Transport(replace(CONFIG, connections=1, slow_connections=70), found_none),
            [],
        )
        before = descriptors()
        for number in range(70):
            transport.start(
                job_of(web.url("/hang", f"bad{number}.test")), "127.0.0.1", found.append
            )
        await until(lambda: transport.slow == 70 and web.connections == 70)
        assert descriptors() - before == 2 * 70  # one each, and the server's
        for number in range(3):
            transport.start(
                job_of(web.url("/ok")),
                "127.0.0.1",
                lambda fetched, _: found.append(fetched.outcome),
            )
            await until(lambda: len(found) > number)  # noqa: B023 - it is awaited here
        assert (found, web.connections) == ([Outcome.OK] * 3, 71)
        transport.close()

    with quickly_slow(monkeypatch), HostileWeb() as web:
        asyncio.run(main(web))


def test_the_lane_is_smaller_where_the_system_allows_few_descriptors(monkeypatch):
    """Else connections would fail for want of them, and that would look like failures of hosts."""

    async def main(web):
        transport = Transport(replace(CONFIG, connections=10, slow_connections=70), found_none)
        for number in range(10):
            transport.start(
                job_of(web.url("/hang", f"bad{number}.test")), "127.0.0.1", lambda *_: None
            )
        await until(lambda: web.connections == 10 and transport.slow == 3)
        await asyncio.sleep(0.5)
        assert transport.slow == 3
        transport.close()

    kept, others = 64, 10 + 128
    monkeypatch.setattr(resource, "getrlimit", lambda _: (kept + others + 3, 1 << 16))
    with quickly_slow(monkeypatch), HostileWeb() as web:
        asyncio.run(main(web))


@pytest.mark.parametrize("path", ["/drip-head", "/drip-body", "/hang-in-body"])
def test_a_drip_ends_as_too_slow_after_two_tries_and_nothing_of_it_is_kept(tmp_path, path):
    config = replace(CONFIG, min_bytes_per_s=1000, min_speed_s=0.4)
    with HostileWeb() as web:
        fetched = run(tmp_path, [web.url(path)], config)[web.url(path)]
    assert (fetched.outcome, fetched.attempts, fetched.truncated) == (Outcome.TOO_SLOW, 2, None)
    assert (fetched.head, fetched.body, fetched.status) == (b"", b"", None)
    assert fetched.request.startswith(b"GET /")
    assert "bytes in" in fetched.error


def test_a_robots_txt_that_drips_ends_the_pages_as_too_slow(tmp_path):
    config = replace(CONFIG, robots="obey", min_bytes_per_s=1000, min_speed_s=0.4)
    with HostileWeb() as web:
        web.on("/robots.txt", lambda talk: talk.drip(b"HTTP/1.1 200 OK\r\n\r\n" + b"#" * 100_000))
        found = run(tmp_path, [web.url("/a"), web.url("/b")], config)
    assert found.outcomes() == ["too_slow"] * 2
    assert "robots.txt" in found.fetched[0].error
    assert [fetched.outcome for fetched in found.robots] == [Outcome.TOO_SLOW]


def test_a_server_that_hangs_is_no_drip(tmp_path):
    config = replace(CONFIG, min_bytes_per_s=1000, min_speed_s=0.1, time_limit_s=0.5)
    with HostileWeb() as web:
        assert run(tmp_path, [web.url("/hang")], config).outcomes() == ["timeout"]


def test_bad_hosts_do_not_hold_the_only_slots(tmp_path, monkeypatch):
    """Two slots, and twelve hosts that hang or drip before the good ones: these come all the same."""
    config = replace(CONFIG, connections=2, min_bytes_per_s=1000)
    with quickly_slow(monkeypatch), HostileWeb() as web:
        bad = [
            web.url(("/hang", "/drip-body", "/drip-head")[number % 3], f"bad{number}.test")
            for number in range(12)
        ]
        good = [web.url(f"/ok?{number}", f"good{number % 7}.test") for number in range(40)]
        seen: list[str] = []
        found = run(
            tmp_path,
            [*bad, *good],
            config,
            stop=lambda: len(seen) == len(good),
            on_fetched=lambda _, fetched: seen.append(fetched.url),
        )
    assert set(seen) == set(good)
    assert (found.outcomes(), found.left) == (["ok"] * len(good), len(bad))
