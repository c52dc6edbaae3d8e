"""The layer between uvicorn and the API: requests, answers, streams of events, and errors as answers.

Half of the requests read a single URL, in a tenth of a millisecond. Therefore there is a dictionary of routes, and no
framework: a stack of middlewares costs as much as the read.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from functools import cached_property
from typing import Protocol
from urllib.parse import parse_qs

import msgspec
from starlette.exceptions import HTTPException
from starlette.types import Receive, Scope, Send

from crawl_lib.dataclass import dataclass
from crawl_lib.realtime.answers import Problem

MOST_BODY_BYTES = 768 << 10
"""The longest body of a request: 300 URLs of 2,000 characters are 600 KB."""
BODY_S = 10.0
"""The time for a request's body."""
SEND_S = 30.0
"""The time for a subscriber to take an event."""
HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"cache-control", b"no-store"),
    (b"referrer-policy", b"no-referrer"),
)
"""Headers of every answer."""
JSON = b"application/json"
log = logging.getLogger(__name__)


class Asked:
    """A request."""

    def __init__(self, scope: Scope, receive: Receive) -> None:
        self._headers: dict[bytes, bytes] = dict(scope["headers"])
        self._query: bytes = scope["query_string"]
        self._receive = receive

    def header(self, name: bytes) -> str | None:
        """Return the last field with a name in lower case."""
        value = self._headers.get(name)
        return None if value is None else value.decode("latin-1")

    @cached_property
    def query(self) -> dict[str, list[str]]:
        """The values of the query, by name."""
        return parse_qs(self._query.decode("latin-1"), keep_blank_values=True)

    async def body(self) -> bytes:
        """Return the body. Raises HTTPException (408, 413)."""
        data, is_whole = bytearray(), False
        try:
            async with asyncio.timeout(BODY_S):
                while not is_whole:
                    message = await self._receive()
                    if message["type"] == "http.disconnect":
                        raise HTTPException(400, "The client has gone before the end of the body.")
                    data += message.get("body", b"")
                    is_whole = not message.get("more_body", False)
                    if len(data) > MOST_BODY_BYTES:
                        raise HTTPException(
                            413, f"The body is too long: at most {MOST_BODY_BYTES} bytes are taken."
                        )
        except TimeoutError as error:
            raise HTTPException(408, f"The body did not come within {BODY_S:g} s.") from error
        return bytes(data)


class Sending(Protocol):
    """An answer that sends itself to a client."""

    async def send(self, receive: Receive, send: Send) -> None:
        """Send all of the answer, or end with the client."""


@dataclass(frozen=True)
class Answer:
    """A whole answer. `headers`: besides `HEADERS`, with names in lower case."""

    data: bytes
    status: int = 200
    headers: tuple[tuple[bytes, bytes], ...] = ()
    media_type: bytes = JSON

    async def send(self, receive: Receive, send: Send) -> None:
        """Send all of the answer."""
        told = ((b"content-type", self.media_type), (b"content-length", b"%d" % len(self.data)))
        headers = [*HEADERS, *told, *self.headers]
        await send({"type": "http.response.start", "status": self.status, "headers": headers})
        await send({"type": "http.response.body", "body": self.data})


@dataclass(frozen=True)
class EventStream:
    """Server-sent events (WHATWG HTML, 9.2). A client without a read for `SEND_S` is let go."""

    events: AsyncGenerator[bytes, None]

    async def send(self, receive: Receive, send: Send) -> None:
        """Send events until their end, or until the client has gone."""
        sending = asyncio.create_task(self._send(send))
        leaving = asyncio.create_task(_left(receive))
        try:
            await asyncio.wait([sending, leaving], return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (sending, leaving):
                task.cancel()
            await asyncio.gather(sending, leaving, return_exceptions=True)

    async def _send(self, send: Send) -> None:
        headers = [*HEADERS, (b"content-type", b"text/event-stream; charset=utf-8")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        try:
            async for data in self.events:
                async with asyncio.timeout(SEND_S):
                    await send({"type": "http.response.body", "body": data, "more_body": True})
        except TimeoutError:
            log.info("a subscriber has taken no event for %g s, and is let go", SEND_S)
        finally:
            await self.events.aclose()
        await send({"type": "http.response.body", "body": b""})


async def _left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


Handler = Callable[[Asked], Awaitable[Sending]]


@dataclass(frozen=True)
class App:
    """An application of ASGI. `routes`: handlers by path and method. `problem`: returns the answer for an error."""

    routes: Mapping[str, Mapping[str, Handler]]
    problem: Callable[[Exception], Answer]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        try:
            answer = await self._handler(scope)(Asked(scope, receive))
        except Exception as error:
            answer = self.problem(error)
        await answer.send(receive, send)

    def _handler(self, scope: Scope) -> Handler:
        methods = self.routes.get(scope["path"])
        if methods is None:
            raise HTTPException(404, "Not Found: there is no such route.")
        method = scope["method"]
        handler = methods.get("GET" if method == "HEAD" else method)
        if handler is None:
            raise HTTPException(
                405, "Method Not Allowed on this route.", {"allow": ", ".join(methods)}
            )
        return handler


def problem_answer(status: int, text: str, headers: Mapping[str, str] | None = None) -> Answer:
    """Return an answer with an error, in one sentence."""
    more = tuple((name.lower().encode(), value.encode()) for name, value in (headers or {}).items())
    return Answer(msgspec.json.encode(Problem(error=text)), status, more)
