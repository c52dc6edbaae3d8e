"""Fetches whose records are written and whose rows are not yet: they are handled together, step by step.

Between two pages of a lone handling the processor's caches are filled by something else: fetch, parser, digests,
compressor. 1,500 real pages cost 1,160 us each that way, and 970 where 64 of them are handled in a row. Nothing is at
stake: after a kill the rows of an open part are made again from its records.
"""

from __future__ import annotations

from crawl_lib.records import Fetched, TakenUrl
from crawl_lib.segment import Position
from crawl_lib.worker.large import Handled
from crawl_lib.worker.page import PageHandler

MOST_FETCHES = 64
MOST_BYTES = 4 << 20
MOST_S = 0.1
"""So long they may hold the loop; what is left then waits for the next one."""


class Backlog:
    """Keeps fetches for `handler` until there are `MOST_FETCHES` of them, or `MOST_BYTES` of bodies.

    `drain` must be called before the part that holds their records is closed; see `PartWriter.before_close`.
    """

    def __init__(self, handler: PageHandler) -> None:
        self._handler = handler
        self._waiting: list[Handled] = []
        self._bytes = 0

    def add(self, taken: TakenUrl, fetched: Fetched, position: Position) -> None:
        """A fetch whose records stand at `position`."""
        self._waiting.append((taken, fetched, position))
        self._bytes += len(fetched.body)
        if len(self._waiting) >= MOST_FETCHES or self._bytes >= MOST_BYTES:
            self._some()

    def is_empty(self) -> bool:
        """Whether all rows are written, after some more work on those that wait."""
        self._some()
        return not self._waiting and self._handler.is_idle

    def drain(self) -> None:
        """Write the rows of all that waits, and of the large pages that the handler keeps back."""
        waiting, self._waiting, self._bytes = self._waiting, [], 0
        self._handler.handle_all(waiting)
        self._handler.drain()

    def _some(self) -> None:
        del self._waiting[: self._handler.handle_all(self._waiting, MOST_S)]
        self._bytes = sum(len(fetched.body) for _, fetched, _ in self._waiting)
