"""What `fetch_all` is given, and what tests may put in the place of clocks, resolver and network."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from crawl_lib.config import FetchConfig
from crawl_lib.fetch.dns import SystemResolver
from crawl_lib.fetch.retry import RETRIES, Retry, Trouble
from crawl_lib.fetch.transport import Transport
from crawl_lib.records import Fetched, TakenUrl
from crawl_lib.states import Outcome


class Recorder(Protocol):
    """Gets what was fetched, in the loop's thread. What it raises ends the run."""

    def on_fetched(self, taken: TakenUrl, fetched: Fetched) -> None:
        """A URL with its final outcome. Each once."""

    def on_robots(self, fetched: Fetched) -> None:
        """An answer to, or the final failure of, a request for robots.txt; each redirect hop by itself."""


class Control(Protocol):
    """Says how long a run may go on. Asked every 50 ms; what it raises ends the run."""

    def stop(self) -> bool:
        """Whether to abandon what is in flight at once."""

    def close(self) -> bool:
        """Whether nothing may start any more. What is in flight ends."""


@dataclass(frozen=True)
class Seams:
    """What tests put in the place of clocks, resolver, retry table and network.

    `resolver` and `carrier` make theirs on the running loop.
    """

    clock: Callable[[], float] = time.monotonic
    wall: Callable[[], float] = time.time
    resolver: Callable[[], SystemResolver] = SystemResolver
    retries: Mapping[Outcome | Trouble, Retry] = field(default_factory=lambda: RETRIES)
    carrier: Callable[[FetchConfig, Callable[[BaseException], None], Callable[[str], None] | None], Transport] = (
        Transport
    )
