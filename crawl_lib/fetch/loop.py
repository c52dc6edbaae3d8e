"""The crawl loop of one process: URLs in, fetches out, politely.

    items -> their host -> [ready heap] -> robots.txt -> address -> turn of the IP -> transport -> retry or report

All of it runs in the loop's thread by callbacks: no task, future or lock per URL. After the end of a request, its host
goes back to the heap, under the time after the delay.

A host is begun when none that is begun is ready, those with most URLs first, and it is freed when its URLs are done
and its delay is over: so a run holds the state of some hundred hosts, however many its batch has.

A request takes one of `fetch.connections` slots until its end, or until the request is slow (`lane`).

`fetch_all` ends with the last of the given URLs. A `LiveRun` takes URLs one by one until it is closed.
"""

import asyncio
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Protocol

from crawl_lib.config import FetchConfig, RetryConfig
from crawl_lib.dataclass import dataclass
from crawl_lib.fetch.classify import Failure
from crawl_lib.fetch.dispatch import Caller, Dispatch, Seams
from crawl_lib.fetch.hosts import NO_LIMITS, Host, Hosts, IpGate, Job, Limits, Rank, row_of_host
from crawl_lib.fetch.hoststore import HostState, HostStore
from crawl_lib.fetch.retry import LIVE_RETRIES, RETRIES, Retry
from crawl_lib.fetch.transport import Alarm
from crawl_lib.fetch.turns import Turns
from crawl_lib.records import Fetched, TakenUrl
from crawl_lib.states import Outcome
from crawl_lib.urls import authority_of, host_of

TICK_S = 0.05
SAVE_INTERVAL_S = 5.0
_PUMP_S = 0.05
_MOST_TOLD = 20_000
_CANCELLED = Outcome.FILTERED, "cancelled"


async def fetch_all(
    items: Sequence[TakenUrl],
    *,
    config: FetchConfig,
    retry: RetryConfig,
    store: HostStore,
    turns: Turns,
    caller: Caller,
    retries: Mapping[Failure, Retry] = RETRIES,
    seams: Seams | None = None,
) -> int:
    """Fetch canonical URLs, and report each URL once with its outcome.

    A host's URLs start in the order given.

    `store`, `turns`: shared by the node's processes. `retries`: actions after each failure. Once `caller` closes the
    run, requests in flight end within `fetch.time_limit_s`, or twice this time if bodies had to pause. Returns how many
    URLs were not reported: they were not fetched to an end, and the caller defers them. Whatever `caller` raises ends
    the loop and is raised here, after connections are closed and the hosts' times are saved. Raises StorageError if
    `store` cannot be written.
    """
    seams = seams or Seams()
    hosts = Hosts(config, retry, store, seams.clock, seams.wall)
    return await _Run(hosts, turns, caller, seams, retries).run(items)


class _Run:
    """The state of one `fetch_all`."""

    def __init__(
        self,
        hosts: Hosts,
        turns: Turns,
        caller: Caller,
        seams: Seams,
        retries: Mapping[Failure, Retry],
        *,
        may_send: Callable[[str], bool] | None = None,
    ) -> None:
        self.hosts = hosts
        self.caller = caller
        self.clock = hosts.clock
        self.loop = asyncio.get_running_loop()
        self.closing = False
        self.over = self.loop.create_future()
        self.wake = Alarm(self.loop, self.act)
        self.ticker = Alarm(self.loop, partial(self.act, self._tick))
        self.saved_at = self.clock()
        self.unbegun: list[list[TakenUrl]] = []
        self.dispatch = Dispatch(
            hosts,
            turns,
            caller,
            seams,
            retries=retries,
            act=self.act,
            fail=self.fail,
            may_send=may_send,
        )

    async def run(self, items: Sequence[TakenUrl]) -> int:
        self.unbegun = _by_host(items)
        try:
            self.dispatch.left += len(items)
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
        """Make a change, then start ready requests.

        An error ends the loop.
        """
        if self.over.done():
            return
        try:
            change()
            self._pump()
        except BaseException as error:
            self.fail(error)

    def _tick(self) -> None:
        """Ask the caller whether to go on; save hosts now and then.

        Then ready requests start: a slow name or request has freed its slot.
        """
        self.ticker.by(self.loop.time() + TICK_S)
        if self.caller.stop():
            self._finish()
        self.closing = self.closing or self.caller.close()
        if self.clock() - self.saved_at >= SAVE_INTERVAL_S:
            self.saved_at = self.clock()
            self._save()

    def _save(self) -> None:
        self.hosts.save()
        for site in self.hosts.free():
            self.dispatch.robots.forget(site)

    def _finish(self) -> None:
        if not self.over.done():
            self.over.set_result(None)

    # -- choosing -------------------------------------------------------------------------------------------------

    def _begin(self) -> bool:
        """Begin another host, if its name need not wait for others."""
        if not self.unbegun or self.dispatch.dns.is_busy:
            return False
        items = self.unbegun.pop()
        host = self.hosts.host(host_of(items[0].queued.url))
        for taken in items:
            url = taken.queued.url
            host.pages.append(Job(url, self.hosts.site(authority_of(url)), taken))
        self.hosts.schedule(host)
        return True

    def _pump(self) -> None:
        """Start ready requests while slots are free; then sleep."""
        most = self.dispatch.most_in_flight()
        began = now = self.clock()
        while not self.closing and not self.over.done() and self.dispatch.in_flight < most:
            item = self.hosts.pop(now)
            if item is None:
                now = self.clock()
                item = self.hosts.pop(now)
            if item is None and not self._begin():
                break
            if isinstance(item, IpGate):
                self.dispatch.open(item)
            elif item is not None:
                self._serve(item, now)
            if self.clock() - began > _PUMP_S:
                self.loop.call_soon(self.act)
                return
        when = self.hosts.next_at()
        if when < math.inf and not self.closing and self.dispatch.in_flight < most:
            self.wake.by(self.loop.time() + max(0.001, when - self.clock()))
        if self._is_over():
            self._finish()

    def _is_over(self) -> bool:
        return not self.dispatch.left or (self.closing and not self.dispatch.in_flight)

    def _serve(self, host: Host, now: float) -> None:
        self.hosts.reopen(host)
        job = self._choose(host, now)
        if job is not None:
            self.dispatch.send(host, job, now)
        self.hosts.schedule(host)

    def _ending(self, host: Host, job: Job) -> tuple[Outcome, str] | None:
        """Say how a page ends before its robots.txt is requested.

        None: the page is to be fetched.
        """
        if job.is_cancelled:
            return _CANCELLED  # no caller hears of this
        if (
            host.ending is None
            and job.taken is not None
            and (error := self.caller.objection(job.taken))
        ):
            return Outcome.FILTERED, error
        return host.ending

    def _choose(self, host: Host, now: float) -> Job | None:
        """Return a host's next request.

        URLs on the way that need no request are reported.
        """
        if host.urgent:
            return host.urgent.pop(0)
        began = self.clock()
        while (job := host.next_page(now)) is not None:
            end = self._ending(host, job)
            if end is None:
                rules = self.dispatch.robots.rules_of(job.site)
                if rules is None:
                    host.pages.appendleft(job)
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


class LiveCaller(Protocol):
    """The receiver of a `LiveRun`'s answers. An exception of a method ends the run."""

    def on_fetched(self, taken: TakenUrl, fetched: Fetched) -> None:
        """Take a URL's outcome and `retry_at`, once for each URL.

        The call never comes before `submit` has returned.
        """

    def on_robots(self, fetched: Fetched) -> None:
        """Take an answer for robots.txt, or the last try's failure."""


class LiveRun(_Run):
    """A run without an end: URLs join until `close`. All methods belong to the loop's thread.

    URLs are served in the turns of their hosts, with the same delays as in `fetch_all`: targets of redirects come
    first, then new URLs, then URLs of lower priority. A host that gave up ends new URLs at once until the host's
    back-off is over; a host without an address does so for at most `fetch.dns_ttl_s`.
    """

    def __init__(
        self,
        *,
        config: FetchConfig,
        retry: RetryConfig,
        store: HostStore,
        turns: Turns,
        caller: LiveCaller,
        retries: Mapping[Failure, Retry] = LIVE_RETRIES,
        seams: Seams | None = None,
        may_send: Callable[[str], bool] | None = None,
    ) -> None:
        """Make a run on the current event loop.

        `store`, `turns`, `retries`: as in `fetch_all`; `may_send`: as in `Dispatch`. Raises StorageError if `store`
        cannot be read.
        """
        seams = seams or Seams()
        self._jobs: dict[int, Job] = {}
        self._waiting: Counter[str] = Counter()
        self._told: dict[str, object] = {}
        hosts = Hosts(config, retry, store, seams.clock, seams.wall, is_live=True)
        super().__init__(
            hosts, turns, _OfLiveRun(caller, self._reported), seams, retries, may_send=may_send
        )

    async def run_until_closed(self) -> int:
        """Serve URLs until `close`, then finish requests; return unreported URLs' number.

        Raises exceptions of the caller, after connections are closed and the hosts' times are saved; StorageError if
        the store cannot be written.
        """
        return await self.run(())

    def submit(self, taken: TakenUrl, later: bool = False, limits: Limits = NO_LIMITS) -> None:
        """Have a URL (canonical) fetched once.

        `taken`: the `position` is the caller's number, unique among waiting URLs; `redirects` above 0 mark the target
        of a redirect. `later`: serve the URL after all others of the host. `limits`: of this URL. Raises ValueError for
        a number in use.
        """
        if taken.position in self._jobs:
            raise ValueError(f"{taken.queued.url}: URL number {taken.position} is waiting already")
        self.act(partial(self._submit, taken, later, limits))

    def _submit(self, taken: TakenUrl, later: bool, limits: Limits) -> None:
        url = taken.queued.url
        site = self.hosts.site(authority_of(url))
        host = self.hosts.host(site.host)
        job = Job(url, site, taken, limits=limits)
        job.rank = Rank.LATER if later else Rank.HOP if taken.queued.redirects else Rank.NEW
        self._jobs[taken.position] = job
        self._waiting[host.name] += 1
        self.dispatch.left += 1
        self.hosts.reopen(host)
        if host.ending is not None:
            self.loop.call_soon(self.act, partial(self.dispatch.end, job, *host.ending))
        else:
            host.pages.append(job)
            self.hosts.schedule(host)

    def cancel(self, position: int) -> bool:
        """Drop a URL, unless its request was sent; return whether it was.

        A dropped URL is not reported.
        """
        job = self._jobs.get(position)
        if job is None or job.is_sent:
            return False
        job.is_cancelled = True
        self.dispatch.left -= 1
        self._forget(position, job)
        self.hosts.host(job.site.host).pages.forget_cancelled()
        return True

    def waiting(self, host: str) -> int:
        """Return the number of a host's unreported URLs."""
        return self._waiting.get(host, 0)

    def learn(self, authority: str, state: HostState | None) -> None:
        """Adopt an earlier fetcher's facts about an authority's host.

        None: nothing is known. `news` reports the host again.
        """
        self._told.pop(authority, None)
        if state is None:
            return
        self.hosts.learn(state)
        site, robots = self.hosts.begun_site(authority), state.robots
        if (
            site is not None
            and site.rules is not None
            and robots is not None
            and site.rules.expires < robots.expires
        ):
            self.dispatch.robots.forget(site)

    def set_limits(self, config: FetchConfig, is_blocked: Callable[[str], bool]) -> None:
        """Apply changed entries of `fetch.hosts`.

        URLs of a blocked host end at once as `filtered`.
        """
        self.act(partial(self.hosts.set_limits, config, is_blocked))

    def news(self, authority: str) -> HostState | None:
        """Return the state of an authority's host if it has changed.

        Changes since the last call count.
        """
        host, site = (
            self.hosts.begun.get(host_of(f"{authority}/")),
            self.hosts.begun_site(authority),
        )
        if host is None or site is None:
            return None
        mark = host.delay_s, host.back_off, site.rules and site.rules.expires
        if self._told.get(authority) == mark:
            return None
        self._told[authority] = mark
        if len(self._told) > _MOST_TOLD:
            del self._told[next(iter(self._told))]
        row = row_of_host(host)._replace(last_end=self.hosts.wall())
        return HostState(row, host.back_off, self.hosts.store.robots(authority))

    def close(self) -> None:
        """Start no more requests, and end after the requests in flight.

        Requests in flight end within their time limits, and are reported.
        """
        self.closing = True
        self.act()

    def _forget(self, position: int, job: Job) -> None:
        del self._jobs[position]
        self._waiting[job.site.host] -= 1
        if not self._waiting[job.site.host]:
            del self._waiting[job.site.host]

    def _is_over(self) -> bool:
        return self.closing and not self.dispatch.in_flight

    def _save(self) -> None:
        super()._save()
        self.dispatch.robots_pace.forget()

    def _reported(self, taken: TakenUrl) -> None:
        self._forget(taken.position, self._jobs[taken.position])


@dataclass(frozen=True)
class _OfLiveRun:
    """The `Caller` of a live run's loop. `reported`: has the run forget a URL."""

    caller: LiveCaller
    reported: Callable[[TakenUrl], None]

    def on_fetched(self, taken: TakenUrl, fetched: Fetched) -> None:
        self.reported(taken)
        self.caller.on_fetched(taken, fetched)

    def on_robots(self, fetched: Fetched) -> None:
        self.caller.on_robots(fetched)

    def objection(self, _taken: TakenUrl) -> str:
        return ""  # the submitter of a URL has asked the rules

    def stop(self) -> bool:
        return False

    def close(self) -> bool:
        return False


def _by_host(items: Sequence[TakenUrl]) -> list[list[TakenUrl]]:
    """Group URLs by host.

    Hosts are begun from the end of the list: most URLs first, otherwise in batch order.
    """
    hosts: dict[str, list[TakenUrl]] = {}
    for taken in items:
        hosts.setdefault(host_of(taken.queued.url), []).append(taken)
    return sorted(hosts.values(), key=len, reverse=True)[::-1]
