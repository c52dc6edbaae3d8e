"""`make realtime`: the real-time service over a synthetic web, and a page to type a URL into.

One process has the service and the page. Its children, the fetcher and the web, end with this process. The page asks
the service by HTTP with a token of its own, as any client does, so all rules of the API apply.
"""

from __future__ import annotations

import asyncio
import secrets
import sys
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from urllib.parse import parse_qs, quote

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route
from uvicorn.protocols.http.h11_impl import H11Protocol

from crawl_lib.config import load_config
from crawl_lib.errors import ConfigError, KrakeError
from crawl_lib.realtime import Client, TokenFile, fetcher_of, serve_realtime
from crawl_lib.serve import Address, Server, listen
from crawl_lib.signals import end_on_signals, stop_on_signals
from crawl_lib.stores import Stores, open_stores
from demo.serving import Serving
from demo.stages import Watched, shown
from demo.web import SynthWeb

CONFIG = Path(__file__).resolve().parents[1] / "config" / "realtime.yml"
POLICY = "demo"
TOKEN_NAME = "demo-page"
MOST_WATCHED = 200
MOST_BODY_BYTES = 1 << 16
ANSWER_S = 10.0
EXAMPLES = (
    ("/", "a page"),
    ("/x/chain-1", "three redirects"),
    ("/x/loop-a", "a loop"),
    ("/private/secret.html", "closed by robots.txt"),
    ("/x/nowhere", "a missing page"),
)
"""Paths of the first site, with the meaning of each."""


def run(web: SynthWeb, config: Path, page: str) -> int:
    """Serve until a signal; return the exit code.

    `page`: the address of the page. Raises KrakeError.
    """
    with end_on_signals(), ExitStack() as stack:
        listening = stack.enter_context(closing(listen(Address.of(page, "--listen"), "--listen")))
        _say("Starting a synthetic web, and the real-time service ...")
        serving = stack.enter_context(Serving(web))
        stop = stack.enter_context(stop_on_signals())
        stop.text = "Stopped."
        url, token, is_over = stack.enter_context(_service(config, stop))
        site = serving.seeds[0].rstrip("/")
        app = make_app(
            lambda: Client(url, token, timeout_s=ANSWER_S),
            [(site + path, text) for path, text in EXAMPLES],
        )
        _say(f"  service  {url}")
        _say(f"  token    {token}")
        _say(f"  try      {site}/x/chain-1")
        _say(f"page: http://{Address(*listening.getsockname()[:2])}/   (Ctrl-C stops all)")
        is_over.add_done_callback(lambda _: stop.set())
        asyncio.run(Server(app, stop, H11Protocol).serve([listening]))
        _say("Stopping ...")
    _say("Stopped.")
    return 0


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


@contextmanager
def _service(config: Path, stop: Event) -> Iterator[tuple[str, str, Future[None]]]:
    """Run the service in a thread; give its URL, a new token, and the future of its end."""
    options = load_config(config)
    tokens = TokenFile(options.require_realtime().tokens)
    with suppress(ConfigError):
        tokens.remove(TOKEN_NAME)
    token = tokens.add(TOKEN_NAME, ("submit", "read"))  # makes the folder of all data, too
    stores = open_stores(options, stop=stop)
    with ThreadPoolExecutor(1, thread_name_prefix="service") as pool:
        url, is_over = _started(pool, stores)
        try:
            yield url, token, is_over
        finally:
            stop.set()
            is_over.result()


def _started(pool: ThreadPoolExecutor, stores: Stores) -> tuple[str, Future[None]]:
    """Start the service in a pool; return its URL. Raises KrakeError if the service does not start."""
    ready: Future[str] = Future()
    is_over = pool.submit(serve_realtime, stores, fetcher_of(stores), ready.set_result)

    def ended(over: Future[None]) -> None:
        if not ready.done():
            ready.set_exception(
                over.exception() or KrakeError("the service ended without an answer")
            )

    is_over.add_done_callback(ended)
    return ready.result().rstrip("/"), is_over


@dataclass
class _Page:
    """The page. `connect`: makes a client of the service. `examples`: URLs with their meanings."""

    connect: Callable[[], Client]
    examples: list[tuple[str, str]]

    def __post_init__(self) -> None:
        self.watched: OrderedDict[str, Watched] = OrderedDict()

    async def show(self, request: Request) -> Response:
        """Show the form, and the stages of the URL in the query."""
        url = request.query_params.get("url", "")
        found = await asyncio.to_thread(self.state_of, url) if url else None
        is_part = request.headers.get("part") == "1"
        return shown(url, found, self.examples, is_part=is_part)

    def state_of(self, url: str) -> Watched:
        """Return a URL with its newest document, and the problem if the service refuses to answer."""
        watched = self.watched.get(url, Watched())
        try:
            with self.connect() as client:
                watched.page = client.page(url)
            watched.problem = ""
        except KrakeError as error:
            watched.problem = str(error)
        return watched

    async def submit(self, request: Request) -> Response:
        """Submit the URL of the form, then show its stages."""
        if request.headers.get("origin", _origin(request)) != _origin(request):
            return HTMLResponse("Only this page's own form submits URLs.\n", 403)
        body = bytearray()
        async for piece in request.stream():
            body += piece
            if len(body) > MOST_BODY_BYTES:
                return HTMLResponse("The URL is too long.\n", 413)
        url = parse_qs(body.decode("utf-8", "replace")).get("url", [""])[0].strip()
        if url:
            self.watched[url] = await asyncio.to_thread(self._submitted, url)
            self.watched.move_to_end(url)
            if len(self.watched) > MOST_WATCHED:
                self.watched.popitem(last=False)
        return RedirectResponse(f"/?url={quote(url, safe='')}" if url else "/", 303)

    def _submitted(self, url: str) -> Watched:
        began_s, began_ms = time.monotonic(), time.time() * 1000
        try:
            with self.connect() as client:
                [decision] = client.submit([url], POLICY, idempotency_key=secrets.token_hex(16))
        except KrakeError as error:
            return Watched(problem=str(error))
        return Watched(decision, began_ms, (time.monotonic() - began_s) * 1000)


def _origin(request: Request) -> str:
    return f"http://{request.headers.get('host', '')}"


def make_app(connect: Callable[[], Client], examples: list[tuple[str, str]]) -> Starlette:
    """Return the application of the page.

    Browsers reach the page by the names of loopback alone.
    """
    page = _Page(connect, examples)
    return Starlette(
        routes=[Route("/", page.show, methods=["GET"]), Route("/", page.submit, methods=["POST"])],
        middleware=[
            Middleware(TrustedHostMiddleware, allowed_hosts=["localhost", "127.0.0.1", "[::1]"])
        ],
    )
