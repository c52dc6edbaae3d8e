"""The crawl loop of one process: URLs in, fetches out, politely.

    items -> slot of the host -> [ready heap] -> robots.txt -> address -> turn of the IP -> transport -> retry or report

All of it runs in the loop's thread by callbacks: no task, future or lock per URL. A slot goes back to the heap when
its request has ended, under the time that its delay allows.

A host is begun when none that is begun is ready, those with most URLs first, and its slot is freed when its URLs are
done and its delay is over: so a run holds the state of some hundred hosts, however many its batch has.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable, Sequence

from crawl_lib.config import FetchConfig
from crawl_lib.fetch.answers import Answers
from crawl_lib.fetch.book import HostBook
from crawl_lib.fetch.desk import RobotsDesk
from crawl_lib.fetch.dispatch import Dispatch
from crawl_lib.fetch.hosts import Gate, Job, ReadyHeap, Slot, authority_end
from crawl_lib.fetch.hoststore import HostStore
from crawl_lib.fetch.messages import Reply
from crawl_lib.fetch.seams import FetchSummary, Seams
from crawl_lib.fetch.turns import IpTurns
from crawl_lib.records import Fetched, TakenUrl
from crawl_lib.states import Outcome
from crawl_lib.urls import host_of

TICK_S = 0.05
SAVE_INTERVAL_S = 5.0
PROGRESS_INTERVAL_S = 1.0
_PUMP_S = 0.05


async def fetch_all(
    items: Sequence[TakenUrl],
    *,
    config: FetchConfig,
    version: str,
    hosts: HostStore,
    turns: IpTurns,
    stop: Callable[[], bool],
    deadline_s: float,
    on_fetched: Callable[[TakenUrl, Fetched], None],
    on_robots: Callable[[Fetched], None],
    on_progress: Callable[[FetchSummary], None] | None = None,
    close: Callable[[], bool] | None = None,
    seams: Seams | None = None,
) -> FetchSummary:
    """Fetch URLs, each reported once by `on_fetched` with its final outcome; a host's URLs start in the order given.

    `items`: canonical URLs. `version`: of Krake, for the User-Agent. `hosts`, `turns`: shared by the node's processes.
    `stop`: asked every 50 ms; True abandons what is in flight at once. `deadline_s`: on the monotonic clock; from then
    on nothing starts, and what is in flight ends (within `fetch.time_limit_s`, or twice that where bodies had to
    pause). `close`: asked as often as `stop`; True is an early deadline. URLs that are not reported then were not
    fetched to an end; the caller defers them.
    `on_robots`: each answer to, or final failure of, a robots.txt request, each redirect hop by itself.
    `on_progress`: about every second.
    Returns the counts. Whatever a callback raises ends the loop and is raised here, after connections are closed and
    the hosts' times are saved. Raises StorageError if `hosts` cannot be written.
    """
    work = _Work(
        config=config, hosts=hosts, turns=turns, on_fetched=on_fetched, on_robots=on_robots, seams=seams or Seams()
    )
    closes = close or (lambda: False)
    return await work.run(items, version, stop, lambda: work.clock() >= deadline_s or closes(), on_progress)


class _Work:
    """The state of one `fetch_all`."""

    def __init__(
        self,
        *,
        config: FetchConfig,
        hosts: HostStore,
        turns: IpTurns,
        on_fetched: Callable[[TakenUrl, Fetched], None],
        on_robots: Callable[[Fetched], None],
        seams: Seams,
    ) -> None:
        self.config = config
        self.turns = turns
        self.clock = seams.clock
        self.seams = seams
        self.loop = asyncio.get_running_loop()
        self.summary = FetchSummary()
        self.book = HostBook(config, hosts, seams.clock, seams.wall)
        self.heap = ReadyHeap()
        self.unbegun: list[list[TakenUrl]] = []
        self.closing = False
        self.over = self.loop.create_future()
        self.wake: asyncio.TimerHandle | None = None
        self.wake_at = 0.0
        self.dispatch: Dispatch
        self.desk = RobotsDesk(
            config,
            hosts,
            wall=seams.wall,
            site_of=self.book.site,
            slot_of=self.book.slot,
            schedule=self.schedule,
            on_robots=on_robots,
        )
        self.answers = Answers(
            config, turns=turns, seams=seams, summary=self.summary, desk=self.desk, on_fetched=on_fetched
        )

    async def run(
        self,
        items: Sequence[TakenUrl],
        version: str,
        stop: Callable[[], bool],
        close: Callable[[], bool],
        on_progress: Callable[[FetchSummary], None] | None,
    ) -> FetchSummary:
        carrier = self.seams.carrier(self.config, version, self.fail)
        self.dispatch = Dispatch(
            self.config,
            turns=self.turns,
            seams=self.seams,
            heap=self.heap,
            transport=carrier,
            answers=self.answers,
            crew=self,
        )
        ticker: asyncio.Task[None] | None = None
        try:
            self._fill(items)
            self.summary.left = len(items)
            ticker = self.loop.create_task(self._tick(stop, close, on_progress))
            self.guarded(self.pump)
            await self.over
        finally:
            if ticker is not None:
                ticker.cancel()
            if self.wake is not None:
                self.wake.cancel()
            self.over.cancel()
            self.dispatch.close()
            for slot in self.book.slots.values():
                if slot.in_flight:
                    self.answers.rest(slot)  # abandoned: the server may be busy with it still
            self.book.save()
        self.summary.in_flight = 0
        return self.summary

    # -- from outside ---------------------------------------------------------------------------------------------

    def fail(self, error: BaseException) -> None:
        """End the loop with an error."""
        if not self.over.done():
            self.over.set_exception(error)

    def guarded(self, call: Callable[[], None]) -> None:
        """Make a call whose error ends the loop."""
        try:
            call()
        except BaseException as error:
            self.fail(error)

    async def _tick(
        self, stop: Callable[[], bool], close: Callable[[], bool], on_progress: Callable[[FetchSummary], None] | None
    ) -> None:
        saved = told = self.clock()
        try:
            while not self.over.done():
                now = self.clock()
                if stop():
                    self.summary.stopped = True
                    self._finish()
                    return
                if not self.closing and close():
                    self.closing = self.summary.deadline = True
                    self._look_whether_over()
                if now - saved >= SAVE_INTERVAL_S:
                    saved = now
                    self.book.save()
                    for site in self.book.free():
                        self.desk.forget(site)
                if self.unbegun:
                    self.guarded(self.pump)  # a name that turned out slow has made room for another one
                if on_progress is not None and now - told >= PROGRESS_INTERVAL_S:
                    told = now
                    self.summary.in_flight = self.dispatch.in_flight
                    on_progress(self.summary)
                await asyncio.sleep(TICK_S)
        except Exception as error:
            self.fail(error)

    def is_over(self) -> bool:
        """Whether the loop has ended."""
        return self.over.done()

    def _finish(self) -> None:
        if not self.over.done():
            self.over.set_result(None)

    def _look_whether_over(self) -> None:
        if not self.summary.left or (self.closing and not self.dispatch.in_flight):
            self._finish()

    # -- hosts ----------------------------------------------------------------------------------------------------

    def _fill(self, items: Sequence[TakenUrl]) -> None:
        hosts: dict[str, list[TakenUrl]] = {}
        for taken in items:
            hosts.setdefault(host_of(taken.queued.url), []).append(taken)
        self.unbegun = list(hosts.values())
        self.unbegun.reverse()  # they are begun from the end: most URLs first, else in batch order
        self.unbegun.sort(key=len)

    def _begin(self) -> bool:
        """Make the slot of another host, if there is one and it would not wait for others."""
        if not self.unbegun or not self.dispatch.may_begin:
            return False
        jobs = []
        for taken in reversed(self.unbegun.pop()):
            url = taken.queued.url
            jobs.append(Job(url, self.book.site(url[: authority_end(url)]), taken))
        slot = self.book.slot(jobs[0].site.host)
        slot.pages = jobs
        self.schedule(slot)
        return True

    def schedule(self, slot: Slot) -> None:
        """Put a slot into the heap if it has something to do and may do it beside what it does already."""
        limit = slot.connections if slot.owed_s() == 0 else 1
        if slot.in_heap or slot.in_flight >= limit:
            return
        when = slot.wanted_at()
        if when is not None:
            self.heap.push(slot, when)

    # -- choosing -------------------------------------------------------------------------------------------------

    def pump(self) -> None:
        """Start what is ready, as far as connections are free; then sleep until more is."""
        began = now = self.clock()
        while not self.closing and not self.over.done() and self.dispatch.in_flight < self.config.connections:
            item = self.heap.pop(now)
            if item is None:
                now = self.clock()
                item = self.heap.pop(now)
            if item is None and not self._begin():
                break
            if isinstance(item, Gate):
                self.dispatch.open(item)
            elif item is not None:
                self._serve(item, now)
            if self.clock() - began > _PUMP_S:
                self.loop.call_soon(self.guarded, self.pump)
                return
        self._sleep()
        self._look_whether_over()

    def _sleep(self) -> None:
        when = self.heap.next_at()
        if when is None or self.closing or self.dispatch.in_flight >= self.config.connections:
            return
        if self.wake is not None:
            if self.wake_at <= when:
                return
            self.wake.cancel()
        self.wake_at = when
        self.wake = self.loop.call_later(max(0.001, when - self.clock()), self._woken)

    def _woken(self) -> None:
        self.wake = None
        self.guarded(self.pump)

    def _serve(self, slot: Slot, now: float) -> None:
        job = self._choose(slot, now)
        if job is not None:
            self.dispatch.send(slot, job, now)
        self.schedule(slot)

    def _choose(self, slot: Slot, now: float) -> Job | None:
        """The slot's next request. Reports the URLs before it that need none."""
        if slot.parked:
            return slot.parked.pop(0)
        if slot.errands:
            return slot.errands.pop(0)
        began = self.clock()
        while (job := self._next_page(slot, now)) is not None:
            end = slot.ending
            if end is None:
                rules = self.desk.rules_of(job.site)
                if rules is None:
                    slot.pages.append(job)
                    return self.desk.job(slot, job.site)
                end = rules.refusal
                if end is None:
                    if rules.allows(job.url):
                        return job
                    end = (Outcome.ROBOTS_DENIED, "")
            self.answers.end(job, *end)
            if self.over.done() or self.clock() - began > _PUMP_S:
                return None
        return None

    def _next_page(self, slot: Slot, now: float) -> Job | None:
        if slot.waits_for is not None and slot.ending is None:
            return None
        if slot.later and (slot.later[0][0] <= now or slot.ending):
            return heapq.heappop(slot.later)[2]
        return slot.pages.pop() if slot.pages else None

    # -- answers --------------------------------------------------------------------------------------------------

    def replied(self, slot: Slot, job: Job, reply: Reply) -> None:
        """An answer, or a failure, of a request that was sent."""
        try:
            self.dispatch.in_flight -= 1
            self.answers.take(slot, job, reply)
            self.schedule(slot)
            self.pump()
        except BaseException as error:
            self.fail(error)
