"""Names to addresses: each name is looked up once while the answer is fresh, and no name waits for a slow name.

curl never looks a name up: curl gets an address for each request, so that address filter, turns of an IP and connection
use the same address.

c-ares looks names up like the system, without blocking. The look-up uses the system's files: nsswitch.conf
(of its sources `files` and `dns`), hosts, and resolv.conf with name servers, search domains and options. All runs on
the loop, in its thread: c-ares names the sockets to wait for.
"""

import asyncio
import socket
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import takewhile
from typing import Any

import pycares

from crawl_lib.urls import is_address

YOUNG = 128
"""The number of names that are asked for at once while the answers come promptly: a resolver drops what comes in a
flood.
"""
YOUNG_S = 0.25
"""After this a question takes the place of no other, whatever becomes of it."""
_MAX_ENTRIES = 10_000
_NEGATIVE_TTL_S = 60.0
_TICK_S = 0.05
# A channel keeps every answer as long as its DNS record says, 2 KB each; and a new one has read the system's files.
_QUESTIONS_PER_RESOLVER = 4096
_CHANNEL_TICK_S = 0.25
# c-ares waits five times as long as a server usually takes, at least 0.25 s, then asks again and waits twice as long;
# it takes no answer to what it asked before. With its own three tries a name for which a quick server needs a second
# would never be found. After six it gives up, in 8 to 16 seconds: until then it is for `timeout_s` to say.
_TRIES = 6
# There is no such name, or no address of it. Whatever else c-ares says, asking later may help.
_FINAL = frozenset(
    {pycares.errno.ARES_ENOTFOUND, pycares.errno.ARES_ENODATA, pycares.errno.ARES_EBADNAME}
)


@dataclass(slots=True)
class Resolved:
    """The known facts about a name: its addresses, or why there are none.

    `temporary`: asking later may help. `expires`: until when it holds (clock seconds), where it is kept.
    """

    addresses: tuple[str, ...]
    error: str = ""
    temporary: bool = False
    expires: float = 0.0


_Then = Callable[[Resolved], None]


def literal_address(host: str) -> str | None:
    """Return the address in a canonical URL's host, without brackets.

    None: the host is a name.
    """
    return host.strip("[]") if is_address(host) else None


class SystemResolver:
    """Looks names up as the system does, on the running loop, by one channel of c-ares.

    `servers`: name servers (`127.0.0.1:5353`) in the place of the system's.
    """

    def __init__(self, servers: Sequence[str] = ()) -> None:
        self._servers = servers
        self._ares: Any = None
        self._open = 0
        self._retired = False
        self._timer: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()

    def ask(self, host: str, then: _Then) -> None:
        """Look a name up, and call `then` once with the answer.

        The call may come before `ask` returns, and must not raise.
        """
        self._open += 1
        try:
            if self._ares is None:
                # A callback for sockets spares c-ares a thread, and inotify, of which a user has few.
                self._ares = pycares.Channel(
                    sock_state_cb=self._watch, servers=self._servers or None, tries=_TRIES
                )
            self._ares.getaddrinfo(
                host, None, type=socket.SOCK_STREAM, callback=partial(self._answered, then)
            )
        except (UnicodeError, ValueError, pycares.AresError) as error:
            self._open -= 1
            # An error of c-ares: a file of the system cannot be read, or memory is short.
            then(Resolved((), str(error), isinstance(error, pycares.AresError)))
        if self._timer is None and self._open:
            self._timer = self._loop.call_later(_CHANNEL_TICK_S, self._tick)

    def retire(self) -> None:
        """Ask nothing more; close when the last question is answered."""
        self._retired = True
        if not self._open:
            self.close()

    def close(self) -> None:
        """Give up pending look-ups; its `then` may still be called."""
        if self._timer is not None:
            self._timer.cancel()
        if self._ares is not None:
            # Another thread destroys the channel; its sockets, which are the loop's, are closed here and now.
            self._ares.cancel()
            self._ares.close()

    def _answered(self, then: _Then, result: Any, error: int | None) -> None:
        self._open -= 1
        if error is None:
            addresses = [node.addr[0] for node in result.nodes]
            texts = dict.fromkeys(
                text.decode() if isinstance(text, bytes) else text for text in addresses
            )
            then(Resolved(tuple(texts), "" if texts else "no address"))
        else:
            then(Resolved((), str(pycares.errno.strerror(error)), error not in _FINAL))
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
        """Let c-ares notice time-outs."""
        self._ares.process_fd(pycares.ARES_SOCKET_BAD, pycares.ARES_SOCKET_BAD)
        self._timer = self._loop.call_later(_CHANNEL_TICK_S, self._tick) if self._open else None


class DnsCache:
    """Answers of resolvers, one after the other, kept `ttl_s` seconds (failures: at most 60); the last 10,000 names.

    `timeout_s`: a name that takes longer has no address. `clock`: seconds, monotonic. Made on the running loop; all
    methods belong to its thread.

    * Names are asked for in the order they came, at most `YOUNG` of them within `YOUNG_S`.
    * A slow or silent name delays no other name by more than this time.
    """

    def __init__(
        self,
        ttl_s: float,
        timeout_s: float,
        clock: Callable[[], float],
        new_resolver: Callable[[], SystemResolver],
    ) -> None:
        self._ttl_s = ttl_s
        self._timeout_s = timeout_s
        self._clock = clock
        self._new_resolver = new_resolver
        self._resolver = new_resolver()
        self._asked = 0
        self._loop = asyncio.get_running_loop()
        self._answers: dict[str, Resolved] = {}
        self._waiting: dict[str, list[_Then]] = {}
        self._queue: deque[str] = deque()
        # Names in look-up, with times; both in the order of asking.
        self._young: dict[str, float] = {}
        self._slow: dict[str, float] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._due = 0.0
        self._closed = False

    @property
    def is_busy(self) -> bool:
        """Whether a name that is asked for now would wait for others."""
        return len(self._young) >= YOUNG

    def get(self, host: str) -> Resolved | None:
        """Return the cached answer for `host`.

        An address is its own answer. None: the name must be looked up.
        """
        answer = self._answers.get(host)
        if answer is not None and answer.expires > self._clock():
            return answer
        literal = literal_address(host)
        return None if literal is None else Resolved((literal,), expires=float("inf"))

    def look_up(self, host: str, then: _Then) -> None:
        """Look `host` up, and call `then` with the answer.

        The call comes in the thread of the loop, after this method has returned.
        """
        waiting = self._waiting.get(host)
        if waiting is not None:
            waiting.append(then)
            return
        self._waiting[host] = [then]
        self._queue.append(host)
        self._ask_more()

    def close(self) -> None:
        """Drop late answers."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        self._resolver.close()

    def _ask_more(self) -> None:
        while self._queue and len(self._young) < YOUNG:
            host = self._queue.popleft()
            self._young[host] = self._clock()
            if self._asked == _QUESTIONS_PER_RESOLVER:
                self._resolver.retire()
                self._resolver, self._asked = self._new_resolver(), 0
            self._asked += 1
            self._resolver.ask(host, partial(self._answered, host))
        if self._timer is None and (self._young or self._slow):
            self._timer = self._loop.call_later(_TICK_S, self._tick)
            self._due = self._clock() + _TICK_S

    def _answered(self, host: str, answer: Resolved) -> None:
        # By the loop: an answer from the hosts file is there at once, and c-ares must not be called from itself.
        self._loop.call_soon(self._arrived, host, answer)

    def _tick(self) -> None:
        """Free the places of slow names, and end names out of time."""
        self._timer = None
        now = self._clock()
        if now - self._due > YOUNG_S:  # the loop was held up: what has come meanwhile is read first
            self._ask_more()
            return
        for host in _older(self._young, now - YOUNG_S):
            self._slow[host] = self._young.pop(host)
        late = _older(self._slow, now - self._timeout_s) + _older(
            self._young, now - self._timeout_s
        )
        for host in late:
            self._arrived(
                host, Resolved((), f"no answer within fetch.dns_timeout_s ({self._timeout_s:g} s)")
            )
        self._ask_more()

    def _arrived(self, host: str, answer: Resolved) -> None:
        waiting = self._waiting.pop(host, None)
        if self._closed or waiting is None:
            return  # it was given up
        self._young.pop(host, None)
        self._slow.pop(host, None)
        # Temporary failures are not kept at all: a retry asks again.
        ttl_s = (
            self._ttl_s
            if answer.addresses
            else 0.0
            if answer.temporary
            else min(self._ttl_s, _NEGATIVE_TTL_S)
        )
        answer.expires = self._clock() + ttl_s
        self._answers.pop(host, None)
        if len(self._answers) >= _MAX_ENTRIES:
            del self._answers[next(iter(self._answers))]
        self._answers[host] = answer
        self._ask_more()
        for then in waiting:
            then(answer)


def _older(asked: dict[str, float], than: float) -> list[str]:
    """Return the first names of `asked` from before a time."""
    return [host for host, _ in takewhile(lambda item: item[1] <= than, asked.items())]
