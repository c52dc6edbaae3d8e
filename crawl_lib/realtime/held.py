"""The parts of hosts that a fetcher may ask now, by the fetcher's own clock.

A fetcher on another machine has a lease on each of its parts. Only time keeps a second fetcher from the same host: no
site knows of leases. A fetcher therefore looks at its clock right before each request is written: a process that was
stopped for a while sends nothing afterwards.
"""

import time
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache

from crawl_lib.config import FetchConfig
from crawl_lib.fetch import HostStore, limits_of
from crawl_lib.realtime.pages import part_of

CLOCK_S = 0.5
"""A fetcher says its time, and asks for its next grant, so often."""
_KNOWN_HOSTS = 20_000
_part_of = lru_cache(_KNOWN_HOSTS)(part_of)


def own_ms() -> int:
    """Return milliseconds since this machine's start.

    The machine's sleep counts, a set clock does not.
    """
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000


class Held:
    """The grants of a scheduler: which parts, since when, and until when."""

    def __init__(
        self, config: FetchConfig, store: HostStore, now_ms: Callable[[], int] = own_ms
    ) -> None:
        """Begin without parts.

        `store`: with the delays of hosts. `now_ms`: the fetcher's own clock.
        """
        self._config, self._store, self._now_ms = config, store, now_ms
        self._since_ms: dict[int, float] = {}
        self._until_ms: float = 0.0
        self._told: dict[str, float | None] = {}

    def grant(
        self,
        parts: Iterable[tuple[int, int]],
        until_ms: int | None,
        unowned: Iterable[tuple[int, int]] = (),
    ) -> None:
        """Hold these ranges of parts, and no others.

        `until_ms`: None without an end. `unowned`: see `Grant`.
        """
        now_ms = self._now_ms()
        earlier = self._since_ms if now_ms < self._until_ms else {}
        new_ms = now_ms if until_ms is not None else float("-inf")
        fresh = dict.fromkeys(_numbers(unowned), float("-inf"))
        self._since_ms = {
            part: earlier.get(part, fresh.get(part, new_ms)) for part in _numbers(parts)
        }
        self._until_ms = until_ms if until_ms is not None else float("inf")

    def set_config(self, config: FetchConfig) -> None:
        """Take other delays of hosts."""
        self._config = config

    def has(self, part: int) -> bool:
        """Say whether a part is held now."""
        return part in self._since_ms and self._now_ms() < self._until_ms

    def may_send(self, host: str) -> bool:
        """Say whether a request to a host may be written now.

        Each host of a new part has its delay first: another fetcher may have asked the host a moment ago. A host of
        which nothing is known may have any delay, up to `fetch.max_crawl_delay_s`.
        """
        part = _part_of(host)
        return self.has(part) and self._now_ms() >= self._since_ms[part] + self._wait_ms(part, host)

    def tell(self, host: str, *, is_known: bool) -> None:
        """Note that the store has all that is known of a host.

        `is_known`: something is.
        """
        self._told.pop(host, None)
        if is_known:
            self._told[host] = self._since_ms.get(_part_of(host))
        if len(self._told) > _KNOWN_HOSTS:
            del self._told[next(iter(self._told))]

    def _wait_ms(self, part: int, host: str) -> float:
        """Return the wait of a host after its lease's start.

        A host about which everything was told has its own delay.
        """
        longest_s, since_ms = self._config.max_crawl_delay_s, self._since_ms[part]
        if self._now_ms() - since_ms > 1000 * longest_s:
            return 0.0
        delay_s, _ = limits_of(self._config, host)
        if self._told.get(host) != since_ms:
            return 1000 * max(delay_s, longest_s)
        row = self._store.host(host)
        known_s = min(row.delay_s, longest_s) if row is not None else 0.0
        return 1000 * max(delay_s, known_s)


def _numbers(ranges: Iterable[tuple[int, int]]) -> Iterator[int]:
    for first, last in ranges:
        yield from range(first, last + 1)
