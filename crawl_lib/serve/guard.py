"""The guard of all requests and answers: the `Host` header, security headers, and the log.

`Host` must name this server. Without this check, a web page could point its own name at our address (DNS rebinding) and
read the index with the browser of a person in the same network.
"""

import ipaddress
import logging
import time
from collections.abc import Collection
from contextlib import suppress
from urllib.parse import parse_qs

from starlette.datastructures import MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from crawl_lib.config import SearchConfig
from crawl_lib.errors import ConfigError, UrlError, printable
from crawl_lib.urls import canonicalize, host_of

LOOPBACK_NAMES = ("localhost", "127.0.0.1", "[::1]")
HEADERS = {
    "Referrer-Policy": "no-referrer",
    "X-DNS-Prefetch-Control": "off",
    "X-Content-Type-Options": "nosniff",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-cache, private",
}
"""Headers of every answer."""
POLICY = "Content-Security-Policy"
CLOSED_POLICY = "default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
"""The policy of answers without a policy of their own."""
log = logging.getLogger(__name__)


def server_names(config: SearchConfig) -> frozenset[str]:
    """Return the server's names for browsers, without ports.

    The names are the names of loopback, a loopback address of `search.listen`, and `search.hosts`, as browsers write
    them: a name in A-labels and an address in its short form (WHATWG URL, 3.5). Raises ConfigError for an entry that is
    not a host.
    """
    listen = config.listen.rpartition(":")[0]
    own = [listen] if is_loopback(listen.strip("[]")) else []
    return frozenset({*LOOPBACK_NAMES, *map(_browser_name, (*own, *config.hosts))})


def _browser_name(host: str) -> str:
    with suppress(UrlError):
        url = canonicalize(f"http://{host}/")
        if url == f"http://{host_of(url)}/":
            return host_of(url)
    raise ConfigError(f"search.hosts: {host!r} is no name of a host")


def is_loopback(host: str) -> bool:
    """Say whether a host is this machine's loopback.

    `host`: a name, or an IP address without brackets.
    """
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


class Guard:
    """An application around another application."""

    def __init__(self, app: ASGIApp, names: Collection[str], *, logs_queries: bool) -> None:
        """Take the application. `names`: of this server, as `server_names` has them."""
        self._app, self._names, self._logs_queries = app, names, logs_queries

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            return
        began_s, statuses = time.monotonic(), list[int]()

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                statuses.append(message["status"])
                headers = MutableHeaders(scope=message)
                headers.update(HEADERS)
                headers.setdefault(POLICY, CLOSED_POLICY)
            await send(message)

        try:
            await (self._app if self._is_ours(scope) else _FOREIGN)(scope, receive, send_guarded)
        finally:
            self._note(scope, statuses[0] if statuses else 0, time.monotonic() - began_s)

    def _is_ours(self, scope: Scope) -> bool:
        names = [value.decode("latin-1") for name, value in scope["headers"] if name == b"host"]
        return len(names) == 1 and _without_port(names[0]).lower() in self._names

    def _note(self, scope: Scope, status: int, seconds: float) -> None:
        """Log a request by its route, without the client's text.

        Log the query if the operator wants it.
        """
        route = getattr(scope.get("route"), "path", "-")
        found = parse_qs(scope["query_string"].decode("latin-1")) if self._logs_queries else {}
        query = f" q={printable(found['q'][0][:MOST_LOGGED_CHARS])!r}" if "q" in found else ""
        log.info(
            "%s %s %d %.0f ms%s",
            printable(scope["method"][:10]),
            route,
            status,
            seconds * 1000,
            query,
        )


MOST_LOGGED_CHARS = 500
"""The length at which a logged query is cut: the search cuts queries there too."""
_FOREIGN = PlainTextResponse(
    "This server does not answer to the name in the request's Host header. An operator adds names to search.hosts.\n",
    status_code=400,
)


def _without_port(host: str) -> str:
    name, colon, port = host.rpartition(":")
    return name if colon and port.isascii() and port.isdigit() else host
