"""The API: a table of routes makes the application and `/openapi.json`."""

import asyncio
import logging
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from crawl_lib.errors import BusyError, InputError, KeyStoreError, KrakeError, UrlError
from crawl_lib.realtime.answers import (
    MAX_WAIT_S,
    BareAnswer,
    BareRequest,
    Decisions,
    Deleted,
    Health,
    Page,
    Pages,
    Problem,
    Question,
    RawPage,
    Submission,
)
from crawl_lib.realtime.events import Event, Subscription
from crawl_lib.realtime.limits import Rates, Repeats
from crawl_lib.realtime.link import FetcherDiedError
from crawl_lib.realtime.metrics import metrics_text
from crawl_lib.realtime.pages import Row
from crawl_lib.realtime.scheduler import Scheduler
from crawl_lib.realtime.stages import UNAVAILABLE_S
from crawl_lib.realtime.tokens import Token, TokenFile
from crawl_lib.urls import canonicalize, key_of
from crawl_lib.version import VERSION

MOST_BODY_BYTES = 768 << 10
"""The longest body of a request: 300 URLs of 2,000 characters are 600 KB."""
BODY_S = 10.0
"""The time for a request's body."""
SEND_S = 30.0
"""The time for a subscriber to take an event."""
MOST_SUBSCRIBERS = 100
READY_S = 1.0
MOST_IDEMPOTENCY_CHARS = 200
HEADERS = {"X-Content-Type-Options": "nosniff", "Cache-Control": "no-store", "Referrer-Policy": "no-referrer"}
"""Headers of every answer."""
_NUMBER = re.compile(r"[0-9]{1,9}(\.[0-9]{1,6})?", re.ASCII)
_json = msgspec.json.Encoder()
_submissions = msgspec.json.Decoder(Submission)
_questions = msgspec.json.Decoder(Question)
_bare_requests = msgspec.json.Decoder(BareRequest)
_Body = TypeVar("_Body")
log = logging.getLogger(__name__)
Handler = Callable[[Request, Token], Awaitable[Response]]


@dataclass(frozen=True)
class ApiRoute:
    """A route. `right`: of the token; "" for any token, None for no token. `takes`, `gives`: types of the bodies.

    `query`, `headers`: names of parameters with their meanings.
    """

    method: str
    path: str
    name: str
    right: str | None
    summary: str
    gives: Any = None
    takes: Any = None
    status: int = 200
    query: tuple[tuple[str, str], ...] = ()
    headers: tuple[tuple[str, str], ...] = ()


_URL = ("url", "The URL, in any form.")
_AGE = ("max_age_s", "A document older than so many seconds is marked stale.")
ROUTES = (
    ApiRoute(
        "POST",
        "/v1/urls",
        "submit",
        "submit",
        "Submit 1 to 300 URLs.",
        gives=Decisions,
        takes=Submission,
        status=202,
        headers=(("Idempotency-Key", "A repeated request with the same key counts once."),),
    ),
    ApiRoute(
        "GET",
        "/v1/pages",
        "page",
        "read",
        "Read the document of a URL, without a fetch.",
        gives=Page,
        query=(_URL, ("wait_s", "Wait so many seconds, at most 60, for a document under way."), _AGE),
    ),
    ApiRoute("POST", "/v1/pages:batch", "batch", "read", "Read up to 300 URLs.", gives=Pages, takes=Question),
    ApiRoute("DELETE", "/v1/pages", "delete", "admin", "Delete the row of a URL.", gives=Deleted, query=(_URL,)),
    ApiRoute(
        "GET",
        "/v1/events",
        "events",
        "read",
        "Follow new documents, as server-sent events.",
        headers=(("Last-Event-ID", "Go on after this event."),),
    ),
    ApiRoute(
        "POST",
        "/v1/fetch",
        "fetch",
        "fetch",
        "Fetch a URL at once, without a trace.",
        gives=BareAnswer,
        takes=BareRequest,
    ),
    ApiRoute("GET", "/healthz", "health", None, "Say that the service answers.", gives=Health),
    ApiRoute("GET", "/readyz", "ready", "", "Say whether store and fetcher work.", gives=Health),
    ApiRoute("GET", "/metrics", "metrics", "metrics", "Metrics for Prometheus, as text."),
    ApiRoute("GET", "/openapi.json", "openapi", "", "This description (OpenAPI 3.1)."),
)


def make_app(service: Scheduler, tokens: TokenFile) -> Starlette:
    """Return the application of a service."""
    answers = _Answers(service)
    routes = [
        Route(route.path, _guarded(getattr(answers, route.name), route, tokens), methods=[route.method])
        for route in ROUTES
    ]
    handlers: Any = {
        HTTPException: _refused,
        BusyError: _busy,
        FetcherDiedError: partial(_away, service),
        KeyStoreError: partial(_away, service),
        InputError: _wrong,
        KrakeError: _failed,
        Exception: _failed,
    }
    return Starlette(routes=routes, exception_handlers=handlers)


def _guarded(handler: Handler, route: ApiRoute, tokens: TokenFile) -> Callable[[Request], Awaitable[Response]]:
    """Return a handler with a check of the token."""

    async def guarded(request: Request) -> Response:
        return await handler(request, _NOBODY if route.right is None else _token_of(request, route.right, tokens))

    return guarded


_NOBODY = Token("", (), "")


def _token_of(request: Request, right: str, tokens: TokenFile) -> Token:
    scheme, _, text = request.headers.get("authorization", "").partition(" ")
    bearer = {"WWW-Authenticate": "Bearer"}
    if scheme.lower() != "bearer" or not text:
        raise HTTPException(401, "This request has no token: send the header Authorization: Bearer TOKEN.", bearer)
    token = tokens.find(text.strip())
    if token is None:
        raise HTTPException(401, "The token is not known here: an operator makes tokens.", bearer)
    if right and right not in token.rights:
        raise HTTPException(403, f"The token has no right {right}.")
    return token


class _Answers:
    """The answers to requests, by the names in `ROUTES`."""

    def __init__(self, service: Scheduler) -> None:
        self._service = service
        self._rates, self._repeats = Rates(most=300), Repeats()
        self._subscribers = 0

    async def submit(self, request: Request, token: Token) -> Response:
        """Submit URLs."""
        body = await _body(request)
        key = request.headers.get("idempotency-key")
        if key is None:
            return _answer(await self._submitted(body, token), 202)
        if not 0 < len(key) <= MOST_IDEMPOTENCY_CHARS:
            raise HTTPException(400, f"An Idempotency-Key has 1 to {MOST_IDEMPOTENCY_CHARS} characters.")
        make = partial(self._submitted, body, token, f"{token.name}\n{key}\n")
        return _answer(await self._repeats.once(token.name, key, body, make), 202)

    async def _submitted(self, body: bytes, token: Token, repeat: str = "") -> bytes:
        wanted = _read(_submissions, body)
        self._require_policy(wanted.policy)
        self._rates.take(token.name, token.urls_per_s or self._service.config.urls_per_s, len(wanted.urls))
        decisions = await self._service.accept(
            wanted.urls, wanted.policy, wanted.max_age_s, token=token.name, repeat=repeat
        )
        if all(decision.decision == "unavailable" for decision in decisions):
            raise BusyError("the key servers of all these URLs are away", retry_after_s=UNAVAILABLE_S)
        return _json.encode(Decisions(decisions=decisions))

    def _require_policy(self, name: str) -> None:
        if name not in self._service.policies:
            known = ", ".join(sorted(self._service.policies))
            raise HTTPException(400, f"There is no policy {name[:100]!r}; there are {known} (realtime.policies).")

    async def page(self, request: Request, token: Token) -> Response:
        """Read one URL, and wait for its document if asked to."""
        url, max_age_s = _query(request, "url"), _number(request, "max_age_s", 1e9)
        wait_s = _number(request, "wait_s", MAX_WAIT_S) or 0.0
        key = self._key_of(url)
        row = await self._awaited(key, wait_s) if wait_s else await self._service.store.read(key)
        if row is None:
            raise HTTPException(404, "This URL is unknown: submit it first.")
        return _answer(_json.encode(_page(url, key, row, max_age_s)))

    async def _awaited(self, key: bytes, wait_s: float) -> Row | None:
        """Return a row once nothing is under way, or after the wait."""
        end_s = time.monotonic() + wait_s
        while True:
            future = self._service.reader(key)
            try:
                row = await self._service.store.read(key)
                left_s = end_s - time.monotonic()
                if row is None or not row.is_open or left_s <= 0 or self._service.is_stopping:
                    return row
                await asyncio.wait([future], timeout=left_s)
            finally:
                self._service.leave(key, future)

    async def batch(self, request: Request, token: Token) -> Response:
        """Read many URLs."""
        wanted = _read(_questions, await _body(request))
        keys = [self._key_or_none(url) for url in wanted.urls]
        rows = await self._service.store.read_many(list(filter(None, dict.fromkeys(keys))))
        pages = [
            RawPage(url=url, state="unknown") if key is None else self._one(url, key, rows.get(key), wanted.max_age_s)
            for url, key in zip(wanted.urls, keys, strict=True)
        ]
        return _answer(b'{"pages":%s}' % _json.encode(pages))

    def _key_or_none(self, url: str) -> bytes | None:
        try:
            return self._key(url)
        except UrlError:
            return None

    def _one(self, url: str, key: bytes, row: Row | KeyStoreError | None, max_age_s: float | None) -> RawPage:
        if isinstance(row, KeyStoreError):
            self._service.note_problem(row)
            return RawPage(url=url, state="unavailable", key=key.hex())
        return _page(url, key, row, max_age_s)

    async def delete(self, request: Request, token: Token) -> Response:
        """Delete the row of a URL, and cancel its fetch."""
        return _answer(
            _json.encode(Deleted(deleted=await self._service.delete([self._key_of(_query(request, "url"))])))
        )

    async def events(self, request: Request, token: Token) -> Response:
        """Follow new documents."""
        if self._subscribers >= MOST_SUBSCRIBERS:
            raise BusyError("too many subscribers follow events", retry_after_s=10)
        subscription = Subscription(self._service)
        await subscription.begin(request.headers.get("last-event-id"))
        return _EventResponse(self._counted(subscription))

    async def _counted(self, subscription: Subscription) -> AsyncIterator[bytes]:
        self._subscribers += 1
        try:
            yield b"retry: 1000\n\n"
            async for event in subscription.events():
                yield _event_bytes(event)
        finally:
            self._subscribers -= 1

    async def fetch(self, request: Request, token: Token) -> Response:
        """Fetch a URL without a trace."""
        wanted = _read(_bare_requests, await _body(request))
        self._require_policy(wanted.policy)
        self._rates.take(token.name, token.urls_per_s or self._service.config.urls_per_s, 1)
        try:
            return _answer(_json.encode(await self._service.fetch_bare(wanted.url, wanted.policy)))
        except UrlError as error:
            raise _no_url(error) from error

    async def health(self, request: Request, token: Token) -> Response:
        """Say that the service answers."""
        return _answer(_json.encode(Health(status="ok")))

    async def ready(self, request: Request, token: Token) -> Response:
        """Say whether store and fetcher work."""
        service = self._service
        asked = await asyncio.gather(
            *(asyncio.wait_for(service.store.now_ms(place), READY_S) for place in service.store.places),
            return_exceptions=True,
        )
        problems = [f"key server {number} does not answer" for number, said in enumerate(asked, 1) if _is_error(said)]
        problems += [] if service.link.is_ready else ["the fetcher is not ready"]
        problems += ["the service stops"] if service.is_stopping else []
        status = "not ready" if problems else "ready"
        return _answer(_json.encode(Health(status=status, problems=problems)), 503 if problems else 200)

    async def metrics(self, request: Request, token: Token) -> Response:
        """Give metrics in Prometheus' text format."""
        text = await metrics_text(self._service)
        return Response(text, headers=HEADERS, media_type="text/plain; version=0.0.4; charset=utf-8")

    async def openapi(self, request: Request, token: Token) -> Response:
        """Describe all routes."""
        return _answer(_json.encode(openapi()))

    def _key_of(self, url: str) -> bytes:
        """Return the key of a URL. Raises HTTPException (400) for a malformed URL."""
        try:
            return self._key(url)
        except UrlError as error:
            raise _no_url(error) from error

    def _key(self, url: str) -> bytes:
        canonical = canonicalize(url, max_length_chars=self._service.max_length_chars)
        return key_of(self._service.filter.chain.normalize(canonical))


def _is_error(said: object) -> bool:
    return isinstance(said, BaseException)


def _page(url: str, key: bytes, row: Row | None, max_age_s: float | None) -> RawPage:
    if row is None:
        return RawPage(url=url, state="unknown", key=key.hex())
    is_stale = max_age_s is not None and row.data is not None and row.fetched_ms < (time.time() - max_age_s) * 1000
    return RawPage(
        url=url,
        state="waiting" if row.is_open else "known",
        key=key.hex(),
        stale=is_stale,
        fetched_ms=row.fetched_ms,
        again_ms=row.again_ms if row.fetched_ms else 0,
        shares=row.shares,
        document=None if row.data is None else msgspec.Raw(row.data),
    )


def _event_bytes(event: Event) -> bytes:
    if event.row is None:
        return b": alive\n\n"
    try:
        url = msgspec.json.decode(event.row.request, type=_UrlOnly).url
    except msgspec.MsgspecError:  # the scheduler counts damaged rows
        return b": a damaged row\n\n"
    data = _json.encode(_page(url, event.row.key, event.row, None))
    return b"id: %s\nevent: page\ndata: %s\n\n" % (event.id.encode(), data)


class _UrlOnly(msgspec.Struct):
    url: str


class _EventResponse(Response):
    """Server-sent events (WHATWG HTML, 9.2). A client without a read for `SEND_S` is let go."""

    def __init__(self, events: AsyncIterator[bytes]) -> None:
        super().__init__(headers=HEADERS, media_type="text/event-stream; charset=utf-8")
        del self.headers["content-length"]
        self._events = events

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        sending = asyncio.create_task(self._send(send))
        leaving = asyncio.create_task(_left(receive))
        try:
            await asyncio.wait([sending, leaving], return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (sending, leaving):
                task.cancel()
            await asyncio.gather(sending, leaving, return_exceptions=True)

    async def _send(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        try:
            async for data in self._events:
                async with asyncio.timeout(SEND_S):
                    await send({"type": "http.response.body", "body": data, "more_body": True})
        except TimeoutError:
            log.info("a subscriber has taken no event for %g s, and is let go", SEND_S)
        finally:
            await self._events.aclose()  # type: ignore[attr-defined]
        await send({"type": "http.response.body", "body": b""})


async def _left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _body(request: Request) -> bytes:
    """Return the body of a request. Raises HTTPException (408, 413)."""
    data = bytearray()
    try:
        async with asyncio.timeout(BODY_S):
            async for piece in request.stream():
                data += piece
                if len(data) > MOST_BODY_BYTES:
                    raise HTTPException(413, f"The body is too long: at most {MOST_BODY_BYTES} bytes are taken.")
    except TimeoutError as error:
        raise HTTPException(408, f"The body did not come within {BODY_S:g} s.") from error
    return bytes(data)


def _read(decoder: "msgspec.json.Decoder[_Body]", body: bytes) -> _Body:
    try:
        return decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise HTTPException(400, f"The body is not what this route takes: {error}.") from error


def _query(request: Request, name: str) -> str:
    values = request.query_params.getlist(name)
    if len(values) != 1 or not values[0]:
        raise HTTPException(400, f"The query must have {name}= once.")
    return values[0]


def _number(request: Request, name: str, most: float) -> float | None:
    text = request.query_params.get(name)
    if text is None:
        return None
    if not _NUMBER.fullmatch(text) or float(text) > most:
        raise HTTPException(400, f"{name} must be a number from 0 to {most:g}.")
    return float(text)


def _no_url(error: UrlError) -> HTTPException:
    return HTTPException(400, f"This is no URL that is fetched ({error.reason}).")


def _answer(data: bytes, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(data, status, {**HEADERS, **(headers or {})}, media_type="application/json")


def _said(status: int, text: str, headers: Any = None) -> Response:
    return _answer(_json.encode(Problem(error=text)), status, headers)


async def _refused(request: Request, error: HTTPException) -> Response:
    return _said(error.status_code, error.detail, error.headers)


async def _busy(request: Request, error: BusyError) -> Response:
    is_away = "away" in str(error)
    status = 503 if is_away else 429
    return _said(status, f"{_sentence(error)}: try again later.", {"Retry-After": str(error.retry_after_s)})


async def _away(service: Scheduler, request: Request, error: KrakeError) -> Response:
    """Answer while a key server or the fetcher is away. The error names servers, so only the log has it."""
    service.note_problem(error)
    text = "A part of the service is away, and comes back by itself: try again later."
    return _said(503, text, {"Retry-After": str(UNAVAILABLE_S)})


async def _wrong(request: Request, error: InputError) -> Response:
    return _said(422, f"{_sentence(error)}.")


async def _failed(request: Request, error: Exception) -> Response:
    log.error("a request failed", exc_info=error)
    return _said(500, "This request failed. The log of the service says why.")


def _sentence(error: Exception) -> str:
    text = str(error)
    return text[:1].upper() + text[1:]


def openapi() -> dict[str, Any]:
    """Return the description of all routes (OpenAPI 3.1)."""
    kinds = [kind for route in ROUTES for kind in (route.gives, route.takes) if kind is not None]
    schemas, components = msgspec.json.schema_components(
        [*dict.fromkeys(kinds), Problem], ref_template="#/components/schemas/{name}"
    )
    by_kind = dict(zip([*dict.fromkeys(kinds), Problem], schemas, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for route in ROUTES:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, by_kind)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Krake in real time", "version": VERSION},
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _operation(route: ApiRoute, by_kind: dict[Any, Any]) -> dict[str, Any]:
    given: dict[str, Any] = {"description": "The answer."}
    if route.gives is not None:
        given["content"] = {"application/json": {"schema": by_kind[route.gives]}}
    problem = {"description": "A problem.", "content": {"application/json": {"schema": by_kind[Problem]}}}
    operation: dict[str, Any] = {
        "operationId": route.name,
        "summary": route.summary,
        "parameters": [*_parameters("query", route.query), *_parameters("header", route.headers)],
        "responses": {str(route.status): given, "default": problem},
        "security": [] if route.right is None else [{"token": [route.right] if route.right else []}],
    }
    if route.takes is not None:
        operation["requestBody"] = {
            "required": True,
            "content": {"application/json": {"schema": by_kind[route.takes]}},
        }
    return operation


def _parameters(place: str, names: Sequence[tuple[str, str]]) -> list[dict[str, Any]]:
    return [
        {"name": name, "in": place, "description": text, "required": name == "url", "schema": {"type": "string"}}
        for name, text in names
    ]
