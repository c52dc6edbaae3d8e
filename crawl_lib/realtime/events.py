"""Events: each new document, for subscribers with a memory of the last event.

The id of an event has a time for each key server: the time of the newest event. A subscriber with an id goes on
`LOOK_BACK_MS` earlier. Two writers may commit in another order than the order of their times, but each statement ends
sooner (`pages.EVENT_LIMIT_S`), so no event is passed over. An event may come twice.
"""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass

from crawl_lib.errors import InputError, KeyStoreError
from crawl_lib.realtime.pages import LOOK_BACK_MS, Mark, Row
from crawl_lib.realtime.scheduler import Scheduler

QUIET_S = 1.0
"""The tables are asked so often without news of this process: other processes write, too."""
BETWEEN_S = 0.1
BEAT_S = 15.0
"""After so long without an event, a sign of life is sent."""
_ID = re.compile(r"[0-9]{1,15}(-[0-9]{1,15})*", re.ASCII)


@dataclass(frozen=True)
class Event:
    """A new document. `row`: None for a sign of life. `id`: see the module."""

    id: str
    row: Row | None = None


class Subscription:
    """The events of a subscriber. Events are not read ahead: a slow subscriber costs no memory."""

    def __init__(self, service: Scheduler) -> None:
        self._service = service
        self._times: list[int] = []
        self._sent: dict[bytes, int] = {}

    async def begin(self, last_id: str | None) -> None:
        """Begin after an event, or else now.

        Raises InputError for a malformed id.
        """
        places = self._service.store.places
        if last_id is None:
            times = await asyncio.gather(*(self._service.store.now_ms(place) for place in places))
        elif _ID.fullmatch(last_id) and last_id.count("-") + 1 == len(places):
            times = [int(time) for time in last_id.split("-")]
        else:
            raise InputError(
                f"Last-Event-ID is no id of an event: it has {len(places)} times with - between them"
            )
        self._times = list(times)

    async def events(self) -> AsyncIterator[Event]:
        """Yield events until the service stops."""
        listener = self._service.listen()
        quiet_s = 0.0
        try:
            while not self._service.is_stopping:
                listener.clear()
                found = False
                async for event in self._new():
                    found = True
                    yield event
                quiet_s = 0.0 if found else quiet_s + QUIET_S
                if quiet_s >= BEAT_S:
                    quiet_s = 0.0
                    yield Event(self._id())
                await asyncio.sleep(BETWEEN_S)
                with suppress(TimeoutError):
                    await asyncio.wait_for(listener.wait(), QUIET_S)
        finally:
            self._service.unlisten(listener)

    async def _new(self) -> AsyncIterator[Event]:
        for place in self._service.store.places:
            mark = Mark(max(0, self._times[place] - LOOK_BACK_MS))
            with suppress(KeyStoreError):  # an absent server has its turn later
                while marks := await self._service.store.events(place, mark):
                    rows = await self._unsent(marks)
                    for mark in marks:
                        # The mark's time, not the row's: the events between both times come later.
                        self._times[place] = max(self._times[place], mark.time_ms)
                        if (row := rows.get(mark.key)) is not None:
                            self._sent[row.key] = row.fetched_ms
                            yield Event(self._id(), row)
        oldest_ms = min(self._times) - 2 * LOOK_BACK_MS
        self._sent = {key: time_ms for key, time_ms in self._sent.items() if time_ms > oldest_ms}

    async def _unsent(self, marks: list[Mark]) -> dict[bytes, Row]:
        keys = [mark.key for mark in marks if self._sent.get(mark.key, -1) < mark.time_ms]
        rows = await asyncio.gather(*(self._service.store.read(key) for key in keys))
        return {row.key: row for row in rows if row is not None and row.data is not None}

    def _id(self) -> str:
        return "-".join(map(str, self._times))
