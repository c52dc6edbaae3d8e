"""The server: listening, answering until the stop, and sending the last answers."""

import asyncio
import contextlib
import logging
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from threading import Event

import uvicorn
from starlette.types import ASGIApp

from crawl_lib.errors import ConfigError
from crawl_lib.search import IndexReader, IndexVersions, Sites
from crawl_lib.serve.app import Service, make_app
from crawl_lib.serve.connections import MOST_HEAD_BYTES, protocol_with, raise_file_limit
from crawl_lib.serve.guard import LOOPBACK_NAMES, is_loopback
from crawl_lib.serve.newest import NewestIndex
from crawl_lib.stores import Stores

LAST_ANSWERS_S = 2
"""The time for the last answers after the stop."""
IDLE_S = 5
"""The time after an answer until an idle connection ends."""
BACKLOG = 2_048
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Address:
    """The address of a server: a host name or an IP address without brackets, and a port (0: any free port)."""

    host: str
    port: int

    @classmethod
    def of(cls, text: str) -> "Address":
        """Read `search.listen`. Raises ConfigError."""
        host, _, port = text.rpartition(":")
        if int(port) > 65_535:
            raise ConfigError(f"search.listen: {port} is no port; ports end at 65535")
        return cls(host.strip("[]"), int(port))

    @property
    def is_loopback(self) -> bool:
        """Whether this machine alone reaches the address."""
        return is_loopback(self.host)

    def __str__(self) -> str:
        """Return the address as a URL has it."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def serve_search(stores: Stores, on_ready: Callable[[str], None]) -> None:
    """Answer requests for the search page until `stores.stop` is set.

    `on_ready`: called with the page's URL when the page answers. Raises ConfigError if `search.listen`, `search.hosts`
    or `search.sites` cannot be used.
    """
    options = stores.config.search
    address, sites = Address.of(options.listen), Sites.of(options.sites)
    newest = NewestIndex(IndexReader(IndexVersions(stores)))
    if not (address.is_loopback or options.hosts):
        names = ", ".join(LOOPBACK_NAMES)
        log.warning(
            "other machines reach %s, and are refused: they may ask for %s alone (search.hosts)", address, names
        )
    with ExitStack() as stack:
        most = raise_file_limit()
        listening = stack.enter_context(contextlib.closing(_listen(address)))
        newest.watch(stores.stop)
        service = Service(stores, newest, sites)
        stack.enter_context(service.pool)
        stack.enter_context(service.copies)
        on_ready(f"http://{Address(address.host, listening.getsockname()[1])}/")
        asyncio.run(_Server(make_app(service), stores.stop, most).serve([listening]))


def _listen(address: Address) -> socket.socket:
    """Return a socket that takes connections. Raises ConfigError."""
    try:
        listening = socket.create_server(
            (address.host, address.port),
            family=socket.AF_INET6 if ":" in address.host else socket.AF_INET,
            backlog=BACKLOG,
        )
        # For accepted connections, too. asyncio does this only for sockets that were made with TCP's number.
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return listening
    except OSError as error:
        raise ConfigError(f"search.listen: {address} cannot be listened on: {error.strerror or error}") from error


class _Server(uvicorn.Server):
    """A server of uvicorn with an event that ends the server. The program handles signals itself."""

    def __init__(self, app: ASGIApp, stop: Event, most: int) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                http=protocol_with(most),
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                proxy_headers=False,
                server_header=False,
                backlog=BACKLOG,
                timeout_keep_alive=IDLE_S,
                timeout_graceful_shutdown=LAST_ANSWERS_S,
                h11_max_incomplete_event_size=MOST_HEAD_BYTES,
            )
        )
        self._stop = stop
        logging.getLogger("uvicorn.error").setLevel(logging.ERROR)  # malformed requests of clients are not worth a line

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals alone."""
        yield

    async def on_tick(self, counter: int) -> bool:
        """Return whether to stop; uvicorn asks every tenth of a second."""
        return await super().on_tick(counter) or self._stop.is_set()
