"""The crawl loop of one process: URLs in, fetches out, politely.

    items -> their host -> [ready heap] -> robots.txt -> address -> turn of the IP -> transport -> retry or report

All of it runs in the loop's thread by callbacks: no task, future or lock per URL. A host goes back to the heap when
its request has ended, under the time that its delay allows.

A host is begun when none that is begun is ready, those with most URLs first, and it is freed when its URLs are done
and its delay is over: so a run holds the state of some hundred hosts, however many its batch has.

A request takes one of `fetch.connections` slots until it has ended, or turned out slow (`lane`).
"""

import asyncio
import math
from collections.abc import Callable, Sequence
from functools import partial

from crawl_lib.config import FetchConfig, RetryConfig
from crawl_lib.fetch.dispatch import Caller, Dispatch, Seams
from crawl_lib.fetch.hosts import Gate, Host, Hosts, Job
from crawl_lib.fetch.hoststore import HostStore
from crawl_lib.fetch.transport import Alarm
from crawl_lib.fetch.turns import Turns
from crawl_lib.records import TakenUrl
from crawl_lib.states import Outcome
from crawl_lib.urls import authority_of, host_of

TICK_S = 0.05
SAVE_INTERVAL_S = 5.0
_PUMP_S = 0.05


async def fetch_all(
    items: Sequence[TakenUrl],
    *,
    config: FetchConfig,
    retry: RetryConfig,
    store: HostStore,
    turns: Turns,
    caller: Caller,
    seams: Seams | None = None,
) -> int:
    """Fetch URLs (canonical), each reported once with its outcome; a host's URLs start in the order given.

    `store`, `turns`: shared by the node's processes. Once `caller` closes the run, what is in flight ends within
    `fetch.time_limit_s`, or twice that where bodies had to pause. Returns how many URLs were not reported: they were
    not fetched to an end, and the caller defers them.
    Whatever `caller` raises ends the loop and is raised here, after connections are closed and the
    hosts' times are saved. Raises StorageError if `store` cannot be written.
    """
    seams = seams or Seams()
    return await _Run(Hosts(config, retry, store, seams.clock, seams.wall), turns, caller, seams).run(items)


class _Run:
    """The state of one `fetch_all`."""

    def __init__(self, hosts: Hosts, turns: Turns, caller: Caller, seams: Seams) -> None:
        self.hosts = hosts
        self.caller = caller
        self.clock = hosts.clock
        self.loop = asyncio.get_running_loop()
        self.closing = False
        self.over = self.loop.create_future()
        self.wake = Alarm(self.loop, self.act)
        self.ticker = Alarm(self.loop, partial(self.act, self._tick))
        self.saved_at = self.clock()
        self.dispatch = Dispatch(hosts, turns, caller, seams, act=self.act, fail=self.fail)

    async def run(self, items: Sequence[TakenUrl]) -> int:
        self.unbegun = _by_host(items)
        try:
            self.dispatch.left = len(items)
            self.act(self._tick)
            await self.over
        finally:
            self.ticker.cancel()
            self.wake.cancel()
            self.over.cancel()
            self.dispatch.close()
            self.hosts.save()
        return self.dispatch.left

    # -- from outside ---------------------------------------------------------------------------------------------

    def fail(self, error: BaseException) -> None:
        """End the loop with an error."""
        if not self.over.done():
            self.over.set_exception(error)

    def act(self, change: Callable[[], None] = lambda: None) -> None:
        """Make a change, then start what is ready. An error ends the loop."""
        if self.over.done():
            return
        try:
            change()
            self._pump()
        except BaseException as error:
            self.fail(error)

    def _tick(self) -> None:
        """Ask the caller whether to go on; every few seconds write down what is known of hosts.

        What follows is to start what is ready: a name, or a request, that turned out slow has made room for another.
        """
        self.ticker.by(self.loop.time() + TICK_S)
        if self.caller.stop():
            self._finish()
        self.closing = self.closing or self.caller.close()
        if self.clock() - self.saved_at >= SAVE_INTERVAL_S:
            self.saved_at = self.clock()
            self.hosts.save()
            for site in self.hosts.free():
                self.dispatch.robots.forget(site)

    def _finish(self) -> None:
        if not self.over.done():
            self.over.set_result(None)

    # -- choosing -------------------------------------------------------------------------------------------------

    def _begin(self) -> bool:
        """Begin another host, if there is one and it would not wait for others."""
        if not self.unbegun or self.dispatch.dns.is_busy:
            return False
        jobs = []
        for taken in reversed(self.unbegun.pop()):
            url = taken.queued.url
            jobs.append(Job(url, self.hosts.site(authority_of(url)), taken))
        host = self.hosts.host(jobs[0].site.host)
        host.pages = jobs
        self.hosts.schedule(host)
        return True

    def _pump(self) -> None:
        """Start what is ready, as far as slots are free; then sleep until more is."""
        most = self.dispatch.most_in_flight()
        began = now = self.clock()
        while not self.closing and not self.over.done() and self.dispatch.in_flight < most:
            item = self.hosts.pop(now)
            if item is None:
                now = self.clock()
                item = self.hosts.pop(now)
            if item is None and not self._begin():
                break
            if isinstance(item, Gate):
                self.dispatch.open(item)
            elif item is not None:
                self._serve(item, now)
            if self.clock() - began > _PUMP_S:
                self.loop.call_soon(self.act)
                return
        when = self.hosts.next_at()
        if when < math.inf and not self.closing and self.dispatch.in_flight < most:
            self.wake.by(self.loop.time() + max(0.001, when - self.clock()))
        if not self.dispatch.left or (self.closing and not self.dispatch.in_flight):
            self._finish()

    def _serve(self, host: Host, now: float) -> None:
        job = self._choose(host, now)
        if job is not None:
            self.dispatch.send(host, job, now)
        self.hosts.schedule(host)

    def _choose(self, host: Host, now: float) -> Job | None:
        """The host's next request. Reports the URLs before it that need none."""
        if host.urgent:
            return host.urgent.pop(0)
        began = self.clock()
        while (job := host.next_page(now)) is not None:
            end = host.ending
            if end is None and job.taken is not None and (error := self.caller.objection(job.taken)):
                end = (Outcome.FILTERED, error)
            if end is None:
                rules = self.dispatch.robots.rules_of(job.site)
                if rules is None:
                    host.pages.append(job)
                    if wait_s := self.dispatch.robots_pace.wait_s(host):
                        host.not_before = now + wait_s
                        return None
                    return self.dispatch.robots.job(host, job.site)
                end = rules.refusal
                if end is None:
                    if rules.allows(job.url):
                        return job
                    end = (Outcome.ROBOTS_DENIED, "")
            self.dispatch.end(job, *end)
            if self.over.done() or self.clock() - began > _PUMP_S:
                return None
        return None


def _by_host(items: Sequence[TakenUrl]) -> list[list[TakenUrl]]:
    """The URLs of each host. Hosts are begun from the end: most URLs first, else in batch order."""
    hosts: dict[str, list[TakenUrl]] = {}
    for taken in items:
        hosts.setdefault(host_of(taken.queued.url), []).append(taken)
    return sorted(hosts.values(), key=len, reverse=True)[::-1]
