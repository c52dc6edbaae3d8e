"""Turns that the nodes of a crawl share: reserved on the key servers, by a node's task for its fetching processes.

Fetching processes have no password and open no connection. A process therefore asks the task over a pipe
(`worker.workers`), and `SharedTurns` asks the servers. A *slot* is the SHA-1 of an address or a host. Each slot lies on
one server, the first server of the SHA-1 in the ring: two servers could give a turn twice. A thread for each server
asks, so a server that is slow or down delays only the slots on that server, until the server is back.

An address is reserved for a span of time, in which the node's processes may send requests, a delay from each other by
the node's own table (`fetch.turns`). A span ends a delay after the last request may be sent, so that the next one may
begin there, whichever node's it is. It is as long as the requests need that wait, and as many as there were in the one
before; and twice as long as that while no other node wants the address. A node asks a server every few seconds, and no
address idles for long if several nodes want the address. The rest of a span is wasted.

A host (`local` routing) is reserved for one request: for as long as that may take, and until its delay is over. When it
has ended, what is left of that is given back.

Times are of the server's clock, and told as spans from the moment of its answer; of the time that the answer took, a
span loses what it might have. A reservation whose answer was lost is wasted. After a crash all run out by themselves.
A turn that is further away than any can be (the clock was set back, the row is damaged) is not believed: then the slot
waits for the longest time that one may be reserved for.
"""

import logging
import os
import queue
import threading
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from hashlib import sha1
from typing import Any, NamedTuple

from crawl_lib.config import FetchConfig
from crawl_lib.dataclass import dataclass
from crawl_lib.errors import KeyServerDownError, KeyTablesError, KrakeError
from crawl_lib.keys.intervals import interval
from crawl_lib.keys.server import KeyServer, SlotAnswer, SlotEnd, SlotWish

log = logging.getLogger(__name__)
SPAN_S = 8.0
"""The longest span of an address, unless one delay is longer."""
SEND_S = 0.5
"""How much longer a span is than its turns need: a request is sent a moment after its turn has come."""
WAIT_S = 30.0
"""How long the request of a host may wait for other turns when it has that of the host."""
POLL_S = 1.0
"""A host that another process has is asked for again soon, at last after this time: it may be free."""
_FIRST_POLL_S = 0.05
RETRY_S = 2.0
"""A server that does not answer, or came back empty, is asked again after this time."""
_MOST_REQUESTS = 200
_ROUNDED_MS = 1
"""Largest rounding error of a time from the server."""
_OTHERS_MS = 3_600_000
"""So much longer than here a host may be reserved for by another node, whose `fetch.time_limit_s` may be another."""
_MOST_SPANS = 10_000
_IP, _HOST = "ip ", "host "


@dataclass(frozen=True)
class _Span:
    """From when to when requests to an address may be sent, and the turns that this is."""

    begins_s: float
    ends_s: float
    turns: int


@dataclass(eq=False)
class _Request:
    """A request to a server: not before `due_s`, for the process `who`, and never for longer than `longest_ms`."""

    name: str
    who: int
    asked: SlotWish | SlotEnd
    longest_ms: int
    due_s: float
    poll_s: float = _FIRST_POLL_S


class _Done(NamedTuple):
    """A reserved slot. `began_s`, `ended_s`: when its server was asked, and when the server answered."""

    request: _Request
    answer: SlotAnswer
    began_s: float
    ended_s: float


class SharedTurns:
    """The turns of a node's processes at `servers` (those of the ring, in its order), which only this object uses.

    `fetch`: its delays and time limit. `clock`: seconds, the same for all processes of the machine. For one thread.
    `fileno` is ready to read when there may be `answers`. Connects to nothing before it is asked for something.
    """

    def __init__(
        self,
        servers: Sequence[KeyServer],
        fetch: FetchConfig,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._servers = servers
        self._clock = clock
        self._ip_delay_s = fetch.ip_delay_s
        self._most_turns = max(1, int(SPAN_S / fetch.ip_delay_s)) if fetch.ip_delay_s else 1
        delays_s = [
            fetch.host_delay_s,
            fetch.max_crawl_delay_s,
            *(entry.delay_s or 0.0 for entry in fetch.hosts),
        ]
        self._hold_s = (
            WAIT_S + 2 * fetch.time_limit_s + max(delays_s)
        )  # twice: a transfer that paused for room
        self._lanes: dict[int, _Lane] = {}
        self._done: queue.SimpleQueue[_Done | Exception] = queue.SimpleQueue()
        self._ready = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        weakref.finalize(
            self, os.close, self._ready
        )  # not before the last thread, which may write to it, is over
        self._told: list[tuple[int, dict[str, Any]]] = []
        self._waiting: dict[str, set[int]] = {}  # who waits for an address
        self._wanted: dict[
            str, dict[int, int]
        ] = {}  # how many turns of an address each process wanted last
        self._spans: dict[str, _Span] = {}
        self._held: dict[tuple[int, str], int] = {}

    def __enter__(self) -> "SharedTurns":
        return self

    def __exit__(self, *error: object) -> None:
        """End the threads, each at the latest at its time limit."""
        for lane in self._lanes.values():
            lane.inbox.put(None)
        end_s = time.monotonic() + POLL_S
        for lane in self._lanes.values():
            lane.thread.join(max(0.0, end_s - time.monotonic()))

    def fileno(self) -> int:
        """Return the descriptor to wait for."""
        return self._ready

    def hear(self, who: int, message: Mapping[str, Any]) -> None:
        """Take the message of process `who`.

        It asks for a name, or ends a request to a host.

        `{"ask": name, "turns": count, "start_s": seconds}`: so many requests wait, and it may take so long until one is
        sent. `{"over": name, "rest_s": seconds}`. Names are `ip <address>` and `host <name>`. What it asks for is
        answered, sooner or later; a host, unlike an address, is its own from then on, until it says that its request is
        over. Raises KrakeError for anything else.
        """
        match message:
            case {"ask": str(name), "turns": int(turns), "start_s": float(start_s)} if (
                name.startswith(_IP) and self._ip_delay_s
            ):
                self._ask_for_address(who, name, turns, min(start_s, SPAN_S))
            case {"ask": str(name)} if name.startswith(_HOST):
                self._send(name, who, SlotWish(_slot(name), _ms(self._hold_s)), _ms(self._hold_s))
            case {"over": str(name), "rest_s": int(rest_s) | float(rest_s)}:
                next_ms = self._held.pop((who, name), None)
                if next_ms is not None:
                    rest_ms = _ms(max(0.0, min(rest_s + _ROUNDED_MS / 1000, self._hold_s)))
                    self._send(name, who, SlotEnd(_slot(name), next_ms, rest_ms), _ms(self._hold_s))
            case _:
                raise KrakeError(
                    "a fetching process asked for a turn of what has none; run the task again"
                )

    def _ask_for_address(self, who: int, name: str, turns: int, start_s: float) -> None:
        span, more_s = self._spans.get(name), max(SEND_S, 2 * start_s)
        wanted = self._wanted.setdefault(name, {})
        wanted[who] = max(1, turns)
        if span is not None and self._clock() < span.ends_s - more_s:
            self._tell(
                who, name, span.begins_s, span.ends_s
            )  # another process of the node asked for it
            os.eventfd_write(self._ready, 1)
        elif name in self._waiting:
            self._waiting[name].add(who)
        else:
            self._waiting[name] = {who}
            turns = min(
                max(sum(wanted.values()), 1 if span is None else span.turns), self._most_turns
            )
            longest_ms = _ms(max(SPAN_S, self._ip_delay_s) + 2 * SPAN_S)
            wish = SlotWish(_slot(name), _ms(turns * self._ip_delay_s + more_s), _ms(SPAN_S))
            self._send(name, who, wish, longest_ms)

    def _send(self, name: str, who: int, asked: SlotWish | SlotEnd, longest_ms: int) -> None:
        place = interval(asked.slot, len(self._servers))
        if place not in self._lanes:
            self._lanes[place] = _Lane(self._servers[place], self._put, self._clock)
        self._lanes[place].inbox.put(_Request(name, who, asked, longest_ms, self._clock()))

    def _put(self, done: _Done | Exception) -> None:
        self._done.put(done)
        os.eventfd_write(self._ready, 1)

    def _tell(self, who: int, name: str, begins_s: float, ends_s: float) -> None:
        self._told.append((who, {"turn": name, "begins_s": begins_s, "ends_s": ends_s}))

    def answers(self) -> list[tuple[int, dict[str, Any]]]:
        """Return the messages for processes.

        A message is `{"turn": name, "begins_s": from, "ends_s": to}`, by the clock. In that time its requests to `name`
        may be sent. Raises the KeyStoreError of a server that is not just down.
        """
        with suppress(BlockingIOError):
            os.eventfd_read(self._ready)
        while not self._done.empty():
            done = self._done.get()
            if isinstance(done, Exception):
                raise done
            self._take(*done)
        messages, self._told = self._told, []
        return messages

    def _take(self, request: _Request, answer: SlotAnswer, began_s: float, ended_s: float) -> None:
        """Note a reservation that a server has answered.

        `began_s`, `ended_s`: times of question and answer.
        """
        assert isinstance(request.asked, SlotWish)
        name, away_ms = request.name, answer.next_ms - answer.now_ms
        begins_s = ended_s + (away_ms - request.asked.hold_ms) / 1000
        if name.startswith(_HOST):
            self._held[request.who, name] = answer.next_ms
            self._tell(request.who, name, begins_s, began_s + WAIT_S)
            return
        ends_s = began_s + (away_ms - _ROUNDED_MS) / 1000 - self._ip_delay_s
        self._spans[name] = _Span(begins_s, ends_s, self._next_turns(name, began_s, begins_s))
        for who in sorted(self._waiting.pop(name)):
            self._tell(who, name, begins_s, ends_s)
        if len(self._spans) > _MOST_SPANS:
            self._spans = {
                name: span for name, span in self._spans.items() if span.ends_s > began_s
            }
            self._wanted = {name: self._wanted[name] for name in {*self._spans, *self._waiting}}

    def _next_turns(self, name: str, now_s: float, begins_s: float) -> int:
        """Return the least number of turns of an address's next span.

        The number grows while the address is ours alone.
        """
        before = self._spans.get(name)
        if before is None or now_s - before.ends_s > SPAN_S:
            return 1
        is_free = begins_s <= max(now_s, before.ends_s + self._ip_delay_s) + SEND_S
        return min(2 * before.turns, self._most_turns) if is_free else 1


class _Lane:
    """One server, asked by one thread, which ends at None in `inbox`, or with the error that it hands to `done`."""

    def __init__(
        self, server: KeyServer, done: Callable[[Any], None], clock: Callable[[], float]
    ) -> None:
        self.inbox: queue.SimpleQueue[_Request | None] = queue.SimpleQueue()
        self._server = server
        self._done = done
        self._clock = clock
        self._waiting: list[_Request] = []
        self._is_down = False
        self.thread = threading.Thread(target=self._run, name="krake-turns", daemon=True)
        self.thread.start()

    def _run(self) -> None:
        try:
            while self._wait():
                now = self._clock()
                ready = [request for request in self._waiting if request.due_s <= now][
                    :_MOST_REQUESTS
                ]
                if ready:
                    self._ask(ready, now)
            if ends := [request for request in self._waiting if isinstance(request.asked, SlotEnd)]:
                self._ask(ends, self._clock())
        except Exception as error:
            self._done(error)
        finally:
            self._server.close()

    def _wait(self) -> bool:
        """Wait until something is due, or comes; False at the end."""
        due_s = min((request.due_s for request in self._waiting), default=None)
        with suppress(queue.Empty):
            request = self.inbox.get(
                timeout=None if due_s is None else max(0.0, due_s - self._clock())
            )
            while request is not None:
                self._waiting.append(request)
                request = self.inbox.get_nowait()
            return False
        return True

    def _ask(self, ready: Sequence[_Request], began_s: float) -> None:
        wishes = [request for request in ready if isinstance(request.asked, SlotWish)]
        try:
            answers = self._server.turns(
                [request.asked for request in wishes if isinstance(request.asked, SlotWish)],
                [request.asked for request in ready if isinstance(request.asked, SlotEnd)],
            )
        except (KeyServerDownError, KeyTablesError) as error:
            if isinstance(error, KeyTablesError) and self._has_keys():
                raise  # the server is not away: it lacks the table of turns
            if not self._is_down:
                log.warning("%s: hosts and addresses whose turns it has wait", error)
            self._is_down = True
            for request in ready:
                request.due_s = self._clock() + RETRY_S
            return
        self._is_down, ended_s, answered = False, self._clock(), set(ready)
        self._waiting = [request for request in self._waiting if request not in answered]
        for request, answer in zip(wishes, answers, strict=True):
            if answer.granted:
                self._done(_Done(request, answer, began_s, ended_s))
            else:
                self._again(request, answer, ended_s)

    def _has_keys(self) -> bool:
        with suppress(KeyServerDownError):  # it went away meanwhile
            return self._server.exists()
        return False

    def _again(self, request: _Request, answer: SlotAnswer, now_s: float) -> None:
        """Ask again when the slot may be free."""
        assert isinstance(request.asked, SlotWish)
        is_host = request.name.startswith(_HOST)
        wait_ms = answer.next_ms - answer.now_ms - request.asked.ahead_ms
        if wait_ms > request.longest_ms + (_OTHERS_MS if is_host else 0):
            held = SlotEnd(request.asked.slot, answer.next_ms, request.longest_ms)
            self._waiting.append(
                _Request(request.name, request.who, held, request.longest_ms, now_s)
            )
        most_s = min(request.poll_s, POLL_S) if is_host else SPAN_S
        request.poll_s *= 2
        request.due_s = now_s + max(0.001, min(wait_ms / 1000, most_s))
        self._waiting.append(request)


def _slot(name: str) -> bytes:
    return sha1(name.encode(errors="surrogatepass"), usedforsecurity=False).digest()


def _ms(seconds: float) -> int:
    return round(seconds * 1000)
