"""One request, one answer: curl's multi interface on an asyncio loop, driven by callbacks.

A `Transport` owns the easy handles, the connections and the address filter. It follows no redirect, keeps no cookie,
undoes no coding, looks no name up, and retries nothing: each `start` is at most one request on the wire.
`classify.py` says what a `Reply` means.

The sockets of all transfers stand in one epoll set, and the loop watches that set as one file: this costs the loop
one reader instead of one a connection, and one turn of the loop serves every socket that is ready.
"""

from __future__ import annotations

import asyncio
import select
import socket
import ssl
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pycurl  # type: ignore[import-untyped]

from crawl_lib.config.model import FetchConfig
from crawl_lib.fetch.address import AddressFilter

# https://github.com/curl/curl/blob/master/include/curl/curl.h (pycurl has no name for it)
_SUPPRESS_CONNECT_HEADERS = 265

ACCEPT = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"
# Not br, though we could undo it: warcio 1.8.1's `check` ends in an AttributeError on such a body with brotli 1.2.
ACCEPT_ENCODING = "gzip, deflate"

# Our own marks, for ends that curl reports under numbers it uses for other things too.
MARK_LENGTH = "length"
MARK_MIME = "mime"
MARK_HEADER = "header"
MARK_ADDRESS = "address"
MARK_STALE = "stale"
MARK_UNUSABLE = "unusable"


@dataclass(slots=True)
class Ask:
    """What to send. `address`: text form to connect to; None leaves it to curl (literal hosts, proxy).

    `max_body_bytes`: the body is cut there. `mime_types`: types whose body is taken in an answer of 200 to 299; None
    takes all. `fresh`: use no kept connection. `before_send`: called when the connection stands, right before the
    request is written, with the address.
    """

    url: str
    scheme_end: int
    path_start: int
    address: str | None
    max_body_bytes: int
    mime_types: frozenset[str] | None = None
    fresh: bool = False
    before_send: Callable[[str], None] | None = None


@dataclass(slots=True)
class Reply:
    """What came. `code`: curl's number, 0 is whole; `mark`: why we ended it ourselves, "" if we did not."""

    code: int
    message: str
    mark: str
    started: float
    duration_s: float
    sent: bool
    request: bytes
    head: bytes
    body: bytes
    status: int
    ip: str | None


def user_agent_header(config: FetchConfig, version: str) -> str:
    """The User-Agent header: `<token>/<version> (+<contact>)`, or `<token>/<version>` without a contact."""
    contact = f" (+{config.contact})" if config.contact else ""
    return f"{config.user_agent}/{version}{contact}"


def declared_type(head: bytes) -> str:
    """The media type that a head's last Content-Type declares, in lower case without parameters; "" if none."""
    found = ""
    for line in head.split(b"\n"):
        if line[:13].lower() == b"content-type:":
            found = line[13:].partition(b";")[0].strip().lower().decode("latin-1")
    return found


def mime_allowed(mime: str, allowed: frozenset[str]) -> bool:
    """Whether `allowed` names the type, itself or as `text/*`. An undeclared type ("") is allowed."""
    return not mime or mime in allowed or f"{mime.partition('/')[0]}/*" in allowed


def last_block(lines: list[bytes]) -> bytes:
    """The last header block among the lines that came: interim 1xx blocks before it and trailers after it dropped."""
    if lines.count(b"\r\n") == 1 and lines[-1] == b"\r\n":
        return b"".join(lines)
    start = 0
    for index, line in enumerate(lines):
        if line[:5] == b"HTTP/" and (index == 0 or not lines[index - 1].strip()):
            start = index
    end = next((index + 1 for index in range(start, len(lines)) if not lines[index].strip()), len(lines))
    return b"".join(lines[start:end])


def head_is_whole(head: bytes) -> bool:
    """Whether a header block ends with its empty line."""
    return head.endswith((b"\r\n\r\n", b"\n\n", b"\n\r\n"))


class _Exchange:
    """An easy handle with the state of the transfer it runs. The handle's options are set once."""

    __slots__ = (
        "address_refused",
        "ask",
        "connect_to",
        "done",
        "filter",
        "handle",
        "header_limit",
        "is_fresh",
        "lines",
        "mark",
        "opened",
        "parts",
        "room",
        "sent",
        "started",
        "started_wall",
    )

    def __init__(self, config: FetchConfig, headers: list[str], address_filter: AddressFilter | None) -> None:
        self.filter = address_filter
        self.header_limit = config.max_header_bytes
        self.lines: list[bytes] = []
        self.parts: list[bytes] = []
        self.room = 0
        self.sent = 0
        self.mark = ""
        self.address_refused = ""
        self.connect_to: str | None = None
        self.is_fresh = False
        self.opened: socket.socket | None = None
        self.started = self.started_wall = 0.0
        self.ask: Ask
        self.done: Callable[[Reply], None]
        self.handle: Any = pycurl.Curl()
        self._configure(config, headers)

    def _configure(self, config: FetchConfig, headers: list[str]) -> None:
        setopt = self.handle.setopt
        setopt(pycurl.NOSIGNAL, 1)
        setopt(pycurl.PROTOCOLS_STR if hasattr(pycurl, "PROTOCOLS_STR") else pycurl.PROTOCOLS, _protocols())
        setopt(pycurl.HTTP_VERSION, pycurl.CURL_HTTP_VERSION_1_1)
        setopt(pycurl.HTTP_TRANSFER_DECODING, 0)
        setopt(pycurl.HTTP09_ALLOWED, 0)
        setopt(pycurl.FOLLOWLOCATION, 0)
        setopt(pycurl.PATH_AS_IS, 1)
        setopt(pycurl.HTTPHEADER, headers)
        setopt(pycurl.PROXY, config.proxy or "")
        setopt(_SUPPRESS_CONNECT_HEADERS, 1)
        setopt(pycurl.SSL_VERIFYPEER, 1 if config.verify_tls else 0)
        setopt(pycurl.SSL_VERIFYHOST, 2 if config.verify_tls else 0)
        _trust(self.handle)
        setopt(pycurl.CONNECTTIMEOUT_MS, max(1, int(config.connect_timeout_s * 1000)))
        setopt(pycurl.TIMEOUT_MS, max(1, int(config.time_limit_s * 1000)))
        setopt(pycurl.BUFFERSIZE, 65536)
        setopt(pycurl.HEADERFUNCTION, self.lines.append)
        setopt(pycurl.WRITEFUNCTION, self.on_body)
        setopt(pycurl.OPENSOCKETFUNCTION, self.on_open)
        setopt(pycurl.PREREQFUNCTION, self.on_connected)

    def prepare(self, ask: Ask, done: Callable[[Reply], None]) -> None:
        self.ask = ask
        self.done = done
        self.lines.clear()
        self.parts = []
        self.room = ask.max_body_bytes
        self.sent = 0
        self.mark = self.address_refused = ""
        self.started_wall = time.time()
        self.started = time.monotonic()
        handle = self.handle
        handle.setopt(pycurl.URL, ask.url)
        if ask.address != self.connect_to:
            # An address instead of a name to look up; kept connections are told apart by it too.
            self.connect_to = ask.address
            text = f"[{ask.address}]" if ask.address and ":" in ask.address else ask.address
            handle.setopt(pycurl.CONNECT_TO, [f"::{text}:"] if text else [])
        if ask.fresh != self.is_fresh:
            self.is_fresh = ask.fresh
            handle.setopt(pycurl.FRESH_CONNECT, 1 if ask.fresh else 0)

    def on_open(self, _purpose: int, address: Any) -> Any:
        family, kind, protocol, where = address
        if self.filter is not None and not self.filter.allows(str(where[0])):
            self.mark = MARK_ADDRESS
            self.address_refused = str(where[0])
            return pycurl.SOCKET_BAD
        self.close_opened()
        self.opened = socket.socket(family, kind, protocol)
        return self.opened

    def close_opened(self) -> None:
        # curl works on a duplicate of the descriptor; ours is closed by us.
        if self.opened is not None:
            self.opened.close()
            self.opened = None

    def on_connected(self, primary_ip: str, _local_ip: str, _port: int, _local_port: int) -> int:
        # curl itself would send the request again where a kept connection broke; that would be a second request
        # without the host's delay. A retry is ours to plan.
        if self.sent:
            self.mark = MARK_STALE
            return int(pycurl.PREREQFUNC_ABORT)
        self.sent = 1
        if self.ask.before_send is not None:
            self.ask.before_send(primary_ip)
        return int(pycurl.PREREQFUNC_OK)

    def on_body(self, data: bytes) -> int:
        if not self.parts and not self._takes_body():
            return -1
        room = self.room
        if len(data) > room:
            self.parts.append(data[:room])
            self.room = 0
            self.mark = MARK_LENGTH
            return -1
        self.parts.append(data)
        self.room = room - len(data)
        return len(data)

    def _takes_body(self) -> bool:
        allowed = self.ask.mime_types
        if sum(map(len, self.lines)) > self.header_limit:
            self.mark = MARK_HEADER
            return False
        if allowed is None:
            return True
        head = last_block(self.lines)
        if head[9:10] == b"2" and not mime_allowed(declared_type(head), allowed):
            self.mark = MARK_MIME
            return False
        return True

    def reply(self, code: int, message: str, request: bytes) -> Reply:
        duration_s = time.monotonic() - self.started
        self.close_opened()
        head = last_block(self.lines) if self.lines else b""
        mark = self.mark
        if not mark and len(head) > self.header_limit:
            mark = MARK_HEADER
        handle = self.handle
        return Reply(
            code,
            f"address {self.address_refused} is refused" if mark == MARK_ADDRESS else message,
            mark,
            self.started_wall,
            duration_s,
            bool(self.sent),
            request if self.sent else b"",
            head,
            self.parts[0] if len(self.parts) == 1 else b"".join(self.parts),
            handle.getinfo(pycurl.RESPONSE_CODE) if head else 0,
            handle.getinfo(pycurl.PRIMARY_IP) or None if self.sent else None,
        )


def _protocols() -> Any:
    return "http,https" if hasattr(pycurl, "PROTOCOLS_STR") else pycurl.PROTO_HTTP | pycurl.PROTO_HTTPS


def _trust(handle: Any) -> None:
    """Use the system's certificates (or `SSL_CERT_FILE`, `SSL_CERT_DIR`): the wheel knows its builder's path only."""
    paths = ssl.get_default_verify_paths()
    if paths.cafile:
        handle.setopt(pycurl.CAINFO, paths.cafile)
    elif Path("/etc/ssl/certs/ca-certificates.crt").is_file():
        handle.setopt(pycurl.CAINFO, "/etc/ssl/certs/ca-certificates.crt")
    if paths.capath:
        handle.setopt(pycurl.CAPATH, paths.capath)


class Transport:
    """Runs requests on the running loop; all methods belong to the loop's thread.

    `version`: of Krake, for the User-Agent header. `failed`: called with an exception that a callback let escape.
    With `fetch.proxy` the proxy's address is trusted, and the address filter cannot see the target's: only hosts
    that are addresses are checked then (by the caller), names are the proxy's to judge.
    """

    def __init__(self, config: FetchConfig, version: str, failed: Callable[[BaseException], None]) -> None:
        self._config = config
        self._failed = failed
        self._loop = asyncio.get_running_loop()
        self._filter = None if config.proxy else AddressFilter(config.allow_networks)
        self._headers = [
            f"User-Agent: {user_agent_header(config, version)}",
            f"Accept: {ACCEPT}",
            f"Accept-Encoding: {ACCEPT_ENCODING}",
        ]
        self._tail = "".join(f"{line}\r\n" for line in self._headers) + "\r\n"
        self._forwards = bool(config.proxy) and not str(config.proxy).lower().startswith("socks")
        if self._forwards:
            self._headers.append("Proxy-Connection:")
        self._free: list[_Exchange] = []
        self._running: dict[Any, _Exchange] = {}
        self._epoll = select.epoll()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self._wanted_at: float | None = None
        self._kick: asyncio.Handle | None = None
        self._closed = False
        self._multi: Any = pycurl.CurlMulti()
        self._multi.setopt(pycurl.M_SOCKETFUNCTION, self._on_socket)
        self._multi.setopt(pycurl.M_TIMERFUNCTION, self._on_timer)
        self._multi.setopt(pycurl.M_MAXCONNECTS, max(64, config.connections * 2))
        self._loop.add_reader(self._epoll.fileno(), self._on_ready)

    def start(self, ask: Ask, done: Callable[[Reply], None]) -> None:
        """Send a request; `done` is called once with the reply, never before `start` has returned."""
        exchange = self._free.pop() if self._free else _Exchange(self._config, self._headers, self._filter)
        try:
            exchange.prepare(ask, done)
            self._multi.add_handle(exchange.handle)
        except (pycurl.error, UnicodeError, ValueError) as error:
            exchange.mark = MARK_UNUSABLE
            reply = exchange.reply(pycurl.E_URL_MALFORMAT, f"curl refuses the URL: {error}", b"")
            self._free.append(exchange)
            self._loop.call_soon(self._deliver, done, reply)
            return
        self._running[exchange.handle] = exchange

    def close(self) -> None:
        """Abandon what runs, without calling back, and close every connection."""
        if self._closed:
            return
        self._closed = True
        self._loop.remove_reader(self._epoll.fileno())
        for handle in (self._timer, self._kick):
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
                exchange = self._running.pop(handle, None)
                if exchange is None:
                    continue
                self._multi.remove_handle(handle)
                reply = exchange.reply(code, message, self.request_head(exchange.ask) if exchange.sent else b"")
                done = exchange.done
                self._free.append(exchange)
                self._deliver(done, reply)
                if self._closed:
                    return

    def _deliver(self, done: Callable[[Reply], None], reply: Reply) -> None:
        if self._closed:
            return
        try:
            done(reply)
        except BaseException as error:
            self._failed(error)


def _curl_events(mask: int) -> int:
    events = 0
    if mask & select.EPOLLIN:
        events |= pycurl.CSELECT_IN
    if mask & select.EPOLLOUT:
        events |= pycurl.CSELECT_OUT
    if mask & (select.EPOLLERR | select.EPOLLHUP):
        # curl finds out what it is by reading and writing.
        events |= pycurl.CSELECT_ERR | pycurl.CSELECT_IN
    return int(events)
