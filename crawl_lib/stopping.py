"""A piece of work: how it is asked to stop, and how it tells how far it is.

The caller of a stage sets the event, from a signal handler or another thread. Between its parts, at least each second,
the work looks at the event, and raises StoppedError if the event is set. Unfinished files are deleted on the way out,
or stay hidden until the next run deletes them.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import field
from threading import Event
from typing import Any, TypeVar

from crawl_lib.dataclass import dataclass
from crawl_lib.errors import StoppedError

_T = TypeVar("_T")
OnProgress = Callable[[Mapping[str, Any]], None]
"""Called with counts while a stage works, about once a second."""


@dataclass(frozen=True, kw_only=True)
class Work:
    """A piece of work. `stop`: the event that ends the work; `on_progress`: gets reports, or None."""

    stop: Event = field(default_factory=Event, repr=False, compare=False)
    on_progress: OnProgress | None = field(default=None, repr=False, compare=False)

    def go_on(self) -> None:
        """Raise StoppedError if the work is to stop."""
        go_on(self.stop)

    def until_stopped(self, items: Iterable[_T]) -> Iterator[_T]:
        """Yield the items until the work is to stop.

        Raises StoppedError before the next item.
        """
        return until_stopped(items, self.stop)

    def report(self, **counts: Any) -> None:
        """Tell how far the work is."""
        if self.on_progress is not None:
            self.on_progress(counts)


class Progress:
    """Counts items of a part of the work, and reports counts at the start, every `INTERVAL_S` seconds, and at the end.

    `total`: 0 if unknown. `unit`: what is counted, such as "pages"."""

    INTERVAL_S = 0.5

    def __init__(self, work: Work, stage: str, total: int, unit: str) -> None:
        self._work, self._stage, self._total, self._unit = work, stage, total, unit
        self._done, self._next_s = 0, 0.0
        self.add(0)

    def add(self, count: int) -> None:
        """Count finished items.

        Raises StoppedError.
        """
        self._work.go_on()
        self._done += count
        if time.monotonic() >= self._next_s:
            self._next_s = time.monotonic() + self.INTERVAL_S
            self.end()

    def end(self) -> None:
        """Report the final count at once."""
        self._work.report(stage=self._stage, done=self._done, total=self._total, unit=self._unit)


def go_on(stop: Event | None) -> None:
    """Raise StoppedError if the stage is to stop.

    Without an event the stage never stops.
    """
    if stop is not None and stop.is_set():
        raise StoppedError("stopped as asked; run it again to go on")


def until_stopped(items: Iterable[_T], stop: Event | None) -> Iterator[_T]:
    """Yield the items until the stage is to stop.

    Raises StoppedError before the next item.
    """
    for item in items:
        go_on(stop)
        yield item
