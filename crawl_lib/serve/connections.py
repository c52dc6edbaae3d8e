"""Connections of slow clients: each step has a deadline, and the number of connections a limit.

uvicorn waits forever for the head of a first request, and for a client to take an answer.
"""

from __future__ import annotations

import asyncio
import resource
from typing import Any, ClassVar

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from crawl_lib.serve.guard import HEADERS

HEAD_S = 10.0
"""The time for a request's head, from the beginning of the connection, or from the first byte of a later request."""
ANSWER_S = 60.0
"""The time from the end of a request's head until the client has taken the answer."""
MOST_HEAD_BYTES = 16 << 10
"""The longest incomplete head. A complete head may be as long as one read of the socket, 256 KiB."""
MOST_CONNECTIONS = 4_096
"""The limit for all clients. Beyond the limit, the connection with the longest wait for a request ends."""
OTHER_FILES = 512
"""Open files of the process besides connections: files of indexes, and of records."""


def raise_file_limit() -> int:
    """Raise the limit of open files; return the possible connections."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST_CONNECTIONS + OTHER_FILES
    if soft != resource.RLIM_INFINITY and soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return (
        MOST_CONNECTIONS
        if soft == resource.RLIM_INFINITY
        else max(1, min(MOST_CONNECTIONS, soft - OTHER_FILES))
    )


class BoundedProtocol(H11Protocol):
    """A connection of uvicorn with deadlines.

    `most`: connections of the server at once. `waiting`: connections without a request, the longest wait first.
    """

    most = MOST_CONNECTIONS
    waiting: ClassVar[dict[BoundedProtocol, None]] = {}
    _deadline: asyncio.TimerHandle | None = None
    _waits_for_head = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for a head.

        If there are too many connections, end the one with the longest wait.
        """
        super().connection_made(transport)
        if len(self.connections) > self.most:
            next(iter(self.waiting), self).transport.abort()
        self._wait_for_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the deadline."""
        self._set_deadline(None)
        self.waiting.pop(self, None)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Read bytes. An incomplete head keeps its deadline."""
        try:
            super().data_received(data)
        except (
            h11.LocalProtocolError
        ):  # the client sends more after the last answer of the connection
            self.transport.abort()
            return
        if self._is_answering and self in self.waiting:
            self._wait_for_client()
        elif not (self._is_answering or self._waits_for_head):
            self._wait_for_head()

    def on_response_complete(self) -> None:
        """Give the client time to take the answer.

        uvicorn ends an idle connection earlier.
        """
        if self.transport.is_closing():
            super().on_response_complete()
            return
        self._wait_for_client()
        super().on_response_complete()
        if not self._is_answering:
            self.waiting[self] = None

    def send_400_response(self, msg: str) -> None:
        """Refuse a malformed request, with the headers of all answers."""
        if self._is_answering:
            self.cycle.disconnected = True
        if self._is_answering or self.conn.our_state not in {h11.IDLE, h11.SEND_RESPONSE}:
            self.transport.abort()
            return
        body = b"This is no request that can be answered.\n"
        headers = [(name.lower().encode(), value.encode()) for name, value in HEADERS.items()]
        headers += [(b"content-type", b"text/plain; charset=utf-8"), (b"connection", b"close")]
        self.transport.write(self.conn.send(h11.Response(status_code=400, headers=headers)) or b"")
        self.transport.write(self.conn.send(h11.Data(data=body)) or b"")
        self.transport.write(self.conn.send(h11.EndOfMessage()) or b"")
        self.transport.close()

    @property
    def _is_answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _wait_for_head(self) -> None:
        self._waits_for_head = True
        self.waiting[self] = None
        self._set_deadline(HEAD_S)

    def _wait_for_client(self) -> None:
        self._waits_for_head = False
        self.waiting.pop(self, None)
        self._set_deadline(ANSWER_S)

    def _set_deadline(self, seconds: float | None) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline = None if seconds is None else self.loop.call_later(seconds, self._end)

    def _end(self) -> None:
        self.transport.abort()


def protocol_with(most: int) -> type[Any]:
    """Return the protocol of a server. `most`: connections at once."""
    return type("ServedProtocol", (BoundedProtocol,), {"most": most, "waiting": {}})
