"""The application: the addresses of the search page, and their answers."""

import asyncio
import json
import logging
import re
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import Any, TypeVar

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from crawl_lib.config import SearchConfig
from crawl_lib.errors import BusyError, KrakeError
from crawl_lib.search import OpenIndex, SearchOptions, SearchPool, Sites, answer, as_json
from crawl_lib.serve.cached import SANDBOX, Copy, read_copy
from crawl_lib.serve.filters import chips, menus
from crawl_lib.serve.guard import POLICY, Guard, server_names
from crawl_lib.serve.newest import NewestIndex
from crawl_lib.serve.views import PAGE_POLICY, render
from crawl_lib.stores import Stores

RETRY_S = 2
"""The time after which a client may ask again, while something is missing."""
WAITING_PER_THREAD = 16
"""Queries that may wait for a thread: at 20 ms each, the last of them waits a third of a second."""
COPY_THREADS = 4
MOST_COPIES = 32
"""Copies of pages sent at once. Each may keep `cached.MOST_BYTES` in memory for a slow client, and a text of signs only
about three times as much."""
SENT_BYTES = 64 << 10
_PAGE = re.compile(r"0{0,9}[1-9][0-9]{0,8}", re.ASCII)
_KEY = re.compile(r"[0-9a-f]{40}", re.ASCII)
T = TypeVar("T")
log = logging.getLogger(__name__)


@dataclass
class Service:
    """The parts of a running search page. `pool`: threads for searches; `copies`: threads that read records."""

    stores: Stores
    newest: NewestIndex
    sites: Sites
    pool: SearchPool = field(
        default_factory=partial(SearchPool, waiting_per_thread=WAITING_PER_THREAD)
    )
    copies: SearchPool = field(default_factory=partial(SearchPool, COPY_THREADS))
    sending: asyncio.Semaphore = field(default_factory=partial(asyncio.Semaphore, MOST_COPIES))

    @property
    def config(self) -> SearchConfig:
        """The options of this machine."""
        return self.stores.config.search

    @property
    def index(self) -> OpenIndex:
        """The index that answers. Raises HTTPException (503) if there is no index."""
        index = self.newest.index
        if index is None:
            raise HTTPException(503, self.newest.problem, {"Retry-After": str(RETRY_S)})
        return index


def make_app(service: Service) -> Guard:
    """Return the application of a service, guarded. Raises ConfigError for `search.hosts`."""
    pages = _Pages(service)
    routes = [
        Route("/", pages.search),
        Route("/api/search", pages.api),
        Route("/cached/{key}", pages.cached),
        Route("/cached/{key}/page", pages.copy),
        Route("/help", pages.help),
        Route("/opensearch.xml", pages.opensearch),
        Route("/healthz", pages.health),
    ]
    handlers: Any = {
        HTTPException: _refused,
        BusyError: _busy,
        KrakeError: _failed,
        Exception: _broken,
    }
    app = Starlette(routes=routes, exception_handlers=handlers)
    return Guard(app, server_names(service.config), logs_queries=service.config.log_queries)


class _Pages:
    """The answers to requests."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def search(self, request: Request) -> Response:
        """Answer a query with results, or show an empty box."""
        if _wants_json(request):
            return await self.api(request)
        wanted, query = _wanted(request), request.query_params.get("q", "")
        if not query.strip():
            return _page(
                "home.html", index=self._service.newest.index, problem=self._service.newest.problem
            )
        return _html(
            await self._ask(self._service.pool, lambda index: self._results(index, query, wanted))
        )

    def _results(self, index: OpenIndex, query: str, wanted: SearchOptions) -> str:
        found = answer(index, query, self._service.sites, wanted)
        today = datetime.now(UTC).date()
        filters = menus(found.reading, index.fields.languages, today)
        more = {"menus": filters, "chips": chips(found.reading)}
        return render("results.html", query=query, found=found, wanted=wanted, **more)

    async def api(self, request: Request) -> Response:
        """Answer a query for programs."""
        wanted, query = _wanted(request, is_explained=True), request.query_params.get("q", "")
        sites = self._service.sites
        return _json(
            await self._ask(
                self._service.pool,
                lambda index: asdict(as_json(answer(index, query, sites, wanted))),
            )
        )

    async def cached(self, request: Request) -> Response:
        """Answer with a page around a copy, with its time."""
        text = await self._shown(
            request, lambda copy: render("cached.html", copy=copy, page=copy.page)
        )
        return _CopyResponse(text, self._service.sending, {POLICY: PAGE_POLICY})

    async def copy(self, request: Request) -> Response:
        """Answer with a page as it was captured, in its sandbox."""
        html = await self._shown(request, lambda copy: copy.html)
        if html is None:
            raise HTTPException(404, "This page is shown as its text alone.")
        return _CopyResponse(
            html, self._service.sending, {POLICY: SANDBOX, "X-Frame-Options": "SAMEORIGIN"}
        )

    async def _shown(self, request: Request, show: Callable[[Copy], T]) -> T:
        """Show a copy in a thread.

        The rendering of a long text may take a second.
        """
        if self._service.sending.locked():
            raise BusyError("too many copies of pages are being sent at once", RETRY_S)
        key = request.path_params["key"]
        if not _KEY.fullmatch(key):
            raise HTTPException(404, "This is no key of a page.")
        stores, sites = self._service.stores, self._service.sites
        copies, wanted = self._service.copies, bytes.fromhex(key)
        return await self._ask(copies, lambda index: show(read_copy(stores, index, wanted, sites)))

    async def _ask(self, pool: SearchPool, question: Callable[[OpenIndex], T]) -> T:
        """Ask the index in a pool's thread.

        Raises HTTPException (503), BusyError, and as `NewestIndex.ask`.
        """
        service = self._service
        return await asyncio.wrap_future(
            pool.submit(partial(service.newest.ask, service.index, question))
        )

    async def help(self, request: Request) -> Response:
        """Answer with the query language."""
        return _page("help.html")

    async def opensearch(self, request: Request) -> Response:
        """Answer with a description for the address bar of browsers (OpenSearch 1.1)."""
        is_secure = request.headers.get("x-forwarded-proto") == "https"
        root = f"{'https' if is_secure else 'http'}://{request.headers['host']}"
        name = self._service.stores.config.crawl.name
        text = render("opensearch.xml", root=root, name=name)
        return Response(text, media_type="application/opensearchdescription+xml")

    async def health(self, request: Request) -> Response:
        """Answer whether queries are answered: 200, else 503."""
        index = self._service.index
        return _json({"version": index.number, "pages": index.searcher.num_docs})


class _CopyResponse(HTMLResponse):
    """A copy of a page, sent in parts."""

    def __init__(
        self, html: bytes | str, sending: asyncio.Semaphore, headers: dict[str, str]
    ) -> None:
        super().__init__(html, headers=headers)
        self._sending = sending

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with self._sending:
            await send(
                {
                    "type": "http.response.start",
                    "status": self.status_code,
                    "headers": self.raw_headers,
                }
            )
            for start in range(0, len(self.body), SENT_BYTES):
                part = self.body[start : start + SENT_BYTES]
                await send({"type": "http.response.body", "body": part, "more_body": True})
            await send({"type": "http.response.body", "body": b""})


def _wanted(request: Request, *, is_explained: bool = False) -> SearchOptions:
    """Return a request's options.

    Raises HTTPException (400) if `page` is no number.
    """
    page = request.query_params.get("page", "1")
    if not _PAGE.fullmatch(page):
        raise HTTPException(400, "The page of results must be a whole number of 1 or more.")
    is_broader = request.query_params.get("broader") == "1"
    return SearchOptions(int(page), is_broader=is_broader, is_explained=is_explained)


def _wants_json(request: Request) -> bool:
    accept = request.headers.get("accept", "").lower()
    return request.url.path.startswith("/api/") or (
        "application/json" in accept and "text/html" not in accept
    )


def _json(value: object, status: int = 200, headers: Any = None) -> Response:
    """Return JSON in ASCII, which is safe to print on a terminal."""
    return Response(json.dumps(value), status, headers, media_type="application/json")


def _html(text: str, status: int = 200, headers: Any = None) -> Response:
    return HTMLResponse(text, status, {**(headers or {}), POLICY: PAGE_POLICY})


def _page(template: str, **values: Any) -> Response:
    return _html(render(template, **values))


def _said(request: Request, status: int, text: str, headers: Any = None) -> Response:
    """Return an answer of one sentence, as JSON or as a page."""
    if _wants_json(request):
        return _json({"error": text}, status, headers)
    query = request.query_params.get("q", "")
    return _html(render("message.html", text=text, query=query, status=status), status, headers)


async def _refused(request: Request, error: HTTPException) -> Response:
    return _said(request, error.status_code, error.detail, error.headers)


async def _busy(request: Request, error: BusyError) -> Response:
    text = "More people search than this machine can answer at once. Try again in a moment."
    return _said(request, 503, text, {"Retry-After": str(error.retry_after_s)})


async def _failed(request: Request, error: KrakeError) -> Response:
    """Answer after an error of a store or of the index.

    The error names paths and servers, so only the log has it.
    """
    log.error("a request failed: %s", error)
    return _said(
        request,
        503,
        "The pages cannot be read now. The log of this server says why.",
        {"Retry-After": "10"},
    )


async def _broken(request: Request, error: Exception) -> Response:
    return PlainTextResponse("This request failed. The log of this server says why.\n", 500)
