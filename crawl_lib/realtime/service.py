"""The service as a program: the node's lock, the parts of the scheduler, and the API until the stop."""

import asyncio
import contextlib
import fcntl
import logging
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from crawl_lib.config import Config, KeyStorageConfig
from crawl_lib.errors import ConfigError, KeyServerDownError, os_errors
from crawl_lib.frontier import NodeDirectory, NodeLock
from crawl_lib.keys import KeyServer, SharedTurns
from crawl_lib.realtime.api import make_app
from crawl_lib.realtime.captures import NewestCaptures
from crawl_lib.realtime.certificates import SCHEDULER, Identity
from crawl_lib.realtime.fetchers import Fetchers
from crawl_lib.realtime.leases import Leases
from crawl_lib.realtime.link import FetcherLink, LinkedFetcher
from crawl_lib.realtime.loops import run_on_uvloop
from crawl_lib.realtime.places import FETCHER, fetcher_names, live_submissions
from crawl_lib.realtime.remote import RemoteLink, setup_of
from crawl_lib.realtime.scheduler import Scheduler
from crawl_lib.realtime.store import PageStore, open_pages, sqlite_path
from crawl_lib.realtime.submissions import SubmissionLog
from crawl_lib.realtime.tokens import TokenFile
from crawl_lib.realtime.turns import AddressTurns
from crawl_lib.serve import Address, Server, listen
from crawl_lib.stores import Stores

HEAD_S = 10.0
"""The time for the head of a connection's first request."""
STOP_LOOK_S = 0.1
OPTION = "realtime.listen"
log = logging.getLogger(__name__)


class HeadLimit(HttpToolsProtocol):
    """A connection of uvicorn with a deadline for the first head; uvicorn has a deadline for later heads."""

    def connection_made(self, transport: Any) -> None:
        """Begin the wait for a head."""
        super().connection_made(transport)
        self._head_deadline = self.loop.call_later(HEAD_S, transport.abort)

    def on_headers_complete(self) -> None:
        """End the wait."""
        self._head_deadline.cancel()
        super().on_headers_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        """End the wait."""
        self._head_deadline.cancel()
        super().connection_lost(exc)


def require_realtime(config: Config) -> None:
    """Raise ConfigError with a line for each unusable option."""
    problems = [
        problem
        for is_wrong, problem in (
            (config.realtime is None, "realtime: the real-time service needs this section"),
            (not config.order.has_crawldb, "frontier.order: the real-time service needs crawldb"),
            (config.urls.scope != "any", "urls.scope: the real-time service needs any"),
        )
        if is_wrong
    ]
    if problems:
        raise ConfigError(*problems)


def serve_realtime(
    stores: Stores, start_fetcher: Callable[[int], LinkedFetcher], on_ready: Callable[[str], None]
) -> None:
    """Answer requests of the API until `stores.stop` is set.

    `start_fetcher`: starts a fetcher; the fetcher holds the lock of the given descriptor too. `on_ready`: called with
    the API's URL. Raises ConfigError, LockedError if a task or another service works for the node.
    """
    config = stores.config
    require_realtime(config)
    options = config.require_realtime()
    address, tokens = Address.of(options.listen, OPTION), TokenFile(options.tokens)
    if not tokens.all():
        if not address.is_loopback:
            raise ConfigError(
                f"{OPTION}: {address} is reached by others, and there are no tokens: {_MAKE}"
            )
        log.warning("there are no tokens yet, so each request is refused: %s", _MAKE)
    node = config.servers[0]
    directory = stores.node_dir(node)
    directory.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        home = stack.enter_context(
            NodeLock(directory, node, config.queue.lock_timeout_s, what="krake serve realtime")
        )
        listening = stack.enter_context(contextlib.closing(listen(address, OPTION)))
        stack.enter_context(only_scheduler(config.key_storage))
        store = open_pages(config.key_storage, stores.secrets.key_storage_password)
        link = remote_fetchers(stores, store) or FetcherLink(
            lambda: start_fetcher(home.lock.fileno()), turns=address_turns(stores)
        )
        folder = live_submissions(directory, fetcher_names(config)[0])
        with os_errors(folder, "cannot be used"):
            submissions = SubmissionLog(folder)
        service = Scheduler(config, store, link, submissions, NewestCaptures(stores))
        serving = _serve(stores, service, tokens, listening, on_ready)
        run_on_uvloop(serving)


@contextlib.contextmanager
def only_scheduler(config: KeyStorageConfig) -> Iterator[None]:
    """Be the only scheduler of a table in a SQLite file.

    Raises ConfigError for a second scheduler.
    """
    name = config.servers[0]
    if not config.is_sqlite(name):
        yield
        return
    path = sqlite_path(name)
    with os_errors(path, "cannot be used (key_storage.servers)"):
        path.parent.mkdir(parents=True, exist_ok=True)
        file = path.open("ab")
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise ConfigError(
                f"key_storage.servers: another scheduler works with {name}: several need MySQL or MariaDB"
            ) from error
        yield


def remote_fetchers(stores: Stores, store: PageStore) -> Fetchers | None:
    """Return the fetchers on other machines.

    The result is None without `realtime.fetchers`. Raises ConfigError.
    """
    config, options = stores.config, stores.config.require_realtime()
    if not options.fetchers:
        return None
    identity = Identity(Path(options.certificates), SCHEDULER)
    identity.context()
    leases = Leases.of(config.key_storage, stores.secrets.key_storage_password)
    links = [
        RemoteLink(
            fetcher,
            identity,
            setup_of(config, stores.config_digest, fetcher.name),
            leases,
            store,
            turns=address_turns(stores),
        )
        for fetcher in options.fetchers
    ]
    return Fetchers(links, leases)


def address_turns(stores: Stores) -> AddressTurns:
    """Return the turns of addresses for one fetcher; none where fetchers share no turns."""
    config = stores.config

    def make() -> SharedTurns:
        with stores.key_servers() as store:
            store.require_ring(write=False)
            for server in store.servers:
                with contextlib.suppress(KeyServerDownError):  # its addresses wait
                    make_turn_table(server)
        return SharedTurns(stores.key_servers().servers, config.fetch)

    return AddressTurns(make if config.shares_addresses else None)


def make_turn_table(server: KeyServer) -> None:
    """Make the table of turns of a key server if missing. Raises KeyStoreError."""
    server.ensure()
    if not server.has_slots():
        server.make_slots()


_MAKE = "run `krake realtime tokens --add NAME`"


async def _serve(
    stores: Stores,
    service: Scheduler,
    tokens: TokenFile,
    listening: socket.socket,
    on_ready: Callable[[str], None],
) -> None:
    server = Server(make_app(service, tokens), stores.stop, HeadLimit)
    service.start()
    host, port = listening.getsockname()[:2]
    on_ready(f"http://{Address(host, port)}/")
    await asyncio.gather(server.serve([listening]), _stop(stores, service))


async def _stop(stores: Stores, service: Scheduler) -> None:
    """Stop the service after the program's signal.

    Uvicorn sends the last answers, and fetches end.
    """
    while not stores.stop.is_set():  # noqa: ASYNC110 - a signal sets it, and uvicorn looks as often
        await asyncio.sleep(STOP_LOOK_S)
    await service.stop()


def fetcher_of(stores: Stores) -> Callable[[int], LinkedFetcher]:
    """Return the start of a service's fetcher.

    The fetcher is a process behind the walls of a crawl's worker.
    """
    # The engine takes 0.2 s, and the scheduler itself needs no engine.
    from crawl_lib.realtime.fetcher import start_fetcher  # noqa: PLC0415

    config, node = stores.config, stores.config.servers[0]
    directory = stores.node_dir(node)

    def start(lock: int) -> LinkedFetcher:
        return start_fetcher(
            config,
            directory,
            name=FETCHER,
            digest=stores.config_digest,
            log_path=NodeDirectory(directory).live / FETCHER / "log",
            lock=lock,
        )

    return start
