"""How a stage is asked to stop: by an event that it looks at between the parts of its work, at least each second.

Whoever runs stages sets the event, from a signal handler or another thread. The stage raises StoppedError where it
looks next; files that it was writing are deleted on the way out, or stay hidden until the next run deletes them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from threading import Event
from typing import Any, TypeVar

from crawl_lib.errors import StoppedError

_T = TypeVar("_T")
OnProgress = Callable[[Mapping[str, Any]], None]
"""Called with counts while a stage works, about once a second."""


def go_on(stop: Event | None) -> None:
    """Raise StoppedError if the stage is to stop; None never is."""
    if stop is not None and stop.is_set():
        raise StoppedError("stopped as asked; run it again to go on")


def until_stopped(items: Iterable[_T], stop: Event | None) -> Iterator[_T]:
    """The items, one after the other; StoppedError before the next one once the stage is to stop."""
    for item in items:
        go_on(stop)
        yield item
