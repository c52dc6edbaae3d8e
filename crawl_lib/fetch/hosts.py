"""The scheduler's plain parts: jobs, authorities, host slots, and the heap of what is ready when.

A host slot holds its host's URLs in order. It stands in the heap at most once, under the time of its next request; a
slot that waits for an answer, a name or robots.txt is in no heap. Everything is O(log n) of the hosts that are
begun and not done.
"""

from __future__ import annotations

import heapq
from collections import deque
from itertools import count

from crawl_lib.fetch.robots import Rules
from crawl_lib.records import TakenUrl
from crawl_lib.states import Outcome


class Site:
    """An authority: `scheme://host[:port]`, its host, and what its robots.txt says (None: not known yet)."""

    __slots__ = ("authority", "host", "path_start", "rules", "scheme_end")

    def __init__(self, authority: str) -> None:
        self.authority = authority
        self.scheme_end = authority.find(":")
        self.path_start = len(authority)
        self.host = host_of_authority(authority)
        self.rules: Rules | None = None


def host_of_authority(authority: str) -> str:
    """The host (brackets of an IPv6 address kept) of a canonical `scheme://host[:port]`."""
    host = authority.partition("://")[2]
    if host.startswith("["):
        return host.partition("]")[0] + "]"
    return host.partition(":")[0]


def authority_end(url: str) -> int:
    """Where the path of a canonical URL begins."""
    end = url.find("/", 8)
    return len(url) if end < 0 else end


class Job:
    """A request to make: a page (`taken`), or a robots.txt for the authority `robots_for` (`hops` followed so far)."""

    __slots__ = ("hops", "robots_for", "site", "taken", "tries", "url")

    def __init__(self, url: str, site: Site, taken: TakenUrl | None, robots_for: Site | None = None, hops: int = 0):
        self.url = url
        self.site = site
        self.taken = taken
        self.robots_for = robots_for
        self.hops = hops
        self.tries = 0


class Slot:
    """A host: what it has to do, and when it was asked last. Times are of the loop's clock.

    `delay_s`: after each response, by config and robots.txt; `rest_s`: what is owed after the last one, if more.
    """

    __slots__ = (
        "address",
        "address_turn",
        "addresses",
        "addresses_until",
        "asked",
        "changed",
        "connections",
        "delay_s",
        "ended_at",
        "ending",
        "errands",
        "failures",
        "host",
        "in_flight",
        "in_heap",
        "later",
        "not_before",
        "pages",
        "parked",
        "rest_s",
        "sites",
        "waits_for",
    )

    def __init__(self, host: str, delay_s: float, connections: int = 1) -> None:
        self.host = host
        self.delay_s = delay_s
        self.rest_s = 0.0
        self.connections = connections
        self.ended_at = float("-inf")
        self.not_before = 0.0
        self.asked = 0.0
        self.changed = False
        # Lists, not deques, which take 600 bytes each: a batch may have 100,000 hosts.
        self.pages: list[Job] = []  # the next one last
        self.errands: list[Job] = []
        self.parked: list[Job] = []
        self.sites: list[Site] = []
        self.later: list[tuple[float, int, Job]] = []
        self.in_flight = 0
        self.in_heap = False
        self.waits_for: Site | None = None
        self.failures = 0
        self.ending: tuple[Outcome, str] | None = None
        self.addresses: tuple[str, ...] = ()
        self.addresses_until = 0.0
        self.address: str | None = None
        self.address_turn = 0

    def owed_s(self) -> float:
        """How long the host rests after its last response."""
        return max(self.delay_s, self.rest_s)

    def ready_at(self) -> float:
        """When the next request may start."""
        return max(self.ended_at + self.owed_s(), self.not_before)

    def is_done(self, now: float) -> bool:
        """Whether there is nothing to do, to wait for or to write down, and the delay is over."""
        busy = self.in_flight or self.in_heap or self.pages or self.errands or self.parked or self.later
        return not (busy or self.changed) and self.waits_for is None and self.ready_at() <= now

    def next_page_at(self) -> float | None:
        """When a page can be asked for, as far as the pages are concerned; None without page or robots.txt."""
        if self.waits_for is not None:
            return None
        if self.pages:
            return 0.0
        return self.later[0][0] if self.later else None

    def wanted_at(self) -> float | None:
        """When the slot wants its next request; None if it has nothing to ask."""
        if self.parked or self.errands:
            return self.ready_at()
        pages_at = 0.0 if self.ending and (self.pages or self.later) else self.next_page_at()
        return None if pages_at is None else max(self.ready_at(), pages_at)


class Gate:
    """The slots of this process that wait for the turn of one IP. Stands in the heap while any waits."""

    __slots__ = ("address", "in_heap", "waiting")

    def __init__(self, address: str) -> None:
        self.address = address
        self.waiting: deque[tuple[Slot, Job]] = deque()
        self.in_heap = False


class ReadyHeap:
    """Slots and gates by the time they are ready; equal times in the order they were pushed."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Slot | Gate]] = []
        self._numbers = count()

    def __len__(self) -> int:
        return len(self._heap)

    def push(self, item: Slot | Gate, when: float) -> None:
        """Add an item unless it is in already."""
        if not item.in_heap:
            item.in_heap = True
            heapq.heappush(self._heap, (when, next(self._numbers), item))

    def next_at(self) -> float | None:
        """When the first item is ready; None if the heap is empty."""
        return self._heap[0][0] if self._heap else None

    def pop(self, now: float) -> Slot | Gate | None:
        """The first item if it is ready at `now`."""
        if not self._heap or self._heap[0][0] > now:
            return None
        item = heapq.heappop(self._heap)[2]
        item.in_heap = False
        return item
