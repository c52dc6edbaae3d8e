"""One request, one answer: curl's multi interface on an asyncio loop, driven by callbacks.

A `Transport` owns the easy handles (`exchange`), the connections and the address filter. It follows no redirect, keeps
no cookie, undoes no coding, looks no name up, and retries nothing: each `start` is at most one request on the wire.
`classify` judges the end.

The sockets of all transfers are in one epoll set, and the loop watches that set as one file: this costs the loop
one reader instead of one a connection, and one turn of the loop serves every socket that is ready.
"""

import asyncio
import math
import resource
import select
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

import pycurl  # type: ignore[import-untyped]

from crawl_lib.config import FetchConfig
from crawl_lib.fetch.address import AddressFilter
from crawl_lib.fetch.classify import Failure
from crawl_lib.fetch.exchange import Done, Exchange, InflightBudget
from crawl_lib.fetch.hosts import Job
from crawl_lib.fetch.lane import LOOK_S, SlowLane
from crawl_lib.records import Fetched
from crawl_lib.states import Outcome

_LATE_S = 0.1
"""A deadline that comes later than so was not the server's fault."""
_OTHER_DESCRIPTORS = 128
"""Files, pipes, sockets of the resolver."""


class Alarm:
    """A timer, only moved forward: calls `action` once, at the earliest time (the loop's) that it was set to since.

    `at`: when it will; `rang_for`: when it should have been the last time.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, action: Callable[[], None]) -> None:
        self.at = self.rang_for = math.inf
        self._loop = loop
        self._action = action
        self._handle: asyncio.TimerHandle | None = None

    def by(self, when: float) -> None:
        """Call at `when`, or before."""
        if when < self.at:
            self.cancel()
            self.at = when
            self._handle = self._loop.call_at(when, self._ring)

    def cancel(self) -> None:
        """Do not call, until it is set again."""
        self.at = math.inf
        if self._handle is not None:
            self._handle.cancel()

    def _ring(self) -> None:
        self.rang_for, self.at, self._handle = self.at, math.inf, None
        self._action()


class Transport:
    """Runs requests on the running loop; all methods belong to the loop's thread.

    `failed`: called with an exception that a callback let escape. `before_send`: see `Exchange`.
    With `fetch.proxy` the proxy's address is trusted, and the address filter cannot see the target's: only hosts
    that are addresses are checked then (by the caller), names are the proxy's to judge.
    """

    def __init__(
        self,
        config: FetchConfig,
        failed: Callable[[BaseException], None],
        before_send: Callable[[str, str], bool] | None = None,
    ) -> None:
        self._failed = failed
        self._loop = asyncio.get_running_loop()
        address_filter = None if config.proxy else AddressFilter(config.allow_networks)
        budget = InflightBudget(config.max_inflight_bytes, config.connections)
        self._new = partial(Exchange, config, address_filter, budget, before_send, self._resumed)
        self._free: list[Exchange] = []
        self._running: dict[Any, Exchange] = {}
        self._epoll = select.epoll()
        self._wanted_at = math.inf
        self._is_due = False
        self._timer = Alarm(self._loop, self._on_time)
        self._deadline = Alarm(self._loop, self._on_deadline)
        self._kept = max(64, config.connections * 2)
        # Without enough descriptors, connections would fail, which looks like a failure of hosts.
        free = (
            resource.getrlimit(resource.RLIMIT_NOFILE)[0]
            - self._kept
            - config.connections
            - _OTHER_DESCRIPTORS
        )
        lane_config = replace(config, slow_connections=max(0, min(config.slow_connections, free)))
        self._lane = SlowLane(
            lane_config, budget, self._running, partial(self._end, code=pycurl.E_OPERATION_TIMEDOUT)
        )
        self._looker = Alarm(self._loop, self._look)
        self._closed = False
        self._multi: Any = pycurl.CurlMulti()
        self._multi.setopt(pycurl.M_SOCKETFUNCTION, self._on_socket)
        self._multi.setopt(pycurl.M_TIMERFUNCTION, self._on_timer)
        self._loop.add_reader(self._epoll.fileno(), lambda: self._act(self._epoll.poll(0)))
        self._look()

    @property
    def slow(self) -> int:
        """Number of running requests without a slot."""
        return self._lane.count

    def start(self, job: Job, address: str | None, done: Done) -> None:
        """Send a request to `address`, in text form.

        None: a proxy looks the name up; curl itself never does.

        `done` is called once with the result, never before `start` has returned.
        """
        exchange = self._free.pop() if self._free else self._new()
        try:
            exchange.prepare(job, address, done)
            self._multi.add_handle(exchange.handle)
        except (pycurl.error, UnicodeError, ValueError) as error:
            exchange.ended = Outcome.PROTOCOL_ERROR, f"curl refuses the URL: {error}"
            self._free.append(exchange)
            self._loop.call_soon(self._deliver, done, *exchange.result(pycurl.E_URL_MALFORMAT))
            return
        self._running[exchange.handle] = exchange
        self._deadline.by(exchange.due)

    def close(self) -> None:
        """Abandon running requests, without calling back, and close every connection."""
        if self._closed:
            return
        self._closed = True
        self._loop.remove_reader(self._epoll.fileno())
        self._timer.cancel()
        self._deadline.cancel()
        self._looker.cancel()
        for exchange in self._running.values():
            self._multi.remove_handle(exchange.handle)
            exchange.close_opened()
        for exchange in (*self._running.values(), *self._free):
            exchange.handle.close()
        self._running.clear()
        self._free.clear()
        self._multi.close()
        self._epoll.close()

    def _on_socket(self, event: int, fd: int, _multi: Any, _known: Any) -> None:
        mask = (select.EPOLLIN if event & pycurl.POLL_IN else 0) | (
            select.EPOLLOUT if event & pycurl.POLL_OUT else 0
        )
        if event == pycurl.POLL_REMOVE:
            with suppress(OSError):  # closed already: the kernel has taken it out
                self._epoll.unregister(fd)
            return
        try:
            self._epoll.register(
                fd, mask
            )  # most are not there, since curl gives up a socket after each request
        except FileExistsError:
            self._epoll.modify(fd, mask)

    def _on_timer(self, timeout_ms: int) -> None:
        # Called from inside curl, which must not be entered again from here.
        self._wanted_at = math.inf if timeout_ms < 0 else self._loop.time() + timeout_ms / 1000
        if timeout_ms != 0:
            self._timer.by(self._wanted_at)
        elif not self._is_due:
            self._is_due = True
            self._loop.call_soon(self._on_due)

    def _on_time(self) -> None:
        if self._wanted_at > self._loop.time():
            self._timer.by(self._wanted_at)
        else:
            self._on_due()

    def _on_due(self) -> None:
        self._wanted_at, self._is_due = math.inf, False
        self._act([(pycurl.SOCKET_TIMEOUT, 0)])

    def _act(self, events: list[tuple[int, int]]) -> None:
        if self._closed:
            return
        try:
            for fd, mask in events:
                self._multi.socket_action(fd, _curl_events(mask) if mask else 0)
            remaining = 1
            while remaining and not self._closed:
                remaining, whole, broken = self._multi.info_read()
                for handle, code, message in [*((handle, 0, "") for handle in whole), *broken]:
                    if handle in self._running:  # closing takes all of them out
                        self._end(self._running[handle], code, message)
        except BaseException as error:
            self._failed(error)

    def _end(self, exchange: Exchange, code: int, message: str = "") -> None:
        del self._running[exchange.handle]
        if exchange.is_slow:
            self._lane.leave(exchange)
        self._multi.remove_handle(exchange.handle)
        self._deliver(exchange.done, *exchange.result(code, message))
        exchange.budget.release(exchange)
        if exchange.is_paused:
            exchange.handle.close()  # what curl keeps of a pause goes with it
        else:
            self._free.append(exchange)

    def _on_deadline(self) -> None:
        """End transfers after their time limit.

        If the loop was blocked, an answer may have come meanwhile, and its transfer gets more time once.
        """
        now = time.monotonic()
        late_s = now - self._deadline.rang_for
        for exchange in [exchange for exchange in self._running.values() if exchange.due <= now]:
            if late_s > _LATE_S and not exchange.spared:
                exchange.spared = True
                exchange.due = now + late_s
            elif exchange.handle in self._running:
                self._end(exchange, pycurl.E_OPERATION_TIMEDOUT)
        self._deadline.by(
            min((exchange.due for exchange in self._running.values()), default=math.inf)
        )

    def _look(self) -> None:
        now = self._loop.time()
        self._lane.look(now)
        # Kept connections count together with used connections.
        self._multi.setopt(pycurl.M_MAXCONNECTS, self._kept + self._lane.count)
        self._looker.by(now + LOOK_S)

    def _resumed(self, exchange: Exchange) -> None:
        if exchange.ended:  # the piece of the pause ends the exchange
            self._loop.call_soon(self._end_marked, exchange)
        self._deadline.by(exchange.due)

    def _end_marked(self, exchange: Exchange) -> None:
        if exchange.ended and exchange.handle in self._running:
            self._end(exchange, pycurl.E_WRITE_ERROR)

    def _deliver(self, done: Done, fetched: Fetched, failure: Failure) -> None:
        if self._closed:
            return
        try:
            done(fetched, failure)
        except BaseException as error:
            self._failed(error)


def _curl_events(mask: int) -> int:
    # Curl finds out by reading what an error is.
    events = (
        pycurl.CSELECT_ERR | pycurl.CSELECT_IN if mask & (select.EPOLLERR | select.EPOLLHUP) else 0
    )
    events |= pycurl.CSELECT_IN if mask & select.EPOLLIN else 0
    return int(events | (pycurl.CSELECT_OUT if mask & select.EPOLLOUT else 0))
