"""A server that speaks S3, in this process: moto's, behind what counts its requests and has some of them fail."""

from __future__ import annotations

import re
import threading
import uuid
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from crawl_lib.config import Config
from crawl_lib.config.model import DfsConfig, S3Config
from crawl_lib.storage.access import S3Credentials
from crawl_lib.storage.s3 import S3Storage
from crawl_lib.storage.s3_claims import Times
from crawl_lib.storage.s3_client import S3Client, open_client

BUCKET = "krake-test"
CREDENTIALS = S3Credentials("key", "very-secret")


def credential_variables() -> dict[str, str]:
    """Return the variables of the environment by which a process is let in."""
    return {name.upper(): value for name, value in CREDENTIALS.words().items() if value}


def documented_rights() -> dict[str, str]:
    """Return the rights that the docs say a policy needs, each with what it is on: the bucket, or its objects."""
    text = (Path(__file__).resolve().parents[1] / "docs" / "storage.md").read_text()
    rows = [line.split("|")[1:3] for line in text.splitlines() if line.startswith("| `s3:")]
    return {
        right: "bucket" if place.strip() == "the bucket" else "objects"
        for names, place in rows
        for right in re.findall(r"s3:\w+", names)
    }


@dataclass
class S3Server:
    """A running server. `address`: of its endpoint; `requests`: what was answered, by method; `failed`: what was not.

    `fault`: called with the number of each request; a text has it fail. `proxy`: what stands before the server: called
    with the application, the environment of a request, and what starts its answer.
    """

    address: str = ""
    requests: Counter[str] = field(default_factory=Counter)
    failed: int = 0
    fault: Callable[[int], str | None] = lambda number: None
    proxy: Callable[..., Iterable[bytes]] = lambda app, environ, start: app(environ, start)
    _opened: Any = None

    def config(self, prefix: str = "", **options: Any) -> Config:
        """Return a config whose store is below a prefix of this server's bucket, a new one if none is given."""
        return Config(
            servers=("n1",),
            dfs_primary=f"s3://{BUCKET}/{prefix or uuid.uuid4().hex}",
            s3=S3Config(endpoint=self.address, region="us-east-1", addressing="path"),
            dfs=DfsConfig(**{"wait_s": 10.0, **options}),
        )

    def store(self, prefix: str = "", times: Times | None = None, **options: Any) -> S3Storage:
        """Return a store below a prefix of the bucket, with no patience by default. `options`: of S3Client."""
        config = self.config(prefix)
        self._opened = self._opened or open_client(config, CREDENTIALS)
        return S3Storage(
            S3Client(config, opened=self._opened, **options), times or Times(patience_s=0.0)
        )

    def wrapped(self, app: Callable[..., Iterable[bytes]]) -> Callable[..., Iterable[bytes]]:
        """Return the application behind the counter and the faults."""

        def counted(environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
            kind = self.fault(self.requests.total() + self.failed + 1)
            self.failed += kind is not None
            self.requests[environ["REQUEST_METHOD"]] += kind is None
            if kind == "lost":  # the request is done, and its answer does not arrive
                b"".join(app(environ, lambda *given: None))
                raise ConnectionAbortedError
            if kind == "nothing":
                raise ConnectionAbortedError
            if kind:
                start(kind, [("Content-Length", "0")])
                return [b""]
            try:
                return self.proxy(app, environ, start)
            except KeyError:  # of moto: an upload that was ended, or two requests at once
                if "uploadId" not in environ.get("QUERY_STRING", ""):
                    start("500 Internal Server Error", [("Content-Length", "0")])
                    return [b""]
                text = b"<Error><Code>NoSuchUpload</Code><Message>It was ended.</Message></Error>"
                start(
                    "404 Not Found",
                    [("Content-Type", "application/xml"), ("Content-Length", str(len(text)))],
                )
                return [text]

        return counted


@contextmanager
def behind(server: S3Server, proxy: Callable[..., Iterable[bytes]]) -> Iterator[None]:
    """Put a proxy before a server until the block ends."""
    before, server.proxy = server.proxy, proxy
    try:
        yield
    finally:
        server.proxy = before


def without(
    header: str, methods: Collection[str] = ("PUT", "POST", "DELETE")
) -> Callable[..., Iterable[bytes]]:
    """Return a proxy that takes a header out of each request of some methods."""
    name = f"HTTP_{header.upper().replace('-', '_')}"

    def proxy(
        app: Callable[..., Iterable[bytes]], environ: dict[str, Any], start: Callable[..., Any]
    ) -> Iterable[bytes]:
        if environ["REQUEST_METHOD"] in methods:
            environ.pop(name, None)
        return app(environ, start)

    return proxy


@contextmanager
def s3_server() -> Iterator[S3Server]:
    """Run a server with an empty bucket until the block ends."""
    from moto.server import DomainDispatcherApplication, create_backend_app  # noqa: PLC0415 - takes a second
    from werkzeug.serving import WSGIRequestHandler, make_server  # noqa: PLC0415

    class Handler(WSGIRequestHandler):
        protocol_version = "HTTP/1.1"

        def log(self, *_: object) -> None:
            """Say nothing."""

        def log_error(self, *_: object) -> None:
            """Say nothing."""

        def connection_dropped(self, *_: object) -> None:
            self.close_connection = True

    server = S3Server()
    app = server.wrapped(DomainDispatcherApplication(create_backend_app))
    http = make_server(
        "127.0.0.1", 0, app, threaded=True, request_handler=Handler, passthrough_errors=True
    )
    thread = threading.Thread(target=http.serve_forever, daemon=True)
    thread.start()
    server.address = f"http://127.0.0.1:{http.port}"
    try:
        client = S3Client(server.config(), CREDENTIALS)
        client.ask_once("cannot be made", "", "create_bucket")
        yield server
    finally:
        http.shutdown()
        http.server_close()
        thread.join()
