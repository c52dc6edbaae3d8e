"""Redirects: rows that wait for the target of their redirect, and documents that are handed on to these rows."""

import asyncio
from typing import TYPE_CHECKING

from msgspec.structs import replace

from crawl_lib.errors import KeyStoreError
from crawl_lib.realtime import stages
from crawl_lib.realtime.documents import Document, Request, encoded, joined, request_bytes
from crawl_lib.realtime.loops import together
from crawl_lib.realtime.pages import Finished, Followed, Row, Wish, part_of
from crawl_lib.realtime.stages import Handing, Visit
from crawl_lib.urls import host_of, key_of

if TYPE_CHECKING:
    from crawl_lib.realtime.scheduler import Scheduler


class Redirects:
    """The documents of a service, along the redirects that lead to them."""

    def __init__(self, service: "Scheduler") -> None:
        self._service, self._store = service, service.store
        self._persistent = service.persistent

    async def follow(self, request: Request, epoch: int) -> Document | None:
        """Let a row wait for the target of its redirect.

        Returns the whole document if the target has one. The fetch of a target without a row begins at once. Its
        document waits for the rows (`Visit.entered`).
        """
        assert request.target is not None
        key, wanted = key_of(request.url), _after(request)
        early = await self._begin_unknown(wanted)
        try:
            hop = Followed(key, bytes.fromhex(request.target.key), request_bytes(request), epoch)
            await self._persistent(self._store.follow, hop)
            document = await self._ask_for_target(request, wanted)
        except BaseException:
            if early is not None and early.task is not None:
                early.task.cancel()
            raise
        if early is not None and early.entered is not None:
            early.entered.set()
        return document

    async def _begin_unknown(self, wanted: Request) -> Visit | None:
        """Begin the work on a URL without a row.

        The caller submits the URL, and sets `entered`.
        """
        key = key_of(wanted.url)
        try:
            row = await self._store.state(key)
        except KeyStoreError:  # the submission waits for the server
            return None
        is_ours = self._service.has_host(host_of(wanted.url))
        if row is not None or key in self._service.visits or not is_ours:
            return None
        visit = self._service.begin(
            wanted, Row(key, 0, 0, 0, 0, 0, 0, None, request_bytes(wanted), None)
        )
        assert visit is not None
        visit.entered = asyncio.Event()
        return visit

    async def _ask_for_target(self, request: Request, wanted: Request) -> Document | None:
        """Submit the target of a waiting row.

        Returns the row's document for a known target, or for a loop.
        """
        assert request.hop is not None
        key, target = key_of(request.url), key_of(wanted.url)
        wish = Wish(target, part_of(host_of(wanted.url)), request_bytes(wanted), shares=0)
        row = await self._persistent(self._service.submit, wish)
        if row is None or not row.is_open:
            known = await self._persistent(self._store.read, target)
            document = self._service.document_in(known)
            if document is None:  # deleted by hand at this moment, or damaged
                return Document(
                    url=request.url, outcome="deleted", final_url=wanted.url, hops=[request.hop]
                )
            return joined(request.url, request.hop, document)
        if await self._leads_to(row, key):
            error = "the redirects lead back to a URL of their chain"
            return Document(
                url=request.url,
                outcome="redirect_loop",
                final_url=wanted.url,
                hops=[request.hop],
                error=error,
            )
        if row.is_due:
            self._service.begin(self._service.request_in(row) or wanted, row)
        return None

    async def _leads_to(self, row: Row, key: bytes) -> bool:
        """Return whether a chain of waiting rows leads to a key.

        The chain begins at `row`.
        """
        for _ in range(self._service.max_redirects + 1):
            if row.waits_for is None:
                return False
            if row.waits_for == key:
                return True
            found = await self._persistent(self._store.state, row.waits_for)
            if found is None:
                return False
            row = found
        return False

    async def write(self, document: Document, handing: Handing, *, stays_due: bool = False) -> None:
        """Write a document into the row of its URL.

        `stays_due`: the document's picture is missing.
        """
        again_ms = stages.again_ms(document, handing.policy)
        finished = Finished(
            handing.key, encoded(document), again_ms, handing.epoch, stays_due=stays_due
        )
        await self._persistent(self._store.finish, finished)

    async def _write_on(self, key: bytes, document: Document, handing: Handing) -> None:
        """Write a document into a row that waited for it.

        A row with a younger document keeps that.
        """
        made_ms = await self._persistent(self._store.written_ms, handing.key, handing.epoch)
        if made_ms is not None:
            again_ms = stages.again_ms(document, handing.policy)
            await self._persistent(
                self._store.finish, Finished(key, encoded(document), again_ms, 0, made_ms)
            )

    def hand_on(self, key: bytes, document: Document, handing: Handing, steps: int = 1) -> None:
        """Wake a document's readers, and write it into waiting rows.

        These rows wait for its URL.

        `steps`: redirects from those rows to the document. A silent server has its turn later.
        """
        self._service.changed(key)
        for place in self._store.places:
            handing.tasks.append(
                self._service.spawn(self._hand_on(place, key, document, handing, steps))
            )

    async def _hand_on(
        self, place: int, key: bytes, document: Document, handing: Handing, steps: int
    ) -> None:
        rows = await self._persistent(self._store.waiters, place, key)
        await together([self._finish_waiting(row, document, handing, steps) for row in rows])

    async def _finish_waiting(self, row: Row, rest: Document, handing: Handing, steps: int) -> None:
        request = self._service.request_in(row)
        if request is None:
            return
        document = self._whole(request, rest, steps)
        if document.outcome == rest.outcome:
            handing.ahead[row.key] = document.url, document.hops[:steps]
        await self._write_on(row.key, document, handing)
        self.hand_on(row.key, document, handing, steps + 1)

    async def hand_on_again(self, document: Document, handing: Handing) -> None:
        """Write a richer document into the rows that `hand_on` has found."""
        for key, (url, hops) in handing.ahead.items():
            await self._write_on(
                key, replace(document, url=url, hops=[*hops, *document.hops]), handing
            )
            self._service.changed(key)

    def _whole(self, request: Request, rest: Document, steps: int) -> Document:
        hops = [request.hop] if request.hop else []
        if steps > self._service.max_redirects or not hops:
            error = f"more than {self._service.max_redirects} redirects (fetch.max_redirects)"
            return Document(
                url=request.url,
                outcome="too_many_redirects",
                final_url=rest.url,
                hops=hops,
                error=error,
            )
        return joined(request.url, hops[0], rest)

    async def go_on(self, place: int) -> None:
        """Submit the targets of a server's waiting rows again, or finish these rows. Raises KeyStoreError."""
        target = key = b""
        while (parts := self._service.link.parts) and (
            rows := await self._store.waiting(place, target, key, parts)
        ):
            target, key = rows[-1].waits_for or b"", rows[-1].key
            await together([self._go_on(row) for row in rows])

    async def _go_on(self, row: Row) -> None:
        """Submit the target of a waiting row again, or finish the row."""
        request = self._service.request_in(row)
        if request is None or request.target is None or row.waits_for in self._service.visits:
            return
        document = await self._ask_for_target(request, _after(request))
        current = await self._store.state(row.key)
        if document is not None and current is not None and current.waits_for == row.waits_for:
            policy = self._service.policies.get(request.policy, self._service.policies["default"])
            epoch = await self._service.epoch(row.key, part_of(host_of(request.url)))
            handing = Handing(row.key, policy, epoch)
            await self.write(document, handing)
            self.hand_on(row.key, document, handing)


def _after(request: Request) -> Request:
    """Return the request for the target of a redirect."""
    assert request.target is not None
    return Request(
        url=request.target.url,
        policy=request.policy,
        redirects=request.redirects + 1,
        via=key_of(request.url).hex(),
        spent_ms=request.spent_ms,
    )
