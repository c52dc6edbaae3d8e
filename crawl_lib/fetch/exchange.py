"""One transfer: an easy handle of curl, the callbacks, and the state of each request.

The handle's options are set once, and handles are used again: a request sets the URL, and a changed address.
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
from crawl_lib.fetch.address import AddressFilter, refusal
from crawl_lib.fetch.classify import (
    OUTCOME_OF_TROUBLE,
    WHOLE,
    End,
    Failure,
    last_block,
    meaning,
    mime_allowed,
)
from crawl_lib.fetch.hosts import Job
from crawl_lib.fetch.rawanswer import NO_STATUS, RawAnswer
from crawl_lib.fetch.retry import Trouble
from crawl_lib.fetch.useragent import user_agent_header
from crawl_lib.parse import parse_head
from crawl_lib.records import Earlier, Fetched
from crawl_lib.states import WITH_RESPONSE, Outcome

# https://github.com/curl/curl/blob/master/include/curl/curl.h (pycurl has no names for them)
_SUPPRESS_CONNECT_HEADERS = 265
_WEIRD_SERVER_REPLY = 8
ACCEPT = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"
# Not br, though we could undo it: warcio 1.8.1's `check` ends in an AttributeError on such a body with brotli 1.2.
ACCEPT_ENCODING = "gzip, deflate"
MAX_VALIDATOR_CHARS = 1024
"""The length limit of an ETag that is sent back: servers refuse a request whose head is long."""
LONG_HEAD: End = Outcome.PROTOCOL_ERROR, "the headers pass fetch.max_header_bytes"
_DEBIAN_CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")

Done = Callable[[Fetched, Failure], None]
"""Gets the end of a request, and the request's row of the retry table."""


class InflightBudget:
    """How many bytes of bodies may be in flight at once: `fetch.max_inflight_bytes`, among so many `connections`.

    Half of it is divided: up to its share of that a transfer is never held up, so large bodies cannot delay small
    pages. Above its share it draws on the other half, which is common; without free bytes the transfer pauses, and goes
    on when another transfer has ended. In the slow lane it has no share, and draws on the common half alone. One may
    always go on: the first that found no room, up to its own end. A pause does not count as time of the transfer, but a
    pause ends a transfer after twice the time limit: else hosts that stop talking would hold up the others one after
    the other.
    """

    def __init__(self, max_bytes: int, connections: int) -> None:
        self.share = max_bytes // 2 // connections
        self._room = max_bytes // 2
        self._first: Exchange | None = None
        self._paused: list[Exchange] = []

    def takes(self, holder: "Exchange", had: int, more: int) -> bool:
        """Return whether a transfer with `had` bytes may take `more`.

        A transfer that may not is paused, and resumed when there is room.
        """
        count = max(0, had + more - max(had, 0 if holder.is_slow else self.share))
        if count > max(0, self._room) and self._first is not holder:
            if self._first is not None:
                self._paused.append(holder)
                return False
            self._first = holder
        self._room -= count
        holder.held += count
        return True

    def leaves_share(self, holder: "Exchange", had: int) -> bool:
        """Move a transfer's share into the common half, if there is room.

        Returns whether the share was moved.
        """
        count = min(had, self.share)
        if count > max(0, self._room):
            return False
        self._room -= count
        holder.held += count
        return True

    def release(self, holder: "Exchange") -> None:
        """Free the bytes of an ended transfer."""
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
    """An easy handle with the state of the transfer it runs: `prepare` begins one, `result` ends it.

    `before_send`: called with address and host name once it is connected, right before the request is written; False if
    it must not be. `held`: what the transfer has of the budget's common half. `due`: when it ends; `ended`: our own
    reason for the end, if any. `quick_at`, `received_before`: for the slow lane, when it was quick last, and how many
    bytes there were then.
    """

    def __init__(
        self,
        config: FetchConfig,
        address_filter: AddressFilter | None,
        budget: InflightBudget,
        before_send: Callable[[str, str], bool] | None,
        on_resumed: "Callable[[Exchange], None]",
    ) -> None:
        self.config = config
        self.filter = address_filter
        self.budget = budget
        self.before_send = before_send
        self.on_resumed = on_resumed
        self.usual_types = frozenset(kind.lower() for kind in config.mime_types or ())
        self.headers = [
            f"User-Agent: {user_agent_header(config)}",
            f"Accept: {ACCEPT}",
            f"Accept-Encoding: {ACCEPT_ENCODING}",
        ]
        self.conditions: list[str] = []
        self.forwards = bool(config.proxy) and not str(config.proxy).lower().startswith("socks")
        self.held = 0
        self.lines: list[bytes] = []
        self.connect_to: str | None = None
        self.opened: socket.socket | None = None
        self.handle: Any = pycurl.Curl()
        self._configure()
        self._set_headers()

    def _set_headers(self) -> None:
        lines = [*self.headers, *self.conditions]
        self.tail = "".join(f"{line}\r\n" for line in lines) + "\r\n"
        self.handle.setopt(
            pycurl.HTTPHEADER, [*lines, "Proxy-Connection:"] if self.forwards else lines
        )

    def _configure(self) -> None:
        config = self.config
        # Time is ours to watch (`due`): curl would end a transfer whose answer has come while the loop was held, or
        # that is paused. curl divides the time to connect among the addresses of a proxy, and so must know the time
        # there.
        connect_s = config.connect_timeout_s + (0 if config.proxy else config.time_limit_s)
        options: dict[int, Any] = {
            pycurl.NOSIGNAL: 1,
            pycurl.PROTOCOLS: pycurl.PROTO_HTTP | pycurl.PROTO_HTTPS,
            pycurl.HTTP_VERSION: pycurl.CURL_HTTP_VERSION_1_1,
            pycurl.HTTP_TRANSFER_DECODING: 0,
            pycurl.HTTP09_ALLOWED: 1,  # for `RawAnswer`
            pycurl.FOLLOWLOCATION: 0,
            pycurl.PATH_AS_IS: 1,
            # Empty, not unset: else the environment's proxy and its exceptions would count (libcurl-env(3)).
            pycurl.PROXY: _proxy(config.proxy or ""),
            pycurl.NOPROXY: "",
            # Without a proxy curl gets addresses, and keeping many addresses is expensive for curl.
            pycurl.DNS_CACHE_TIMEOUT: 60 if config.proxy else 0,
            _SUPPRESS_CONNECT_HEADERS: 1,
            pycurl.SSL_VERIFYPEER: 1 if config.verify_tls else 0,
            pycurl.SSL_VERIFYHOST: 2 if config.verify_tls else 0,
            pycurl.CONNECTTIMEOUT_MS: max(1, int(connect_s * 1000)),
            pycurl.BUFFERSIZE: 65536,
            pycurl.HEADERFUNCTION: self.lines.append,
            pycurl.WRITEFUNCTION: self.on_body,
            pycurl.OPENSOCKETFUNCTION: self.on_open,
            pycurl.PREREQFUNCTION: self.on_connected,
        }
        # The system's certificates (or `SSL_CERT_FILE`, `SSL_CERT_DIR`): the wheel knows its builder's path only.
        paths = ssl.get_default_verify_paths()
        if paths.cafile or _DEBIAN_CERTIFICATES.is_file():
            options[pycurl.CAINFO] = paths.cafile or str(_DEBIAN_CERTIFICATES)
        if paths.capath:
            options[pycurl.CAPATH] = paths.capath
        for option, value in options.items():
            self.handle.setopt(option, value)

    def prepare(self, job: Job, address: str | None, done: Done) -> None:
        """Prepare for a request.

        `done`: for the caller that collects the result. Raises ValueError without an address.
        """
        self.job, self.done = job, done
        self.lines.clear()
        self.raw: RawAnswer | None = None
        self.parts: list[bytes] = []
        self.most = self.room = _most_bytes(self.config, job)
        self.mime_types = (
            self.usual_types if job.limits.mime_types is None else job.limits.mime_types
        )
        self.limit_s = job.time_limit_s(self.config.time_limit_s)
        self.sent = False
        self.ended: End | None = None
        self.started_wall, self.started = time.time(), time.monotonic()
        self.due = self.started + min(self.config.connect_timeout_s, self.limit_s)
        self.last = self.started + 2 * self.limit_s
        self.is_paused = self.spared = self.is_slow = False
        self.quick_at, self.received_before = math.inf, 0
        if address is None and self.filter is not None:
            raise ValueError("no address was found for the host, and curl looks up none")
        conditions = conditions_of(job)
        if conditions != self.conditions:
            self.conditions = conditions
            self._set_headers()
        self.handle.setopt(pycurl.URL, job.url)
        if address != self.connect_to:
            # An address instead of a name to look up; kept connections are told apart by it too.
            self.connect_to = address
            text = f"[{address}]" if address and ":" in address else address
            self.handle.setopt(pycurl.CONNECT_TO, [f"::{text}:"] if text else [])

    def on_open(self, _purpose: int, address: Any) -> Any:
        """Open the socket for a resolved address, if the filter allows it."""
        family, kind, protocol, where = address
        if self.filter is not None and not self.filter.allows(str(where[0])):
            self.ended = Outcome.ADDRESS_REFUSED, refusal([str(where[0])])
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
        """Decide, once the connection is open, whether to send the request."""
        # curl itself would send the request again where a kept connection broke; that would be a second request
        # without the host's delay. A retry is ours to plan.
        if self.sent:
            self.ended = (
                Trouble.STALE_CONNECTION,
                "the server closed a kept connection before it answered",
            )
            return int(pycurl.PREREQFUNC_ABORT)
        if self.before_send is not None and not self.before_send(primary_ip, self.job.site.host):
            self.ended = (
                Trouble.TURN_OVER,
                f"the turn of {primary_ip} was over when it was connected",
            )
            return int(pycurl.PREREQFUNC_ABORT)
        self.sent = True
        self.due = self.started + self.limit_s
        return int(pycurl.PREREQFUNC_OK)

    def on_body(self, data: bytes) -> int:
        """Take a piece of the body.

        Any result but the piece's length ends the transfer.
        """
        if not self.lines and self.raw is None:
            self.raw = RawAnswer()
        if not self.parts and not self._takes_body():
            return -1
        room = self.room
        if not self.budget.takes(self, self.most - room, min(len(data), room)):
            self.left, self.due = self.due - time.monotonic(), self.last
            self.is_paused = True
            return int(pycurl.WRITEFUNC_PAUSE)
        if self.raw is not None:
            return len(data) if self._take_raw(self.raw, data) else -1
        if len(data) > room:
            self.parts.append(data[:room])
            self.room = 0
            self.ended = None, ""
            return -1
        self.parts.append(data)
        self.room = room - len(data)
        return len(data)

    def _take_raw(self, raw: RawAnswer, data: bytes) -> bool:
        """Take a piece of an answer that libcurl does not parse.

        Returns whether the transfer goes on.
        """
        data = raw.take(data)
        if raw.problem:
            self.ended = Outcome.PROTOCOL_ERROR, raw.problem
        elif self._takes_body() and raw.head:
            self.parts.append(data[: self.room])
            if len(data) > self.room:
                self.ended = None, ""
            elif raw.is_whole:
                self.ended = WHOLE
            self.room -= len(self.parts[-1])
        return self.ended is None

    def received(self) -> int:
        """Count the bytes of the answer, with those of complete head lines."""
        return self.head_bytes() + self.most - self.room

    def head_bytes(self) -> int:
        """Count the bytes of all heads, including interim ones.

        Only complete lines count.
        """
        return self.raw.head_bytes if self.raw else sum(map(len, self.lines))

    def head(self) -> bytes:
        """Return the head of the final answer, as far as received."""
        if self.raw is not None:
            return self.raw.head
        return last_block(self.lines) if self.lines else b""

    def resume(self) -> None:
        """Resume a paused transfer.

        A pause does not use the transfer's time, but all pauses together may last no longer than the time limit.
        """
        self.due = min(time.monotonic() + self.left, self.last)
        self.is_paused = False
        with suppress(pycurl.error):  # of the body's callback, which has set `ended`
            self.handle.pause(pycurl.PAUSE_CONT)
        self.on_resumed(self)

    def _takes_body(self) -> bool:
        if self.head_bytes() > self.config.max_header_bytes:
            self.ended = LONG_HEAD
        elif self.mime_types and not self.job.robots_for:
            headers = parse_head(self.head())
            if headers.status // 100 == 2 and not mime_allowed(
                headers.content_type[0], self.mime_types
            ):
                self.ended = Outcome.MIME_REFUSED, ""
        return self.ended is None

    def result(self, code: int, message: str = "") -> tuple[Fetched, Failure]:
        """Return the received answer, and the answer's row of the retry table.

        Called once the transfer has ended; `code` and `message` come from curl.
        """
        duration_s = time.monotonic() - self.started
        if code == pycurl.E_OPERATION_TIMEDOUT:
            what = "received all of an answer" if self.sent else "connected"
            message = f"not {what} after {duration_s:.1f} s"
            if self.ended is None and self.job.left_s() <= self.limit_s:
                self.ended = Outcome.TIMEOUT, f"{message}; the URL is given up"
        self.close_opened()
        head = self.head()
        if self.ended is None:
            self.ended, code, message = self._end_of_head(head, code, message)
        status = (
            parse_head(head).status
            if self.raw
            else self.handle.getinfo(pycurl.RESPONSE_CODE)
            if head
            else 0
        )
        is_conditional = bool(self.conditions)
        failure, truncated, error = meaning(
            self.ended, code, message, status, head, is_conditional=is_conditional
        )
        outcome = OUTCOME_OF_TROUBLE[failure] if isinstance(failure, Trouble) else failure
        answered = outcome in WITH_RESPONSE
        fetched = Fetched(
            self.job.url,
            self.started_wall,
            outcome,
            status=status if answered else None,
            ip=self.handle.getinfo(pycurl.PRIMARY_IP) or None if self.sent else None,
            request=self.request_head() if self.sent else b"",
            head=head if answered else b"",
            body=(self.parts[0] if len(self.parts) == 1 else b"".join(self.parts))
            if answered
            else b"",
            truncated=truncated,
            attempts=self.job.tries,
            duration_ms=round(duration_s * 1000),
            error=error,
        )
        self.parts = []
        return fetched, failure

    def _end_of_head(self, head: bytes, code: int, message: str) -> tuple[End | None, int, str]:
        """Say whether the received heads end the transfer.

        Returns the end, if any, and curl's code and message, corrected.
        """
        if self.head_bytes() > self.config.max_header_bytes:
            return LONG_HEAD, code, message
        if (
            code == _WEIRD_SERVER_REPLY
            and head[:5] != b"HTTP/"
            and not self.handle.getinfo(pycurl.NUM_CONNECTS)
        ):
            # libcurl passes on raw only the first answer of a connection. On a new one the next try may be read.
            return (Trouble.STALE_CONNECTION, f"on a kept connection {NO_STATUS}"), code, message
        if self.raw is not None and self.raw.is_short and code == 0:
            return (
                None,
                pycurl.E_PARTIAL_FILE,
                "the connection was closed before the body was whole",
            )
        return None, code, message

    def request_head(self) -> bytes:
        """Return the request head as curl writes it.

        A test compares this text with the bytes that a server reads.
        """
        url, site = self.job.url, self.job.site
        target = url if self.forwards and site.scheme_end == 4 else url[site.path_start :]
        host = url[site.scheme_end + 3 : site.path_start]
        return f"GET {target} HTTP/1.1\r\nHost: {host}\r\n{self.tail}".encode("latin-1")


def _most_bytes(config: FetchConfig, job: Job) -> int:
    """Return the limit of an answer's body in bytes."""
    if job.robots_for:
        return config.max_robots_bytes
    own = job.limits.max_body_bytes
    return config.max_body_bytes if own is None else min(config.max_body_bytes, own)


def conditions_of(job: Job) -> list[str]:
    """Return the headers that ask whether a page has changed.

    A request for robots.txt has none. The headers repeat values of the page's server; what would break a request,
    or fill it, is not said.
    """
    if job.taken is None or not job.taken.queued.earlier:
        return []
    earlier = Earlier.of(job.taken.queued.earlier)
    if earlier is None:
        return []
    said = (("If-None-Match", earlier.etag), ("If-Modified-Since", earlier.last_modified))
    return [f"{name}: {text}" for name, text in said if text and is_sendable(text)]


def is_sendable(text: str) -> bool:
    """Return whether a server's header value may be sent back."""
    return text.isascii() and text.isprintable() and len(text) <= MAX_VALIDATOR_CHARS


def _proxy(given: str) -> str:
    """Return a proxy's URL for curl.

    A proxy of `socks5:` or `socks4:` would make curl look the target's name up itself.
    """
    scheme, colon, rest = given.partition("://")
    return {"socks5": "socks5h", "socks4": "socks4a"}.get(scheme.lower(), scheme) + colon + rest
