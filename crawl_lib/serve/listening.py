"""Listening at an address, and uvicorn's server with a stop of ours, for every service of this package."""

import contextlib
import logging
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from threading import Event
from typing import Any

import uvicorn
from starlette.types import ASGIApp

from crawl_lib.errors import ConfigError
from crawl_lib.serve.connections import MOST_HEAD_BYTES
from crawl_lib.serve.guard import is_loopback

LAST_ANSWERS_S = 2
"""The time for the last answers after the stop."""
IDLE_S = 5
"""The time after an answer until an idle connection ends."""
BACKLOG = 2_048


@dataclass(frozen=True)
class Address:
    """The address of a server: a host name or an IP address without brackets, and a port (0: any free port)."""

    host: str
    port: int

    @classmethod
    def of(cls, text: str, option: str = "search.listen") -> "Address":
        """Read an option. Raises ConfigError."""
        host, _, port = text.rpartition(":")
        if int(port) > 65_535:
            raise ConfigError(f"{option}: {port} is no port; ports end at 65535")
        return cls(host.strip("[]"), int(port))

    @property
    def is_loopback(self) -> bool:
        """Whether this machine alone reaches the address."""
        return is_loopback(self.host)

    def __str__(self) -> str:
        """Return the address as a URL has it."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def listen(address: Address, option: str = "search.listen") -> socket.socket:
    """Return a socket that takes connections. Raises ConfigError, which names the option."""
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
        raise ConfigError(
            f"{option}: {address} cannot be listened on: {error.strerror or error}"
        ) from error


class Server(uvicorn.Server):
    """A server of uvicorn with an event that ends the server. The program handles signals itself."""

    def __init__(self, app: ASGIApp, stop: Event, protocol: type[Any]) -> None:
        """Take the application. `protocol`: the class of a connection."""
        super().__init__(
            uvicorn.Config(
                app,
                http=protocol,
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
        logging.getLogger("uvicorn.error").setLevel(
            logging.ERROR
        )  # malformed requests of clients are not worth a line

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals alone."""
        yield

    async def on_tick(self, counter: int) -> bool:
        """Return whether to stop; uvicorn asks every tenth of a second."""
        return await super().on_tick(counter) or self._stop.is_set()
