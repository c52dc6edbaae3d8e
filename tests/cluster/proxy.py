"""A relay before a namenode that loses answers: the request is carried out, and nobody hears of it."""

from __future__ import annotations

from collections.abc import Callable
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from urllib.parse import parse_qs, urlsplit


class LossyProxy:
    """Relays to `target` ("http://host:port").

    `lose`: operations whose next answers are lost, once each. `before`: what is done before an operation is relayed.
    """

    def __init__(self, target: str) -> None:
        self.lose: list[str] = []
        self.before: dict[str, Callable[[], object]] = {}
        self.seen: list[str] = []
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self, urlsplit(target).netloc))
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


def _handler(proxy: LossyProxy, netloc: str) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def relay(self) -> None:
            [operation] = parse_qs(urlsplit(self.path).query)["op"]
            proxy.seen.append(operation)
            proxy.before.pop(operation, lambda: None)()
            connection = HTTPConnection(netloc, timeout=30)
            connection.request(self.command, self.path)
            answer = connection.getresponse()
            data = answer.read()
            connection.close()
            self.close_connection = True
            if operation in proxy.lose:
                proxy.lose.remove(operation)
                return
            self.send_response(answer.status)
            for name in ("Location", "Content-Type"):
                if name in answer.headers:
                    self.send_header(name, answer.headers[name])
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_PUT = do_DELETE = relay  # noqa: N815 - the names that http.server wants

        def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002
            pass

    return Handler


__all__ = ["LossyProxy"]
