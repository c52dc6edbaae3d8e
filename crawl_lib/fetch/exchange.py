"""One transfer: an easy handle of curl, its callbacks, and the state that is new for each request.

The handle's options are set once, and handles are used again: a request sets its URL, and its address where that is
another one than the last time.
"""

import math
import socket
import ssl
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pycurl  # type: ignore[import-untyped]

from crawl_lib.config import FetchConfig
from crawl_lib.fetch.address import AddressFilter
from crawl_lib.fetch.messages import Ask, Mark, Reply, declared_type, last_block, mime_allowed

# https://github.com/curl/curl/blob/master/include/curl/curl.h (pycurl has no name for it)
_SUPPRESS_CONNECT_HEADERS = 265
_DEBIAN_CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")


class InflightBudget:
    """How many bytes of bodies may be in flight at once: `fetch.max_inflight_bytes`, among so many `connections`.

    Half of it is divided: up to its share of that a transfer is never held up, so large bodies cannot delay small
    pages. Above its share it draws on the other half, which is common; while that is used up it pauses, and goes on
    when another one has ended. One may always go on: the first that found no room, up to its own end. A pause does not
    count as time of its transfer, but it ends one that lasts twice as long as it may: else hosts that stop talking
    would hold up the others one after the other.
    """

    def __init__(self, max_bytes: int, connections: int) -> None:
        self.share = max_bytes // 2 // connections
        self._room = max_bytes // 2
        self._first: Exchange | None = None
        self._paused: list[Exchange] = []

    def takes(self, holder: "Exchange", had: int, more: int) -> bool:
        """Whether a transfer that has `had` bytes may take `more`; if not, it is resumed when there may be room."""
        count = max(0, had + more - max(had, self.share))
        if count > max(0, self._room) and self._first is not holder:
            if self._first is not None:
                self._paused.append(holder)
                return False
            self._first = holder
        self._room -= count
        holder.held += count
        return True

    def release(self, holder: "Exchange") -> None:
        """A transfer has ended, and its body is counted no more."""
        self._room += holder.held
        holder.held = 0
        if self._first is holder:
            self._first = None
        if holder in self._paused:
            self._paused.remove(holder)
        if self._paused and (self._room > 0 or self._first is None):
            waiting, self._paused = self._paused, []
            for one in waiting:
                one.resume()


class Exchange:
    """An easy handle with the state of the transfer it runs. `held`: what that has of the budget's common half."""

    def __init__(
        self,
        config: FetchConfig,
        headers: list[str],
        address_filter: AddressFilter | None,
        budget: InflightBudget,
        on_resumed: "Callable[[Exchange], None]",
    ) -> None:
        self.filter = address_filter
        self.budget = budget
        self.on_resumed = on_resumed
        self.limits = config.connect_timeout_s, config.time_limit_s
        self.due = math.inf
        self.left = self.last = 0.0
        self.is_paused = False
        self.held = 0
        self.spared = False
        self.header_limit = config.max_header_bytes
        self.lines: list[bytes] = []
        self.parts: list[bytes] = []
        self.room = 0
        self.sent = 0
        self.mark = Mark.NONE
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
        setopt(pycurl.PROTOCOLS, pycurl.PROTO_HTTP | pycurl.PROTO_HTTPS)
        setopt(pycurl.HTTP_VERSION, pycurl.CURL_HTTP_VERSION_1_1)
        setopt(pycurl.HTTP_TRANSFER_DECODING, 0)
        setopt(pycurl.HTTP09_ALLOWED, 0)
        setopt(pycurl.FOLLOWLOCATION, 0)
        setopt(pycurl.PATH_AS_IS, 1)
        setopt(pycurl.HTTPHEADER, headers)
        # Empty, not unset: else the environment's proxy and its exceptions would count (libcurl-env(3)).
        setopt(pycurl.PROXY, _proxy(config.proxy or ""))
        setopt(pycurl.NOPROXY, "")
        if not config.proxy:
            # curl is given addresses, and keeping them costs it more the more there are.
            setopt(pycurl.DNS_CACHE_TIMEOUT, 0)
        setopt(_SUPPRESS_CONNECT_HEADERS, 1)
        setopt(pycurl.SSL_VERIFYPEER, 1 if config.verify_tls else 0)
        setopt(pycurl.SSL_VERIFYHOST, 2 if config.verify_tls else 0)
        # The system's certificates (or `SSL_CERT_FILE`, `SSL_CERT_DIR`): the wheel knows its builder's path only.
        paths = ssl.get_default_verify_paths()
        if paths.cafile or _DEBIAN_CERTIFICATES.is_file():
            setopt(pycurl.CAINFO, paths.cafile or str(_DEBIAN_CERTIFICATES))
        if paths.capath:
            setopt(pycurl.CAPATH, paths.capath)
        # Time is ours to watch (`due`): curl would end a transfer whose answer has come while the loop was held, or
        # that is paused. It divides the time to connect among the addresses of a proxy, and so must know it there.
        connect_s = config.connect_timeout_s + (0 if config.proxy else config.time_limit_s)
        setopt(pycurl.CONNECTTIMEOUT_MS, max(1, int(connect_s * 1000)))
        setopt(pycurl.BUFFERSIZE, 65536)
        setopt(pycurl.HEADERFUNCTION, self.lines.append)
        setopt(pycurl.WRITEFUNCTION, self.on_body)
        setopt(pycurl.OPENSOCKETFUNCTION, self.on_open)
        setopt(pycurl.PREREQFUNCTION, self.on_connected)

    def prepare(self, ask: Ask, done: Callable[[Reply], None]) -> None:
        """Make ready for a request; `done` is for the one that collects it. Raises ValueError without an address."""
        self.ask = ask
        self.done = done
        self.lines.clear()
        self.parts = []
        self.room = ask.max_body_bytes
        self.sent = 0
        self.mark, self.address_refused = Mark.NONE, ""
        self.started_wall = time.time()
        self.started = time.monotonic()
        self.due = self.started + min(self.limits)
        self.last = self.started + 2 * self.limits[1]
        self.is_paused = False
        self.spared = False
        if ask.address is None and self.filter is not None:
            raise ValueError("no address was found for its host, and curl looks up none")
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
        """Open the socket for a resolved address, if the filter allows it."""
        family, kind, protocol, where = address
        if self.filter is not None and not self.filter.allows(str(where[0])):
            self.mark = Mark.ADDRESS
            self.address_refused = str(where[0])
            return pycurl.SOCKET_BAD
        self.close_opened()
        self.opened = socket.socket(family, kind, protocol)
        return self.opened

    def close_opened(self) -> None:
        """Close our copy of the socket."""
        # curl works on a duplicate of the descriptor; ours is closed by us.
        if self.opened is not None:
            self.opened.close()
            self.opened = None

    def on_connected(self, primary_ip: str, _local_ip: str, _port: int, _local_port: int) -> int:
        """The connection is open, and the request is about to be written."""
        # curl itself would send the request again where a kept connection broke; that would be a second request
        # without the host's delay. A retry is ours to plan.
        if self.sent:
            self.mark = Mark.STALE
            return int(pycurl.PREREQFUNC_ABORT)
        self.sent = 1
        self.due = self.started + self.limits[1]
        if self.ask.before_send is not None:
            self.ask.before_send(primary_ip)
        return int(pycurl.PREREQFUNC_OK)

    def on_body(self, data: bytes) -> int:
        """Take a piece of the body; anything but its length ends the transfer."""
        if not self.parts and not self._takes_body():
            return -1
        room = self.room
        if not self.budget.takes(self, self.ask.max_body_bytes - room, min(len(data), room)):
            self.left, self.due = self.due - time.monotonic(), self.last
            self.is_paused = True
            return int(pycurl.WRITEFUNC_PAUSE)
        if len(data) > room:
            self.parts.append(data[:room])
            self.room = 0
            self.mark = Mark.LENGTH
            return -1
        self.parts.append(data)
        self.room = room - len(data)
        return len(data)

    def resume(self) -> None:
        """Go on after a pause, which does not count as the transfer's time; all pauses may last as long as that."""
        self.due = min(time.monotonic() + self.left, self.last)
        self.is_paused = False
        with suppress(pycurl.error):  # of the body's callback, which has set the mark
            self.handle.pause(pycurl.PAUSE_CONT)
        self.on_resumed(self)

    def _takes_body(self) -> bool:
        allowed = self.ask.mime_types
        if sum(map(len, self.lines)) > self.header_limit:
            self.mark = Mark.HEADER
            return False
        if allowed is None:
            return True
        head = last_block(self.lines)
        if head[9:10] == b"2" and not mime_allowed(declared_type(head), allowed):
            self.mark = Mark.MIME
            return False
        return True

    def late_message(self) -> str:
        """What is said of a transfer whose time is over."""
        what = "received all of an answer" if self.sent else "connected"
        return f"not {what} after {time.monotonic() - self.started:.1f} s"

    def reply(self, code: int, message: str, request: bytes) -> Reply:
        """What came, after the transfer's end. `code`, `message`: of curl; `request`: the head as sent."""
        duration_s = time.monotonic() - self.started
        body = self.parts[0] if len(self.parts) == 1 else b"".join(self.parts)
        self.parts = []
        self.due = math.inf
        self.close_opened()
        head = last_block(self.lines) if self.lines else b""
        mark = self.mark
        if not mark and len(head) > self.header_limit:
            mark = Mark.HEADER
        handle = self.handle
        return Reply(
            code,
            f"address {self.address_refused} is refused" if mark is Mark.ADDRESS else message,
            mark,
            self.started_wall,
            duration_s,
            bool(self.sent),
            request if self.sent else b"",
            head,
            body,
            handle.getinfo(pycurl.RESPONSE_CODE) if head else 0,
            handle.getinfo(pycurl.PRIMARY_IP) or None if self.sent else None,
        )


def _proxy(given: str) -> str:
    """A proxy as curl is told of it: with `socks5:` or `socks4:` it would look up the target's name itself."""
    scheme, colon, rest = given.partition("://")
    return {"socks5": "socks5h", "socks4": "socks4a"}.get(scheme.lower(), scheme) + colon + rest
