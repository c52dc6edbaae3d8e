"""Facts about hosts from fetchers on other machines, for the next owner of a part: the table `krakehosts`.

The first URL of an authority in the time of a lease goes to the fetcher with all that is known of the host. The answer
to a URL brings what the fetcher has learned. A fetcher may be in the hands of an attacker, so an answer changes the
row of its own URL's authority only.
"""

import asyncio
import logging
from typing import Any

import msgspec

from crawl_lib.errors import KeyStoreError
from crawl_lib.fetch import HostState
from crawl_lib.realtime.store import PageStore
from crawl_lib.urls import host_of

MOST_TOLD = 20_000
"""Authorities in memory. An older one is looked up, and told, again."""
_encoder = msgspec.json.Encoder()
_states = msgspec.json.Decoder(HostState)
log = logging.getLogger(__name__)


class HostNews:
    """The knowledge about hosts for one fetcher."""

    def __init__(self, store: PageStore) -> None:
        self._store = store
        self._told: dict[tuple[str, int], asyncio.Task[None]] = {}

    async def first(self, authority: str, epoch: int) -> dict[str, bool | HostState | None]:
        """Return fields of `Fetch` for an authority's first URL in a lease.

        Later URLs get none. A later URL waits until the first one is on its way. `epoch`: of the lease.
        """
        told = self._told.get((authority, epoch))
        if told is not None:
            if not told.done():
                await asyncio.shield(told)
            return {}
        fields: dict[str, Any] = {"is_first": True}
        task = self._told[authority, epoch] = asyncio.create_task(self._look_up(authority, fields))
        if len(self._told) > MOST_TOLD:
            del self._told[next(iter(self._told))]
        await asyncio.shield(task)
        return fields

    async def _look_up(self, authority: str, fields: dict[str, Any]) -> None:
        """Add what is known.

        An unreadable host is treated as unknown, and waits longest.
        """
        try:
            data = await self._store.host(authority)
            fields["known"] = None if data is None else _states.decode(data)
        except (KeyStoreError, msgspec.DecodeError) as error:
            log.warning("krakehosts: %s is treated as unknown: %s", authority, error)

    async def keep(self, authority: str, state: HostState) -> None:
        """Write what a fetcher has learned of the host of a URL."""
        is_other = state.robots is not None and state.robots.authority != authority
        if is_other or state.host.host != host_of(f"{authority}/"):
            log.warning(
                "a fetcher told of %s, and was asked for %s", state.host.host[:100], authority
            )
            return
        try:
            await self._store.put_host(authority, _encoder.encode(state))
        except KeyStoreError as error:
            log.warning("krakehosts: the next owner of %s waits longest: %s", authority, error)
