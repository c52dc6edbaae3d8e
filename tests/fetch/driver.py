"""Runs `fetch_all` in tests: URLs in, what was reported out; also without network, and without waiting."""

import asyncio
import selectors
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import uvloop

from crawl_lib.config.model import FetchConfig, RetryConfig
from crawl_lib.fetch import RETRIES, HostStore, Spans, Turns, fetch_all
from crawl_lib.fetch.classify import OUTCOME_OF_TROUBLE, Failure, meaning
from crawl_lib.fetch.dispatch import Seams
from crawl_lib.fetch.dns import Resolved
from crawl_lib.fetch.exchange import Done
from crawl_lib.fetch.hosts import Job
from crawl_lib.fetch.lane import SLOW_S
from crawl_lib.fetch.retry import Retry
from crawl_lib.records import Fetched, QueuedUrl, TakenUrl

CONFIG = FetchConfig(
    host_delay_s=0.0,
    ip_delay_s=0.0,
    robots="ignore",
    time_limit_s=20.0,
    connect_timeout_s=10.0,
    allow_networks=("127.0.0.0/8", "::1/128"),
)
AT_ONCE = {failure: replace(row, wait_s=0.0) for failure, row in RETRIES.items()}


def taken(urls: Sequence[str | QueuedUrl]) -> list[TakenUrl]:
    queued = (QueuedUrl(url) if isinstance(url, str) else url for url in urls)
    return [TakenUrl(position, b"k" * 20, one) for position, one in enumerate(queued)]


class NoAddressError(Exception):
    """A name has no address. `temporary`: asking later may help."""

    def __init__(self, reason: str, temporary: bool = False) -> None:
        super().__init__(reason)
        self.temporary = temporary


class AtOnce:
    """A resolver that asks a function, which answers at once, and may raise NoAddressError."""

    def __init__(self, addresses_of: Callable[[str], list[str]]) -> None:
        self.addresses_of = addresses_of

    def ask(self, host: str, then: Callable[[Resolved], None]) -> None:
        try:
            then(Resolved(tuple(self.addresses_of(host))))
        except NoAddressError as error:
            then(Resolved((), str(error), error.temporary))

    def close(self) -> None:
        pass

    retire = close


def to_loopback(host: str) -> list[str]:
    return ["127.0.0.1"]


@dataclass
class Run:
    """What a run reported; its recorder and its control."""

    stop: Callable[[], bool]
    then: Callable[[TakenUrl, Fetched], None] | None = None
    is_late: Callable[[], bool] = lambda: False
    closed: bool = False
    left: int = 0
    fetched: list[Fetched] = field(default_factory=list)
    robots: list[Fetched] = field(default_factory=list)

    def __getitem__(self, url: str) -> Fetched:
        (found,) = [fetched for fetched in self.fetched if fetched.url == url]
        return found

    def outcomes(self) -> list[str]:
        return [fetched.outcome.value for fetched in self.fetched]

    def close(self) -> bool:
        self.closed = self.is_late()
        return self.closed

    def on_fetched(self, item: TakenUrl, fetched: Fetched) -> None:
        self.fetched.append(fetched)
        if self.then is not None:
            self.then(item, fetched)

    def on_robots(self, fetched: Fetched) -> None:
        self.robots.append(fetched)

    def objection(self, taken: TakenUrl) -> str:
        return ""


def run(
    directory: Path,
    urls: Sequence[str | QueuedUrl],
    config: FetchConfig = CONFIG,
    *,
    seams: Seams | None = None,
    stop: Callable[[], bool] = lambda: False,
    limit_s: float = 30.0,
    on_fetched: Callable[[TakenUrl, Fetched], None] | None = None,
    loop_factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop,
    hosts: HostStore | None = None,
    spans: Spans | None = None,
    retry: RetryConfig = RetryConfig(),  # noqa: B008
    retries: Mapping[Failure, Retry] = AT_ONCE,
) -> Run:
    """Run `fetch_all` to its end; `limit_s` from now is its deadline."""
    found = Run(stop, on_fetched)
    seams = seams or Seams(resolver=partial(AtOnce, to_loopback))
    store = hosts or HostStore(directory, wall=seams.wall)
    deadline_s = seams.clock() + limit_s
    found.is_late = lambda: seams.clock() >= deadline_s

    async def main() -> None:
        with Turns(
            directory / "turns",
            longest_s=config.time_limit_s + 60.0,
            delay_s=config.host_delay_s,
            clock=seams.clock,
            spans=spans,
        ) as turns:
            found.left = await fetch_all(
                taken(urls),
                config=config,
                retry=retry,
                store=store,
                turns=turns,
                caller=found,
                retries=retries,
                seams=seams,
            )

    try:
        with asyncio.Runner(loop_factory=loop_factory) as runner:
            runner.run(main())
    finally:
        if hosts is None:
            store.close()
    return found


class VirtualTime(selectors.DefaultSelector):
    """A selector that, instead of waiting, moves a clock on."""

    def __init__(self, start: float) -> None:
        super().__init__()
        self.now = start

    def select(self, timeout: float | None = None) -> list:
        ready = super().select(0)
        if not ready and timeout:
            self.now += timeout
        return ready


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop in which waiting takes no time."""

    def __init__(self, start: float = 1000.0) -> None:
        self.virtual = VirtualTime(start)
        super().__init__(self.virtual)

    def time(self) -> float:
        return self.virtual.now


HEAD = b"HTTP/1.1 %d Word\r\nContent-Type: text/html\r\n%s\r\n"


def answer(
    status: int = 200,
    headers: bytes = b"",
    body: bytes = b"",
    code: int = 0,
    message: str = "",
    duration_s: float = 0.01,
) -> tuple[Fetched, Failure]:
    """What the transport gives, but for the URL; with curl's `code` nothing came."""
    head = b"" if code else HEAD % (status, headers)
    failure, truncated, error = meaning(None, code, message, status, head)
    outcome = OUTCOME_OF_TROUBLE.get(failure, failure)
    facts = {"truncated": truncated, "error": error, "duration_ms": round(duration_s * 1000)}
    answered = (
        {"status": status, "ip": "127.0.0.1", "request": b"GET", "head": head, "body": body}
        if head
        else {}
    )
    return Fetched("", time.time(), outcome, **facts, **answered), failure


@dataclass
class Sent:
    """A request that the fake carrier got, and when it was answered; whether it has left its slot."""

    url: str
    address: str | None
    start: float
    end: float
    is_slow: bool = False


class FakeCarrier:
    """Answers after `takes_s(url)` seconds of the loop's time with `respond(url, number of the try)`.

    What takes longer than `SLOW_S` leaves its slot, up to `slow_connections` requests at a time.
    """

    def __init__(
        self,
        respond: Callable[[str, int], tuple[Fetched, Failure]],
        takes_s: Callable[[str], float] = lambda url: 0.1,
        slow_connections: int = 0,
    ) -> None:
        self.respond = respond
        self.takes_s = takes_s
        self.slow_connections = slow_connections
        self.slow = 0
        self.sent: list[Sent] = []
        self.tries: Counter[str] = Counter()
        self.running = self.peak = 0
        self.closed = False

    def start(self, job: Job, address: str | None, done: Done) -> None:
        loop = asyncio.get_running_loop()
        sent = Sent(job.url, address, loop.time(), loop.time() + self.takes_s(job.url))
        self.sent.append(sent)
        self.running += 1
        self.peak = max(self.peak, self.running)
        loop.call_at(sent.end, self._answer, sent, job, done)
        if sent.end - sent.start > SLOW_S:
            loop.call_at(sent.start + SLOW_S, self._leave, sent)

    def _leave(self, sent: Sent) -> None:
        if self.slow < self.slow_connections:
            self.slow += 1
            sent.is_slow = True

    def _answer(self, sent: Sent, job: Job, done: Done) -> None:
        self.running -= 1
        self.slow -= sent.is_slow
        if not self.closed:
            self.tries[job.url] += 1
            fetched, failure = self.respond(job.url, self.tries[job.url])
            done(replace(fetched, url=job.url, time=sent.start, attempts=job.tries), failure)

    def close(self) -> None:
        self.closed = True


def run_virtual(
    directory: Path, urls: Sequence[str], config: FetchConfig, carrier: FakeCarrier, **more: object
) -> Run:
    """`run` with a fake carrier in virtual time, which begins at `start` (1000)."""
    loop = VirtualLoop(more.pop("start", 1000.0))
    seams = Seams(
        clock=loop.time,
        wall=loop.time,
        resolver=partial(AtOnce, more.pop("resolver", to_loopback)),
        carrier=lambda *_: carrier,
    )
    more.setdefault("limit_s", 1e9)
    more.setdefault("retries", RETRIES)
    return run(directory, urls, config, seams=seams, loop_factory=lambda: loop, **more)
