"""The server: plain asyncio, HTTP/1.1 with keep-alive, one socket per site's address.

The log is written every `_FLUSH_S` seconds, on request (`FLUSH_PATH`) and at the end.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Sequence
from typing import TextIO

from crawl_lib.errors import KrakeError
from demo.answers import Answerer
from demo.log import LoggedRequest
from demo.model import Target

FLUSH_PATH = "/.synthweb/flush"
_FLUSH_S = 0.2
_MAX_HEAD_BYTES = 64 * 1024
_PORT_TRIES = 50
_DRIP_PARTS = 4


def bind(addresses: Sequence[str], port: int = 0) -> list[socket.socket]:
    """Return listening sockets on one port of all addresses.

    `port`: 0 finds a port that is free on all addresses. Raises KrakeError if no port is free, or this machine lacks an
    address.
    """
    for _ in range(1 if port else _PORT_TRIES):
        sockets: list[socket.socket] = []
        wanted = port
        try:
            for address in addresses:
                sockets.append(_listen(address, wanted))
                wanted = sockets[0].getsockname()[1]
        except OSError as error:
            for opened in sockets:
                opened.close()
            if error.errno != errno.EADDRINUSE or port:
                raise KrakeError(
                    f"{address}:{wanted}: cannot be listened on: {error.strerror}"
                ) from error
        else:
            return sockets
    raise KrakeError(
        f"no port is free on all of {addresses[0]} to {addresses[-1]}; end what listens there"
    )


def _listen(address: str, port: int) -> socket.socket:
    opened = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        opened.bind((address, port))
        opened.listen(1024)
    except OSError:
        opened.close()
        raise
    return opened


class _LogWriter:
    """Collects requests and writes them to the log's file in portions."""

    def __init__(self, file: TextIO | None) -> None:
        self._file = file
        self._waiting: list[LoggedRequest] = []

    def note(self, request: LoggedRequest) -> None:
        if self._file is not None:
            self._waiting.append(request)

    def flush(self) -> None:
        if self._file is not None and self._waiting:
            self._file.write("".join(request.to_line() for request in self._waiting))
            self._waiting.clear()
            self._file.flush()


class _Connection(asyncio.Protocol):
    """One connection: requests are answered in order; while a body drips, later requests wait."""

    def __init__(self, answers: Answerer, log: _LogWriter, least_s: float) -> None:
        self._answers, self._log, self._least_s = answers, log, least_s
        self._buffer = b""
        self._dripping = False
        self._site = 0
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._site = self._answers.site(transport.get_extra_info("sockname")[0])

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        self._serve()

    def _serve(self) -> None:
        while not self._dripping and not self._transport.is_closing():
            head, found, rest = self._buffer.partition(b"\r\n\r\n")
            if not found:
                if len(self._buffer) > _MAX_HEAD_BYTES:
                    self._transport.abort()
                return
            self._buffer = rest
            self._request(time.monotonic(), head.decode("latin-1").split("\r\n"))

    def _request(self, start: float, lines: list[str]) -> None:
        words = lines[0].split(" ")
        if len(words) != 3 or words[0] not in ("GET", "HEAD"):
            self._transport.write(
                b"HTTP/1.1 405 Method Not Allowed\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
            )
            self._transport.close()
            return
        fields = {
            name.lower(): value.strip()
            for name, _, value in (line.partition(":") for line in lines[1:])
        }
        if words[1] == FLUSH_PATH:
            self._log.flush()
            self._transport.write(b"HTTP/1.1 204 No Content\r\n\r\n")
            return
        target = Target(self._site, words[1])
        status, head, body, drip_s = self._answers.answer(target, fields.get("accept-encoding", ""))
        drip_s = max(drip_s, self._least_s)
        if words[0] == "HEAD":
            body, drip_s = b"", 0.0
        request = (
            fields.get("host", ""),
            words[1],
            status,
            start,
            fields.get("user-agent", ""),
            words[0],
        )
        closes = fields.get("connection", "").lower() == "close"
        if drip_s:
            self._drip(request, [head, *_parts(body)], drip_s / _DRIP_PARTS, closes)
        else:
            self._finish(request, head + body, closes)

    def _finish(
        self, request: tuple[str, str, int, float, str, str], data: bytes, closes: bool
    ) -> None:
        host, path, status, start, agent, method = request
        self._log.note(LoggedRequest(host, path, status, start, time.monotonic(), agent, method))
        self._transport.write(data)
        if closes:
            self._transport.close()

    def _drip(
        self,
        request: tuple[str, str, int, float, str, str],
        parts: list[bytes],
        wait_s: float,
        closes: bool,
    ) -> None:
        """Send the parts one by one; then answer the waiting requests."""
        self._dripping = len(parts) > 1
        if not self._dripping:
            self._finish(request, parts[0], closes)
            self._serve()
            return
        self._transport.write(parts[0])
        asyncio.get_running_loop().call_later(
            wait_s, self._drip, request, parts[1:], wait_s, closes
        )


def _parts(body: bytes) -> list[bytes]:
    size = len(body) // _DRIP_PARTS + 1
    return [body[at : at + size] for at in range(0, len(body), size)]


async def serve(
    answers: Answerer,
    sockets: Sequence[socket.socket],
    *,
    log: TextIO | None = None,
    least_s: float = 0.0,
    until_eof: bool = False,
    on_ready: Callable[[int], None] = lambda port: None,
) -> None:
    """Serve until a signal to end.

    `until_eof`: also end with standard input: the parent is gone. `sockets`: from `bind`, one for each site; the server
    closes these. `log`: the file for requests. `least_s`: the least time for a body. `on_ready`: is called with the
    port.
    """
    loop = asyncio.get_running_loop()
    port = sockets[0].getsockname()[1]
    writer = _LogWriter(log)
    servers = [
        await loop.create_server(lambda: _Connection(answers, writer, least_s), sock=opened)
        for opened in sockets
    ]
    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    if until_eof:
        loop.add_reader(
            sys.stdin.fileno(), lambda: None if os.read(sys.stdin.fileno(), 4096) else stopped.set()
        )
    on_ready(port)
    while not stopped.is_set():
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(stopped.wait(), _FLUSH_S)
        writer.flush()
    for server in servers:
        server.close()
    writer.flush()
