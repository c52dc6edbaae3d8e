"""The scheduler: open URLs, questions to the fetcher, and documents for the table.

The table holds all state worth keeping. The scheduler's memory holds the due URLs, so most URLs need no look into the
queue; `recovery` fills the memory after a start, and after a key server was away. `redirects` hand documents on.
"""

import asyncio
import logging
import math
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, ParamSpec, TypeVar

from msgspec.structs import replace

from crawl_lib.config import Config
from crawl_lib.errors import AwayError, BusyError, KeyStoreError, KrakeError, StoppedError
from crawl_lib.fetch import limits_of
from crawl_lib.realtime.answers import MAX_BARE_BYTES, BareAnswer, Decision
from crawl_lib.realtime.captures import NewestCaptures
from crawl_lib.realtime.documents import Document, Request, decoded, request_of
from crawl_lib.realtime.fetchers import Fetchers
from crawl_lib.realtime.link import FetcherLink
from crawl_lib.realtime.loops import together
from crawl_lib.realtime.pages import Mark, Row, Wish, part_of
from crawl_lib.realtime.probes import Probes
from crawl_lib.realtime.protocol import Done, Rate, Rates, Refused
from crawl_lib.realtime.rates import is_blocked, rated, require_few
from crawl_lib.realtime.recovery import LOOK_S, Recovery
from crawl_lib.realtime.redirects import Redirects
from crawl_lib.realtime.stages import (
    ACCEPTING,
    MOST_TRIES,
    NOT_BEGUN,
    UNAVAILABLE_S,
    WORKING,
    Stage,
    Visit,
)
from crawl_lib.realtime.store import PageStore
from crawl_lib.realtime.submissions import FLUSH_S, SubmissionLine, SubmissionLog
from crawl_lib.states import Outcome
from crawl_lib.urls import UrlFilter, canonicalize, host_of, key_of

QUEUES_S = 0.5
RATES_S = 0.5
BLOCKED_S = 60.0
"""A URL of a blocked host may be submitted again after this time."""
RETRY_S = 0.1
LONGEST_RETRY_S = 2.0
SWEEP_S = 60.0
LAST_TASKS_S = 2.0
MOST_PACES = 20_000
MOST_BARE = 16
"""Bare fetches at once: each may hold an answer of `MAX_BARE_BYTES` in memory."""
LATENCIES_S = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 20.0, 60.0, math.inf)
"""Upper ends of the buckets of latencies, in seconds from the start of the work on a URL to its document."""
_T = TypeVar("_T")
_P = ParamSpec("_P")
log = logging.getLogger(__name__)


class Scheduler:
    """A running service without its API.

    `visits`: due URLs in memory, by key. `pictureless`: keys of rows that stay due until a probe has ended.
    `counts`: outcomes, decisions and problems, for metrics.
    """

    def __init__(
        self,
        config: Config,
        store: PageStore,
        link: FetcherLink | Fetchers,
        submissions: SubmissionLog | None = None,
        captures: NewestCaptures | None = None,
    ) -> None:
        """Take the parts. `captures`: None: visits again refer to no capture.

        Raises ConfigError for unusable rules of the config.
        """
        self.config, self.store, self.link = config.require_realtime(), store, link
        self.submissions, self.captures = submissions or SubmissionLog(), captures
        self.policies = self.config.policies_by_name
        self.filter = UrlFilter(config.urls, [], config.traps)
        self.max_length_chars = config.urls.max_length_chars
        self.max_redirects = config.fetch.max_redirects
        self.visits: dict[bytes, Visit] = {}
        self.pictureless: set[bytes] = set()
        self.probes = Probes(self)
        self.redirects, self.recovery = Redirects(self), Recovery(self)
        self.counts: Counter[str] = Counter()
        self.latencies: Counter[float] = Counter()
        self.latency_s = 0.0
        self.began_s = time.time()
        self.is_stopping = False
        self.rates: tuple[Rate, ...] = ()
        self._config, self._fetch_config = config, config.fetch
        self._hosts: dict[str, dict[bytes, Visit]] = {}
        self._paces: dict[str, float] = {}
        self._reserved: dict[str, Counter[bytes]] = {}
        self._accepting = self._bare = 0
        self._tasks: set[asyncio.Task[Any]] = set()
        self._fetching: set[asyncio.Task[None]] = set()
        self._listeners: set[asyncio.Event] = set()
        self._readers: dict[bytes, list[asyncio.Future[None]]] = {}
        self._queues: Counter[str] = Counter()

    # -- from the start to the stop

    def start(self) -> None:
        """Begin: the fetcher, the recovery of due rows, and the sweep."""
        self._fetching.add(self.spawn(self._run_link()))
        going_on = map(self.recovery.keep_going_on, self.store.places)
        for work in (
            self.recovery.keep_recovering(),
            self._keep_sweeping(),
            self._keep_logging(),
            *going_on,
        ):
            self.spawn(work)
        if self.link.is_shared:
            self.spawn(self._keep_counting())
            self.spawn(self._keep_waking())

    async def _run_link(self) -> None:
        """Run the fetcher.

        It knows the rates of operators from its first request on.
        """
        with suppress(KeyStoreError):
            await self.store.ensure(0)
            await self._take_rates()
        self.spawn(self._keep_rates())
        await self.link.run()

    async def _keep_rates(self) -> None:
        while True:
            await asyncio.sleep(RATES_S)
            with suppress(KeyStoreError):
                await self._take_rates()

    async def _take_rates(self) -> None:
        rates = await self.store.rates()
        if rates != self.rates:
            self.rates, self._fetch_config = rates, rated(self._config.fetch, rates)
            self.link.set_rates(Rates(rates=rates))

    async def set_rate(self, rate: Rate) -> tuple[Rate, ...]:
        """Set the rate of a domain, and return all rates.

        Raises InputError for too many, KeyStoreError.
        """
        require_few(self.rates, rate)
        await self.store.set_rate(rate)
        await self._take_rates()
        return self.rates

    def is_blocked(self, host: str) -> bool:
        """Say whether an operator forbids requests to a host."""
        return bool(self.rates) and is_blocked(self.rates, host)

    async def stop(self) -> None:
        """Stop the scheduler within 10 s, and close everything.

        Requests under way end; all other URLs stay due. The fetcher has its time too: the fetcher's open part is
        closed, ready for `collect`.
        """
        self.is_stopping = True
        await self.link.stop()
        fetching = self._fetching | {visit.task for visit in self.visits.values() if visit.task}
        if fetching:
            await asyncio.wait(fetching, timeout=LAST_TASKS_S + 4)
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=LAST_TASKS_S)
        await self._log_submissions(ends=True)
        await self.store.close()

    def spawn(self, work: Coroutine[Any, Any, _T]) -> "asyncio.Task[_T]":
        """Run work next to everything else; errors are logged."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: "asyncio.Task[Any]") -> None:
        self._tasks.discard(task)
        if (
            not task.cancelled()
            and (error := task.exception())
            and not isinstance(error, StoppedError)
        ):
            log.error("a task of the service failed", exc_info=error)
            self.counts["task_failed"] += 1

    # -- submissions

    @property
    def waiting(self) -> int:
        """The number of URLs in memory, or in the table.

        Other schedulers' URLs are in the table.
        """
        return max(len(self.visits), self._queues.total()) + self._accepting

    async def accept(
        self,
        urls: Sequence[str],
        policy: str,
        max_age_s: float | None = None,
        *,
        token: str = "",
        repeat: str = "",
    ) -> list[Decision]:
        """Submit URLs; return a decision for each.

        Raises BusyError if too many URLs wait, KeyError for the policy.

        `token`: the name of the submitter's token, for the log. `repeat`: a name of the submission; a repeated
        submission with this name counts once.
        """
        chosen, began_s = self.policies[policy], time.time()
        if self.waiting >= self.config.max_waiting:
            raise BusyError("too many URLs wait (realtime.max_waiting)", retry_after_s=2)
        self._accepting += len(urls)
        visits = [Visit(url, chosen, max_age_s, repeat) for url in urls]
        try:
            decisions = await together([self._accept(visit) for visit in visits])
        finally:
            self._accepting -= len(urls)
        self._note(visits, decisions, token, began_s)
        return decisions

    def _note(
        self, visits: Sequence[Visit], decisions: Sequence[Decision], token: str, began_s: float
    ) -> None:
        now_s = time.time()
        began_ms, took_ms = round(1000 * began_s), max(0, round(1000 * (now_s - began_s)))
        self.submissions.note(
            SubmissionLine(began_ms, decision.key, visit.host, token, decision.decision, took_ms)
            for visit, decision in zip(visits, decisions, strict=True)
        )

    async def _accept(self, visit: Visit) -> Decision:
        await self._through(visit, ACCEPTING)
        assert visit.decision is not None
        self.counts[f"decision_{visit.decision.decision}"] += 1
        return visit.decision

    async def _through(self, visit: Visit, way: Sequence[Stage]) -> None:
        for stage in way:
            if not await stage(visit, self):
                return

    def wait_s(self, host: str) -> float:
        """Estimate a new URL's wait on a host, in seconds.

        The estimate is the number of the host's URLs times its pace.
        """
        return round(self._length(host) * self._pace_s(host), 1)

    def _length(self, host: str) -> int:
        """Return how many URLs of a host wait."""
        return max(len(self._hosts.get(host, ())), self._queues[host])

    def is_full(self, host: str, key: bytes = b"") -> bool:
        """Return whether a new URL of a host would wait too long.

        URLs on their way into the table count.
        """
        reserved = self._reserved.get(host, ())
        number = self._length(host) + len(reserved)
        return key not in reserved and number * self._pace_s(host) > self.config.max_wait_s

    @contextmanager
    def reserved(self, host: str, key: bytes) -> Iterator[None]:
        """Count a URL of a host within a block."""
        of_host = self._reserved.setdefault(host, Counter())
        of_host[key] += 1
        try:
            yield
        finally:
            of_host[key] -= 1
            if not of_host[key]:
                del of_host[key]
            if not of_host:
                self._reserved.pop(host, None)

    def _pace_s(self, host: str) -> float:
        delay_s, _ = limits_of(self._fetch_config, host)
        return max(delay_s, self._paces.get(host, 0.0))

    async def submit(self, wish: Wish) -> Row | None:
        """Submit a URL to the table. Raises KeyStoreError."""
        was_open = wish.key in self.visits
        row = await self.store.submit(wish)
        if row is not None and was_open and wish.key not in self.visits:
            row = await self.store.state(
                wish.key
            )  # the document was written after the row was read
        return row

    # -- URLs that are due

    def begin(self, request: Request, row: Row) -> Visit | None:
        """Begin the work on a due row; return its context.

        A row whose work has begun keeps its context. None: another scheduler has the fetcher with the part of the URL.
        """
        if row.key in self.visits:
            return self.visits[row.key]
        if not self.has_host(host_of(request.url)):
            self._queues[host_of(request.url)] += self.link.is_shared
            return None
        visit = Visit(
            request.url, self.policies.get(request.policy, self.policies["default"]), row=row
        )
        visit.set_request(replace(request, hop=None, target=None))
        visit.tries = row.tries
        of_host = self._hosts.setdefault(visit.host, {})
        visit.ahead = len(of_host)
        self.visits[visit.key] = of_host[visit.key] = visit
        visit.task = self.spawn(self._work(visit))
        return visit

    def has_host(self, host: str) -> bool:
        """Say whether a fetcher of this scheduler has the part of a host.

        A row that stays due without its part is found once the part is back, however short the lapse was.
        """
        part = part_of(host)
        if self.link.has(part):
            return True
        self.recovery.turned_away.add(part)
        return False

    async def _work(self, visit: Visit) -> None:
        try:
            await self._through(visit, WORKING)
        finally:
            self.pictureless.discard(visit.key)
            self.end(visit)

    def note_latency(self, visit: Visit) -> None:
        """Count how long a URL took.

        The first bucket with room for the time counts it.
        """
        took_s = time.monotonic() - visit.began_s
        self.latency_s += took_s
        self.latencies[next(end_s for end_s in LATENCIES_S if took_s <= end_s)] += 1

    def end(self, visit: Visit) -> None:
        """Forget a URL after its work."""
        if self.visits.get(visit.key) is not visit:
            return
        del self.visits[visit.key]
        self.recovery.room.set()
        of_host = self._hosts[visit.host]
        del of_host[visit.key]
        if not of_host:
            del self._hosts[visit.host]

    async def ask(self, visit: Visit, before: Document | None) -> Done | Refused:
        """Have the fetcher ask for a URL. Raises FetcherDiedError."""
        request, policy, part = visit.request, visit.policy, part_of(visit.host)
        visit.epoch = await self.epoch(visit.key, part)
        if self.is_blocked(visit.host):
            return _blocked()
        said = await self.link.fetch(
            url=request.url,
            key=visit.key.hex(),
            part=part,
            redirects=request.redirects,
            via=request.via,
            left_s=max(0.1, self.config.give_up_s - request.spent_ms / 1000),
            time_limit_s=policy.time_limit_s,
            max_body_bytes=policy.max_body_bytes,
            mime_types=policy.mime_types,
            etag=before and before.etag,
            last_modified=before and before.last_modified,
            earlier=await self._earlier(before),
        )
        if (
            isinstance(said, Done)
            and said.hop.outcome == Outcome.FILTERED
            and self.is_blocked(visit.host)
        ):
            return _blocked()
        if isinstance(said, Done):
            self.counts[f"outcome_{said.hop.outcome}"] += 1
            self._learn(visit, said)
        return said

    async def epoch(self, key: bytes, part: int) -> int:
        """Return the epoch for what is written into a row.

        The lease on the row's part has an epoch; otherwise this service's epoch counts.
        """
        epoch = await self.link.epoch(part)
        return await self.persistent(self.store.epoch, key) if epoch is None else epoch

    async def _earlier(self, before: Document | None) -> str:
        """Return the last full capture of a page.

        "": no segment has one.
        """
        if before is None or self.captures is None:
            return ""
        return await asyncio.to_thread(self.captures.earlier, before)

    def _learn(self, visit: Visit, done: Done) -> None:
        """Note a host's pace: a URL's wait per URL ahead."""
        if visit.ahead:
            self._paces.pop(visit.host, None)
            self._paces[visit.host] = done.waited_ms / 1000 / visit.ahead
            if len(self._paces) > MOST_PACES:
                del self._paces[next(iter(self._paces))]

    async def may_try_again(self, visit: Visit) -> bool:
        """Return whether to retry a URL after the fetcher died.

        The first URL of a host is suspected: each death of a fetcher counts as a try of that URL.
        """
        if next(iter(self._hosts[visit.host])) == visit.key:
            visit.tries += 1
            await self.persistent(self.store.tried, [visit.key])
        return visit.tries < MOST_TRIES

    async def fetch_bare(self, url: str, policy: str) -> BareAnswer:
        """Fetch a URL without a trace.

        Raises UrlError, BusyError, AwayError, FetcherDiedError, KeyError for the policy.
        """
        chosen = self.policies[policy]
        canonical = canonicalize(url, max_length_chars=self.max_length_chars)
        host = host_of(canonical)
        is_ours, rule = self.filter.verdict(canonical, host, 0)
        if not is_ours:
            return BareAnswer(url=canonical, outcome="refused", error=rule)
        if self.is_full(host) or self.waiting >= self.config.max_waiting or self._bare >= MOST_BARE:
            raise BusyError("the host, or the service, has too many URLs", retry_after_s=2)
        self._bare += 1
        try:
            bare = await self.link.fetch_bare(
                url=canonical,
                key=key_of(canonical).hex(),
                part=part_of(host),
                left_s=self.config.give_up_s,
                time_limit_s=chosen.time_limit_s,
                max_body_bytes=min(chosen.max_body_bytes or MAX_BARE_BYTES, MAX_BARE_BYTES),
            )
        finally:
            self._bare -= 1
        said = bare.said
        if isinstance(said, Refused):
            if said.rule in NOT_BEGUN:
                problem = "no fetcher of this scheduler has the host: another scheduler may have it"
                raise AwayError(problem, retry_after_s=UNAVAILABLE_S)
            return BareAnswer(url=canonical, outcome=said.rule, error=said.reason)
        return BareAnswer(
            url=canonical,
            outcome=said.hop.outcome,
            status=said.hop.status,
            error=said.error,
            redirect_url=said.target.url if said.target else None,
            head=bare.head,
            body=bare.body,
        )

    async def persistent(
        self, call: Callable[_P, Awaitable[_T]], *given: _P.args, **named: _P.kwargs
    ) -> _T:
        """Call the table until an answer comes.

        The URL stays in memory. Raises StoppedError once the service stops.
        """
        pause_s = RETRY_S
        while True:
            try:
                return await call(*given, **named)
            except KeyStoreError as error:
                self.note_problem(error)
            if self.is_stopping:
                raise StoppedError("the row stays as it is, and is due after the next start")
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, LONGEST_RETRY_S)

    def note_problem(self, error: KrakeError) -> None:
        """Count a problem of a key server.

        The server's rows are read again.
        """
        if not self.counts["store_failed"] % 100:
            log.warning("a part of the service is away: %s", error)
        self.counts["store_failed"] += 1
        self.recovery.wanted.set()

    def request_in(self, row: Row) -> Request | None:
        """Return the request of a row, None for a damaged row."""
        try:
            return request_of(row.request)
        except ValueError as error:
            self._note_damage(row, error)
            return None

    def document_in(self, row: Row | None) -> Document | None:
        """Return the document of a row.

        None: the document is missing, or damaged.
        """
        if row is None or row.data is None:
            return None
        try:
            return decoded(row.data)
        except ValueError as error:
            self._note_damage(row, error)
            return None

    def _note_damage(self, row: Row, error: ValueError) -> None:
        self.counts["rows_damaged"] += 1
        log.error("krakepages, key %s: %s: DELETE /v1/pages deletes the row", row.key.hex(), error)

    # -- readers and events

    def changed(self, key: bytes) -> None:
        """Wake the readers of a URL, and the subscribers of events."""
        for future in self._readers.pop(key, ()):
            if not future.done():
                future.set_result(None)
        for listener in self._listeners:
            listener.set()

    def reader(self, key: bytes) -> "asyncio.Future[None]":
        """Return a future for the next document of a URL.

        The reader gives the future back (`leave`).
        """
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._readers.setdefault(key, []).append(future)
        return future

    def leave(self, key: bytes, future: "asyncio.Future[None]") -> None:
        """Wait for a URL no more."""
        left = self._readers.get(key, [])
        if future in left:
            left.remove(future)
            if not left:
                del self._readers[key]

    def listen(self) -> asyncio.Event:
        """Return an event, set by each new document until `unlisten`."""
        listener = asyncio.Event()
        self._listeners.add(listener)
        return listener

    def unlisten(self, listener: asyncio.Event) -> None:
        """Set an event no more."""
        self._listeners.discard(listener)

    async def delete(self, keys: Sequence[bytes]) -> int:
        """Delete rows, and cancel their fetches. Raises KeyStoreError."""
        for key in keys:
            visit = self.visits.get(key)
            if visit is not None and visit.task is not None:
                visit.task.cancel()
        return await self.store.delete(keys)

    # -- while the service runs

    async def _keep_counting(self) -> None:
        """Count each host's waiting URLs, of whichever scheduler."""
        while True:
            with suppress(KeyStoreError):
                counted = await self.store.queues()
                self._queues = Counter[str]()
                for authority, number in counted.items():
                    self._queues[host_of(f"{authority}/")] += number
            await asyncio.sleep(QUEUES_S)

    async def _keep_waking(self) -> None:
        """Wake readers of documents that other schedulers have written."""
        while True:
            for key in list(self._readers):
                with suppress(KeyStoreError):
                    row = await self.store.state(key)
                    if row is None or not row.is_open:
                        self.changed(key)
            await asyncio.sleep(LOOK_S)

    async def _keep_logging(self) -> None:
        while True:
            await asyncio.sleep(FLUSH_S)
            await self._log_submissions()

    async def _log_submissions(self, *, ends: bool = False) -> None:
        try:
            await asyncio.to_thread(self.submissions.flush, ends=ends)
        except OSError as error:
            log.error("submissions wait in memory, since their log cannot be written: %s", error)
        self.counts["submissions_left_out"] = self.submissions.left_out

    async def _keep_sweeping(self) -> None:
        marks = dict.fromkeys(self.store.places, Mark())
        while True:
            await asyncio.sleep(SWEEP_S)
            for place in self.store.places:
                with suppress(KeyStoreError):
                    swept = await self.store.sweep(
                        place, marks[place], math.ceil(self.config.keep_s * 1000)
                    )
                    self.counts["rows_swept"] += swept.deleted
                    marks[place] = swept.mark


def _blocked() -> Refused:
    """Return the answer for a URL of a blocked host.

    An operator has blocked the host.
    """
    retry_at = math.ceil(time.time() + BLOCKED_S)
    return Refused(
        id=0,
        rule=Outcome.FILTERED.value,
        reason="an operator has blocked the host",
        retry_at=retry_at,
    )
