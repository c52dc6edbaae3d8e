"""A fetcher behind its gate, in a thread of the test, and the scheduler's or collector's end of a line to it."""

from __future__ import annotations

import contextlib
import os
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from crawl_lib.config import FetcherConfig
from crawl_lib.realtime.certificates import RENEW_DAYS, SCHEDULER, Identity, Made, make_certificates
from crawl_lib.realtime.gate import FetcherPlace, serve_fetcher
from crawl_lib.realtime.protocol import PROTOCOL_VERSION, Hello, LineReader, Message, ToScheduler
from crawl_lib.serve import Address, listen

NAME = "live-1"
LIMIT_S = 30.0


class Remote:
    """A running gate. `place`: of its fetcher; `home`: the scheduler's folder of certificates."""

    def __init__(self, directory: Path, name: str = NAME) -> None:
        self.name = name
        self.home, self.away = directory / "certificates", directory / f"away-{name}"
        self.renew(datetime.now(UTC) - timedelta(days=90 - RENEW_DAYS + 1))
        self.place = FetcherPlace(name, directory / f"dmz-{name}")
        self.listening = listen(Address("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self.listening.getsockname()[1]}"
        self.stop = threading.Event()
        self.thread = threading.Thread(target=self._serve)

    def renew(self, now: datetime) -> list[Made]:
        """Make certificates at a time, and copy those of the fetcher to its machine."""
        made = make_certificates(self.home, [NAME, "live-2"], now=lambda: now)
        self.away.mkdir(exist_ok=True)
        for name in ("ca.pem", f"{self.name}.pem"):
            (self.away / name).write_bytes((self.home / name).read_bytes())
        return made

    @property
    def config(self) -> FetcherConfig:
        """The entry of `realtime.fetchers`."""
        return FetcherConfig(self.name, self.address)

    def _serve(self) -> None:
        serve_fetcher(
            self.place, Identity(self.away, self.name), self.listening, self.stop, time.monotonic
        )

    def connect(self, name: str = SCHEDULER, server: str = NAME) -> ssl.SSLSocket:
        """A connection with the certificate of a side."""
        context = Identity(self.home, name).context()
        if name != SCHEDULER:  # a fetcher's certificate in the place of a scheduler's
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.load_verify_locations(self.home / "ca.pem")
            context.load_cert_chain(self.home / f"{name}.pem")
        host, _, port = self.address.partition(":")
        return context.wrap_socket(
            socket.create_connection((host, int(port)), LIMIT_S), server_hostname=server
        )


class Talk:
    """The lines of a connection. `said`: messages that nobody has asked for yet."""

    def __init__(self, connection: ssl.SSLSocket, version: int = PROTOCOL_VERSION) -> None:
        self.socket = connection
        self.reader: LineReader[Any] = LineReader(ToScheduler, "the gate")
        self.said: list[Message] = []
        self.send(Hello(version=version))

    def send(self, *messages: Message) -> None:
        self.socket.sendall(b"".join(message.to_line() for message in messages))

    def hear(self, *kinds: type[Message]) -> Any:
        """The next message of these types; None at the end of the line."""
        while True:
            for message in self.said:
                if isinstance(message, kinds):
                    self.said.remove(message)
                    return message
            try:
                data = self.socket.recv(1 << 18)
            except ssl.SSLError:
                return None
            if not data:
                return None
            self.said += self.reader.feed(data)


def children(there: Remote) -> list[int]:
    """The processes of a fetcher: those that work in its directory."""
    found = []
    for path in Path("/proc").glob("[0-9]*/fd"):
        try:
            targets = [str(link.readlink()) for link in path.iterdir()]
        except OSError:
            continue
        if (
            int(path.parent.name) != os.getpid()
            and str(there.place.directory / "hosts" / "hosts.sqlite") in targets
        ):
            found.append(int(path.parent.name))
    return found


@contextlib.contextmanager
def remote(directory: Path, name: str = NAME) -> Iterator[Remote]:
    """A gate, until the end of the block."""
    made = Remote(directory, name)
    made.thread.start()
    try:
        yield made
    finally:
        made.stop.set()
        made.thread.join(LIMIT_S)
        made.listening.close()
        assert not made.thread.is_alive()
