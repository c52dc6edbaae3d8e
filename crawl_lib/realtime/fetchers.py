"""All fetchers of a service on other machines, as one: each URL goes to the fetcher that has the URL's part."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from crawl_lib.errors import StoppedError
from crawl_lib.realtime.leases import Leases
from crawl_lib.realtime.link import Bare
from crawl_lib.realtime.protocol import Done, Refused
from crawl_lib.realtime.remote import LineLostError, RemoteLink

STOP_S = 4.5
"""The time for requests in flight, and for the return of leases."""
_T = TypeVar("_T")


class Fetchers:
    """The lines to all fetchers, with the methods of `FetcherLink`."""

    def __init__(self, links: Sequence[RemoteLink], leases: Leases) -> None:
        """Take the lines. `leases`: closed at the end of `run`."""
        self._links, self._leases = links, leases
        self._is_stopping = False
        self._is_over = asyncio.Event()
        self._news = asyncio.Event()
        for link in links:
            link.on_grant = self._tell

    @property
    def is_ready(self) -> bool:
        """Whether a fetcher takes URLs now."""
        return any(link.is_ready for link in self._links)

    @property
    def restarts(self) -> int:
        """How many lines were lost, or could not be opened."""
        return sum(link.restarts for link in self._links)

    async def run(self) -> None:
        """Keep the lines open until `stop`; then give all leases back."""
        try:
            await asyncio.gather(*(link.run() for link in self._links))
            await asyncio.gather(*(link.end() for link in self._links))
        finally:
            self._leases.close()
            self._is_over.set()

    async def stop(self) -> None:
        """Have all fetchers end their requests, and wait for the end of `run`, `STOP_S` at most."""
        self._is_stopping = True
        self._tell()
        await asyncio.gather(*(link.stop() for link in self._links))
        with suppress(TimeoutError):
            async with asyncio.timeout(STOP_S):
                await self._is_over.wait()

    async def fetch(self, **wanted: Any) -> Done | Refused:
        """Have a URL fetched by the fetcher with its part; see `FetcherLink.fetch`. Raises StoppedError."""
        return await self._asked(wanted["part"], lambda link: link.fetch(**wanted))

    async def fetch_bare(self, **wanted: Any) -> Bare:
        """Have a URL fetched without a trace. Raises StoppedError."""
        return await self._asked(wanted["part"], lambda link: link.fetch_bare(**wanted))

    async def _asked(self, part: int, ask: Callable[[RemoteLink], Awaitable[_T]]) -> _T:
        """Ask the fetcher with a part; after the loss of a line ask the next one."""
        while True:
            link = await self._link_of(part)
            with suppress(LineLostError):
                return await ask(link)

    def _tell(self) -> None:
        """Wake all who wait for the owner of a part."""
        news, self._news = self._news, asyncio.Event()
        news.set()

    async def _link_of(self, part: int) -> RemoteLink:
        while not self._is_stopping:
            for link in self._links:
                if link.is_ready and link.has(part):
                    return link
            await self._news.wait()
        raise StoppedError("the service stops, and the URL stays due")
