"""Progress of a stage, told about twice a second."""

from __future__ import annotations

import time
from threading import Event

from crawl_lib.stopping import OnProgress, go_on

INTERVAL_S = 0.5


class Progress:
    """Counts what is done, and tells it at the start, every `INTERVAL_S` seconds, and at the end.

    `total`: 0 if unknown. `unit`: what is counted, such as "pages". `stop`: when it is set, `add` raises StoppedError.
    """

    def __init__(
        self, on_progress: OnProgress | None, stage: str, total: int, unit: str, stop: Event | None = None
    ) -> None:
        self._call, self._stop = on_progress, stop
        self._stage, self._total, self._unit = stage, total, unit
        self._done = 0
        self._next = 0.0
        self.add(0)

    def add(self, count: int) -> None:
        """So many more are done. Raises StoppedError."""
        go_on(self._stop)
        self._done += count
        if self._call is None:
            return
        now = time.monotonic()
        if now >= self._next:
            self._next = now + INTERVAL_S
            self._tell()

    def end(self) -> None:
        """All is done."""
        self._tell()

    def _tell(self) -> None:
        if self._call is not None:
            self._call({"stage": self._stage, "done": self._done, "total": self._total, "unit": self._unit})
