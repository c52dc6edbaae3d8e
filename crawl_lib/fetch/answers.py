"""What an answer, or its failure, does: its URL is reported, or tried again; its host rests, or is given up."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from itertools import count

from crawl_lib.config import FetchConfig
from crawl_lib.fetch.classify import failure_of, fetched_of, one_line, retry_after_s
from crawl_lib.fetch.desk import RobotsDesk
from crawl_lib.fetch.hosts import Job, Slot
from crawl_lib.fetch.messages import Reply
from crawl_lib.fetch.retry import HOST_GIVES_UP_AFTER, Retry, Scope
from crawl_lib.fetch.seams import FetchSummary, Seams
from crawl_lib.fetch.turns import IpTurns
from crawl_lib.records import Fetched, TakenUrl
from crawl_lib.states import Outcome


class Answers:
    """The answers of one run, counted in `summary`. All methods belong to the loop's thread.

    `desk`: gets those to robots.txt. `on_fetched`: gets each URL once, with its final outcome.
    """

    def __init__(
        self,
        config: FetchConfig,
        *,
        turns: IpTurns,
        seams: Seams,
        summary: FetchSummary,
        desk: RobotsDesk,
        on_fetched: Callable[[TakenUrl, Fetched], None],
    ) -> None:
        self._max_wait_s = config.max_crawl_delay_s
        self._factor = config.adaptive_delay_factor or 0.0
        self._turns = turns
        self._clock = seams.clock
        self._wall = seams.wall
        self._retries = seams.retries
        self._summary = summary
        self._desk = desk
        self._on_fetched = on_fetched
        self._numbers = count()

    def take(self, slot: Slot, job: Job, reply: Reply) -> None:
        """An answer, or a failure, of a request that was sent."""
        slot.in_flight -= 1
        job.tries += 1
        self._summary.requests += reply.sent
        self._summary.body_bytes += len(reply.body)
        fetched = fetched_of(job.url, reply, job.tries)
        row = self._retries[failure_of(fetched, reply)]
        self._note_host(slot, fetched, row)
        if job.tries < row.max_tries and slot.ending is None:
            self.put_back(slot, job, row, self._wait_s(row, fetched))
        elif job.robots_for is not None:
            self._summary.robots += 1
            self._desk.answered(job, fetched)
        else:
            self._report(job, fetched)
        self.rest(slot, reply.duration_s)

    def end(self, job: Job, outcome: Outcome, error: str) -> None:
        """Report a page that is not asked for (again)."""
        self._report(job, Fetched(job.url, self._wall(), outcome, attempts=job.tries, error=error))

    def unsendable(self, slot: Slot, job: Job, outcome: Outcome, error: str) -> None:
        """Nothing can be sent to this host: all its URLs end like this one."""
        fetched = Fetched(job.url, self._wall(), outcome, attempts=0, error=error)
        slot.ending = (outcome, error)
        if job.robots_for is not None:
            self._desk.answered(job, fetched)
        else:
            self._report(job, fetched)

    def put_back(self, slot: Slot, job: Job, row: Retry, wait_s: float) -> None:
        """Try again later: the host's next request, or, if it is the URL's trouble alone, beside the others."""
        self._summary.retries += 1
        when = self._clock() + wait_s
        if row.scope is Scope.URL and job.taken is not None:
            heapq.heappush(slot.later, (when, next(self._numbers), job))
            return
        slot.parked.append(job)
        slot.not_before = max(slot.not_before, when)

    def rest(self, slot: Slot, answer_s: float | None = None) -> None:
        """The host's delay begins. `answer_s`: how long its last answer, or failure, took; None: it was abandoned."""
        slot.ended_at = self._clock()
        slot.asked = self._wall()
        slot.changed = True
        if answer_s is not None:
            slot.rest_s = min(self._factor * answer_s, self._max_wait_s)
        if slot.owed_s() > 0:
            self._turns.put(f"host {slot.host}", slot.owed_s())

    def _report(self, job: Job, fetched: Fetched) -> None:
        assert job.taken is not None
        self._summary.left -= 1
        self._summary.outcomes[fetched.outcome] += 1
        self._on_fetched(job.taken, fetched)

    def _note_host(self, slot: Slot, fetched: Fetched, row: Retry) -> None:
        """Count failures that are the host's, and give it up after too many."""
        if not row.counts:
            slot.failures = 0
            return
        slot.failures += 1
        if len(slot.addresses) > 1:
            slot.address_turn += 1
            slot.address = slot.addresses[slot.address_turn % len(slot.addresses)]
        if slot.failures >= HOST_GIVES_UP_AFTER and slot.ending is None:
            slot.ending = (Outcome.HOST_GAVE_UP, one_line(f"after {slot.failures} failed tries: {fetched.error}"))

    def _wait_s(self, row: Retry, fetched: Fetched) -> float:
        if fetched.status in (429, 503):
            return max(row.wait_s, min(retry_after_s(fetched.head), self._max_wait_s))
        return row.wait_s
