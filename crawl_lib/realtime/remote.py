"""The scheduler's line to a fetcher on another machine: the lines of `protocol` over TLS.

The scheduler connects to the fetcher, never the other way. A lost line is opened again. A URL without an answer is not
suspected of the loss, as it would be of a death: the URL is asked for again.
"""

import asyncio
import logging
import math
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from crawl_lib.config import Config, FetcherConfig
from crawl_lib.errors import ConfigError, KeyStoreError, KrakeError, ProtocolError, os_errors
from crawl_lib.realtime.certificates import Identity
from crawl_lib.realtime.hostnews import HostNews
from crawl_lib.realtime.leases import GRANT_S, Leases, Lessee, ranges_of
from crawl_lib.realtime.link import (
    FetcherDiedError,
    FetcherLink,
    LinkedFetcher,
    PendingFetch,
    TakenError,
)
from crawl_lib.realtime.protocol import (
    PROTOCOL_VERSION,
    Clock,
    Done,
    Grant,
    Hello,
    LineReader,
    Parting,
    Setup,
    Stop,
)
from crawl_lib.realtime.spooling import AskBacklog, Backlog, ToCollector
from crawl_lib.realtime.store import PageStore
from crawl_lib.realtime.turns import AddressTurns
from crawl_lib.urls import authority_of

CONNECT_S = 3.0
BACKLOG_S = 1.0
"""The time for an answer that metrics wait for."""
SILENCE_S = 2.0
"""A line without a byte for so long is lost: a fetcher says the time twice a second."""
START_S = 15.0
"""The same for the first word of a fetcher, whose machine may have to end an earlier fetcher before."""
SECTIONS = ("fetch", "retry", "urls", "traps", "parse", "segment", "watermarks")
"""The sections of a config that a fetcher needs. All others stay at home, with key servers and folders."""
log = logging.getLogger(__name__)


class LineLostError(FetcherDiedError):
    """A line was lost before the answer; the URL is asked for again."""


def setup_of(config: Config, digest: str, name: str) -> Setup:
    """Return the config of a fetcher on another machine.

    The config has the sections that a fetcher needs.

    Args:
        config: The scheduler's config.
        digest: Hex SHA-256 of the scheduler's config, for WARC files.
        name: The name of the fetcher.

    Raises ConfigError for a config that is too long for a line.
    """
    mapping = config.to_mapping()
    # Two options have no default, and a fetcher reads neither.
    needed: dict[str, Any] = {"servers": [name], "dfs_primary": "/nowhere"}
    if config.realtime is not None:
        needed["realtime"] = {"share_turns": config.realtime.share_turns}
    setup = Setup(
        config={**needed, **{section: mapping[section] for section in SECTIONS}}, digest=digest
    )
    try:
        setup.to_line()
    except ProtocolError as error:
        raise ConfigError(
            f"urls: too many rules for a fetcher on another machine: {error}"
        ) from error
    return setup


def _none_here() -> LinkedFetcher:
    raise AssertionError("the fetcher is started on the other machine")


@dataclass
class _OpenLine:
    """A line to another machine: its process is not ours to end."""

    abort: Callable[[], object]
    is_cut: bool = False

    def stop(self) -> None:
        """Wait for the fetcher's last words."""

    def kill(self) -> None:
        """Cut the line."""
        self.is_cut = True
        self.abort()


class RemoteLink(FetcherLink):
    """A fetcher on another machine for the whole life of the service.

    `restarts`: how many lines were lost, or could not be opened. `on_grant`: called after each grant.
    `has_ended`: a planned end was answered by the fetcher's own end.
    """

    longest_pause_s = 0.5
    """A second scheduler asks so often whether the first is silent."""

    def __init__(
        self,
        fetcher: FetcherConfig,
        identity: Identity,
        setup: Setup,
        leases: Leases,
        store: PageStore,
        *,
        turns: AddressTurns | None = None,
    ) -> None:
        """Prepare a link, which connects to nothing yet.

        `identity`: of the scheduler. `setup`: see `setup_of`. `store`: has `krakehosts`. `turns`: of addresses, for
        this fetcher alone.
        """
        super().__init__(_none_here, turns=turns)
        self._hosts = HostNews(store)
        self._leases, self._lessee = leases, Lessee(fetcher.name)
        self._epochs: dict[int, int] = {}
        self._grants = 0
        self._taken_s = -math.inf
        self._until_s = 0.0
        self._has_clock = False
        self.has_ended = False
        self.on_grant: Callable[[], None] = lambda: None
        self._renewal: asyncio.Task[None] | None = None
        self.name = fetcher.name
        self.who = f"fetcher {fetcher.name} ({fetcher.address})"
        host, _, port = fetcher.address.rpartition(":")
        self._host, self._port = host.strip("[]"), int(port)
        self._identity, self._setup = identity, setup

    async def _open(self) -> tuple[_OpenLine, asyncio.StreamReader, asyncio.StreamWriter]:
        with os_errors(self.who, "cannot be reached"):
            async with asyncio.timeout(CONNECT_S):
                reader, writer = await self._connect()
        loop, abort = asyncio.get_running_loop(), writer.transport.abort
        self._opened: _OpenLine = _OpenLine(lambda: loop.call_soon_threadsafe(abort))
        return self._opened, reader, writer

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection(
            self._host, self._port, ssl=self._identity.context(), server_hostname=self.name
        )

    def _greet(self, writer: asyncio.StreamWriter) -> None:
        self.died, self._has_clock = LineLostError, False
        self._lessee, self._epochs, self._grants = Lessee(self.name), {}, 0
        writer.write(Hello(version=PROTOCOL_VERSION, name="scheduler").to_line())
        writer.write(self._setup.to_line())
        writer.write(self._rates.to_line())

    def _end_lines(self, writer: asyncio.StreamWriter) -> None:
        writer.write(Stop().to_line())

    async def _heard(self, reader: asyncio.StreamReader) -> bytes:
        self._silence.reschedule(asyncio.get_running_loop().time() + self._silence_s)
        return await super()._heard(reader)

    @property
    def _silence_s(self) -> float:
        return SILENCE_S if self._has_clock else START_S

    @property
    def epochs(self) -> dict[int, int]:
        """The parts that the fetcher has now, with leases' epochs.

        This end may know less than the fetcher.
        """
        return self._epochs if self.is_ready and time.monotonic() < self._until_s else {}

    @property
    def is_elsewhere(self) -> bool:
        """Whether another scheduler had the fetcher a moment ago."""
        return time.monotonic() < self._taken_s + SILENCE_S

    @property
    def held_parts(self) -> int:
        """The number of hosts' parts that the fetcher has now.

        This end may know less than the fetcher.
        """
        return len(self.epochs)

    async def backlog(self) -> Backlog | None:
        """Ask the gate for the backlog of collection.

        The question has a connection of its own. None: no answer came.
        """
        with suppress(KrakeError, OSError, ValueError):
            async with asyncio.timeout(BACKLOG_S):
                reader, writer = await self._connect()
                try:
                    writer.write(
                        Hello(version=PROTOCOL_VERSION, name="metrics").to_line()
                        + AskBacklog().to_line()
                    )
                    lines: LineReader[ToCollector] = LineReader(ToCollector, self.who)
                    while line := await reader.readline():
                        for said in lines.feed(line):
                            if isinstance(said, Backlog):
                                return said
                finally:
                    writer.transport.abort()
        return None

    async def end(self) -> None:
        """Give the leases back after a planned end of `run`.

        The fetcher must have sent its last line.
        """
        if self.has_ended:
            with suppress(KeyStoreError):
                await self._leases.give_back(self._lessee)

    async def _read(self, reader: asyncio.StreamReader) -> None:
        try:
            # A timeout for the whole line, which each read moves on, costs less than a timeout for each read.
            async with asyncio.timeout(None) as self._silence:
                await super()._read(reader)
        except TimeoutError as error:
            raise ProtocolError(f"{self.who}: silent for {self._silence_s:g} s") from error
        self.has_ended = not self._opened.is_cut

    async def _ask(self, wanted: dict[str, Any]) -> PendingFetch:
        """Ask for a URL.

        The first URL of a host comes with all that earlier owners knew of the host.
        """
        authority = authority_of(wanted["url"])
        first = await self._hosts.first(authority, self._epochs.get(wanted["part"], 0))
        asked = await super()._ask({**wanted, **first})
        said = asked.future.result()
        if isinstance(said, Done) and said.learned is not None:
            await self._hosts.keep(authority, said.learned)
        return asked

    def _on_clock(self, clock: Clock) -> None:
        """Renew the leases, unless the last renewal is still running."""
        self._has_clock = True
        if self._writer is not None and (self._renewal is None or self._renewal.done()):
            self._renewal = asyncio.create_task(self._renew(clock, self._writer, time.monotonic()))

    async def _renew(self, clock: Clock, writer: asyncio.StreamWriter, heard_s: float) -> None:
        """Renew the leases, and grant them to the fetcher.

        Leases begin after the fetcher's time `clock`; the grant lasts until that time + `GRANT_S`.
        """
        lessee = self._lessee
        is_heard = clock.heard > 0 and clock.heard == self._grants
        lessee.asked = frozenset(self._epochs) if is_heard else None
        try:
            epochs = await self._leases.renew(lessee)
        except KeyStoreError as error:
            log.warning("%s: its leases are not renewed: %s", self.who, error)
            return
        if self._writer is writer:
            self._epochs, self._until_s = epochs, heard_s + GRANT_S
            self._grants += 1
            until_ms = clock.now_ms + round(1000 * GRANT_S)
            unowned = ranges_of(lessee.unowned & epochs.keys())
            grant = Grant(
                parts=ranges_of(epochs), until_ms=until_ms, unowned=unowned, number=self._grants
            )
            writer.write(grant.to_line())
            self.on_grant()

    def _on_parting(self, parting: Parting) -> None:
        if parting.is_death:
            self.died = FetcherDiedError
        if parting.is_taken and not self._stop.is_set():
            self._taken_s = time.monotonic()
            raise TakenError(parting.reason)
        super()._on_parting(parting)
