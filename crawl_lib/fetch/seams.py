"""What `fetch_all` counts, and what tests may put in the place of clocks, resolver, retry table and network."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from crawl_lib.config import FetchConfig
from crawl_lib.fetch.messages import Ask, Reply
from crawl_lib.fetch.retry import RETRIES, Retry, Trouble
from crawl_lib.fetch.transport import Transport
from crawl_lib.states import Outcome


@dataclass(slots=True)
class FetchSummary:
    """What a call of `fetch_all` did, so far. `outcomes`: URLs reported, by outcome; `left`: URLs not reported.

    `requests`: requests sent, `robots`: of these for robots.txt; `retries`: tries that were repeated. `body_bytes`:
    as on the wire. `stopped`: `stop` said so; `deadline`: the deadline passed with URLs left.
    """

    outcomes: Counter[Outcome] = field(default_factory=Counter)
    left: int = 0
    in_flight: int = 0
    requests: int = 0
    robots: int = 0
    retries: int = 0
    body_bytes: int = 0
    stopped: bool = False
    deadline: bool = False


class Carrier(Protocol):
    """What the loop needs of a transport."""

    def start(self, ask: Ask, done: Callable[[Reply], None]) -> None:
        """Send; call `done` later, in the loop's thread."""

    def close(self) -> None:
        """Abandon everything."""


@dataclass(frozen=True)
class Seams:
    """What tests put in the place of clocks, resolver, retry table and network.

    `resolver`: says a name's addresses at once, or raises `dns.LookupFailed`. `dns_servers`: see
    `SystemResolver`.
    """

    clock: Callable[[], float] = time.monotonic
    wall: Callable[[], float] = time.time
    resolver: Callable[[str], list[str]] | None = None
    dns_servers: tuple[str, ...] = ()
    retries: Mapping[Outcome | Trouble, Retry] = field(default_factory=lambda: RETRIES)
    carrier: Callable[[FetchConfig, str, Callable[[BaseException], None]], Carrier] = Transport
