"""SIGINT and SIGTERM as an event, for programs (never for the library's own functions, which take the event)."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Timer
from types import FrameType
from typing import Self

LONGEST_STOP_S = 4.5
"""A program that was told to stop ends within 5 s, children included."""
_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_BY_SIGNAL = 128


class LastResort:
    """Ends this process where a step takes longer than `LONGEST_STOP_S` to see that it is to stop.

    Only while its `with` block runs. A merge of tables, an upload or a statement of a key server looks at nothing while
    it runs. To end there is what a kill does, which loses nothing; fetching processes die with their parent.
    """

    def __init__(self, seconds: float = LONGEST_STOP_S) -> None:
        self._seconds = seconds
        self._timer: Timer | None = None
        self._is_needed = False

    def __enter__(self) -> Self:
        self._is_needed = True
        return self

    def __exit__(self, *error: object) -> None:
        """It has stopped by itself."""
        self._is_needed = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def begin(self, code: int) -> None:
        """End the process with this exit code, unless the `with` block ends in time."""
        if self._is_needed and self._timer is None:
            self._timer = Timer(self._seconds, self._end, (code,))
            self._timer.daemon = True
            self._timer.start()

    def _end(self, code: int) -> None:
        sys.stderr.write(f"ended in the middle of a step, {self._seconds:g} s after it was to stop; run it again\n")
        sys.stderr.flush()
        os._exit(code)


@contextmanager
def stop_on_signals() -> Iterator[Event]:
    """An event that SIGINT or SIGTERM sets; the second signal has its old effect. Main thread only.

    The process ends in any case, within `LONGEST_STOP_S` of the first signal.
    """
    stop, last_resort = Event(), LastResort()
    before = {number: signal.getsignal(number) for number in _SIGNALS}

    def on_signal(number: int, frame: FrameType | None) -> None:
        stop.set()
        signal.signal(number, before[signal.Signals(number)])
        last_resort.begin(_BY_SIGNAL + number)

    for number in _SIGNALS:
        signal.signal(number, on_signal)
    try:
        with last_resort:
            yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
