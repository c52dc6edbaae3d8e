"""A live run: URLs join while it runs, in the same turns as in a batch, and it ends only when it is closed."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import uvloop

from crawl_lib.config import RetryConfig
from crawl_lib.fetch import RETRIES, HostStore, Limits, LiveRun, Turns
from crawl_lib.fetch.dispatch import Seams
from crawl_lib.fetch.hosts import Job, Rank, Site, WaitingPages
from crawl_lib.fetch.hoststore import BackOff
from crawl_lib.fetch.retry import HOST_GIVES_UP_AFTER, LIVE_RETRIES
from crawl_lib.fetch.robots import FREE_HOSTS
from crawl_lib.records import Fetched, QueuedUrl, TakenUrl
from tests.fetch.driver import (
    CONFIG,
    AtOnce,
    FakeCarrier,
    NoAddressError,
    VirtualLoop,
    answer,
    to_loopback,
)
from tests.fetch.test_politeness import POLITE, SLACK_S, gaps, of_hosts
from tests.web.hostile import HostileWeb

START = 1000.0


class Live:
    """A live run under test: what it reported, and a future for each URL."""

    def __init__(self) -> None:
        self.fetched: dict[int, Fetched] = {}
        self.robots: list[Fetched] = []
        self.order: list[str] = []
        self.count = 0
        self.run: LiveRun

    def on_fetched(self, taken: TakenUrl, fetched: Fetched) -> None:
        assert taken.position not in self.fetched
        self.fetched[taken.position] = fetched
        self.order.append(fetched.url)

    def on_robots(self, fetched: Fetched) -> None:
        self.robots.append(fetched)

    def submit(
        self,
        url: str,
        redirects: int = 0,
        later: bool = False,
        limits: Limits = Limits(),  # noqa: B008
    ) -> int:
        number, self.count = self.count, self.count + 1
        self.run.submit(
            TakenUrl(number, b"k" * 20, QueuedUrl(url, redirects=redirects)), later, limits
        )
        return number

    async def all(self) -> list[str]:
        """Wait until nothing is left; the outcomes in the order of submitting."""
        while self.run.dispatch.left:
            await asyncio.sleep(0.05)
        return [self.fetched[number].outcome.value for number in sorted(self.fetched)]


def live(
    directory: Path,
    script: Callable[[Live], Awaitable[None]],
    config: Any = CONFIG,
    carrier: FakeCarrier | None = None,
    resolver: Callable[[str], list[str]] = to_loopback,
    clock: Callable[[], float] = time.monotonic,
    **more: Any,
) -> Live:
    """Run a script over a live run, with a fake carrier in virtual time, or without one on the network."""
    directory.mkdir(exist_ok=True)
    found = Live()
    loop = VirtualLoop(START) if carrier else uvloop.new_event_loop()
    clocks = (
        {"clock": loop.time, "wall": loop.time, "carrier": lambda *_: carrier}
        if carrier
        else {"clock": clock}
    )
    seams = Seams(resolver=partial(AtOnce, resolver), **clocks)

    async def main() -> None:
        with (
            HostStore(directory, wall=seams.wall) as store,
            Turns(
                directory / "turns", longest_s=80.0, delay_s=config.host_delay_s, clock=seams.clock
            ) as turns,
        ):
            given = {
                "config": config,
                "retry": RetryConfig(),
                "store": store,
                "turns": turns,
                "caller": found,
            }
            found.run = LiveRun(**given, seams=seams, **more)
            task = asyncio.create_task(found.run.run_until_closed())
            try:
                await script(found)
            finally:
                found.run.close()
                found.left = await asyncio.wait_for(task, 60)

    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        runner.run(main())
    return found


def test_it_waits_for_urls_until_it_is_closed(tmp_path: Path) -> None:
    async def script(web: Live) -> None:
        await asyncio.sleep(100)
        web.submit("http://a.test/1")
        assert await web.all() == ["ok"]
        await asyncio.sleep(100)
        web.submit("http://b.test/1")
        assert await web.all() == ["ok", "ok"]

    found = live(tmp_path, script, carrier=FakeCarrier(lambda *_: answer()))
    assert (found.left, found.run.hosts.begun.keys() - {"b.test"}) == (0, set())


def test_delays_hold_for_urls_that_join_at_any_time(tmp_path: Path) -> None:
    carrier = FakeCarrier(lambda *_: answer(), takes_s=lambda url: 0.3 + len(url) % 3)

    async def script(web: Live) -> None:
        for number in range(60):
            web.submit(
                f"http://h{number % 3}.test:{80 + number % 2}/{number}",
                redirects=number % 5,
                later=number % 7 == 0,
            )
            await asyncio.sleep(0.37)
        assert set(await web.all()) == {"ok"}

    live(tmp_path, script, replace(POLITE, ip_delay_s=0.0), carrier)
    assert len(carrier.sent) == 60 + 3 * 2
    for host, sent in of_hosts(carrier).items():
        assert min(gaps(sent)) >= 1.0 - SLACK_S, host


def test_delays_hold_in_the_log_of_a_server(tmp_path: Path) -> None:
    async def script(web: Live) -> None:
        for number in range(8):
            web.submit(server.url(f"/ok?{number}", f"h{number % 2}.test"))
        assert await web.all() == ["ok"] * 8

    with HostileWeb() as server:
        live(tmp_path, script, replace(CONFIG, robots="obey", host_delay_s=0.15))
        for host in ("h0.test", "h1.test"):
            seen = sorted(
                (one for one in server.requests if one.host.startswith(host)),
                key=lambda one: one.start,
            )
            assert len(seen) == 5
            assert min(after.start - before.end for before, after in pairwise(seen)) >= 0.15


def test_hops_come_before_new_urls_and_later_ones_after_all(tmp_path: Path) -> None:
    async def script(web: Live) -> None:
        web.submit("http://a.test/first")
        await asyncio.sleep(0.01)  # it is in flight
        for number in range(3):
            web.submit(f"http://a.test/later{number}", later=True)
            web.submit(f"http://a.test/new{number}")
            web.submit(f"http://a.test/hop{number}", redirects=1)
        await web.all()

    found = live(
        tmp_path, script, replace(CONFIG, host_delay_s=1.0), FakeCarrier(lambda *_: answer())
    )
    names = [url.rpartition("/")[2] for url in found.order]
    assert names == [
        "first",
        *(f"{kind}{number}" for kind in ("hop", "new", "later") for number in range(3)),
    ]


def test_a_cancelled_url_is_neither_sent_nor_reported(tmp_path: Path) -> None:
    carrier = FakeCarrier(lambda *_: answer())

    async def script(web: Live) -> None:
        sent = web.submit("http://a.test/sent")
        await asyncio.sleep(0.01)
        numbers = [web.submit(f"http://a.test/{number}") for number in range(100)]
        assert web.run.waiting("a.test") == 101
        assert all(web.run.cancel(number) for number in numbers[:99])
        assert web.run.waiting("a.test") == 2
        assert not web.run.cancel(sent), "its request is on its way"
        assert not web.run.cancel(numbers[0]), "it is cancelled"
        assert not web.run.cancel(9999)
        assert sum(map(len, (host.pages for host in web.run.hosts.begun.values()))) <= 3
        await web.all()
        assert web.run.waiting("a.test") == 0

    found = live(tmp_path, script, replace(CONFIG, host_delay_s=1.0), carrier)
    assert found.order == ["http://a.test/sent", "http://a.test/99"]
    assert [sent.url for sent in carrier.sent] == found.order


def test_a_url_may_be_cancelled_while_it_waits_for_name_turn_or_retry(tmp_path: Path) -> None:
    carrier = FakeCarrier(lambda *_: answer(500))

    async def script(web: Live) -> None:
        retried = web.submit("http://a.test/")
        waits_for_ip = web.submit("http://b.test/")
        await asyncio.sleep(0.15)  # one try has failed
        assert carrier.tries["http://a.test/"] == 1
        assert web.run.cancel(retried)
        assert web.run.cancel(waits_for_ip)
        await asyncio.sleep(30)

    found = live(tmp_path, script, replace(CONFIG, ip_delay_s=5.0), carrier)
    assert (found.fetched, found.left, len(carrier.sent)) == ({}, 0, 1)


def test_closing_ends_what_is_in_flight_and_begins_nothing(tmp_path: Path) -> None:
    async def script(web: Live) -> None:
        for number in range(10):
            web.submit(f"http://a.test/{number}")
        await asyncio.sleep(0.01)

    carrier = FakeCarrier(lambda *_: answer(), takes_s=lambda _: 4.0)
    found = live(tmp_path, script, replace(CONFIG, host_delay_s=1.0), carrier)
    assert (found.order, found.left, len(carrier.sent)) == (["http://a.test/0"], 9, 1)


def test_at_most_two_tries_a_second_apart(tmp_path: Path) -> None:
    carrier = FakeCarrier(lambda *_: answer(500))

    async def script(web: Live) -> None:
        web.submit("http://a.test/")
        assert await web.all() == ["server_error"]

    found = live(tmp_path, script, carrier=carrier)
    first, second = carrier.sent
    assert 1.0 <= second.start - first.end < 1.1
    assert found.fetched[0].attempts == 2
    assert found.fetched[0].spent_ms == 20
    assert LIVE_RETRIES.keys() == RETRIES.keys()
    assert all(row.max_tries <= 2 and row.wait_s <= 1.0 for row in LIVE_RETRIES.values())


def test_a_host_that_gave_up_ends_new_urls_at_once_until_its_back_off_is_over(
    tmp_path: Path,
) -> None:
    well = {"is": False}
    carrier = FakeCarrier(lambda *_: answer() if well["is"] else answer(0, code=7))

    async def script(web: Live) -> None:
        for number in range(10):
            web.submit(f"http://a.test/{number}")
        assert (await web.all()).count("host_gave_up") > 5
        asked, now = len(carrier.sent), asyncio.get_running_loop().time()
        assert asked == HOST_GIVES_UP_AFTER
        until = web.run.hosts.store.back_off("a.test").until
        number = web.submit("http://a.test/new")
        assert number not in web.fetched, "never before submit has returned"
        await asyncio.sleep(0)
        assert web.fetched[number].outcome == "host_gave_up"
        assert abs(web.fetched[number].retry_at - until) <= 1
        await asyncio.sleep(
            until - now - 5
        )  # others come all the time, so that its state is never freed
        web.submit("http://a.test/more")
        await asyncio.sleep(1)
        assert web.order[-1] == "http://a.test/more"
        assert len(carrier.sent) == asked
        await asyncio.sleep(5)
        well["is"] = True
        number = web.submit("http://a.test/again")
        await web.all()
        assert web.fetched[number].outcome == "ok"
        assert web.run.hosts.store.back_off("a.test").times == 0

    live(tmp_path, script, replace(CONFIG, host_delay_s=1.0), carrier)


def test_urls_that_wait_end_as_soon_as_their_host_gave_up(tmp_path: Path) -> None:
    carrier = FakeCarrier(lambda *_: answer(503, b"Retry-After: 100000\r\n"))

    async def script(web: Live) -> None:
        for number in range(5):
            web.submit(f"http://a.test/{number}")
        await asyncio.sleep(0.2)
        assert len(web.fetched) == 5, "none waits for the host's delay, since none is asked"

    live(tmp_path, script, replace(CONFIG, host_delay_s=30.0), carrier)


def test_a_back_off_of_an_earlier_run_holds(tmp_path: Path) -> None:
    with HostStore(tmp_path, wall=lambda: START) as store:
        store.save_back_off("a.test", BackOff(START + 500, 1))

    async def script(web: Live) -> None:
        web.submit("http://a.test/")
        assert await web.all() == ["host_gave_up"]
        assert web.fetched[0].retry_at == START + 500
        await asyncio.sleep(501)
        web.submit("http://a.test/")
        assert await web.all() == ["host_gave_up", "ok"]

    live(tmp_path, script, carrier=FakeCarrier(lambda *_: answer()))


@pytest.mark.parametrize("robots", ["obey", "ignore"])
@pytest.mark.parametrize("temporary", [False, True])
def test_a_name_that_was_not_found_is_looked_up_again_after_dns_ttl(
    tmp_path: Path, robots: str, temporary: bool
) -> None:
    known = {"is": False}

    def resolver(_host: str) -> list[str]:
        if known["is"]:
            return ["127.0.0.1"]
        raise NoAddressError("no such name", temporary)

    async def script(web: Live) -> None:
        web.submit("http://a.test/")
        assert await web.all() == ["dns_failed"]
        known["is"] = True
        for _ in range(14):  # a steady stream of its URLs
            web.submit("http://a.test/")
            await asyncio.sleep(5)
        assert (await web.all())[-1] == "ok"

    config = replace(CONFIG, robots=robots, dns_ttl_s=60.0)
    live(tmp_path, script, config, FakeCarrier(lambda *_: answer()), resolver=resolver)


def test_a_url_has_its_time_from_its_first_request_on_waiting_not_included(tmp_path: Path) -> None:
    """The time of all tries counts; the waits for the host's delay do not."""

    def failing() -> FakeCarrier:
        return FakeCarrier(lambda *_: answer(500, duration_s=0.6))

    async def script(web: Live) -> None:
        limits = Limits(give_up_s=1.0)
        for number in range(3):
            web.submit(f"http://a.test/{number}", limits=limits)
        await web.all()

    found = live(tmp_path, script, replace(CONFIG, host_delay_s=30.0), failing())
    assert [found.fetched[number].attempts for number in range(3)] == [2, 2, 2]
    spent = live(
        tmp_path / "more", lambda web: _once(web, Limits(give_up_s=0.5)), CONFIG, failing()
    )
    assert spent.fetched[0].attempts == 1, "nothing is left for a second try"


async def _once(web: Live, limits: Limits) -> None:
    web.submit("http://b.test/", limits=limits)
    await web.all()


@pytest.mark.parametrize("habit", ["/hang", "/hang-in-head", "/hang-in-body", "/drip-body"])
def test_a_url_that_takes_too_long_ends_as_timeout_whatever_came(
    tmp_path: Path, habit: str
) -> None:
    async def script(web: Live) -> None:
        web.submit(server.url(habit), limits=Limits(give_up_s=0.4))
        assert await web.all() == ["timeout"]

    with HostileWeb() as server:
        began = time.monotonic()
        found = live(tmp_path, script)
        assert time.monotonic() - began < 10, "and not after fetch.time_limit_s"
    fetched = found.fetched[0]
    assert (fetched.attempts, fetched.body, fetched.status) == (1, b"", None)
    assert "given up" in fetched.error
    assert fetched.retry_at


def test_a_url_with_little_time_left_does_not_count_against_its_host(tmp_path: Path) -> None:
    async def script(web: Live) -> None:
        for _ in range(HOST_GIVES_UP_AFTER + 1):
            web.submit(server.url("/hang"), limits=Limits(give_up_s=0.05))
        assert set(await web.all()) == {"timeout"}
        web.submit(server.url("/ok"))
        assert (await web.all())[-1] == "ok"

    with HostileWeb() as server:
        live(tmp_path, script)


def test_a_job_has_limits_of_its_own(tmp_path: Path) -> None:
    async def script(web: Live) -> None:
        for limits in (
            Limits(),
            Limits(max_body_bytes=4),
            Limits(max_body_bytes=1 << 40),
            Limits(mime_types=frozenset({"image/png"})),
            Limits(mime_types=frozenset({"text/*"})),
        ):
            web.submit(server.url("/ok"), limits=limits)
        web.submit(server.url("/hang"), limits=Limits(time_limit_s=0.2))
        await web.all()

    with HostileWeb() as server:
        found = live(tmp_path, script, replace(CONFIG, max_body_bytes=9))
    got = [
        (one.outcome.value, len(one.body), one.truncated)
        for _, one in sorted(found.fetched.items())
    ]
    assert got == [
        ("ok", 9, "length"),
        ("ok", 4, "length"),
        ("ok", 9, "length"),
        ("mime_refused", 0, None),
        ("ok", 9, "length"),
        ("timeout", 0, None),
    ]


def test_state_that_nothing_needs_is_freed(tmp_path: Path) -> None:
    async def script(web: Live) -> None:
        for number in range(300):
            web.submit(f"http://h{number}.test/")
            await asyncio.sleep(0.5)
            assert len(web.run.hosts.begun) < 60
        await asyncio.sleep(2 * FREE_HOSTS)
        run = web.run
        assert not run.hosts.begun
        assert not run.hosts._sites
        assert not run._jobs
        assert not run._waiting
        assert not run.dispatch.robots_pace._asked
        assert not run.dispatch.robots_pace._newest

    live(tmp_path, script, POLITE, FakeCarrier(lambda *_: answer()))


def test_robots_of_a_domain_keep_their_rate_after_it_is_forgotten(tmp_path: Path) -> None:
    """The free requests are allowed again only once as many turns have passed."""
    carrier = FakeCarrier(lambda *_: answer())

    async def script(web: Live) -> None:
        for number in range(3 * FREE_HOSTS):
            web.submit(f"http://x{number}.farm.example/")
        await web.all()

    live(tmp_path, script, replace(POLITE, ip_delay_s=0.0), carrier)
    starts = sorted(sent.start for sent in carrier.sent if sent.url.endswith("robots.txt"))
    assert starts[-1] - starts[FREE_HOSTS] >= (2 * FREE_HOSTS - 1) * 1.0 - SLACK_S


def test_what_the_caller_raises_ends_the_run_and_is_raised(tmp_path: Path) -> None:
    class MineError(Exception):
        pass

    async def script(web: Live) -> None:
        def raise_it(*_: object) -> None:
            raise MineError

        web.on_fetched = raise_it  # type: ignore[method-assign]
        web.submit("http://a.test/")
        await asyncio.sleep(10)

    with pytest.raises(MineError):
        live(tmp_path, script, carrier=FakeCarrier(lambda *_: answer()))


def test_a_number_is_used_once(tmp_path: Path) -> None:
    async def script(web: Live) -> None:
        web.submit("http://a.test/")
        web.count = 0
        with pytest.raises(ValueError, match="number 0 is waiting already"):
            web.submit("http://b.test/")
        await web.all()

    live(tmp_path, script, carrier=FakeCarrier(lambda *_: answer()))


def job(rank: Rank) -> Job:
    return Job("http://a.test/", Site("http://a.test"), None, rank=rank)


def test_the_first_page_of_a_host_needs_no_deque() -> None:
    pages, first = WaitingPages(), job(Rank.NEW)
    pages.append(first)
    assert not pages._ranks
    assert (pages.popleft(), len(pages), bool(pages)) == (first, 0, False)
    with pytest.raises(IndexError):
        pages.popleft()


def test_pages_come_by_rank_and_then_as_they_came() -> None:
    later, new, hop, other = job(Rank.LATER), job(Rank.NEW), job(Rank.HOP), job(Rank.NEW)
    pages = WaitingPages()
    for one in (later, new, hop, other):
        pages.append(one)
    taken = pages.popleft()
    pages.appendleft(taken)
    assert [pages.popleft() for _ in range(4)] == [hop, new, other, later]
    assert not pages._ranks


def test_queues_of_10_000_urls_cost_as_much_a_url_as_short_ones() -> None:
    def cost_s(count: int) -> float:
        began = time.process_time()
        for _ in range(20_000 // count):
            pages = WaitingPages()
            jobs = [job(Rank(number % 3)) for number in range(count)]
            for one in jobs:
                pages.append(one)
            for one in jobs[::2]:
                one.is_cancelled = True
                pages.forget_cancelled()
            while pages:
                pages.popleft()
        return time.process_time() - began

    ratios = sorted(cost_s(20_000) / cost_s(100) for _ in range(3))
    assert ratios[1] < 4
