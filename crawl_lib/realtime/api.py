"""The API: a table of routes makes the application and `/openapi.json`."""

import asyncio
import logging
import re
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import msgspec
from starlette.exceptions import HTTPException

from crawl_lib.errors import AwayError, BusyError, InputError, KeyStoreError, UrlError
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
from crawl_lib.realtime.asgi import (
    Answer,
    App,
    Asked,
    EventStream,
    Handler,
    Sending,
    problem_answer,
)
from crawl_lib.realtime.events import Event, Subscription
from crawl_lib.realtime.limits import Repeats, TokenBuckets
from crawl_lib.realtime.link import FetcherDiedError
from crawl_lib.realtime.metrics import metrics_text
from crawl_lib.realtime.pages import Row
from crawl_lib.realtime.protocol import Rate
from crawl_lib.realtime.rates import RateList, rate_of
from crawl_lib.realtime.scheduler import Scheduler
from crawl_lib.realtime.stages import UNAVAILABLE_S
from crawl_lib.realtime.tokens import Token, TokenFile
from crawl_lib.records import JsonValue
from crawl_lib.urls import canonicalize, key_of
from crawl_lib.version import VERSION

MOST_SUBSCRIBERS = 100
READY_S = 1.0
MOST_IDEMPOTENCY_CHARS = 200
_NUMBER = re.compile(r"[0-9]{1,9}(\.[0-9]{1,6})?", re.ASCII)
_json = msgspec.json.Encoder()
_submissions = msgspec.json.Decoder(Submission)
_questions = msgspec.json.Decoder(Question)
_rates = msgspec.json.Decoder(Rate)
_bare_requests = msgspec.json.Decoder(BareRequest)
_Body = TypeVar("_Body")
log = logging.getLogger(__name__)
_Guarded = Callable[[Asked, Token], Awaitable[Sending]]


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
        query=(
            _URL,
            ("wait_s", "Wait so many seconds, at most 60, for a document under way."),
            _AGE,
        ),
    ),
    ApiRoute(
        "POST",
        "/v1/pages:batch",
        "batch",
        "read",
        "Read up to 300 URLs.",
        gives=Pages,
        takes=Question,
    ),
    ApiRoute(
        "DELETE",
        "/v1/pages",
        "delete",
        "admin",
        "Delete the row of a URL.",
        gives=Deleted,
        query=(_URL,),
    ),
    ApiRoute(
        "GET",
        "/v1/rates",
        "rates",
        "admin",
        "List the operators' rates.",
        gives=RateList,
    ),
    ApiRoute(
        "PUT",
        "/v1/rates",
        "rate",
        "admin",
        "Set or forget the rate of a domain.",
        gives=RateList,
        takes=Rate,
    ),
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


def make_app(service: Scheduler, tokens: TokenFile) -> App:
    """Return the application of a service."""
    answers = _Answers(service)
    routes: dict[str, dict[str, Handler]] = {}
    for route in ROUTES:
        routes.setdefault(route.path, {})[route.method] = _guarded(
            getattr(answers, route.name), route, tokens
        )
    return App(routes, partial(_problem, service))


def _guarded(handler: _Guarded, route: ApiRoute, tokens: TokenFile) -> Handler:
    """Return a handler with a check of the token."""

    async def guarded(asked: Asked) -> Sending:
        return await handler(
            asked, _NOBODY if route.right is None else _token_of(asked, route.right, tokens)
        )

    return guarded


_NOBODY = Token("", (), "")
_BEARER = {"WWW-Authenticate": "Bearer"}


def _token_of(asked: Asked, right: str, tokens: TokenFile) -> Token:
    scheme, _, text = (asked.header(b"authorization") or "").partition(" ")
    if scheme.lower() != "bearer" or not text:
        raise HTTPException(
            401, "This request has no token: send the header Authorization: Bearer TOKEN.", _BEARER
        )
    token = tokens.find(text.strip())
    if token is None:
        raise HTTPException(401, "The token is not known here: an operator makes tokens.", _BEARER)
    if right and right not in token.rights:
        raise HTTPException(403, f"The token has no right {right}.")
    return token


class _Answers:
    """The answers to requests, by the names in `ROUTES`."""

    def __init__(self, service: Scheduler) -> None:
        self._service = service
        self._rates, self._repeats = TokenBuckets(most=300), Repeats()
        self._subscribers = 0

    async def submit(self, asked: Asked, token: Token) -> Sending:
        """Submit URLs."""
        body = await asked.body()
        key = asked.header(b"idempotency-key")
        if key is None:
            return Answer(await self._submitted(body, token), 202)
        if not 0 < len(key) <= MOST_IDEMPOTENCY_CHARS:
            raise HTTPException(
                400, f"An Idempotency-Key has 1 to {MOST_IDEMPOTENCY_CHARS} characters."
            )
        make = partial(self._submitted, body, token, f"{token.name}\n{key}\n")
        return Answer(await self._repeats.once(token.name, key, body, make), 202)

    async def _submitted(self, body: bytes, token: Token, repeat: str = "") -> bytes:
        wanted = _read(_submissions, body)
        self._require_policy(wanted.policy)
        self._rates.take(
            token.name, token.urls_per_s or self._service.config.urls_per_s, len(wanted.urls)
        )
        decisions = await self._service.accept(
            wanted.urls, wanted.policy, wanted.max_age_s, token=token.name, repeat=repeat
        )
        if all(decision.decision == "unavailable" for decision in decisions):
            raise AwayError(
                "the key servers of all these URLs are away", retry_after_s=UNAVAILABLE_S
            )
        return _json.encode(Decisions(decisions=decisions))

    def _require_policy(self, name: str) -> None:
        if name not in self._service.policies:
            known = ", ".join(sorted(self._service.policies))
            raise HTTPException(
                400, f"There is no policy {name[:100]!r}; there are {known} (realtime.policies)."
            )

    async def page(self, asked: Asked, token: Token) -> Sending:
        """Read one URL, and wait for its document if asked to."""
        url, max_age_s = _query(asked, "url"), _number(asked, "max_age_s", 1e9)
        wait_s = _number(asked, "wait_s", MAX_WAIT_S) or 0.0
        key = self._key_of(url)
        row = await self._awaited(key, wait_s) if wait_s else await self._service.store.read(key)
        if row is None:
            raise HTTPException(404, "This URL is unknown: submit it first.")
        return Answer(_json.encode(_page(url, key, row, max_age_s)))

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

    async def batch(self, asked: Asked, token: Token) -> Sending:
        """Read many URLs."""
        wanted = _read(_questions, await asked.body())
        keys = [self._key_or_none(url) for url in wanted.urls]
        rows = await self._service.store.read_many(list(filter(None, dict.fromkeys(keys))))
        pages = [
            RawPage(url=url, state="unknown")
            if key is None
            else self._one(url, key, rows.get(key), wanted.max_age_s)
            for url, key in zip(wanted.urls, keys, strict=True)
        ]
        return Answer(b'{"pages":%s}' % _json.encode(pages))

    def _key_or_none(self, url: str) -> bytes | None:
        try:
            return self._key(url)
        except UrlError:
            return None

    def _one(
        self, url: str, key: bytes, row: Row | KeyStoreError | None, max_age_s: float | None
    ) -> RawPage:
        if isinstance(row, KeyStoreError):
            self._service.note_problem(row)
            return RawPage(url=url, state="unavailable", key=key.hex())
        return _page(url, key, row, max_age_s)

    async def delete(self, asked: Asked, token: Token) -> Sending:
        """Delete the row of a URL, and cancel its fetch."""
        return Answer(
            _json.encode(
                Deleted(deleted=await self._service.delete([self._key_of(_query(asked, "url"))]))
            )
        )

    async def rates(self, asked: Asked, token: Token) -> Sending:
        """List the operators' rates."""
        return Answer(_json.encode(RateList(rates=await self._service.store.rates())))

    async def rate(self, asked: Asked, token: Token) -> Sending:
        """Set the rate of a domain.

        Missing fields have the values of the config.
        """
        wanted = rate_of(msgspec.structs.asdict(_read(_rates, await asked.body())))
        return Answer(_json.encode(RateList(rates=await self._service.set_rate(wanted))))

    async def events(self, asked: Asked, token: Token) -> Sending:
        """Follow new documents."""
        if self._subscribers >= MOST_SUBSCRIBERS:
            raise BusyError("too many subscribers follow events", retry_after_s=10)
        subscription = Subscription(self._service)
        await subscription.begin(asked.header(b"last-event-id"))
        return EventStream(self._counted(subscription))

    async def _counted(self, subscription: Subscription) -> AsyncGenerator[bytes, None]:
        self._subscribers += 1
        try:
            yield b"retry: 1000\n\n"
            async for event in subscription.events():
                yield _event_bytes(event)
        finally:
            self._subscribers -= 1

    async def fetch(self, asked: Asked, token: Token) -> Sending:
        """Fetch a URL without a trace."""
        wanted = _read(_bare_requests, await asked.body())
        self._require_policy(wanted.policy)
        self._rates.take(token.name, token.urls_per_s or self._service.config.urls_per_s, 1)
        try:
            return Answer(_json.encode(await self._service.fetch_bare(wanted.url, wanted.policy)))
        except UrlError as error:
            raise _no_url(error) from error

    async def health(self, asked: Asked, token: Token) -> Sending:
        """Say that the service answers."""
        return Answer(_json.encode(Health(status="ok")))

    async def ready(self, asked: Asked, token: Token) -> Sending:
        """Say whether store and fetcher work."""
        service = self._service
        said = await asyncio.gather(
            *(
                asyncio.wait_for(service.store.now_ms(place), READY_S)
                for place in service.store.places
            ),
            return_exceptions=True,
        )
        problems = [
            f"key server {number} does not answer"
            for number, one in enumerate(said, 1)
            if _is_error(one)
        ]
        problems += [] if service.link.is_ready else ["the fetcher is not ready"]
        problems += ["the service stops"] if service.is_stopping else []
        status = "not ready" if problems else "ready"
        return Answer(
            _json.encode(Health(status=status, problems=problems)), 503 if problems else 200
        )

    async def metrics(self, asked: Asked, token: Token) -> Sending:
        """Give metrics in Prometheus' text format."""
        text = await metrics_text(self._service)
        return Answer(text.encode(), media_type=b"text/plain; version=0.0.4; charset=utf-8")

    async def openapi(self, asked: Asked, token: Token) -> Sending:
        """Describe all routes."""
        return Answer(_json.encode(openapi()))

    def _key_of(self, url: str) -> bytes:
        """Return the key of a URL.

        Raises HTTPException (400) for a malformed URL.
        """
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
    is_stale = (
        max_age_s is not None
        and row.data is not None
        and row.fetched_ms < (time.time() - max_age_s) * 1000
    )
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


def _read(decoder: "msgspec.json.Decoder[_Body]", body: bytes) -> _Body:
    try:
        return decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise HTTPException(400, f"The body does not fit this route: {error}.") from error


def _query(asked: Asked, name: str) -> str:
    values = asked.query.get(name, [])
    if len(values) != 1 or not values[0]:
        raise HTTPException(400, f"The query must have {name}= once.")
    return values[0]


def _number(asked: Asked, name: str, most: float) -> float | None:
    *_, text = asked.query.get(name, [None])
    if text is None:
        return None
    if not _NUMBER.fullmatch(text) or float(text) > most:
        raise HTTPException(400, f"{name} must be a number from 0 to {most:g}.")
    return float(text)


def _no_url(error: UrlError) -> HTTPException:
    return HTTPException(400, f"Krake fetches no such URL ({error.reason}).")


def _problem(service: Scheduler, error: Exception) -> Answer:
    """Return the answer for an error.

    Errors of the service's parts name servers, so only the log has those errors.
    """
    match error:
        case HTTPException():
            return problem_answer(error.status_code, error.detail, error.headers)
        case BusyError():
            status = 503 if isinstance(error, AwayError) else 429
            more = {"Retry-After": str(error.retry_after_s)}
            return problem_answer(status, f"{_sentence(error)}: try again later.", more)
        case FetcherDiedError() | KeyStoreError():
            service.note_problem(error)
            text = "A part of the service is away, and comes back by itself: try again later."
            return problem_answer(503, text, {"Retry-After": str(UNAVAILABLE_S)})
        case InputError():
            return problem_answer(422, f"{_sentence(error)}.")
    log.error("a request failed", exc_info=error)
    return problem_answer(500, "This request failed. The log of the service says why.")


def _sentence(error: Exception) -> str:
    text = str(error)
    return text[:1].upper() + text[1:]


def openapi() -> dict[str, JsonValue]:
    """Return the description of all routes (OpenAPI 3.1)."""
    kinds = [kind for route in ROUTES for kind in (route.gives, route.takes) if kind is not None]
    schemas, components = msgspec.json.schema_components(
        [*dict.fromkeys(kinds), Problem], ref_template="#/components/schemas/{name}"
    )
    by_kind = dict(zip([*dict.fromkeys(kinds), Problem], schemas, strict=True))
    paths: dict[str, Any] = {}
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


def _operation(route: ApiRoute, by_kind: dict[Any, Any]) -> dict[str, JsonValue]:
    given: dict[str, Any] = {"description": "The answer."}
    if route.gives is not None:
        given["content"] = {"application/json": {"schema": by_kind[route.gives]}}
    problem = {
        "description": "A problem.",
        "content": {"application/json": {"schema": by_kind[Problem]}},
    }
    operation: dict[str, Any] = {
        "operationId": route.name,
        "summary": route.summary,
        "parameters": [*_parameters("query", route.query), *_parameters("header", route.headers)],
        "responses": {str(route.status): given, "default": problem},
        "security": []
        if route.right is None
        else [{"token": [route.right] if route.right else []}],
    }
    if route.takes is not None:
        operation["requestBody"] = {
            "required": True,
            "content": {"application/json": {"schema": by_kind[route.takes]}},
        }
    return operation


def _parameters(place: str, names: Sequence[tuple[str, str]]) -> list[dict[str, Any]]:
    return [
        {
            "name": name,
            "in": place,
            "description": text,
            "required": name == "url",
            "schema": {"type": "string"},
        }
        for name, text in names
    ]
