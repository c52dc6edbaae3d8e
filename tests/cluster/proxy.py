"""Relays that fail: one before a namenode loses answers, one before a datanode cuts the connection of a sender."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from contextlib import suppress
from http.client import HTTPConnection
from http.server import ThreadingHTTPServer
from threading import Event, Thread
from urllib.parse import parse_qs, urlsplit

from tests.serving import Answering


class LossyProxy:
    """Relays to `target` ("http://host:port").

    `lose`: operations whose next answers are lost, once each. `before`: what is done before an operation is relayed.
    `datanode` ("host:port", or ""): where clients are sent instead of to the datanode that the namenode names.
    """

    def __init__(self, target: str, datanode: str = "") -> None:
        self.datanode = datanode
        self.lose: list[str] = []
        self.before: dict[str, Callable[[], object]] = {}
        self.seen: list[str] = []
        self._server = ThreadingHTTPServer(
            ("127.0.0.1", 0), _handler(self, urlsplit(target).netloc)
        )
        self._server.daemon_threads = True
        self._thread = Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05})

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> LossyProxy:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


def _handler(proxy: LossyProxy, netloc: str) -> type[Answering]:
    class Handler(Answering):
        def relay(self) -> None:
            [operation] = parse_qs(urlsplit(self.path).query)["op"]
            proxy.seen.append(operation)
            proxy.before.pop(operation, lambda: None)()
            connection = HTTPConnection(netloc, timeout=30)
            connection.request(self.command, self.path)
            answer = connection.getresponse()
            data = answer.read()
            if proxy.datanode and data and "Location" in (named := json.loads(data)):
                place = urlsplit(named["Location"])._replace(netloc=proxy.datanode)
                data = json.dumps({"Location": place.geturl()}).encode()
            connection.close()
            self.close_connection = True
            if operation in proxy.lose:
                proxy.lose.remove(operation)
                return
            told = {name: answer.headers[name] for name in ("Location", "Content-Type")}
            self.answer(answer.status, data, told)

        do_GET = do_PUT = do_DELETE = relay

    return Handler


class CuttingRelay:
    """Relays TCP connections to a port of this machine, and cuts those of senders.

    `cuts`: after how many bytes from the client the next connections that send so much are cut, once each; what was
    cut is in `done`. `slow`: if it is an event, requests are relayed only when all of a chunked body is there; one that
    its sender breaks off is relayed when the event is set.
    """

    def __init__(self, port: int) -> None:
        self.cuts: list[int] = []
        self.done: list[int] = []
        self.slow: Event | None = None
        self._port = port
        self._server = socket.create_server(("127.0.0.1", 0))
        self._threads = [Thread(target=self._accept, daemon=True)]

    @property
    def netloc(self) -> str:
        return f"127.0.0.1:{self._server.getsockname()[1]}"

    def __enter__(self) -> CuttingRelay:
        self._threads[0].start()
        return self

    def __exit__(self, *error: object) -> None:
        self.end()
        self._server.close()

    def end(self) -> None:
        """Take no more connections, and wait until those that there are have ended."""
        with suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._server.accept()
            except OSError:
                return
            self._threads.append(Thread(target=self._relay, args=(client,)))
            self._threads[-1].start()

    def _relay(self, client: socket.socket) -> None:
        with client, socket.create_connection(("127.0.0.1", self._port)) as server:
            back = Thread(target=self._pump, args=(server, client, False))
            back.start()
            self._pump(client, server, True)
            back.join()

    def _pump(self, source: socket.socket, target: socket.socket, sends: bool) -> None:
        total = 0
        with suppress(OSError):
            if sends and self.slow is not None:
                target.sendall(_whole(source, self.slow))
            while data := source.recv(1 << 16):
                total += len(data)
                if sends and self.cuts and total >= self.cuts[0]:
                    self.done.append(self.cuts.pop(0))
                    break
                target.sendall(data)
        for end in (source, target):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)


def _whole(source: socket.socket, slow: Event) -> bytes:
    """All of a request with a chunked body; what there is of it after the event, if it is broken off."""
    request = b""
    while not request.endswith(b"\r\n0\r\n\r\n"):
        data = source.recv(1 << 16)
        if not data:
            slow.wait()
            break
        request += data
    return request


__all__ = ["CuttingRelay", "LossyProxy"]
