"""The answers of a server: status line, headers and body of each URL, rendered from the model and kept."""

from __future__ import annotations

import gzip
import zlib
from collections import Counter
from collections.abc import Callable, Sequence
from http import HTTPStatus
from typing import NamedTuple, Protocol

import brotli  # type: ignore[import-untyped]

from demo.model import PORT_MARK, Resource, Target
from demo.web import SynthWeb

_MAX_RENDERED = 50_000
_DATE = "Sat, 01 Jan 2022 00:00:00 GMT"
_CODERS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": lambda data: gzip.compress(data, 6, mtime=0),
    "br": lambda data: bytes(brotli.compress(data, quality=4)),
    "deflate": zlib.compress,
}
AGAIN_PATH = "/.synthweb/again"
"""A request to this path makes pages that fail at first fail again: the server forgets earlier requests."""
_DONE = Resource(204)
_MISSING = Resource(404, body="<p>404</p>")


class Answer(NamedTuple):
    """An answer as sent. `head`: status line and headers with the empty line; `drip_s`: seconds for the body."""

    status: int
    head: bytes
    body: bytes
    drip_s: float = 0.0


class Answerer(Protocol):
    """The source of answers for `server.serve`."""

    def site(self, address: str) -> int:
        """Return the number of the site at an address."""

    def answer(self, target: Target, accepted: str) -> Answer:
        """Return the answer for a target with the requested path.

        `accepted`: the Accept-Encoding header.
        """


def make_answer(
    status: int,
    headers: Sequence[tuple[str, str]],
    body: bytes,
    *,
    chunked: bool = False,
    drip_s: float = 0.0,
) -> Answer:
    """Make an answer from these headers and the common headers.

    `chunked`: send the body in chunks.
    """
    fields = [("Date", _DATE), ("Server", "synthweb"), *headers]
    if chunked:
        fields.append(("Transfer-Encoding", "chunked"))
        body = _chunks(body)
    elif status != HTTPStatus.NO_CONTENT:
        fields.append(("Content-Length", str(len(body))))
    lines = "".join(f"{name}: {value}\r\n" for name, value in fields)
    head = f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\n{lines}\r\n"
    return Answer(status, head.encode("latin-1"), body, drip_s)


def _chunks(body: bytes) -> bytes:
    """Return the body in chunks of odd sizes (RFC 9112, 7.1)."""
    parts = [body[at : at + 1777] for at in range(0, len(body), 1777)]
    return b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in parts) + b"0\r\n\r\n"


class Answers:
    """Finds and renders the answers of a synthetic web on one port."""

    def __init__(self, web: SynthWeb, port: int) -> None:
        self._web, self._port = web, port
        web.targets()  # made now: later, the first request would take long
        self._sites = {address: site for site, address in enumerate(web.addresses())}
        self._rendered: dict[tuple[Target, str], Answer] = {}
        self._asked: Counter[Target] = Counter()

    def site(self, address: str) -> int:
        """Return the number of the site at an address."""
        return self._sites[address]

    def answer(self, target: Target, accepted: str) -> Answer:
        """Return an answer. `accepted`: the Accept-Encoding header."""
        if target.path == AGAIN_PATH:
            self._asked.clear()
            return self._render(_DONE, "")
        resource = self._web.resource(target) or _MISSING
        if resource.first_status is not None and self._asked[target] < resource.first_times:
            self._asked[target] += 1
            headers = (("Retry-After", str(resource.first_wait_s)),)
            return self._render(
                Resource(resource.first_status, body="<p>Try again</p>", headers=headers), ""
            )
        coding = resource.coding if resource.coding and resource.coding in accepted else ""
        rendered = self._rendered.get((target, coding))
        if rendered is None:
            if len(self._rendered) >= _MAX_RENDERED:
                self._rendered.clear()
            rendered = self._rendered[target, coding] = self._render(resource, coding)
        return rendered

    def _render(self, resource: Resource, coding: str) -> Answer:
        headers = [] if resource.mime is None else [("Content-Type", resource.mime)]
        headers += [
            (name, value.replace(PORT_MARK, str(self._port))) for name, value in resource.headers
        ]
        body = resource.content(self._port)
        if coding:
            body = _CODERS[coding](body)
            headers.append(("Content-Encoding", coding))
        return make_answer(
            resource.status, headers, body, chunked=resource.chunked, drip_s=resource.drip_s
        )
