"""`krake realtime fetcher`: the fetcher on a machine of its own, behind one port with TLS.

    scheduler -- TLS --> gate -- socket pair --> fetcher (behind the walls of a crawl's worker)
    collector -- TLS --> gate --> spool

The gate has the key of TLS, and reads no byte of the web. The fetcher, its child, reads the web and has no key. The
gate opens no connection. A connection without a certificate of a scheduler ends before its first line.

A scheduler's config comes with the connection, and is checked as a worker's is. One scheduler at a time has the
fetcher: another scheduler is told so, until the first was silent for `SILENCE_S`. At the end of a line the fetcher
begins nothing more and closes its part; the next line starts another fetcher.
"""

import asyncio
import contextlib
import logging
import socket
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar, cast

from crawl_lib.config import Config, from_mapping
from crawl_lib.errors import KrakeError, ProtocolError
from crawl_lib.frontier import NodeLock
from crawl_lib.node import FreeSpace
from crawl_lib.realtime.certificates import Identity
from crawl_lib.realtime.fetcher import (
    STOP_S,
    FetcherProcess,
    prepare_fetcher,
    start_fetcher,
)
from crawl_lib.realtime.link import FetcherDiedError, TakenError
from crawl_lib.realtime.loops import run_on_uvloop
from crawl_lib.realtime.places import live_spool
from crawl_lib.realtime.protocol import (
    MAX_LINE_BYTES,
    PROTOCOL_VERSION,
    Hello,
    LineReader,
    Parting,
    Setup,
)
from crawl_lib.realtime.spooling import ToGate, answers

SILENCE_S = 2.0
"""Another scheduler may take over after so much silence: a scheduler grants twice a second."""
HANDSHAKE_S = 5.0
FIRST_LINES_S = 10.0
IDLE_S = 60.0
"""A collector says nothing for so long: its line is ended."""
MOST_LINES = 16
"""Connections at once, of strangers too."""
LOOK_S = 0.2
_T = TypeVar("_T")
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class FetcherPlace:
    """The place where a fetcher works. `name`: such as `live-1`. `directory`: for its spool, and what it knows of
    hosts.
    """

    name: str
    directory: Path

    @property
    def spool(self) -> Path:
        """The folder of the parts."""
        return live_spool(self.directory, self.name)


class Gate:
    """The port of a fetcher. All methods belong to the loop's thread."""

    def __init__(
        self, place: FetcherPlace, identity: Identity, lock: int, clock: Callable[[], float]
    ) -> None:
        """Prepare a gate, which does not listen yet.

        `lock`: the descriptor of the directory's lock. `clock`: monotonic seconds.
        """
        self._place, self._identity, self._lock, self._clock = place, identity, lock, clock
        # A thread for all starts: each fetcher dies with its thread (`walls.forkserver`).
        self._starter = ThreadPoolExecutor(1, thread_name_prefix="krake-fetcher")
        self._lines: set[asyncio.Task[None]] = set()
        self._scheduler: _Relay | None = None

    async def serve(self, listening: socket.socket, stop: threading.Event) -> None:
        """Take connections until `stop` is set; then end all lines."""
        listening.setblocking(False)
        self._starter.submit(prepare_fetcher)  # the first scheduler need not wait for the modules
        taking = asyncio.create_task(self._take_all(listening))
        while not (stop.is_set() or taking.done()):  # noqa: ASYNC110 - a signal sets the event
            await asyncio.sleep(LOOK_S)
        taking.cancel()
        for line in self._lines:
            line.cancel()
        await asyncio.gather(taking, *self._lines, return_exceptions=True)
        self._starter.shutdown()

    async def _take_all(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            connection, peer = await loop.sock_accept(listening)
            if len(self._lines) >= MOST_LINES:
                connection.close()
                continue
            line = asyncio.create_task(self._line(connection, str(peer[0])))
            self._lines.add(line)
            line.add_done_callback(self._lines.discard)

    async def _line(self, connection: socket.socket, peer: str) -> None:
        try:
            reader, writer = await self._secured(connection)
        except (KrakeError, OSError) as error:
            log.warning("%s: no line: %s", peer, error)
            connection.close()
            return
        writer.write(Hello(version=PROTOCOL_VERSION, name=self._place.name).to_line())
        try:
            await self._hear(reader, writer, peer)
        except (KrakeError, OSError, ValueError) as error:  # ValueError: a line above the limit
            # A second scheduler asks twice a second, by design.
            level = logging.DEBUG if isinstance(error, TakenError) else logging.WARNING
            log.log(level, "%s: %s", peer, error)
            with contextlib.suppress(KrakeError, OSError):
                is_death, is_taken = (
                    isinstance(error, FetcherDiedError),
                    isinstance(error, TakenError),
                )
                writer.write(
                    Parting(
                        reason=str(error)[:1000], is_death=is_death, is_taken=is_taken
                    ).to_line()
                )
        finally:
            writer.close()

    async def _secured(
        self, connection: socket.socket
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Make the handshake of TLS, with the context of the current files."""
        loop = asyncio.get_running_loop()
        connection.setblocking(False)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        reader = asyncio.StreamReader(MAX_LINE_BYTES)
        protocol = asyncio.StreamReaderProtocol(reader)
        transport, _ = await loop.connect_accepted_socket(
            lambda: protocol,
            connection,
            ssl=self._identity.context(),
            ssl_handshake_timeout=HANDSHAKE_S,
        )
        return reader, asyncio.StreamWriter(transport, protocol, reader, loop)

    async def _hear(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, peer: str
    ) -> None:
        """Carry out the lines of a scheduler, or of a collector."""
        lines: LineReader[ToGate] = LineReader(ToGate, peer)
        wait_s = FIRST_LINES_S
        while True:
            async with asyncio.timeout(wait_s):
                line = await reader.readline()
            if not line:
                return
            for asked in lines.feed(line):
                wait_s = IDLE_S
                if isinstance(asked, Setup):
                    await self._relay(asked, peer, reader, writer)
                    return
                assert not isinstance(asked, Hello)
                for answer in answers(self._place.spool, asked):
                    writer.write(answer.to_line())
                    async with asyncio.timeout(IDLE_S):
                        await writer.drain()

    async def _relay(
        self, setup: Setup, peer: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Start a fetcher for a scheduler, and carry their lines.

        The end of either one ends both.
        """
        config = from_mapping(setup.config, Path("/"), f"the config of scheduler {peer}")
        room = FreeSpace(config.watermarks, self._place.directory)
        require_room(room)
        while (earlier := self._scheduler) is not None:
            if not earlier.is_ending and self._clock() - earlier.heard_s < SILENCE_S:
                raise TakenError(f"scheduler {earlier.peer} has this fetcher; wait for its silence")
            await earlier.end("another scheduler took over after a silence")
        if reader.at_eof():  # the scheduler has not waited
            return
        relay = self._scheduler = _Relay(peer, reader, writer, self._clock)
        try:
            process = await self._in_thread(lambda: self._start(config, setup.digest))
            try:
                await relay.run(process, room)
            finally:
                await asyncio.shield(self._end(process))
        finally:
            relay.is_over.set()
            if self._scheduler is relay:
                self._scheduler = None

    def _start(self, config: Config, digest: str) -> FetcherProcess:
        return start_fetcher(
            config,
            self._place.directory,
            name=self._place.name,
            digest=digest,
            log_path=self._place.spool.parent / "log",
            lock=self._lock,
            is_leased=True,
        )

    async def _end(self, process: FetcherProcess) -> None:
        """Let requests in flight end, then end the fetcher."""
        await self._in_thread(lambda: process.forked.wait(STOP_S + 1))
        await self._in_thread(process.kill)
        if process.forked.returncode:
            log.warning("the fetcher has ended with code %s", process.forked.returncode)

    def _in_thread(self, call: Callable[[], _T]) -> "asyncio.Future[_T]":
        return asyncio.get_running_loop().run_in_executor(self._starter, call)


class _Relay:
    """The line of a scheduler.

    `heard_s`: when the scheduler last said something. `is_ending`: the line has ended, and its fetcher is about to.
    `is_over`: both have ended.
    """

    def __init__(
        self,
        peer: str,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        clock: Callable[[], float],
    ) -> None:
        self.peer, self._reader, self._writer, self._clock = peer, reader, writer, clock
        self.heard_s = clock()
        self.is_ending = False
        self.is_over = asyncio.Event()
        self._ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def end(self, reason: str) -> None:
        """End the line, and wait for the end of its fetcher."""
        if not self._ended.done():
            self._ended.set_result(reason)
        await self.is_over.wait()

    async def run(self, process: FetcherProcess, room: FreeSpace) -> None:
        """Carry lines both ways.

        Raises ProtocolError with the reason of an end that the scheduler should hear.
        """
        loop = asyncio.get_running_loop()
        scheduler = cast("asyncio.Transport", self._writer.transport)
        down = _End(scheduler, has_hello=True)  # the gate has said its own hello
        fetcher, _ = await loop.create_connection(lambda: down, sock=process.socket)
        full = asyncio.create_task(_until_full(room))
        try:
            fetcher.write(Hello(version=PROTOCOL_VERSION).to_line())
            up = _End(fetcher, self._note)
            scheduler.set_protocol(up)
            self._reader.feed_eof()  # `up` hears all further bytes
            fetcher.write(await self._reader.read())
            if scheduler.is_closing():  # before `up` was there
                up.connection_lost(None)
            ends = [up.lost, down.lost, full, self._ended]
            done, _ = await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            if up.lost in done:
                return
            if down.lost in done:
                raise FetcherDiedError("the fetcher has ended; its log says why")
            raise ProtocolError(next(iter(done)).result())
        finally:
            self.is_ending = True
            full.cancel()
            process.stop()  # before the socket is closed, which would stop nothing
            fetcher.close()

    def _note(self) -> None:
        self.heard_s = self._clock()


class _End(asyncio.Protocol):
    """An end of a relay: all bytes that come here go out at the other end.

    A protocol costs half of what streams and tasks cost. `lost`: done at the end of the connection.
    """

    def __init__(
        self,
        other: asyncio.Transport,
        heard: Callable[[], None] = lambda: None,
        *,
        has_hello: bool = False,
    ) -> None:
        """Pass nothing yet. `heard`: called with each read. `has_hello`: the first line is not passed on."""
        self._other, self._heard, self._has_hello = other, heard, has_hello
        self.lost: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def data_received(self, data: bytes) -> None:
        self._heard()
        if self._has_hello:
            _, newline, data = data.partition(b"\n")
            self._has_hello = not newline
        if not self._other.is_closing():
            self._other.write(data)

    def pause_writing(self) -> None:
        if not self._other.is_closing():
            self._other.pause_reading()

    def resume_writing(self) -> None:
        if not self._other.is_closing():
            self._other.resume_reading()

    def connection_lost(self, error: Exception | None) -> None:
        if not self.lost.done():
            self.lost.set_result("")


async def _until_full(room: FreeSpace) -> str:
    while (shortage := room.shortage()) is None:  # noqa: ASYNC110 - a full disk sends no signal
        await asyncio.sleep(1.0)
    return shortage


def require_room(room: FreeSpace) -> None:
    """Raise ProtocolError while the directory is too full.

    The watermarks say how much room it needs.
    """
    if shortage := room.shortage():
        raise ProtocolError(shortage)


def serve_fetcher(
    place: FetcherPlace,
    identity: Identity,
    listening: socket.socket,
    stop: threading.Event,
    clock: Callable[[], float],
) -> None:
    """Serve schedulers and collectors until `stop` is set.

    Raises ConfigError for unusable certificates, LockedError if another process works in the directory.
    """
    identity.context()
    place.directory.mkdir(parents=True, exist_ok=True)
    lock = NodeLock(place.directory, place.name, 0.0, what="krake realtime fetcher")
    with lock:
        run_on_uvloop(Gate(place, identity, lock.fileno(), clock).serve(listening, stop))
