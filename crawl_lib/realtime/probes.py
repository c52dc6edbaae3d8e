"""Probes of pictures: which pictures are asked for, and how often.

Many pages of a site name the same picture. So a picture is asked for once in `KEEP_S`, and all pages have the answer.
Pictures wait for all pages of their host (`later`), and no longer than `realtime.max_wait_s`. At most
`realtime.max_waiting` pictures wait.
"""

import asyncio
import time
from typing import TYPE_CHECKING, Any

from crawl_lib.config import PolicyConfig
from crawl_lib.errors import StoppedError, UrlError
from crawl_lib.realtime.link import FetcherDiedError
from crawl_lib.realtime.pages import part_of
from crawl_lib.realtime.protocol import Refused
from crawl_lib.urls import canonicalize, host_of, key_of

if TYPE_CHECKING:
    from crawl_lib.realtime.scheduler import Scheduler

KEEP_S = 3600.0
"""The answers of so many seconds are kept."""
MOST_KEPT = 10_000
"""The most answers in memory."""

Findings = dict[str, Any]
"""`url` and `outcome` of a probe; `type`, `width`, `height` and `length` of the picture, as far as known."""


class Probes:
    """The pictures of a service, by URL."""

    def __init__(self, service: "Scheduler") -> None:
        self._service = service
        self._known: dict[str, tuple[float, asyncio.Task[Findings]]] = {}
        self._open = 0

    async def look(self, url: str, via: bytes, policy: PolicyConfig) -> Findings:
        """Return the findings of a picture.

        `via`: the key of the page. Raises StoppedError once the service stops.
        """
        service = self._service
        try:
            canonical = service.filter.chain.normalize(
                canonicalize(url, max_length_chars=service.max_length_chars)
            )
        except UrlError as error:
            return {"url": url, "outcome": "refused", "error": error.reason}
        asked_s, task = self._known.pop(canonical, (0.0, None))
        if task is None or time.monotonic() - asked_s > KEEP_S:
            if self._open >= service.config.max_waiting:
                return {"url": canonical, "outcome": "busy"}
            asked_s, task = time.monotonic(), service.spawn(self._probe(canonical, via, policy))
        self._known[canonical] = asked_s, task
        if len(self._known) > MOST_KEPT:
            del self._known[next(iter(self._known))]
        return await asyncio.shield(task)

    async def _probe(self, url: str, via: bytes, policy: PolicyConfig) -> Findings:
        """Ask for a picture and for the targets of its redirects."""
        self._open += 1
        try:
            async with asyncio.timeout(self._service.config.max_wait_s):
                return await self._follow(url, via, policy)
        except FetcherDiedError:
            if self._service.is_stopping:
                raise StoppedError("the row stays due, and its picture is probed again") from None
            return {"url": url, "outcome": "fetcher_died"}
        except TimeoutError:
            return {"url": url, "outcome": "busy"}
        finally:
            self._open -= 1

    async def _follow(self, url: str, via: bytes, policy: PolicyConfig) -> Findings:
        service, target, spent_ms = self._service, url, 0
        for redirects in range(service.max_redirects + 1):
            is_ours, rule = service.filter.verdict(target, host_of(target), 0)
            if not is_ours:
                return {"url": url, "outcome": "refused", "error": rule}
            said = await service.link.fetch(
                url=target,
                key=key_of(target).hex(),
                part=part_of(host_of(target)),
                redirects=redirects,
                via=via.hex(),
                later=True,
                left_s=max(0.1, service.config.give_up_s - spent_ms / 1000),
                time_limit_s=policy.time_limit_s,
                is_probe=True,
            )
            if isinstance(said, Refused):
                return {"url": url, "outcome": said.rule}
            if said.target is None:
                return {"url": url, "outcome": said.hop.outcome, **said.facts}
            via, target, spent_ms = key_of(target), said.target.url, spent_ms + said.spent_ms
        return {"url": url, "outcome": "too_many_redirects"}
