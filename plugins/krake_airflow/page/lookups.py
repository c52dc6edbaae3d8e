"""Look-ups of URLs for the page: few at a time, since a look-up takes a process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock

from crawl_lib.ask import LookUp, look_up
from crawl_lib.config import Config
from crawl_lib.errors import BusyError
from crawl_lib.stores import Secrets

SECONDS = 5.0
"""The time of a look-up: people wait."""
MOST = 2
"""The number of look-ups at once in a process of the API server."""


class LookUps:
    """The look-ups of this process: one at a time for a user."""

    def __init__(self) -> None:
        self._users: set[str] = set()
        self._lock = Lock()

    def of(self, user: str, config: Config, secrets: Secrets, url: str) -> LookUp:
        """Look a URL up for a user. Raises BusyError: the user asks again later."""
        with self._turn(user):
            return look_up(config, secrets, url, seconds=SECONDS)

    @contextmanager
    def _turn(self, user: str) -> Iterator[None]:
        with self._lock:
            if user in self._users:
                raise BusyError(
                    "You look up a URL already. Wait for its answer, then ask again.",
                    round(SECONDS),
                )
            if len(self._users) >= MOST:
                raise BusyError(
                    "Others look up URLs at the moment. Ask again in a few seconds.", round(SECONDS)
                )
            self._users.add(user)
        try:
            yield
        finally:
            with self._lock:
                self._users.discard(user)
