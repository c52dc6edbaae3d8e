"""A pool of threads for searches. Tantivy cannot be interrupted, so the number of waiting searches is limited."""

import os
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from threading import BoundedSemaphore
from types import TracebackType
from typing import Self, TypeVar

from crawl_lib.errors import BusyError

WAITING_PER_THREAD = 2
RETRY_AFTER_S = 1
T = TypeVar("T")


class SearchPool:
    """Runs searches on as many threads as the machine has cores; some more may wait."""

    def __init__(
        self, threads: int | None = None, waiting_per_thread: int = WAITING_PER_THREAD
    ) -> None:
        """Start no thread yet.

        `threads`: None is one for each core. `waiting_per_thread`: searches that may wait.
        """
        count = threads or os.cpu_count() or 1
        self._free = BoundedSemaphore(count * (1 + waiting_per_thread))
        self._threads = ThreadPoolExecutor(count, "search")

    def submit(self, search: Callable[[], T]) -> "Future[T]":
        """Have a search run as soon as a thread is free.

        Raises BusyError, at once, where too many wait: the caller tells the client when to come again.
        """
        if not self._free.acquire(blocking=False):
            raise BusyError(
                "more searches wait than this machine can answer soon; try again", RETRY_AFTER_S
            )
        try:
            future = self._threads.submit(search)
        except BaseException:
            self._free.release()
            raise
        future.add_done_callback(lambda _: self._free.release())
        return future

    def __enter__(self) -> Self:
        """Return the pool."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Wait for running searches; waiting searches do not begin."""
        self._threads.shutdown(cancel_futures=True)
