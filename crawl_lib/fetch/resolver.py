"""Names to addresses as the system looks them up, by c-ares, which does not block.

It goes by the system's files: nsswitch.conf (of its sources `files` and `dns`), hosts, and resolv.conf with name
servers, search domains and options. All runs on the loop, in its thread: c-ares says which sockets it waits for.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import pycares

# A channel keeps every answer as long as its DNS record says, 2 KB each; and a new one has read the system's files.
_QUESTIONS_PER_CHANNEL = 4096
_TICK_S = 0.25
# There is no such name, or no address of it. Whatever else c-ares says, asking later may help.
_FINAL = frozenset({pycares.errno.ARES_ENOTFOUND, pycares.errno.ARES_ENODATA, pycares.errno.ARES_EBADNAME})


@dataclass(slots=True)
class Answer:
    """What is known of a name: its addresses, or why there are none.

    `temporary`: asking later may help. `expires`: until when it holds (clock seconds), where it is kept.
    """

    addresses: tuple[str, ...]
    error: str = ""
    temporary: bool = False
    expires: float = 0.0


class Resolver(Protocol):
    """Looks names up on the running loop, in its thread."""

    def ask(self, host: str, then: Callable[[Answer], None]) -> None:
        """Look a name up; `then` is called once, perhaps before `ask` returns. It must not raise."""

    def close(self) -> None:
        """Give up what is asked; its `then` may still be called."""


class SystemResolver:
    """Looks names up as the system does. `servers`: name servers (`127.0.0.1:5353`) in the place of the system's."""

    def __init__(self, servers: Sequence[str] = ()) -> None:
        self._servers = servers
        self._channel: _Channel | None = None

    def ask(self, host: str, then: Callable[[Answer], None]) -> None:
        """See `Resolver`."""
        if self._channel is not None and self._channel.asked >= _QUESTIONS_PER_CHANNEL:
            self._channel.retire()
            self._channel = None
        if self._channel is None:
            try:
                self._channel = _Channel(self._servers)
            except pycares.AresError as error:  # a file of the system cannot be read, or memory is short
                then(Answer((), f"no look-up: {error}", temporary=True))
                return
        self._channel.ask(host, then)

    def close(self) -> None:
        """See `Resolver`."""
        if self._channel is not None:
            self._channel.close()


class _Channel:
    """A channel of c-ares: its sockets on the loop, and its open questions."""

    def __init__(self, servers: Sequence[str]) -> None:
        self.asked = 0
        self._open = 0
        self._retired = False
        self._timer: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()
        # With a callback for its sockets it needs no thread, and no inotify, of which a user has few.
        self._ares = pycares.Channel(sock_state_cb=self._watch, servers=servers or None)

    def ask(self, host: str, then: Callable[[Answer], None]) -> None:
        self.asked += 1
        self._open += 1
        try:
            self._ares.getaddrinfo(host, None, type=socket.SOCK_STREAM, callback=partial(self._answered, then))
        except (UnicodeError, ValueError) as error:
            self._open -= 1
            then(Answer((), str(error)))
        if self._timer is None and self._open:
            self._timer = self._loop.call_later(_TICK_S, self._tick)

    def retire(self) -> None:
        """Ask nothing more; close when the last question is answered."""
        self._retired = True
        if not self._open:
            self.close()

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        # Another thread destroys the channel; its sockets, which are the loop's, are closed here and now.
        self._ares.cancel()
        self._ares.close()

    def _answered(self, then: Callable[[Answer], None], result: Any, error: int | None) -> None:
        self._open -= 1
        then(_answer(result, error))
        if self._retired and not self._open:
            self._loop.call_soon(self.close)  # c-ares is still in its work on the socket

    def _watch(self, fd: int, reads: bool, writes: bool) -> None:
        if reads:
            self._loop.add_reader(fd, self._ares.process_read_fd, fd)
        else:
            self._loop.remove_reader(fd)
        if writes:
            self._loop.add_writer(fd, self._ares.process_write_fd, fd)
        else:
            self._loop.remove_writer(fd)

    def _tick(self) -> None:
        """Let c-ares see what has run out of time."""
        self._ares.process_fd(pycares.ARES_SOCKET_BAD, pycares.ARES_SOCKET_BAD)
        self._timer = self._loop.call_later(_TICK_S, self._tick) if self._open else None


def _answer(result: Any, error: int | None) -> Answer:
    if error is not None:
        return Answer((), str(pycares.errno.strerror(error)), error not in _FINAL)
    found = dict.fromkeys(_text(node.addr[0]) for node in result.nodes)
    return Answer(tuple(found), "" if found else "no address")


def _text(address: bytes | str) -> str:
    return address.decode() if isinstance(address, bytes) else address
