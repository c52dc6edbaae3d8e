"""Small servers of tests, in a thread of the test's own process."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from socketserver import BaseServer
from types import MappingProxyType
from typing import TypeVar

Some = TypeVar("Some", bound=BaseServer)
NO_HEADERS: Mapping[str, str | None] = MappingProxyType({})


class Answering(BaseHTTPRequestHandler):
    """A handler of requests that writes no log."""

    def answer(
        self, status: int, body: bytes = b"", headers: Mapping[str, str | None] = NO_HEADERS
    ) -> None:
        """Send an answer with its length, but for 304. A header without a value is left out."""
        self.send_response(status)
        length = None if status == HTTPStatus.NOT_MODIFIED else str(len(body))
        for name, value in {**headers, "Content-Length": length}.items():
            if value is not None:
                self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments: object) -> None:
        """Write nothing."""


@contextmanager
def running(server: Some) -> Iterator[Some]:
    """Have a server answer until the block ends, and close it then."""
    with server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
