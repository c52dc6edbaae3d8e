"""Names to addresses: a cache of our own before the system's resolver, asked in a few threads.

curl never looks a name up: it is given an address for each request, so that the address filter, the turns of an IP
and the connection all speak of the same address.
"""

from __future__ import annotations

import ipaddress
import queue
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass

Resolver = Callable[[str], list[str]]
"""Looks a name up, blocking. Raises LookupFailed."""

THREADS = 16
_MAX_ENTRIES = 100_000
_NEGATIVE_TTL_S = 60.0


class LookupFailed(Exception):  # noqa: N818  (it is an answer that travels, not an error that is reported)
    """A name has no address. `temporary`: asking later may help."""

    def __init__(self, reason: str, temporary: bool = False) -> None:
        super().__init__(reason)
        self.temporary = temporary


@dataclass(slots=True)
class Answer:
    """What is known of a name until `expires` (clock seconds): its addresses, or why there are none."""

    addresses: tuple[str, ...]
    expires: float
    error: str = ""
    temporary: bool = False


def system_resolver(host: str) -> list[str]:
    """The addresses of `host` in the order of the system's resolver, each once. Raises LookupFailed."""
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP)
    except socket.gaierror as error:
        raise LookupFailed(error.strerror or str(error), error.errno == socket.EAI_AGAIN) from error
    except (OSError, UnicodeError) as error:
        raise LookupFailed(str(error)) from error
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


def literal_address(host: str) -> str | None:
    """The address that a canonical URL's host is, without brackets; None if it is a name."""
    text = host[1:-1] if host.startswith("[") else host
    if not (text[-1:].isdigit() or ":" in text):
        return None
    try:
        return str(ipaddress.ip_address(text))
    except ValueError:
        return None


class DnsCache:
    """Answers of the resolver, kept `ttl_s` seconds (failures: at most 60).

    `call_soon`: hands a call from a resolver thread to the loop's thread. `clock`: seconds, monotonic. All methods
    belong to the loop's thread. The threads are daemons: a hanging look-up never holds the process. `threads`: 0 asks
    the resolver in the loop's thread, for resolvers that answer at once.
    """

    def __init__(
        self,
        ttl_s: float,
        clock: Callable[[], float],
        call_soon: Callable[..., object],
        resolver: Resolver = system_resolver,
        threads: int = THREADS,
    ) -> None:
        self._max_threads = threads
        self._ttl_s = ttl_s
        self._clock = clock
        self._call_soon = call_soon
        self._resolver = resolver
        self._answers: dict[str, Answer] = {}
        self._waiting: dict[str, list[Callable[[Answer], None]]] = {}
        self._questions: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._threads = 0
        self._closed = False

    def get(self, host: str) -> Answer | None:
        """The cached answer for `host` (an address is its own answer); None if it must be looked up."""
        answer = self._answers.get(host)
        if answer is not None:
            return answer if answer.expires > self._clock() else None
        literal = literal_address(host)
        if literal is None:
            return None
        return self._keep(host, Answer((literal,), float("inf")))

    def look_up(self, host: str, then: Callable[[Answer], None]) -> None:
        """Ask for `host`; `then` is called with the answer in the loop's thread."""
        waiting = self._waiting.get(host)
        if waiting is not None:
            waiting.append(then)
            return
        self._waiting[host] = [then]
        if not self._max_threads:
            self._call_soon(self._arrived, host, self._ask(host))
            return
        self._questions.put(host)
        if self._threads < min(self._max_threads, len(self._waiting)):
            self._threads += 1
            threading.Thread(target=self._work, name="krake-dns", daemon=True).start()

    def close(self) -> None:
        """Let the threads end; answers that still come are dropped."""
        self._closed = True
        for _ in range(self._threads):
            self._questions.put(None)

    def _work(self) -> None:
        while (host := self._questions.get()) is not None:
            if self._closed:
                continue
            answer = self._ask(host)
            try:
                self._call_soon(self._arrived, host, answer)
            except RuntimeError:  # the loop is closed: nobody waits any more
                return

    def _ask(self, host: str) -> Answer:
        try:
            addresses = tuple(self._resolver(host))
        except LookupFailed as error:
            return Answer((), 0.0, str(error), error.temporary)
        except BaseException as error:  # whatever ended the thread would leave its URLs waiting
            return Answer((), 0.0, f"{type(error).__name__}: {error}")
        return Answer(addresses, 0.0, "" if addresses else "no address")

    def _arrived(self, host: str, answer: Answer) -> None:
        if self._closed:
            return
        # Temporary failures are not kept at all: a retry asks again.
        ttl_s = self._ttl_s if answer.addresses else 0.0 if answer.temporary else min(self._ttl_s, _NEGATIVE_TTL_S)
        answer.expires = self._clock() + ttl_s
        self._keep(host, answer)
        for then in self._waiting.pop(host, ()):
            then(answer)

    def _keep(self, host: str, answer: Answer) -> Answer:
        if len(self._answers) >= _MAX_ENTRIES:
            self._answers.clear()
        self._answers[host] = answer
        return answer
