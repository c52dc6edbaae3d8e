"""A fetcher without a network, which speaks the protocol; and a service around it in the test's own loop."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

import httpx

from crawl_lib.config import Config, from_mapping
from crawl_lib.realtime.api import make_app
from crawl_lib.realtime.link import FetcherLink
from crawl_lib.realtime.pages import PageServer
from crawl_lib.realtime.pages_sqlite import SqlitePages
from crawl_lib.realtime.protocol import (
    PROTOCOL_VERSION,
    Body,
    Cancel,
    Done,
    Fetch,
    Grant,
    Hello,
    Hop,
    LineReader,
    PageTarget,
    Rates,
    Refused,
    ToFetcher,
)
from crawl_lib.realtime.scheduler import Scheduler
from crawl_lib.realtime.store import PageStore
from crawl_lib.realtime.tokens import RIGHTS, TokenFile
from crawl_lib.urls import key_of

LIMIT_S = 60.0
_numbers = count()


def page(wanted: Fetch, **fields: Any) -> Done:
    """An answer of 200."""
    fields = {"facts": {"title": wanted.url}, **fields}
    return Done(
        id=wanted.id, hop=hop(wanted.url), mime="text/html", attempts=1, spent_ms=5, **fields
    )


def redirect(wanted: Fetch, url: str) -> Done:
    """An answer of 301."""
    return Done(
        id=wanted.id,
        hop=hop(wanted.url, outcome="redirect", status=301),
        target=PageTarget(url=url, key=key_of(url).hex(), how="redirect"),
        attempts=1,
        spent_ms=5,
    )


def hop(url: str, outcome: str = "ok", status: int | None = 200) -> Hop:
    """One request."""
    return Hop(
        url=url,
        key=key_of(url).hex(),
        outcome=outcome,
        status=status,
        time_ms=1_700_000_000_000,
        duration_ms=5,
    )


class Web:
    """What the fetcher sees, by URL; unknown URLs are pages.

    `answers`: by URL, a function of the `Fetch`; it may return an awaitable, or None: the fetcher dies. `asked`: all
    `Fetch`es, in order. `held`: URLs that are answered once `release` is called. `deaths`: fetchers that died.
    """

    def __init__(self) -> None:
        self.answers: dict[str, Callable[[Fetch], Any]] = {}
        self.asked: list[Fetch] = []
        self.cancelled: list[int] = []
        self.started = 0
        self.refuses_to_start = 0
        self.held: dict[str, asyncio.Event] = {}

    def hold(self, url: str) -> asyncio.Event:
        """Let a URL wait for an event."""
        return self.held.setdefault(url, asyncio.Event())

    @property
    def urls(self) -> list[str]:
        """The URLs that were asked for."""
        return [wanted.url for wanted in self.asked]


class FakeProcess:
    """A fetcher in the loop of the test."""

    def __init__(self, web: Web, loop: asyncio.AbstractEventLoop) -> None:
        self.socket, self._theirs = socket.socketpair()
        self._web, self._loop = web, loop
        self._task: asyncio.Task[None] | None = None
        self._is_over = self._is_open = False
        loop.call_soon_threadsafe(self._begin)

    def stop(self) -> None:
        """Nothing: the end of the line is the stop."""

    def kill(self) -> None:
        """End at once."""
        self._loop.call_soon_threadsafe(self._end)

    def _begin(self) -> None:
        if not self._is_over:
            self._task = self._loop.create_task(self._run())
            self._task.add_done_callback(
                lambda task: None if self._is_open else self._theirs.close()
            )

    def _end(self) -> None:
        self._is_over = True
        if self._task is not None:
            self._task.cancel()
        else:
            self._theirs.close()

    async def _run(self) -> None:
        self._is_open = True
        reader, writer = await asyncio.open_connection(sock=self._theirs)
        lines: LineReader[ToFetcher] = LineReader(ToFetcher, "the scheduler")
        writer.write(Hello(version=PROTOCOL_VERSION, name="live-0").to_line())
        tasks: set[asyncio.Task[None]] = set()
        try:
            while data := await reader.read(1 << 16):
                for message in lines.feed(data):
                    if isinstance(message, Fetch):
                        self._web.asked.append(message)
                        tasks.add(asyncio.create_task(self._answer(message, writer)))
                    elif isinstance(message, Cancel):
                        self._web.cancelled.append(message.id)
                    else:
                        assert isinstance(message, Grant | Rates)
        finally:
            for task in tasks:
                task.cancel()
            writer.close()

    async def _answer(self, wanted: Fetch, writer: asyncio.StreamWriter) -> None:
        if event := self._web.held.get(wanted.url):
            await event.wait()
        answer = self._web.answers.get(wanted.url, page)(wanted)
        if isinstance(answer, Awaitable):
            answer = await answer
        if answer is None:
            self._end()
            return
        for message in answer if isinstance(answer, list) else [answer]:
            assert isinstance(message, Done | Refused | Body)
            writer.write(message.to_line())


def make_config(tmp_path: Path, **sections: Any) -> Config:
    """A config of a service."""
    given = {
        "servers": ["live"],
        "dfs_primary": str(tmp_path / "dfs"),
        "key_storage": {"servers": [str(tmp_path / "0.sqlite")]},
        "frontier": {"order": "crawldb"},
        "urls": {
            "scope": "any",
            "rules": [{"action": "-", "kind": "domain", "value": "forbidden.example"}],
        },
        "realtime": {"tokens": str(tmp_path / "tokens.json"), "listen": "127.0.0.1:0"},
    }
    for name, values in sections.items():
        given[name] = {**given.get(name, {}), **values}
    return from_mapping(given, tmp_path, "test")


class Served:
    """A running service. `client`: with a token of all rights. `web`: what its fetcher sees."""

    def __init__(
        self, config: Config, web: Web, connections: list[Callable[[], PageServer]], tmp_path: Path
    ) -> None:
        loop = asyncio.get_running_loop()
        self.web, self.config = web, config
        self.store = PageStore(connections)

        def start() -> FakeProcess:
            if web.refuses_to_start:
                web.refuses_to_start -= 1
                raise OSError(11, "no room for a process")
            web.started += 1
            return FakeProcess(web, loop)

        self.service = Scheduler(config, self.store, FetcherLink(start))
        self.tokens = TokenFile(config.realtime.tokens)
        self._tmp_path = tmp_path

    async def __aenter__(self) -> Served:
        for place in self.store.places:
            await self.store.ensure(place)
        self.service.start()
        self.client = self.client_of(*RIGHTS, name=f"all-{next(_numbers)}")
        return self

    def client_of(self, *rights: str, name: str, **options: Any) -> httpx.AsyncClient:
        """A client with a new token."""
        token = self.tokens.add(name, rights, **options)
        transport = httpx.ASGITransport(
            make_app(self.service, self.tokens), raise_app_exceptions=False
        )
        headers = {"Authorization": f"Bearer {token}"}
        return httpx.AsyncClient(
            transport=transport, base_url="http://service", headers=headers, timeout=LIMIT_S
        )

    async def __aexit__(self, *error: object) -> None:
        await self.client.aclose()
        await self.service.stop()

    async def submit(self, *urls: str, **options: Any) -> list[dict[str, Any]]:
        """Submit URLs; returns the decisions."""
        answer = await self.client.post("/v1/urls", json={"urls": list(urls), **options})
        assert answer.status_code == 202, answer.text
        return answer.json()["decisions"]

    async def page(self, url: str, wait_s: float = 30, **query: Any) -> dict[str, Any]:
        """The page of a URL, waited for."""
        answer = await self.client.get("/v1/pages", params={"url": url, "wait_s": wait_s, **query})
        assert answer.status_code == 200, answer.text
        return answer.json()


def run(
    tmp_path: Path,
    test: Callable[[Served], Awaitable[None]],
    web: Web | None = None,
    connections: list[Callable[[], PageServer]] | None = None,
    loop: Callable[[], asyncio.AbstractEventLoop] | None = None,
    **sections: Any,
) -> None:
    """Run a test with a service around it. `loop`: makes the loop; None: asyncio's own."""

    async def main() -> None:
        config = make_config(tmp_path, **sections)
        made = connections or [lambda: SqlitePages(tmp_path / "0-pages.sqlite")]
        async with asyncio.timeout(LIMIT_S):
            async with Served(config, web or Web(), made, tmp_path) as served:
                await test(served)

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(main())


class ThreadFetcher:
    """A fetcher with a loop of its own in a thread, for a service that runs in another one."""

    def __init__(self, web: Web) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._process = FakeProcess(web, self._loop)
        self.socket = self._process.socket
        self._thread.start()

    def _run(self) -> None:
        self._loop.run_forever()
        for task in asyncio.all_tasks(self._loop):
            task.cancel()
            with suppress(asyncio.CancelledError):
                self._loop.run_until_complete(task)
        self._loop.close()

    def stop(self) -> None:
        """Nothing: the end of the line is the stop."""

    def kill(self) -> None:
        """End at once."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._process._end)
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
