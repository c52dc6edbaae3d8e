"""The turns of addresses that a scheduler reserves for a fetcher, in `kraakeslots` on the key servers.

A fetcher has no password of a key server, so it asks its scheduler (`ask_turn`). The scheduler asks as a node's task
does for its fetching processes (`keys.SharedTurns`). Fetchers therefore keep the delay of an address with each other
and with batch crawls. Each fetcher has reservations of its own: no table on one machine keeps two fetchers apart.

The clocks of both ends differ. A span begins for the fetcher when its wait is over after the receipt of the `turn`, so
the way of the line makes the start later. The span's end counts from the time that the fetcher said in its question,
so the way of the line makes the end earlier.
"""

import asyncio
import logging
import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from crawl_lib.errors import KeyStoreError, ProtocolError
from crawl_lib.keys import SharedTurns
from crawl_lib.realtime.protocol import AskTurn, Turn

LINE_S = 0.1
"""The seconds by which a span is longer than in a batch crawl: question and answer go over a line."""
MOST_ASKED = 20_000
MOST_UNREAD_BYTES = 64 << 20
"""A fetcher may leave so much unread; a hostile one may ask for turns, and read nothing."""
log = logging.getLogger(__name__)


class AddressTurns:
    """The turns of addresses for one fetcher, line after line. `ask` and `told` belong to the loop's thread."""

    def __init__(self, make: Callable[[], SharedTurns] | None) -> None:
        """Reserve nothing yet. `make`: returns a new `SharedTurns`; None: the fetcher shares no turns."""
        self._make = make
        self._shared: SharedTurns | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._ahead_ms: dict[str, float] = {}
        self._is_broken = False

    def open(self) -> None:
        """Be ready for questions, in a thread that may wait. Raises KeyStoreError."""
        if self._is_broken:
            self.close()
        if self._make is not None and self._shared is None:
            self._shared, self._is_broken = self._make(), False

    def close(self) -> None:
        """End the threads that ask key servers."""
        shared, self._shared = self._shared, None
        if shared is not None:
            with shared:
                pass

    @contextmanager
    def told(self, writer: asyncio.StreamWriter) -> Iterator[None]:
        """Answer the questions of a line within a block."""
        shared = self._shared
        if shared is None:
            yield
            return
        loop = asyncio.get_running_loop()
        self._writer, self._ahead_ms = writer, {}
        loop.add_reader(shared.fileno(), self._tell, shared, writer)
        try:
            yield
        finally:
            loop.remove_reader(shared.fileno())

    def ask(self, asked: AskTurn) -> None:
        """Reserve the turn of an address. Raises ProtocolError for more questions than a fetcher has."""
        shared, writer = self._shared, self._writer
        if shared is None or writer is None:
            raise ProtocolError("a fetcher asked for a turn, and shares none")
        if (
            len(self._ahead_ms) >= MOST_ASKED
            or writer.transport.get_write_buffer_size() > MOST_UNREAD_BYTES
        ):
            raise ProtocolError("a fetcher asks for turns, and reads no answers")
        self._ahead_ms[asked.address] = asked.now_ms - 1000 * time.monotonic()
        name, start_s = f"ip {asked.address}", asked.start_s + LINE_S
        shared.hear(0, {"ask": name, "turns": asked.turns, "start_s": start_s})

    def _tell(self, shared: SharedTurns, writer: asyncio.StreamWriter) -> None:
        """Tell the fetcher of reserved turns. After an error of a key server the next line begins again."""
        try:
            answers = shared.answers()
        except KeyStoreError as error:
            log.error("turns of addresses cannot be reserved: %s", error)
            self._is_broken = True
            writer.transport.abort()
            return
        for _, answer in answers:
            address = answer["turn"].removeprefix("ip ")
            ahead_ms = self._ahead_ms.pop(address, None)
            if ahead_ms is not None:  # else an earlier line asked
                wait_ms = math.ceil(1000 * (answer["begins_s"] - time.monotonic()))
                until_ms = math.floor(1000 * answer["ends_s"] + ahead_ms)
                writer.write(
                    Turn(
                        address=address, wait_ms=max(0, wait_ms), until_ms=max(0, until_ms)
                    ).to_line()
                )
