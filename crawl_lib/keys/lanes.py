"""Several key servers asked at the same time, each by one thread.

A *lane* is what one server has to do in a round; it is carried out by one thread, in order, over the server's one
connection. Lanes of different servers run side by side, at most `connections` at a time, the first server's first.
A round ends when all its lanes have ended, so a call that returns or raises leaves nothing running behind it.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from typing import TypeVar

_T = TypeVar("_T")


class Lanes:
    """Threads for rounds of requests to `count` servers, told apart by their places from 0.

    `connections`: lanes that run at the same time, and servers that stay connected between rounds; at least 1.
    `first`: the place whose lane begins first; the others follow in the ring. `release(place)` closes the connection
    of a server: called at the end of its lane if there are more servers than connections. Threads start at the first
    round that has two lanes.
    """

    def __init__(
        self, count: int, connections: int, *, first: int, release: Callable[[int], None]
    ) -> None:
        if connections < 1:
            raise ValueError(f"{connections} connections")
        self._count = count
        self._most = min(connections, count)
        self._first = first
        self._release = release
        self._pool: ThreadPoolExecutor | None = None

    def run(self, places: Sequence[int], lane: Callable[[int], _T]) -> dict[int, _T]:
        """Call `lane(place)` for each place; return results by place.

        Every lane runs to its end. Then the exception of the lowest place is raised, if one has failed.
        """
        ordered = sorted(places, key=lambda place: (place - self._first) % self._count)
        if len(ordered) < 2:
            return {place: self._lane(place, lane) for place in ordered}
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self._most, thread_name_prefix="krake-keys")
        futures = {place: self._pool.submit(self._lane, place, lane) for place in ordered}
        wait(futures.values())
        return {place: futures[place].result() for place in sorted(places)}

    def _lane(self, place: int, lane: Callable[[int], _T]) -> _T:
        try:
            return lane(place)
        finally:
            if self._count > self._most:
                self._release(place)

    def close(self) -> None:
        """End the threads. They start again if another round is run."""
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.shutdown(wait=True, cancel_futures=True)
