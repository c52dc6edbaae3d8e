"""The tables of all key servers, asked by the service without waiting.

A key is on the server of its interval (`keys.intervals`), and on no other server. Each server has its own
threads, so a slow server delays no other server. Questions wait for a busy thread, and are then asked together.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Generic, TypeVar

from crawl_lib.config import KeyStorageConfig
from crawl_lib.errors import KeyServerDownError, KeyStoreError
from crawl_lib.keys import interval
from crawl_lib.realtime.pages import (
    ALL_PARTS,
    DueRows,
    Finished,
    Followed,
    Mark,
    PageServer,
    Row,
    Swept,
    Wish,
)
from crawl_lib.realtime.pages_sqlite import SqlitePages
from crawl_lib.realtime.protocol import Rate
from crawl_lib.urls import key_of

GATHER_S = 0.01
"""How long writes wait for other writes: a transaction, and an fsync, is shared by all."""
GATHER_READS_S = 0.003
"""How long reads for the scheduler itself wait for others: a statement costs both ends 0.3 ms."""
DOWN_S = 1.0
"""The pause before a silent server is asked again."""
TIMEOUT_S = 5.0
"""The most seconds for a statement, if `key_storage.timeout_s` is more: people wait."""
MOST = 300
"""The most rows of one statement."""
MOST_NEAR = 20
"""The most rows of a file that the loop's own thread reads at once."""
_T = TypeVar("_T")
_R = TypeVar("_R")


class Batches(Generic[_T, _R]):
    """Calls carried out together by a thread. `work`: returns a result for each item, in order.

    `pool`: None: each call is carried out at once, by the caller.
    """

    def __init__(
        self,
        work: Callable[[list[_T]], list[_R]],
        pool: Executor | None,
        *,
        gather_s: float = 0.0,
        most: int = MOST,
    ) -> None:
        self._work, self._pool = work, pool
        self._gather_s, self._most = gather_s, most
        self._waiting: list[tuple[_T, asyncio.Future[_R]]] = []
        self._is_busy = False

    def __call__(self, item: _T) -> asyncio.Future[_R]:
        """Add an item to the next batch.

        The future raises the errors of the work.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[_R] = loop.create_future()
        if self._pool is None:
            self._at_once(item, future)
            return future
        self._waiting.append((item, future))
        if not self._is_busy:
            self._is_busy = True
            loop.call_later(self._gather_s, self._begin)
        return future

    def _at_once(self, item: _T, future: "asyncio.Future[_R]") -> None:
        try:
            (result,) = self._work([item])
        except KeyStoreError as error:
            future.set_exception(error)
        else:
            future.set_result(result)

    def _begin(self) -> None:
        batch, self._waiting = self._waiting[: self._most], self._waiting[self._most :]
        items = [item for item, _ in batch]
        futures = [future for _, future in batch]
        assert self._pool is not None
        self._pool.submit(self._carry_out, items, futures, asyncio.get_running_loop())

    def _carry_out(
        self,
        items: list[_T],
        futures: Sequence["asyncio.Future[_R]"],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        """Work in a thread, and tell the loop. `run_in_executor` takes the loop's time twice."""
        results, problem = list[_R](), None
        try:
            results = self._work(items)
        except Exception as error:  # the futures have it
            problem = error
        with suppress(RuntimeError):  # the loop is closed, and nobody waits
            loop.call_soon_threadsafe(self._end, futures, results, problem)

    def _end(
        self, futures: Sequence["asyncio.Future[_R]"], results: list[_R], error: Exception | None
    ) -> None:
        for number, future in enumerate(futures):
            if future.done():
                continue
            if error is None:
                future.set_result(results[number])
            else:
                future.set_exception(error)
        if self._waiting:
            self._begin()
        else:
            self._is_busy = False


class _Desk:
    """One server: a thread that writes, and a thread that reads, each with a connection.

    A file has a third connection, for a few rows at a time. The loop's own thread reads by `near`: such a read takes
    10 us, and a question to another thread 80 us.
    """

    def __init__(self, connect: Callable[[], PageServer]) -> None:
        self.writer, self.reader = connect(), connect()
        self.name = self.writer.name
        self.writes, self.reads = ThreadPoolExecutor(1), ThreadPoolExecutor(1)
        self.is_near = self.writer.IS_FILE
        self.near = connect() if self.is_near else self.reader
        pool = None if self.is_near else self.reads
        self.epoch: int | None = None
        self._down: tuple[float, str] = (0.0, "")
        self.submit = Batches(self._guarded(self._submit), self.writes, gather_s=GATHER_S)
        self.finish = Batches(self._guarded(self._finish), self.writes, gather_s=GATHER_S)
        self.follow = Batches(self._guarded(self._follow), self.writes, gather_s=GATHER_S)
        self.read = Batches(self._guarded(self._read), pool)
        self.state = Batches(self._guarded(self._states), pool, gather_s=GATHER_READS_S)
        self.waiters = Batches(self._guarded(self._waiters), pool, gather_s=GATHER_READS_S)
        self.written = Batches(self._guarded(self._written), pool, gather_s=GATHER_READS_S)
        self.host = Batches(self._guarded(self._hosts), pool, gather_s=GATHER_READS_S)
        self.put_host = Batches(self._guarded(self._put_hosts), self.writes, gather_s=GATHER_S)

    def _guarded(self, work: Callable[[list[_T]], list[_R]]) -> Callable[[list[_T]], list[_R]]:
        def guarded(items: list[_T]) -> list[_R]:
            return self.ask(partial(work, items))

        return guarded

    def ask(self, question: Callable[[], _R]) -> _R:
        """Ask the server in this thread.

        Raises KeyServerDownError at once after a recent failure.
        """
        until_s, problem = self._down
        if time.monotonic() < until_s:
            raise KeyServerDownError(problem)
        try:
            return question()
        except KeyServerDownError as error:
            self._down = (time.monotonic() + DOWN_S, str(error))
            raise

    def take_epoch(self, server: PageServer) -> None:
        """Take an epoch from the server, once."""
        if self.epoch is None:
            self.epoch = server.next_epoch()

    def _submit(self, wishes: list[Wish]) -> list[Row | None]:
        rows = self.writer.submit(wishes)
        return [rows.get(wish.key) for wish in wishes]

    def _finish(self, documents: list[Finished]) -> list[None]:
        self.writer.finish(documents)
        return [None] * len(documents)

    def _follow(self, hops: list[Followed]) -> list[None]:
        self.writer.follow(hops)
        return [None] * len(hops)

    def _read(self, keys: list[bytes]) -> list[Row | None]:
        rows = self.near.read(list(dict.fromkeys(keys)))
        return [rows.get(key) for key in keys]

    def _states(self, keys: list[bytes]) -> list[Row | None]:
        rows = self.near.states(list(dict.fromkeys(keys)))
        return [rows.get(key) for key in keys]

    def _waiters(self, targets: list[bytes]) -> list[list[Row]]:
        rows = self.near.waiters(list(dict.fromkeys(targets)))
        return [[row for row in rows if row.waits_for == target] for target in targets]

    def _written(self, writes: list[tuple[bytes, int]]) -> list[int | None]:
        times = self.near.written_ms([key for key, _ in writes])
        return [times.get(write) for write in writes]

    def _hosts(self, keys: list[bytes]) -> list[bytes | None]:
        rows = self.near.hosts(list(dict.fromkeys(keys)))
        return [rows.get(key) for key in keys]

    def _put_hosts(self, rows: list[tuple[str, bytes]]) -> list[None]:
        self.writer.put_hosts(dict(rows))
        return [None] * len(rows)

    def close(self) -> None:
        """End the threads after their current work, and close the connections."""
        for pool, server in ((self.writes, self.writer), (self.reads, self.reader)):
            pool.submit(server.close)
            pool.shutdown(wait=True)
        if self.is_near:
            self.near.close()


class PageStore:
    """The table over all servers. Each method raises the KeyStoreError of a failing server.

    `connections`: make a connection to each server, in the order of `key_storage.servers`.
    """

    def __init__(self, connections: Sequence[Callable[[], PageServer]]) -> None:
        self._desks = [_Desk(connect) for connect in connections]

    @property
    def places(self) -> range:
        """The places of the servers."""
        return range(len(self._desks))

    def name(self, place: int) -> str:
        """Return the name of a server."""
        return self._desks[place].name

    def _desk(self, key: bytes) -> _Desk:
        return self._desks[interval(key, len(self._desks))]

    async def ensure(self, place: int) -> None:
        """Create the table of a server if missing."""
        await self._write(place, lambda server: server.ensure())

    async def submit(self, wish: Wish) -> Row | None:
        """Submit a URL, durably, and return its row.

        None: the row was deleted at that moment.
        """
        return await self._desk(wish.key).submit(wish)

    async def read(self, key: bytes) -> Row | None:
        """Return a row with its document."""
        return await self._desk(key).read(key)

    async def read_many(self, keys: Sequence[bytes]) -> dict[bytes, Row | KeyStoreError]:
        """Return the rows of known keys, with documents.

        Each key of a failing server has the error.
        """
        own: dict[int, list[bytes]] = {}
        for key in keys:
            own.setdefault(interval(key, len(self._desks)), []).append(key)
        answers = await asyncio.gather(
            *(self._read_some(place, some) for place, some in own.items()), return_exceptions=True
        )
        found: dict[bytes, Row | KeyStoreError] = {}
        for some, answer in zip(own.values(), answers, strict=True):
            if isinstance(answer, KeyStoreError):
                found |= dict.fromkeys(some, answer)
            elif isinstance(answer, BaseException):
                raise answer
            else:
                found |= answer
        return found

    async def _read_some(self, place: int, keys: list[bytes]) -> dict[bytes, Row]:
        ask = self._ask_near if len(keys) <= MOST_NEAR else self._ask
        return await ask(place, lambda server: server.read(keys))

    async def state(self, key: bytes) -> Row | None:
        """Return a row without its document."""
        return await self._desk(key).state(key)

    async def finish(self, document: Finished) -> None:
        """Write a document."""
        await self._desk(document.key).finish(document)

    async def follow(self, hop: Followed) -> None:
        """Let a row wait for the target of its redirect."""
        await self._desk(hop.key).follow(hop)

    async def waiters(self, place: int, target: bytes) -> list[Row]:
        """Return the rows of a server waiting for a target."""
        return await self._desks[place].waiters(target)

    async def due(self, place: int, after: Mark, parts: Collection[int] = ALL_PARTS) -> list[Mark]:
        """Return the marks of due rows of a server, from a mark on."""
        return await self._ask(place, lambda server: server.due(after, MOST, parts))

    async def waiting(
        self, place: int, target: bytes, key: bytes, parts: Collection[int] = ALL_PARTS
    ) -> list[Row]:
        """Return waiting rows of a server, from a target and key on."""
        return await self._ask(place, lambda server: server.waiting(target, key, MOST, parts))

    async def written_ms(self, key: bytes, epoch: int) -> int | None:
        """Return when a document of an epoch was written.

        None: the row has another document by now.
        """
        return await self._desk(key).written((key, epoch))

    async def host(self, authority: str) -> bytes | None:
        """Return what fetchers know of an authority's host, as JSON."""
        key = key_of(authority)
        return await self._desk(key).host(key)

    async def put_host(self, authority: str, data: bytes) -> None:
        """Write what a fetcher knows of an authority's host."""
        await self._desk(key_of(authority)).put_host((authority, data))

    async def rates(self) -> tuple[Rate, ...]:
        """Return the rates that operators have set."""
        return await self._ask(0, lambda server: server.rates())

    async def set_rate(self, rate: Rate) -> None:
        """Set the rate of a domain."""
        await self._write(0, lambda server: server.set_rate(rate))

    async def queues(self) -> Counter[str]:
        """Count the due rows of each authority, on all servers that answer."""
        asked = (self._ask(place, lambda server: server.queues()) for place in self.places)
        answers = await asyncio.gather(*asked, return_exceptions=True)
        return sum(
            (Counter(answer) for answer in answers if isinstance(answer, dict)), Counter[str]()
        )

    async def events(self, place: int, after: Mark) -> list[Mark]:
        """Return times and keys of a server's documents after a mark."""
        return await self._ask(place, lambda server: server.events(after, MOST))

    async def epoch(self, key: bytes) -> int:
        """Return this store's epoch on a key's server.

        The epoch is above those of all earlier writers.
        """
        desk = self._desk(key)
        if desk.epoch is None:
            await self._write(interval(key, len(self._desks)), desk.take_epoch)
        assert desk.epoch is not None
        return desk.epoch

    async def now_ms(self, place: int) -> int:
        """Return the time by a server's clock."""
        return await self._ask(place, lambda server: server.now_ms())

    async def queue(self, place: int) -> DueRows:
        """Count the due rows of a server."""
        return await self._ask(place, lambda server: server.queue())

    async def sweep(self, place: int, after: Mark, keep_ms: int) -> Swept:
        """Delete a few old rows of a server (`PageServer.sweep`)."""
        return await self._write(place, lambda server: server.sweep(after, keep_ms, MOST))

    async def tried(self, keys: Sequence[bytes]) -> None:
        """Count the death of a fetcher for these URLs."""
        await self._by_place(keys, lambda server, own: server.tried(own))

    async def delete(self, keys: Sequence[bytes]) -> int:
        """Delete rows; return how many there were."""
        return sum(await self._by_place(keys, lambda server, own: server.delete(own)))

    async def close(self) -> None:
        """End all threads, after their current work."""
        await asyncio.gather(*(asyncio.to_thread(desk.close) for desk in self._desks))

    async def _by_place(
        self, keys: Sequence[bytes], act: Callable[[PageServer, Sequence[bytes]], _R]
    ) -> list[_R]:
        by_place: dict[int, list[bytes]] = {}
        for key in keys:
            by_place.setdefault(interval(key, len(self._desks)), []).append(key)

        def some(own: list[bytes]) -> Callable[[PageServer], _R]:
            return lambda server: act(server, own)

        return await asyncio.gather(
            *(self._write(place, some(own)) for place, own in by_place.items())
        )

    def _write(self, place: int, act: Callable[[PageServer], _R]) -> Awaitable[_R]:
        desk = self._desks[place]
        return asyncio.get_running_loop().run_in_executor(
            desk.writes, desk.ask, lambda: act(desk.writer)
        )

    async def _ask_near(self, place: int, act: Callable[[PageServer], _R]) -> _R:
        """Ask a file in this thread, another server in its own."""
        desk = self._desks[place]
        return desk.ask(lambda: act(desk.near)) if desk.is_near else await self._ask(place, act)

    def _ask(self, place: int, act: Callable[[PageServer], _R]) -> Awaitable[_R]:
        desk = self._desks[place]
        return asyncio.get_running_loop().run_in_executor(
            desk.reads, desk.ask, lambda: act(desk.reader)
        )


def open_pages(config: KeyStorageConfig, password: str | None = None) -> PageStore:
    """Open the tables on the key servers of a config.

    Connects to nothing before the first call.

    `password`: of `config.user` on MySQL servers. Raises ConfigError for the name of a server.
    """
    return PageStore([partial(connect_pages, config, password, name) for name in config.servers])


def sqlite_path(name: str) -> Path:
    """Return the file of the table next to a SQLite key server."""
    path = Path(name)
    return path.with_name(f"{path.stem}-pages.sqlite")


def connect_pages(config: KeyStorageConfig, password: str | None, name: str) -> PageServer:
    """Connect to the table of a key server.

    The connection is made at the first statement.
    """
    timeout_s = min(config.timeout_s, TIMEOUT_S)
    if config.is_sqlite(name):
        return SqlitePages(sqlite_path(name), timeout_s=timeout_s)
    # PyMySQL takes 60 ms.
    from crawl_lib.realtime.pages_mysql import MySqlPages  # noqa: PLC0415

    return MySqlPages(
        name,
        database=config.database,
        user=config.user,
        password=password,
        timeout_s=timeout_s,
        tls=config.tls,
        ca_file=config.ca_file,
    )
