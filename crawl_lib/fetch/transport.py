"""One request, one answer: curl's multi interface on an asyncio loop, driven by callbacks.

A `Transport` owns the easy handles (`exchange`), the connections and the address filter. It follows no redirect, keeps
no cookie, undoes no coding, looks no name up, and retries nothing: each `start` is at most one request on the wire.
`classify.py` says what a `Reply` means.

The sockets of all transfers are in one epoll set, and the loop watches that set as one file: this costs the loop
one reader instead of one a connection, and one turn of the loop serves every socket that is ready.
"""

import asyncio
import math
import select
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pycurl  # type: ignore[import-untyped]

from crawl_lib.config import FetchConfig
from crawl_lib.fetch.address import AddressFilter
from crawl_lib.fetch.exchange import Exchange, InflightBudget
from crawl_lib.fetch.messages import Ask, Mark, Reply, user_agent_header

ACCEPT = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"
# Not br, though we could undo it: warcio 1.8.1's `check` ends in an AttributeError on such a body with brotli 1.2.
ACCEPT_ENCODING = "gzip, deflate"
_LATE_S = 0.1
"""A deadline that comes later than so was not the server's fault."""


class Transport:
    """Runs requests on the running loop; all methods belong to the loop's thread.

    `failed`: called with an exception that a callback let escape.
    With `fetch.proxy` the proxy's address is trusted, and the address filter cannot see the target's: only hosts
    that are addresses are checked then (by the caller), names are the proxy's to judge.
    """

    def __init__(self, config: FetchConfig, failed: Callable[[BaseException], None]) -> None:
        self._config = config
        self._failed = failed
        self._loop = asyncio.get_running_loop()
        self._filter = None if config.proxy else AddressFilter(config.allow_networks)
        self._headers = [
            f"User-Agent: {user_agent_header(config)}",
            f"Accept: {ACCEPT}",
            f"Accept-Encoding: {ACCEPT_ENCODING}",
        ]
        self._tail = "".join(f"{line}\r\n" for line in self._headers) + "\r\n"
        self._forwards = bool(config.proxy) and not str(config.proxy).lower().startswith("socks")
        if self._forwards:
            self._headers.append("Proxy-Connection:")
        self._budget = InflightBudget(config.max_inflight_bytes, config.connections)
        self._free: list[Exchange] = []
        self._running: dict[Any, Exchange] = {}
        self._epoll = select.epoll()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self._wanted_at: float | None = None
        self._kick: asyncio.Handle | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._deadline_at = math.inf
        self._closed = False
        self._multi: Any = pycurl.CurlMulti()
        self._multi.setopt(pycurl.M_SOCKETFUNCTION, self._on_socket)
        self._multi.setopt(pycurl.M_TIMERFUNCTION, self._on_timer)
        self._multi.setopt(pycurl.M_MAXCONNECTS, max(64, config.connections * 2))
        self._loop.add_reader(self._epoll.fileno(), self._on_ready)

    def start(self, ask: Ask, done: Callable[[Reply], None]) -> None:
        """Send a request; `done` is called once with the reply, never before `start` has returned."""
        exchange = (
            self._free.pop()
            if self._free
            else Exchange(self._config, self._headers, self._filter, self._budget, self._resumed)
        )
        try:
            exchange.prepare(ask, done)
            self._multi.add_handle(exchange.handle)
        except (pycurl.error, UnicodeError, ValueError) as error:
            exchange.mark = Mark.UNUSABLE
            reply = exchange.reply(pycurl.E_URL_MALFORMAT, f"curl refuses the URL: {error}", b"")
            self._free.append(exchange)
            self._loop.call_soon(self._deliver, done, reply)
            return
        self._running[exchange.handle] = exchange
        self._watch(exchange)

    def close(self) -> None:
        """Abandon what runs, without calling back, and close every connection."""
        if self._closed:
            return
        self._closed = True
        self._loop.remove_reader(self._epoll.fileno())
        for handle in (self._timer, self._kick, self._deadline):
            if handle is not None:
                handle.cancel()
        for exchange in self._running.values():
            self._multi.remove_handle(exchange.handle)
            exchange.close_opened()
        for exchange in (*self._running.values(), *self._free):
            exchange.handle.close()
        self._running.clear()
        self._free.clear()
        self._multi.close()
        self._epoll.close()

    def request_head(self, ask: Ask) -> bytes:
        """The request head as curl writes it for `ask` (a test compares it with what a server reads)."""
        url = ask.url
        plain_proxy = self._forwards and ask.scheme_end == 4
        target = url if plain_proxy else url[ask.path_start :]
        host = url[ask.scheme_end + 3 : ask.path_start]
        return f"GET {target} HTTP/1.1\r\nHost: {host}\r\n{self._tail}".encode("latin-1")

    def _on_socket(self, event: int, fd: int, _multi: Any, known: Any) -> None:
        if event == pycurl.POLL_REMOVE:
            with suppress(OSError):  # closed already: the kernel has taken it out
                self._epoll.unregister(fd)
            return
        mask = (select.EPOLLIN if event & pycurl.POLL_IN else 0) | (select.EPOLLOUT if event & pycurl.POLL_OUT else 0)
        if known is None:
            self._multi.assign(fd, True)
            try:
                self._epoll.register(fd, mask)
                return
            except FileExistsError:
                pass
        try:
            self._epoll.modify(fd, mask)
        except FileNotFoundError:
            self._epoll.register(fd, mask)

    def _on_timer(self, timeout_ms: int) -> None:
        # Called from inside curl, which must not be entered again from here.
        if timeout_ms < 0:
            self._wanted_at = None
            return
        self._wanted_at = self._loop.time() + timeout_ms / 1000
        if timeout_ms == 0:
            if self._kick is None:
                self._kick = self._loop.call_soon(self._on_due)
            return
        if self._timer is not None and self._timer_at <= self._wanted_at:
            return  # it fires first, and sets itself again
        self._set_timer(self._wanted_at)

    def _set_timer(self, when: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = when
        self._timer = self._loop.call_at(when, self._on_time)

    def _on_time(self) -> None:
        self._timer = None
        wanted = self._wanted_at
        if wanted is None:
            return
        if wanted > self._loop.time():
            self._set_timer(wanted)
            return
        self._on_due()

    def _on_due(self) -> None:
        self._kick = None
        self._wanted_at = None
        self._act([(pycurl.SOCKET_TIMEOUT, 0)])

    def _on_ready(self) -> None:
        self._act(self._epoll.poll(0))

    def _act(self, events: list[tuple[int, int]]) -> None:
        if self._closed:
            return
        action = self._multi.socket_action
        try:
            for fd, mask in events:
                action(fd, _curl_events(mask) if mask else 0)
            self._collect()
        except BaseException as error:
            self._failed(error)

    def _collect(self) -> None:
        remaining = 1
        while remaining and not self._closed:
            remaining, whole, broken = self._multi.info_read()
            ended = [(handle, 0, "") for handle in whole]
            ended += broken
            for handle, code, message in ended:
                if handle in self._running:
                    self._end(self._running[handle], code, message)
                if self._closed:
                    return

    def _end(self, exchange: Exchange, code: int, message: str) -> None:
        del self._running[exchange.handle]
        self._multi.remove_handle(exchange.handle)
        reply = exchange.reply(code, message, self.request_head(exchange.ask) if exchange.sent else b"")
        self._deliver(exchange.done, reply)
        del reply
        self._budget.release(exchange)
        if exchange.is_paused:
            exchange.handle.close()  # what curl keeps of a pause goes with it
        else:
            self._free.append(exchange)

    # -- time -----------------------------------------------------------------------------------------------------

    def _watch(self, exchange: Exchange) -> None:
        if exchange.due < self._deadline_at:
            self._set_deadline(exchange.due)

    def _set_deadline(self, due: float) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline, self._deadline_at = None, due
        if due < math.inf:
            self._deadline = self._loop.call_later(max(0.0, due - time.monotonic()), self._on_deadline)

    def _on_deadline(self) -> None:
        """End the transfers whose time is over; not yet those whose answer may have come while the loop was held."""
        now = time.monotonic()
        late_s = now - self._deadline_at
        for exchange in [exchange for exchange in self._running.values() if exchange.due <= now]:
            if late_s > _LATE_S and not exchange.spared:
                exchange.spared = True
                exchange.due = now + late_s
            elif exchange.handle in self._running:
                self._end(exchange, pycurl.E_OPERATION_TIMEDOUT, exchange.late_message())
            if self._closed:
                return
        self._set_deadline(min((exchange.due for exchange in self._running.values()), default=math.inf))

    def _resumed(self, exchange: Exchange) -> None:
        if exchange.mark:  # the piece that it was paused with is one that ends it
            self._loop.call_soon(self._end_marked, exchange)
        self._watch(exchange)

    def _end_marked(self, exchange: Exchange) -> None:
        if exchange.mark and exchange.handle in self._running and not self._closed:
            self._end(exchange, pycurl.E_WRITE_ERROR, "")

    def _deliver(self, done: Callable[[Reply], None], reply: Reply) -> None:
        if self._closed:
            return
        try:
            done(reply)
        except BaseException as error:
            self._failed(error)


def _curl_events(mask: int) -> int:
    # What an error is, curl finds out by reading.
    events = pycurl.CSELECT_ERR | pycurl.CSELECT_IN if mask & (select.EPOLLERR | select.EPOLLHUP) else 0
    events |= pycurl.CSELECT_IN if mask & select.EPOLLIN else 0
    return int(events | (pycurl.CSELECT_OUT if mask & select.EPOLLOUT else 0))
