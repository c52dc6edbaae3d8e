"""A web server with bad habits, for tests. Raw sockets on loopback, one thread a connection, every request logged.

    with HostileWeb() as web:
        web.url("/hang")

`HABITS` maps the first part of a path to what the server does; `web.on("/path", handler)` adds more. A handler gets a
`Talk` and writes bytes; the server closes the connection when it returns False, and reads on when it returns True.
"""

import gzip
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

OK_BODY = b"<p>good</p>"


@dataclass
class Seen:
    """A request that was read. `start`, `end`: monotonic seconds; `connection`: counts from 1; `head`: raw bytes."""

    path: str
    host: str
    head: bytes
    connection: int
    start: float
    end: float = 0.0


@dataclass
class Talk:
    """One request being answered."""

    web: "HostileWeb"
    sock: socket.socket
    seen: Seen
    args: list[str] = field(default_factory=list)

    def send(self, data: bytes) -> None:
        self.sock.sendall(data)

    def reply(
        self,
        status: str = "200 OK",
        headers: bytes = b"Content-Type: text/html\r\n",
        body: bytes = OK_BODY,
    ) -> bool:
        length = b"Content-Length: %d\r\n\r\n" % len(body)
        self.seen.end = time.monotonic()
        self.send(b"HTTP/1.1 " + status.encode() + b"\r\n" + headers + length + body)
        return True

    def hang(self) -> None:
        """Say nothing until the test is over or the client goes away."""
        self.sock.settimeout(0.05)
        while not self.web.closing.is_set():
            try:
                if not self.sock.recv(1):
                    return
            except TimeoutError:
                continue
            except OSError:
                return

    def drip(self, data: bytes, pause_s: float = 0.01) -> None:
        """Send byte by byte until the test is over or the client goes away."""
        for place in range(len(data)):
            if self.web.closing.wait(pause_s):
                return
            self.send(data[place : place + 1])


Habit = Callable[[Talk], bool]


def say(data: bytes, *, keeps: bool = False) -> Habit:
    """Send these bytes. `keeps`: the connection, which is closed else."""

    def habit(talk: Talk) -> bool:
        talk.send(data)
        return keeps

    return habit


def say_on(first: bytes, again: bytes) -> Habit:
    """Send bytes, then others again and again until the test is over."""

    def habit(talk: Talk) -> bool:
        talk.send(first)
        while not talk.web.closing.is_set():
            talk.send(again)
        return False

    return habit


def _flaky(talk: Talk) -> bool:
    """/flaky/<status>/<n>/...: n answers of that status, then good ones."""
    before = sum(seen.path == talk.seen.path for seen in talk.web.requests)
    if before <= int(talk.args[1]):
        return talk.reply(f"{talk.args[0]} Sorry")
    return talk.reply()


def _status(talk: Talk) -> bool:
    return talk.reply(f"{talk.args[0]} Word")


def _redirect_loop(talk: Talk) -> bool:
    number = int(talk.args[0]) if talk.args else 0
    return talk.reply("302 Found", b"Location: /redirect-loop/%d\r\n" % (number + 1), b"")


def _hang(talk: Talk) -> bool:
    talk.hang()
    return False


def _hang_in_head(talk: Talk) -> bool:
    talk.send(b"HTTP/1.1 200 OK\r\nContent-Type: text/")
    talk.hang()
    return False


def _hang_in_body(talk: Talk) -> bool:
    talk.send(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nsome")
    talk.hang()
    return False


def _drip_head(talk: Talk) -> bool:
    talk.drip(b"HTTP/1.1 200 OK\r\n" + b"X-Drip: 1\r\n" * 10_000)
    return False


def _drip_body(talk: Talk) -> bool:
    talk.send(b"HTTP/1.1 200 OK\r\n\r\n")
    talk.drip(b"x" * 100_000)
    return False


def _header_flood(talk: Talk) -> bool:
    """/header-flood/<bytes>."""
    line = b"X-Flood: " + b"y" * 989 + b"\r\n"
    talk.send(
        b"HTTP/1.1 200 OK\r\n"
        + line * (int(talk.args[0]) // len(line))
        + b"Content-Length: 4\r\n\r\ngood"
    )
    return False


def _bomb(talk: Talk) -> bool:
    body = gzip.compress(bytes(10_000_000), 9)
    return talk.reply(headers=b"Content-Type: text/html\r\nContent-Encoding: gzip\r\n", body=body)


def _close(_talk: Talk) -> bool:
    return False


def _reset(talk: Talk) -> bool:
    talk.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    return False


def _interim(talk: Talk) -> bool:
    talk.send(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </x.css>\r\n\r\n")
    return talk.reply()


BEFORE_STATUS = {
    "line": b"\r\n",
    "lines": b"\r\n\n \r\n",
    "mark": b"\xef\xbb\xbf",
    "mark-line": b"\xef\xbb\xbf\r\n",
}


def _before_status(talk: Talk) -> bool:
    """/before-status/<what comes before the status line>: the connection is kept open."""
    talk.send(BEFORE_STATUS[talk.args[0]])
    return talk.reply()


def _not_applied(talk: Talk) -> bool:
    """/not-applied/<coding>: a coding that is named and was not applied."""
    return talk.reply(
        headers=b"Content-Type: text/html\r\nContent-Encoding: %b\r\n" % talk.args[0].encode()
    )


SPACED_HEAD = (
    b"HTTP/1.1 200   Very  OK\r\nX-OdD:no-space\r\nCONTENT-type "
    b":  text/html  \r\nContent-Length:   11\r\n\r\n"
)


def _body(talk: Talk) -> bool:
    """/body/<bytes>."""
    return talk.reply(body=b"b" * int(talk.args[0]))


def _pdf(talk: Talk) -> bool:
    return talk.reply(headers=b"Content-Type: application/pdf\r\n", body=b"%PDF" * 1000)


def _stale(talk: Talk) -> bool:
    """Close without an answer if the connection was used before, as a server does whose keep-alive ran out."""
    used = sum(seen.connection == talk.seen.connection for seen in talk.web.requests) > 1
    return False if used else talk.reply()


HABITS: dict[str, Habit] = {
    "ok": Talk.reply,
    "bare-lf": say(b"HTTP/1.1 200 OK\nContent-Length: 11\n\n" + OK_BODY, keeps=True),
    "before-status": _before_status,
    "body": _body,
    "bomb": _bomb,
    "broken-chunk": say(
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\ngood\r\nNOT A SIZE\r\n"
    ),
    "chunked": say(
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4;x=y\r\ngood\r\n0\r\nX-Trailer: 1\r\n\r\n",
        keeps=True,
    ),
    "close": _close,
    "drip-body": _drip_body,
    "drip-head": _drip_head,
    "endless-body": say_on(b"HTTP/1.1 200 OK\r\n\r\n", b"e" * 10_000),
    "endless-chunk": say(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\ngood\r\n"),
    "endless-continue": say_on(b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 1000),
    "endless-interim": say_on(b"", b"HTTP/1.1 103 Early Hints\r\nLink: </x.css>\r\n\r\n" * 100),
    "flaky": _flaky,
    "folded": say(
        b"HTTP/1.1 200 OK\r\nX-Long: one\r\n  two\r\nContent-Length: 11\r\n\r\n" + OK_BODY,
        keeps=True,
    ),
    "garbage": say(b"\x00\xff\x15\x03\x01SSH-2.0-nonsense\r\n\r\n"),
    "half-head": say(b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n"),
    "hang": _hang,
    "hang-in-body": _hang_in_body,
    "hang-in-head": _hang_in_head,
    "header-flood": _header_flood,
    "http09": say(b"<p>no head at all</p>"),
    "http10": say(b"HTTP/1.0 200 OK\r\nContent-Type: text/html\r\n\r\n" + OK_BODY),
    "interim": _interim,
    "long": say(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nfour and more"),
    "negative": say(b"HTTP/1.1 200 OK\r\nContent-Length: -4\r\n\r\nfour"),
    "not-applied": _not_applied,
    "pdf": _pdf,
    "redirect-loop": _redirect_loop,
    "reset": _reset,
    "short": say(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nonly this"),
    "spacing": say(SPACED_HEAD + OK_BODY, keeps=True),
    "stale": _stale,
    "status": _status,
}


class HostileWeb:
    """The server. `requests`: what was read, in order. `robots`: body of /robots.txt; None: 404.

    `certificate`: a PEM file with key and certificate makes it speak TLS. `at_accept`: called with each new socket;
    True means it has been dealt with.
    """

    def __init__(
        self,
        address: str = "127.0.0.1",
        *,
        robots: bytes | None = None,
        certificate: Path | None = None,
    ) -> None:
        self.address = address
        self.robots = robots
        self.requests: list[Seen] = []
        self.connections = 0
        self.closing = threading.Event()
        self.at_accept: Callable[[socket.socket], bool] | None = None
        self._handlers: dict[str, Habit] = {}
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []
        self._tls: ssl.SSLContext | None = None
        if certificate is not None:
            self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self._tls.load_cert_chain(certificate)
        self._listener = socket.create_server((address, 0), backlog=512)
        self.port: int = self._listener.getsockname()[1]

    def on(self, path: str, handler: Callable[[Talk], bool]) -> None:
        """Answer requests for exactly this path with a handler."""
        self._handlers[path] = handler

    def url(self, path: str = "/ok", host: str | None = None) -> str:
        scheme = "https" if self._tls else "http"
        return f"{scheme}://{host or self.address}:{self.port}{path}"

    def paths(self) -> list[str]:
        return [seen.path for seen in self.requests]

    def __enter__(self) -> "HostileWeb":
        self._start(self._accept)
        return self

    def __exit__(self, *_error: object) -> None:
        self.closing.set()
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        with self._lock:
            still_open = list(self._open)
        for sock in still_open:
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(5)

    def _start(self, target: Callable[..., None], *args: object) -> None:
        thread = threading.Thread(target=target, args=args, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while not self.closing.is_set():
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            if self.at_accept is not None and self.at_accept(sock):
                continue
            with self._lock:
                self._open.add(sock)
            self._start(self._serve, sock, self.connections)

    def _serve(self, sock: socket.socket, connection: int) -> None:
        raw = sock
        try:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._tls is not None:
                sock = self._tls.wrap_socket(sock, server_side=True)
            while self._one(sock, connection):
                pass
        except (OSError, ValueError):
            pass
        finally:
            with self._lock:
                self._open.discard(raw)
            sock.close()

    def _one(self, sock: socket.socket, connection: int) -> bool:
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            data = sock.recv(65536)
            if not data or data[0] == 0x16:  # a TLS hello, which no HTTP server understands
                return False
            head += data
        lines = head.decode("latin-1").split("\r\n")
        host = next((line[6:] for line in lines if line.lower().startswith("host: ")), "")
        seen = Seen(lines[0].split(" ")[1], host, head, connection, time.monotonic())
        with self._lock:
            self.requests.append(seen)
        parts = seen.path.partition("?")[0].strip("/").split("/")
        talk = Talk(self, sock, seen, parts[1:])
        try:
            return self._handler(seen.path, parts[0])(talk)
        finally:
            seen.end = seen.end or time.monotonic()

    def _handler(self, path: str, habit: str) -> Callable[[Talk], bool]:
        if path in self._handlers:
            return self._handlers[path]
        if path == "/robots.txt":
            return self._robots
        return HABITS.get(habit, lambda talk: talk.reply("404 Not Found"))

    def _robots(self, talk: Talk) -> bool:
        if self.robots is None:
            return talk.reply("404 Not Found")
        return talk.reply(headers=b"Content-Type: text/plain\r\n", body=self.robots)
