"""A value read by a thread, so that no page waits long for a slow server."""

from __future__ import annotations

import atexit
import time
from collections.abc import Callable
from threading import Event, Lock, Thread, current_thread
from typing import Generic, NamedTuple, TypeVar

T = TypeVar("T")
LAST_READ_S = 10.0
_at_work: set[Thread] = set()
_ends = Event()


class Known(NamedTuple, Generic[T]):
    """The newest value. `age_s`: seconds since the value was read."""

    value: T
    age_s: float


class Behind(Generic[T]):
    """A value and the thread of its reads. The thread ends after a read, so that an idle page costs nothing.

    `read`: returns the value; `keep_s`: how long a value counts as new; `is_partial`: whether to read again at once.
    """

    def __init__(
        self,
        read: Callable[[], T],
        keep_s: float,
        is_partial: Callable[[T], bool] = lambda _: False,
    ) -> None:
        self._read, self._keep_s, self._is_partial = read, keep_s, is_partial
        self._turn, self._has_read = Lock(), Event()
        self._reads = False
        self._value: T | None = None
        self._read_at_s = 0.0
        self._error: Exception | None = None

    def get(self, wait_s: float) -> Known[T] | None:
        """Return the value; None before the first value.

        `wait_s`: how long to wait for a new value. Raises the error of the last read.
        """
        with self._turn:
            if not self._reads and time.monotonic() - self._read_at_s > self._keep_s:
                self._reads = True
                self._has_read.clear()
                thread = Thread(target=self._work, name="krake page", daemon=True)
                _at_work.add(thread)
                thread.start()
        self._has_read.wait(wait_s)
        with self._turn:
            if self._error:
                raise self._error
            return (
                None
                if self._value is None
                else Known(self._value, time.monotonic() - self._read_at_s)
            )

    def _work(self) -> None:
        try:
            self._read_all()
        finally:
            _at_work.discard(current_thread())

    def _read_all(self) -> None:
        while self._reads and not _ends.is_set():
            value, error, is_partial = self._value, None, False
            try:
                value = self._read()
                is_partial = self._is_partial(value)
            except Exception as raised:  # the thread that asks raises the error
                error = raised
            with self._turn:
                self._value, self._error, self._read_at_s = value, error, time.monotonic()
                self._reads = is_partial
            self._has_read.set()


@atexit.register
def _end() -> None:
    """Let reads end: a thread within DuckDB or Arrow crashes the process if Python ends before the thread."""
    _ends.set()
    for thread in list(_at_work):
        thread.join(LAST_READ_S)
