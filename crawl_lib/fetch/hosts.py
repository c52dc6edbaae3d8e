"""The hosts of one run: the work of each host, the time of the next request, and the ready hosts.

A host is made at its first use, from the host's row in `HostStore`, and freed when the URLs are done and the delay is
over. The heap has a host at most once, under the time of the next request; but not while the host waits for an answer,
a name or robots.txt. Everything is O(log n) of the hosts that are begun and not done.
"""

import heapq
import math
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import IntEnum
from itertools import count

from crawl_lib.config import FetchConfig, HostConfig, RetryConfig
from crawl_lib.fetch.hoststore import NO_BACK_OFF, BackOff, HostRow, HostState, HostStore
from crawl_lib.fetch.robotstxt import Rules
from crawl_lib.records import TakenUrl
from crawl_lib.states import Outcome
from crawl_lib.urls import host_matches, host_of, refused_port


class Site:
    """An authority: `scheme://host[:port]`, its host, and what its robots.txt says (None: not known yet)."""

    def __init__(self, authority: str) -> None:
        self.authority = authority
        self.scheme_end = authority.find(":")
        self.path_start = len(authority)
        self.host = host_of(authority)
        self.rules: Rules | None = None


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of one URL, each in place of a higher limit of the config; None: as the config says.

    `give_up_s`: seconds for all requests of the URL together, without waits. Then the URL ends as `timeout`, even in
    the middle of an answer.
    """

    max_body_bytes: int | None = None
    mime_types: frozenset[str] | None = None
    time_limit_s: float | None = None
    give_up_s: float | None = None


NO_LIMITS = Limits()
_LEAST_LEFT_S = 0.01
"""Less time is not enough to begin a request."""


class Rank(IntEnum):
    """The order of a host's pages: a lower rank first, and within a rank the oldest page."""

    HOP = 0
    """The target of a redirect: the URL before waits for the answer."""
    NEW = 1
    LATER = 2


@dataclass(slots=True, eq=False)
class Job:
    """A request to make: a page (`taken`), or a robots.txt for the authority `robots_for` (`hops` followed so far).

    `spent_s`: the time of all requests so far. `is_sent`: a request is on the way. `is_cancelled`: nothing is sent or
    reported any more. `lapses`: how often the host's lease was missing.
    """

    url: str
    site: Site
    taken: TakenUrl | None
    robots_for: Site | None = None
    hops: int = 0
    tries: int = 0
    rank: Rank = Rank.NEW
    limits: Limits = NO_LIMITS
    spent_s: float = 0.0
    is_sent: bool = False
    is_cancelled: bool = False
    lapses: int = 0

    def left_s(self) -> float:
        """Return the seconds left until the URL is given up.

        Without a limit they are infinite.
        """
        give_up_s = self.limits.give_up_s
        return math.inf if give_up_s is None else max(0.0, give_up_s - self.spent_s)

    def is_given_up(self) -> bool:
        """Say whether requests have used up the time of the URL."""
        return self.left_s() < _LEAST_LEFT_S

    def time_limit_s(self, usual_s: float) -> float:
        """Return the time limit of the next request, in seconds.

        `usual_s`: as the config says.
        """
        return min(usual_s, self.limits.time_limit_s or math.inf, max(_LEAST_LEFT_S, self.left_s()))


class WaitingPages:
    """The waiting pages of a host, by rank, and within a rank the oldest first.

    Most hosts have one page. A deque takes 600 bytes, so deques are made for the second page.
    """

    __slots__ = ("_cancelled", "_first", "_ranks")

    def __init__(self) -> None:
        self._first: Job | None = None
        self._ranks: tuple[deque[Job], ...] = ()
        self._cancelled = 0

    def __len__(self) -> int:
        return (self._first is not None) + sum(map(len, self._ranks))

    def __bool__(self) -> bool:
        return self._first is not None or any(self._ranks)

    def __iter__(self) -> Iterator[Job]:
        if self._first is not None:
            yield self._first
        for jobs in self._ranks:
            yield from jobs

    def append(self, job: Job) -> None:
        """Add a page behind pages of the same rank."""
        if self._ranks:
            self._ranks[job.rank].append(job)
        elif self._first is None:
            self._first = job
        else:
            first, self._first = self._first, None
            self._ranks = tuple(deque[Job]() for _ in Rank)
            for one in (first, job):
                self._ranks[one.rank].append(one)

    def appendleft(self, job: Job) -> None:
        """Put a page back, in front of pages of the same rank."""
        if self._ranks:
            self._ranks[job.rank].appendleft(job)
        elif self._first is None:
            self._first = job
        else:
            self.append(self._first)
            self._first = None
            self._ranks[job.rank].appendleft(job)

    def popleft(self) -> Job:
        """Take the next page. Raises IndexError without one."""
        if self._first is not None:
            job, self._first = self._first, None
            return job
        for jobs in self._ranks:
            if jobs:
                job = jobs.popleft()
                if not any(self._ranks):
                    self._ranks = ()
                return job
        raise IndexError

    def forget_cancelled(self) -> None:
        """Note a cancellation, and free pages once half may be cancelled.

        This way a cancellation costs constant time on average.
        """
        self._cancelled += 1
        if 2 * self._cancelled > len(self):
            self._cancelled = 0
            kept = [job for job in self if not job.is_cancelled]
            self._first, self._ranks = None, ()
            for job in kept:
                self.append(job)


@dataclass(slots=True, eq=False)
class Host:
    """A host: what it has to do, and when it was asked last. Times are of the loop's clock.

    `delay_s`: after each response, by config and robots.txt; `rest_s`: what is owed after the last one, if more.
    `answer_s`: how long its answers take, on average. `ending`: outcome of the host's unrequested URLs in this run; it
    is asked for nothing more until `ending_until`. `back_off`: POSIX seconds. `robots_at`: place among the domain's
    hosts that wait for robots.txt (`robots.RobotsPace`).
    """

    name: str
    delay_s: float
    connections: int = 1
    rest_s: float = 0.0
    answer_s: float = 0.0
    ended_at: float = float("-inf")
    not_before: float = 0.0
    asked: float = 0.0
    changed: bool = False
    pages: WaitingPages = field(default_factory=WaitingPages)
    # Lists, not deques, which take 600 bytes each: a batch may have 100,000 hosts.
    urgent: list[Job] = field(
        default_factory=list
    )  # before pages: what was begun, to be tried again, robots.txt
    sites: list[Site] = field(default_factory=list)
    later: list[tuple[float, int, Job]] = field(default_factory=list)
    in_flight: int = 0
    in_heap: bool = False
    waits_for: Site | None = None
    robots_at: float | None = None
    failures: int = 0
    back_off: BackOff = NO_BACK_OFF
    ending: tuple[Outcome, str] | None = None
    ending_until: float = math.inf
    addresses: tuple[str, ...] = ()
    addresses_until: float = 0.0
    address: str | None = None
    address_turn: int = 0

    def owed_s(self) -> float:
        """Return how many seconds the host rests after its last response."""
        return max(self.delay_s, self.rest_s)

    def note_answer(self, answer_s: float) -> None:
        """Add the seconds of an answer or failure to the average."""
        self.answer_s += (answer_s - self.answer_s) / (_ANSWERS if self.answer_s else 1)

    def ready_at(self) -> float:
        """Return when the next request may start."""
        return max(self.ended_at + self.owed_s(), self.not_before)

    def is_done(self, now: float) -> bool:
        """Return whether a host can be forgotten.

        The host has no work and nothing to save, waits for nothing, and its delay is over.
        """
        busy = self.in_flight or self.in_heap or self.pages or self.urgent or self.later
        return not (busy or self.changed) and self.waits_for is None and self.ready_at() <= now

    def wanted_at(self) -> float | None:
        """Return when the host wants its next request.

        None: the host has no request.
        """
        has_page = bool(self.pages)  # asked once: it takes as long as all else here
        waits = has_page or self.later
        if self.urgent or (self.ending and waits):
            ends_now = self.ending_until < math.inf and not self.urgent
            return 0.0 if ends_now else self.ready_at()
        if self.waits_for is not None or not waits:
            return None
        return self.ready_at() if has_page else max(self.ready_at(), self.later[0][0])

    def next_page(self, now: float) -> Job | None:
        """Take the next allowed page."""
        if self.waits_for is not None and self.ending is None:
            return None
        if self.later and (self.later[0][0] <= now or self.ending):
            return heapq.heappop(self.later)[2]
        return self.pages.popleft() if self.pages else None


class IpGate:
    """The hosts of this process before the turn of an IP. In the heap while any waits."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.waiting: deque[tuple[Host, Job]] = deque()
        self.in_heap = False


BLOCKED = Outcome.FILTERED, "an operator has blocked the host"
_FOR_EVER_S = 1e9
_USUAL = HostConfig("domain", "")
USUAL_ANSWER_S = 0.5
"""How long a host takes to answer that was not asked yet."""
_ANSWERS = 5
"""Among how many answers the last one counts, in the mean of a host's times."""


def limits_of(config: FetchConfig, host: str) -> tuple[float, int]:
    """Return a host's least delay and its most connections.

    The first matching entry of `fetch.hosts` decides, or else the general options.
    """
    entry = next(
        (entry for entry in config.hosts if host_matches(entry.kind, entry.value, host)), _USUAL
    )
    return (
        config.host_delay_s if entry.delay_s is None else entry.delay_s,
        entry.connections or config.connections_per_host,
    )


def pace_s(config: FetchConfig, row: HostRow | None, name: str) -> float:
    """Estimate a host's seconds per URL: its delay and usual answer time.

    The result is 0 for a host without a delay.

    `row`: what `HostStore` has of it.
    """
    delay_s, _ = limits_of(config, name)
    if row is not None:
        delay_s = max(delay_s, min(row.delay_s, config.max_crawl_delay_s))
    return delay_s and delay_s + (
        row.answer_s if row is not None and row.answer_s else USUAL_ANSWER_S
    )


def _time_of(item: Host | IpGate, when: float) -> float:
    """Return the current time of an item in the heap.

    `when`: the time by the delay of then.
    """
    wanted = item.wanted_at() if isinstance(item, Host) else None
    return when if wanted is None else wanted


def port_error(port: int) -> str:
    """Return the error of a URL with a refused port."""
    return f"browsers refuse port {port}"


class Hosts:
    """Hosts and sites of one run by name: made at their first use, freed when they are done, made again if needed.

    `clock`: the loop's, seconds; `wall`: POSIX seconds. A new host waits the rest of its delay since the last response
    in an earlier run, or since the last unclean stop was found. A host in back-off gets no requests. `is_live`: the run
    has no end, so a given-up host gets another chance after the back-off. Raises StorageError as `HostStore` does.
    """

    def __init__(
        self,
        config: FetchConfig,
        retry: RetryConfig,
        store: HostStore,
        clock: Callable[[], float],
        wall: Callable[[], float],
        *,
        is_live: bool = False,
    ) -> None:
        self.config = config
        self.is_live = is_live
        self.retry = retry
        self.store = store
        self.clock = clock
        self.wall = wall
        self._heap: list[tuple[float, int, Host | IpGate]] = []
        self._numbers = count()
        self.begun: dict[str, Host] = {}
        self._sites: dict[str, Site] = {}
        self._hold_from = store.hold_from()
        self._is_blocked: Callable[[str], bool] = lambda host: False

    def site(self, authority: str) -> Site:
        """Return the site of `scheme://host[:port]`."""
        site = self._sites.get(authority)
        if site is None:
            site = self._sites[authority] = Site(authority)
            self.host(site.host).sites.append(site)
            port = refused_port(authority, site.host)
            if port is not None:
                site.rules = Rules(None, "", float("inf"), (Outcome.PORT_REFUSED, port_error(port)))
            elif self.config.robots == "ignore":
                site.rules = Rules(None, "", float("inf"))
        return site

    def host(self, name: str) -> Host:
        """Return the host of a name."""
        host = self.begun.get(name)
        if host is not None:
            return host
        host = self.begun[name] = Host(name, *limits_of(self.config, name))
        last_end = self._hold_from
        row = self.store.host(name)
        if row is not None:
            host.rest_s = min(row.delay_s, self.config.max_crawl_delay_s)
            host.answer_s = row.answer_s
            last_end = max(row.last_end, last_end)
        ago_s = self.wall() - last_end
        if ago_s < host.owed_s():
            # A wall clock set back never means more than one delay.
            host.ended_at = self.clock() - max(0.0, ago_s)
        self._go_by_back_off(host, self.store.back_off(name))
        if self._is_blocked(name):
            self.give_up(host, BLOCKED, _FOR_EVER_S)
        return host

    def set_limits(self, config: FetchConfig, is_blocked: Callable[[str], bool]) -> None:
        """Apply changed entries of `fetch.hosts`.

        `is_blocked`: names the hosts without requests.
        """
        self.config, self._is_blocked = config, is_blocked
        for host in self.begun.values():
            least_s, host.connections = limits_of(config, host.name)
            told_s = [site.rules.crawl_delay_s for site in host.sites if site.rules is not None]
            host.delay_s = max(
                least_s, *(min(delay_s, config.max_crawl_delay_s) for delay_s in [0.0, *told_s])
            )
            if is_blocked(host.name):
                self.give_up(host, BLOCKED, _FOR_EVER_S)
            elif host.ending == BLOCKED:
                host.ending, host.ending_until = None, math.inf
        self._heap = [(_time_of(item, when), number, item) for when, number, item in self._heap]
        heapq.heapify(self._heap)

    def begun_site(self, authority: str) -> Site | None:
        """Return the site of an authority, if in use."""
        return self._sites.get(authority)

    def learn(self, state: HostState) -> None:
        """Adopt newer facts that another fetcher has about a host."""
        name, robots = state.host.host, state.robots
        own, begun = self.store.host(name), self.begun.get(name)
        if own is None or own.last_end < state.host.last_end:
            self.store.save_hosts([state.host])
        if state.back_off.times:
            self.store.save_back_off(name, state.back_off)
        if robots is not None:
            own_robots = self.store.robots(robots.authority)
            if own_robots is None or own_robots.fetched < robots.fetched:
                self.store.save_robots(robots, self.store.host(name) or state.host)
        if begun is not None:
            begun.rest_s = max(begun.rest_s, min(state.host.delay_s, self.config.max_crawl_delay_s))
            self._go_by_back_off(begun, self.store.back_off(name))

    def _go_by_back_off(self, host: Host, back_off: BackOff) -> None:
        if back_off.until > self.wall() + self.retry.max_wait_s:  # by a clock that was ahead
            back_off = back_off._replace(until=0.0)
        host.back_off = back_off
        if back_off.until > self.wall():
            self.give_up(
                host,
                (Outcome.HOST_GAVE_UP, "the host is in back-off"),
                back_off.until - self.wall(),
            )

    def give_up(self, host: Host, ending: tuple[Outcome, str], for_s: float) -> None:
        """End a host's URLs without requests.

        `for_s`: the duration in seconds in a live run; otherwise the end lasts as long as the run.
        """
        host.ending = ending
        host.ending_until = self.clock() + for_s if self.is_live else math.inf

    def reopen(self, host: Host) -> None:
        """Allow requests to a host again once its time is over."""
        if host.ending is not None and host.ending_until <= self.clock():
            host.ending, host.ending_until, host.failures = None, math.inf, 0

    def set_back_off(self, host: Host, back_off: BackOff) -> None:
        """Begin or end a host's back-off, and save this at once."""
        host.back_off = back_off
        self.store.save_back_off(host.name, back_off)

    def schedule(self, host: Host) -> None:
        """Put a host into the heap if it may send a request.

        A host with requests in flight may have to wait for these.
        """
        limit = host.connections if host.owed_s() == 0 else 1
        if host.in_heap or host.in_flight >= limit:
            return
        when = host.wanted_at()
        if when is not None:
            self.push(host, when)

    def push(self, item: Host | IpGate, when: float) -> None:
        """Put an item into the heap, unless it is there.

        Items of one time come in the order of their calls.
        """
        if not item.in_heap:
            item.in_heap = True
            heapq.heappush(self._heap, (when, next(self._numbers), item))

    def next_at(self) -> float:
        """Return when the first item is ready.

        Infinite: the heap is empty.
        """
        return self._heap[0][0] if self._heap else float("inf")

    def pop(self, now: float) -> Host | IpGate | None:
        """Return the first item if it is ready at `now`."""
        if self.next_at() > now:
            return None
        item = heapq.heappop(self._heap)[2]
        item.in_heap = False
        return item

    def save(self) -> None:
        """Write down the hosts asked since the last call."""
        changed = [host for host in self.begun.values() if host.changed]
        for host in changed:
            host.changed = False
        if changed:
            self.store.save_hosts(map(row_of_host, changed))

    def free(self) -> list[Site]:
        """Forget the idle hosts, and return their sites.

        `save` must come first. The next use of a host finds the data left by `save` and by answers to robots.txt.
        """
        now = self.clock()
        done = [host for host in self.begun.values() if host.is_done(now)]
        freed = [site for host in done for site in host.sites]
        for host in done:
            del self.begun[host.name]
        for site in freed:
            del self._sites[site.authority]
        return freed


def row_of_host(host: Host) -> HostRow:
    """Return a host's row to save."""
    return HostRow(host.name, host.asked, host.owed_s(), host.answer_s)
