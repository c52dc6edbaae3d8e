"""All fetchers of a service on other machines, as one: each URL goes to the fetcher that has the URL's part."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from itertools import chain
from typing import Any, TypeVar

from crawl_lib.errors import StoppedError
from crawl_lib.realtime.leases import Leases
from crawl_lib.realtime.link import Bare
from crawl_lib.realtime.protocol import Done, Rates, Refused
from crawl_lib.realtime.remote import LineLostError, RemoteLink

STOP_S = 4.5
"""The time for requests in flight, and for the return of leases."""
OWNER_S = 3.0
"""How long a URL waits for a fetcher with its part; then the URL is due for another scheduler."""
_NOT_HERE = Refused(id=0, rule="not_granted", reason="no fetcher of this scheduler has the host")
_T = TypeVar("_T")


class Fetchers:
    """The lines to all fetchers (`links`), with the methods of `FetcherLink`."""

    is_shared = True

    def __init__(self, links: Sequence[RemoteLink], leases: Leases) -> None:
        """Take the lines. `leases`: closed at the end of `run`."""
        self.links, self._leases = links, leases
        self._is_stopping = False
        self._is_over = asyncio.Event()
        self._news = asyncio.Event()
        for link in links:
            link.on_grant = self._tell

    @property
    def is_ready(self) -> bool:
        """Whether a fetcher takes URLs now, from any scheduler."""
        return any(link.is_ready or link.is_elsewhere for link in self.links)

    @property
    def parts(self) -> frozenset[int]:
        """The parts of hosts that this scheduler's fetchers have now."""
        return frozenset(chain.from_iterable(link.epochs for link in self.links))

    def has(self, part: int) -> bool:
        """Say whether a fetcher of this scheduler has a part now."""
        return any(part in link.epochs for link in self.links)

    @property
    def restarts(self) -> int:
        """How many lines were lost, or could not be opened."""
        return sum(link.restarts for link in self.links)

    async def run(self) -> None:
        """Keep the lines open until `stop`; then give all leases back."""
        try:
            await asyncio.gather(*(link.run() for link in self.links))
            await asyncio.gather(*(link.end() for link in self.links))
        finally:
            self._leases.close()
            self._is_over.set()

    async def stop(self) -> None:
        """Stop all fetchers, and wait for the end of `run`.

        Fetchers end their requests first. The wait lasts `STOP_S` at most.
        """
        self._is_stopping = True
        self._tell()
        await asyncio.gather(*(link.stop() for link in self.links))
        with suppress(TimeoutError):
            async with asyncio.timeout(STOP_S):
                await self._is_over.wait()

    def set_rates(self, rates: Rates) -> None:
        """Tell all fetchers the rates of operators."""
        for link in self.links:
            link.set_rates(rates)

    async def epoch(self, part: int) -> int:
        """Return the epoch of the lease on a part.

        0: no fetcher of this scheduler has the part.
        """
        link = await self._link_of(part)
        return link.epochs.get(part, 0) if link else 0

    async def fetch(self, **wanted: Any) -> Done | Refused:
        """Have a URL fetched by the fetcher with its part.

        See `FetcherLink.fetch`. Raises StoppedError.
        """
        return await self._asked(wanted["part"], lambda link: link.fetch(**wanted)) or _NOT_HERE

    async def fetch_bare(self, **wanted: Any) -> Bare:
        """Have a URL fetched without a trace. Raises StoppedError."""
        return await self._asked(wanted["part"], lambda link: link.fetch_bare(**wanted)) or Bare(
            _NOT_HERE, b"", b""
        )

    async def _asked(self, part: int, ask: Callable[[RemoteLink], Awaitable[_T]]) -> _T | None:
        """Ask the fetcher with a part.

        After the loss of a line the next fetcher is asked. None: no fetcher has the part.
        """
        while link := await self._link_of(part):
            with suppress(LineLostError):
                return await ask(link)
        return None

    def _tell(self) -> None:
        """Wake all who wait for the owner of a part."""
        news, self._news = self._news, asyncio.Event()
        news.set()

    async def _link_of(self, part: int) -> RemoteLink | None:
        """Return the line to the fetcher with a part.

        None: for `OWNER_S` no fetcher had the part. Raises StoppedError.
        """
        with suppress(TimeoutError):
            until_s = asyncio.get_running_loop().time() + OWNER_S
            while not self._is_stopping:
                for link in self.links:
                    if part in link.epochs:
                        return link
                async with asyncio.timeout_at(until_s):
                    await self._news.wait()
        if self._is_stopping:
            raise StoppedError("the service stops, and the URL stays due")
        return None
