"""A timer that only moves forward: many may ask for it, the earliest counts."""

import asyncio
import math
from collections.abc import Callable


class Alarm:
    """Calls `action` once, at the earliest of the times (the loop's) that it was set to since the last call.

    `at`: when it will; `rang_for`: when it should have been the last time.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, action: Callable[[], None]) -> None:
        self.at = self.rang_for = math.inf
        self._loop = loop
        self._action = action
        self._handle: asyncio.TimerHandle | None = None

    def by(self, when: float) -> None:
        """Call at `when`, or before."""
        if when < self.at:
            self.cancel()
            self.at = when
            self._handle = self._loop.call_at(when, self._ring)

    def cancel(self) -> None:
        """Do not call, until it is set again."""
        self.at = math.inf
        if self._handle is not None:
            self._handle.cancel()

    def _ring(self) -> None:
        self.rang_for, self.at, self._handle = self.at, math.inf, None
        self._action()
