"""Recovery: the search of the table for due rows, after a start, after problems, and for rows of other schedulers."""

import asyncio
import logging
import time
from collections.abc import Collection
from typing import TYPE_CHECKING

from crawl_lib.errors import KeyStoreError
from crawl_lib.realtime.loops import together
from crawl_lib.realtime.pages import LOOK_BACK_MS, Mark

if TYPE_CHECKING:
    from crawl_lib.realtime.scheduler import Scheduler

RECOVER_S = 60.0
"""The table is asked for all due rows so often, besides after each problem, and with each new part."""
LOOK_S = 0.05
"""The table is asked so often for what other schedulers submit and finish."""
PROBLEM_LOOK_S = 0.5
"""The pause after a problem."""
log = logging.getLogger(__name__)


class Recovery:
    """Due rows of the table, found for a service.

    `wanted`: set to have all rows looked at. `room`: set once a URL has left the memory of the service. `turned_away`:
    parts of rows that stayed due since the service has no fetcher with their part.
    """

    def __init__(self, service: "Scheduler") -> None:
        self._service, self._store = service, service.store
        self.wanted, self.room = asyncio.Event(), asyncio.Event()
        self.turned_away = set[int]()
        self._newest_ms = dict.fromkeys(self._store.places, 0)
        self._looked = {place: asyncio.Event() for place in self._store.places}

    async def keep_recovering(self) -> None:
        """Find due rows, also those of other schedulers.

        All rows are looked at now and then, new ones all the time.
        """
        known = frozenset[int]()
        again_s = 0.0
        while True:
            parts, now_s = self._service.link.parts, time.monotonic()
            known, self.turned_away = known - self.turned_away, set()
            is_wanted = bool(self.wanted.is_set() or parts - known or now_s >= again_s)
            if is_wanted:
                self.wanted.clear()
            if is_wanted or self._service.link.is_shared:
                await together(
                    [self._look(place, parts, is_whole=is_wanted) for place in self._store.places]
                )
            again_s, known = (now_s + RECOVER_S if is_wanted else again_s), parts
            await asyncio.sleep(PROBLEM_LOOK_S if self.wanted.is_set() else LOOK_S)

    async def _look(self, place: int, parts: Collection[int], *, is_whole: bool) -> None:
        try:
            if is_whole:
                await self._store.ensure(place)
                await self._begin_due(place, parts, Mark())
                self._looked[place].set()
            elif parts:
                await self._begin_due(
                    place, parts, Mark(max(0, self._newest_ms[place] - LOOK_BACK_MS))
                )
        except KeyStoreError as error:
            log.warning("due rows cannot be read yet: %s", error)
            self.wanted.set()

    async def keep_going_on(self, place: int) -> None:
        """Go on with the rows that wait for targets, after each look at all due rows of a server.

        Each such row asks the table for its target. Looks for due rows do not wait for that.
        """
        while True:
            await self._looked[place].wait()
            self._looked[place].clear()
            try:
                await self._service.redirects.go_on(place)
            except KeyStoreError as error:
                self._service.note_problem(error)

    async def _begin_due(self, place: int, parts: Collection[int], mark: Mark) -> None:
        """Begin the due rows of a server from a mark on."""
        while marks := await self._store.due(place, mark, parts):
            mark = marks[-1]
            self._newest_ms[place] = max(self._newest_ms[place], mark.time_ms)
            while len(self._service.visits) >= self._service.config.max_waiting:
                self.room.clear()
                await self.room.wait()
            await together(
                [
                    self._begin_if_due(one.key)
                    for one in marks
                    if one.key not in self._service.visits
                ]
            )

    async def _begin_if_due(self, key: bytes) -> None:
        """Begin a row after a new look.

        The earlier look may be out of date.
        """
        row = (
            None
            if key in self._service.visits or key in self._service.pictureless
            else await self._store.state(key)
        )
        if (
            row is not None
            and row.due_ms is not None
            and (request := self._service.request_in(row)) is not None
        ):
            self._service.begin(request, row)
