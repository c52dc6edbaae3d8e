"""The scheduler's end of the line to the fetcher: questions, answers, and a new fetcher after a death."""

import asyncio
import logging
import socket
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Protocol, TypeVar

from crawl_lib.errors import KrakeError, ProtocolError, StoppedError
from crawl_lib.realtime.pages import PARTS
from crawl_lib.realtime.places import FETCHER
from crawl_lib.realtime.protocol import (
    ALL_PARTS,
    PROTOCOL_VERSION,
    AskTurn,
    Body,
    Cancel,
    Clock,
    ClosedPart,
    Done,
    Fetch,
    Grant,
    Hello,
    LineReader,
    Message,
    Parting,
    Rates,
    Refused,
    ToScheduler,
)
from crawl_lib.realtime.spooling import Backlog
from crawl_lib.realtime.turns import AddressTurns

FIRST_PAUSE_S = 0.1
"""A dead fetcher is started again after this pause, doubled after each death up to `longest_pause_s`."""
STEADY_S = 30.0
"""After so long a life, the first pause is used again."""
LAST_WORDS_S = 5.0
"""The time for a fetcher to end its requests and close its part after the stop."""
_READ_BYTES = 256 << 10
_T = TypeVar("_T")
log = logging.getLogger(__name__)


class Ending(Protocol):
    """A running fetcher, or a line to a fetcher of another machine."""

    def stop(self) -> None:
        """Ask the process to end its requests and to exit.

        The process closes its part before the exit.
        """

    def kill(self) -> None:
        """End the process or the line now, and wait for its end."""


class LinkedFetcher(Ending, Protocol):
    """A running fetcher. `socket`: our end of its line."""

    socket: socket.socket


class FetcherDiedError(KrakeError):
    """The fetcher died before its answer; another fetcher is started, and the URL is asked for again."""


class TakenError(ProtocolError):
    """Another scheduler has the fetcher."""


@dataclass
class PendingFetch:
    """A question to a fetcher. `head`, `body`: the pieces of a bare fetch."""

    future: "asyncio.Future[Done | Refused]"
    head: bytearray = field(default_factory=bytearray)
    body: bytearray = field(default_factory=bytearray)


@dataclass(frozen=True)
class Bare:
    """The answer to a bare fetch."""

    said: Done | Refused
    head: bytes
    body: bytes


class FetcherLink:
    """A fetcher for the whole life of the service.

    `start`: starts a process. `on_part`: called with each closed part. `turns`: of addresses, for the fetcher alone.
    `restarts`: how many fetchers have died.
    """

    name = FETCHER
    who = "the fetcher"
    died: type[FetcherDiedError] = FetcherDiedError
    parts: frozenset[int] = frozenset(range(PARTS))
    """The parts of hosts that are fetched now."""
    is_shared = False
    """Whether other schedulers may work on the same table."""
    longest_pause_s = 2.0

    def __init__(
        self,
        start: Callable[[], LinkedFetcher],
        on_part: Callable[[ClosedPart], None] = lambda part: None,
        turns: AddressTurns | None = None,
    ) -> None:
        self._start, self._on_part = start, on_part
        self._turns = turns or AddressTurns(None)
        # A thread for all starts: each fetcher dies with its thread (`walls.forkserver`).
        self._starter = ThreadPoolExecutor(1, thread_name_prefix="krake-fetcher")
        self._ids = count(1)
        self._asked: dict[int, PendingFetch] = {}
        self._rates = Rates()
        self._lines: list[bytes] = []
        self._writer: asyncio.StreamWriter | None = None
        self._ready = asyncio.Event()
        self._stop = asyncio.Event()
        self.restarts = 0

    @property
    def is_ready(self) -> bool:
        """Whether a fetcher takes URLs now."""
        return self._ready.is_set() and not self._stop.is_set()

    @property
    def held_parts(self) -> int:
        """How many parts of hosts the fetcher has now."""
        return PARTS if self.is_ready else 0

    def has(self, part: int) -> bool:
        """Say whether the fetcher has a part now."""
        return part in self.parts

    async def backlog(self) -> Backlog | None:
        """Return the backlog of collection on the fetcher's machine.

        A fetcher on this machine has none.
        """
        return None

    async def run(self) -> None:
        """Keep a fetcher running until `stop`."""
        try:
            await self._keep_serving()
        finally:
            await self._in_thread(self._turns.close)

    async def _keep_serving(self) -> None:
        pause_s = FIRST_PAUSE_S
        while not self._stop.is_set():
            began_s = time.monotonic()
            try:
                await self._serve()
            except TakenError as error:
                log.debug("%s: %s", self.who, error)
                self.restarts -= 1
            except (KrakeError, OSError) as error:
                log.error("%s is started again: %s", self.who, error)
            if self._stop.is_set():
                return
            self.restarts += 1
            is_steady = time.monotonic() - began_s > STEADY_S
            pause_s = FIRST_PAUSE_S if is_steady else min(2 * pause_s, self.longest_pause_s)
            await asyncio.sleep(pause_s)

    async def epoch(self, part: int) -> int | None:
        """Return the epoch of the lease on a part; None without leases."""
        return None

    async def fetch(self, **wanted: Any) -> Done | Refused:
        """Have a URL fetched; `wanted`: the fields of `protocol.Fetch`, without its id.

        A cancelled caller cancels the fetch. Raises FetcherDiedError, StoppedError.
        """
        asked = await self._ask(wanted)
        return asked.future.result()

    async def fetch_bare(self, **wanted: Any) -> Bare:
        """Have a URL fetched without a trace. Raises FetcherDiedError."""
        asked = await self._ask({**wanted, "is_bare": True})
        return Bare(asked.future.result(), bytes(asked.head), bytes(asked.body))

    async def stop(self) -> None:
        """Have the fetcher end its requests and exit; `run` returns then."""
        self._stop.set()
        self._ready.set()  # wakes all who wait for a fetcher
        if self._writer is not None:
            with suppress(OSError, RuntimeError):
                self._end_lines(self._writer)

    def _end_lines(self, writer: asyncio.StreamWriter) -> None:
        """Tell the fetcher that no further URL comes."""
        writer.write_eof()

    async def _ask(self, wanted: dict[str, Any]) -> PendingFetch:
        writer = await self._line()
        number = next(self._ids)
        asked = self._asked[number] = PendingFetch(asyncio.get_running_loop().create_future())
        try:
            self._say(writer, Fetch(id=number, **wanted))
            await asked.future
        finally:
            is_open = asked.future.cancelled() or not asked.future.done()
            if self._asked.pop(number, None) and is_open and not writer.is_closing():
                self._say(writer, Cancel(id=number))
        return asked

    def _say(self, writer: asyncio.StreamWriter, message: Message) -> None:
        """Write a line together with all others of this turn of the loop.

        TLS makes a record of each write, and each record wakes the other end.
        """
        if not self._lines:
            asyncio.get_running_loop().call_soon(self._write_lines, writer)
        self._lines.append(message.to_line())

    def _write_lines(self, writer: asyncio.StreamWriter) -> None:
        lines, self._lines = self._lines, []
        if not (self._stop.is_set() or writer.is_closing()):
            writer.write(b"".join(lines))

    async def _line(self) -> asyncio.StreamWriter:
        """Wait for a ready fetcher. Raises StoppedError once the service stops."""
        while True:
            if self._stop.is_set():
                raise StoppedError("the service stops, and the URL stays due")
            if self._writer is not None and self._ready.is_set():
                if not self._writer.is_closing():
                    return self._writer
                self._ready.clear()  # the fetcher has died, and `_read` is told so next
            await self._ready.wait()

    def _in_thread(self, call: Callable[[], _T]) -> Awaitable[_T]:
        return asyncio.get_running_loop().run_in_executor(self._starter, call)

    async def _open(self) -> tuple[Ending, asyncio.StreamReader, asyncio.StreamWriter]:
        """Start a fetcher, and open the line. Raises KrakeError, OSError."""
        process = await self._in_thread(self._start)
        return process, *await asyncio.open_connection(sock=process.socket)

    def set_rates(self, rates: Rates) -> None:
        """Tell the fetcher, and each later one, operators' rates.

        A fetcher learns the rates before its first grant.
        """
        self._rates = rates
        if self._writer is not None:
            self._writer.write(rates.to_line())

    def _greet(self, writer: asyncio.StreamWriter) -> None:
        """Say the first lines."""
        writer.write(Hello(version=PROTOCOL_VERSION).to_line())
        writer.write(self._rates.to_line())
        self._grant(writer)

    def _grant(self, writer: asyncio.StreamWriter) -> None:
        """Grant all hosts."""
        writer.write(Grant(parts=(ALL_PARTS,)).to_line())

    async def _serve(self) -> None:
        await self._in_thread(self._turns.open)
        process, reader, writer = await self._open()
        self._writer = writer
        end = None
        try:
            self._greet(writer)
            end = asyncio.create_task(self._end_after_stop(process))
            with self._turns.told(writer):
                await self._read(reader)
        finally:
            self._ready.clear()
            self._writer = None
            if end is not None:
                end.cancel()
            writer.close()
            await self._in_thread(process.kill)
            self._fail_all()

    async def _end_after_stop(self, process: Ending) -> None:
        """End a slow fetcher after the stop."""
        await self._stop.wait()
        process.stop()
        await asyncio.sleep(LAST_WORDS_S)
        await self._in_thread(process.kill)

    async def _read(self, reader: asyncio.StreamReader) -> None:
        lines: LineReader[ToScheduler] = LineReader(ToScheduler, self.who)
        while data := await self._heard(reader):
            for message in lines.feed(data):
                self._take(message)
            if lines.hello is not None and not (self._ready.is_set() or self._stop.is_set()):
                self._ready.set()
        if not self._stop.is_set():
            raise ProtocolError(f"{self.who} has closed its line")

    async def _heard(self, reader: asyncio.StreamReader) -> bytes:
        """Return the next bytes of the line; none at the end."""
        return await reader.read(_READ_BYTES)

    def _take(self, message: ToScheduler) -> None:
        match message:
            case ClosedPart():
                self._on_part(message)
            case Clock():
                self._on_clock(message)
            case AskTurn():
                self._turns.ask(message)
            case Parting():
                self._on_parting(message)
            case Body() | Done() | Refused():
                self._take_answer(message)

    def _take_answer(self, message: Body | Done | Refused) -> None:
        asked = self._asked.get(message.id)
        if asked is None or asked.future.done():  # cancelled meanwhile
            return
        if isinstance(message, Body):
            (asked.head if message.is_head else asked.body).extend(message.data)
        else:
            asked.future.set_result(message)

    def _on_clock(self, clock: Clock) -> None:
        """Take a fetcher's time."""

    def _on_parting(self, parting: Parting) -> None:
        """End the line, unless the end is ours."""
        if not self._stop.is_set():
            raise ProtocolError(f"{self.who} ends the line: {parting.reason}")

    def _fail_all(self) -> None:
        for asked in self._asked.values():
            if not asked.future.done():
                asked.future.set_exception(self.died(f"{self.who} died before the answer"))
