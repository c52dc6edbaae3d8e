"""Requests to OpenSearch: over one connection, with checked certificates, without redirects, with bounded patience.

A request is sent again while the server does not answer or is overloaded, for `push.wait_s` at most. Each request of a
push may be sent twice: the second time changes nothing.
"""

import json
import logging
import os
import time
from collections.abc import Collection
from contextlib import closing
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit

import requests

from crawl_lib.errors import ConfigError, SearchAccessError, SearchServerError
from crawl_lib.records import JsonValue
from crawl_lib.stopping import Work
from crawl_lib.stores import Stores

CONNECT_TIMEOUT_S = 10.0
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.5, 10.0
MAX_ANSWER_BYTES = 32 << 20
MAX_REASON_CHARS = 300
CA_VARIABLE = "REQUESTS_CA_BUNDLE"
OVERLOADED = (429, 502, 503, 504)
"""Status codes of a server, or of a proxy before the server, with a chance of a later answer."""
_BLOCKED = "cluster_block_exception"
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class OpenSearchAnswer:
    """An answer of OpenSearch.

    `body`: a JSON object, empty where the server sent another text. `source`: server and request, for messages.
    `part`, `whole` and `listed` check the types of values, since another server may answer at the same address.
    """

    status: int
    body: dict[str, Any]
    source: str = ""

    @property
    def kind(self) -> str:
        """The type of the error, such as `index_not_found_exception`; "" without an error."""
        return error_of(self.body)[0]

    @property
    def reason(self) -> str:
        """The error in the server's words, cut to `MAX_REASON_CHARS`."""
        return ": ".join(filter(None, (f"status {self.status}", *error_of(self.body))))[
            :MAX_REASON_CHARS
        ]

    def part(self, *names: str) -> dict[str, JsonValue]:
        """Return the object at a path of names, or {}.

        Raises SearchServerError.
        """
        found = self.body
        for name in names:
            found = found.get(name, {})
            if not isinstance(found, dict):
                raise self.malformed(f"`{name[:MAX_REASON_CHARS]}` is no object")
        return found

    def whole(self, name: str, *above: str) -> int:
        """Return the whole number of a name.

        The object is at `above`. Raises SearchServerError for another value.
        """
        found = self.part(*above).get(name)
        if not isinstance(found, int) or isinstance(found, bool):
            raise self.malformed(f"`{name}` is no whole number")
        return found

    def listed(self, name: str) -> list[dict[str, Any]]:
        """Return the list of objects of a name.

        Raises SearchServerError for another value.
        """
        found = self.body.get(name)
        if not isinstance(found, list) or not all(isinstance(one, dict) for one in found):
            raise self.malformed(f"`{name}` is no list of objects")
        return found

    def malformed(self, problem: str) -> SearchServerError:
        """Return the error for an answer that OpenSearch would not give."""
        return SearchServerError(
            f"{self.source}: the answer's {problem}; push.url must name an OpenSearch"
        )


def error_of(body: dict[str, Any]) -> tuple[str, str]:
    """Return type and reason of an answer's error.

    "" replaces a value that is no text; `body` may be an item of an answer.
    """
    error = body.get("error")
    kind, reason = (
        (error.get("type"), error.get("reason")) if isinstance(error, dict) else ("", error)
    )
    return kind if isinstance(kind, str) else "", reason if isinstance(reason, str) else ""


class Patience:
    """Pauses between tries, each twice as long as the pause before."""

    def __init__(self, work: Work, wait_s: float) -> None:
        """Allow pauses of `wait_s` seconds in all.

        `work`: ends a pause when the work is to stop.
        """
        self._work, self._left_s, self._pause_s = work, wait_s, FIRST_PAUSE_S

    def spend(self, seconds: float) -> None:
        """Subtract the time of a failed request."""
        self._left_s -= seconds

    def wait(self, problem: str) -> bool:
        """Pause before the next try; False without time left.

        Raises StoppedError.
        """
        self._work.go_on()
        if self._left_s <= 0:
            return False
        pause_s = min(self._pause_s, self._left_s)
        log.warning("%s; trying again in %.1f s", problem, pause_s)
        sleep(self._work, pause_s)
        self._left_s -= pause_s
        self._pause_s = min(2 * self._pause_s, LONGEST_PAUSE_S)
        self._work.go_on()
        return True


def sleep(work: Work, seconds: float) -> None:
    """Wait, unless the work is to stop."""
    work.stop.wait(seconds)


def is_readable(url: str) -> bool:
    """Say whether others in the network can read an address's traffic."""
    parts = urlsplit(url)
    if parts.scheme.lower() == "https" or parts.hostname == "localhost":
        return False
    try:
        return not ip_address(parts.hostname or "").is_loopback
    except ValueError:
        return True


class Cluster:
    """The OpenSearch of a config."""

    def __init__(self, stores: Stores, wait_s: float | None = None) -> None:
        """Ask nothing yet. `wait_s`: in place of `push.wait_s`.

        Raises ConfigError where `push.url` is missing, or would give a password away.
        """
        self._config = stores.config.push
        if self._config.url is None:
            raise ConfigError("push.url: is missing; name the address of an OpenSearch")
        self.url = self._config.url.rstrip("/")
        self.work: Work = stores
        self._wait_s = self._config.wait_s if wait_s is None else wait_s
        self._session = _Session()
        self._session.trust_env = False  # neither a proxy nor .netrc of the user who runs the task
        self._session.verify = os.environ.get(CA_VARIABLE) or True
        self._session.headers["Accept-Encoding"] = "identity"
        if found := stores.secrets.search:
            if is_readable(self.url):
                raise ConfigError(
                    "push.url: http:// would send the password readable through the network: use https://"
                )
            self._session.auth = (found.user.encode(), found.password.encode())  # type: ignore[assignment]

    def close(self) -> None:
        """Close the connection."""
        self._session.close()

    def patience(self) -> Patience:
        """Return the patience of one request."""
        return Patience(self.work, self._wait_s)

    def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        lines: bytes | None = None,
        accept: Collection[int] = (),
        patience: Patience | None = None,
    ) -> OpenSearchAnswer:
        """Send a request until the server answers.

        `path`: begins with a slash. `body`: sent as JSON; `lines`: JSON in lines. `accept`: status codes of errors
        for the caller. `patience`: shared with other requests.

        Raises SearchAccessError, SearchServerError naming server and reason, ConfigError, StoppedError.
        """
        data = lines if body is None else json.dumps(body).encode()
        kind = "application/json" if lines is None else "application/x-ndjson"
        patience = patience or self.patience()
        while True:
            self.work.go_on()
            began_s = time.monotonic()
            try:
                answer = self._send(method, path, data, kind)
            except _NoAnswerError as error:
                problem = str(error)
            else:
                if answer.status not in OVERLOADED or answer.status in accept:
                    return self._understood(answer, f"{method} {path}", accept)
                problem = f"{self.url} is overloaded: {answer.reason}"
            patience.spend(time.monotonic() - began_s)
            if not patience.wait(problem):
                raise SearchServerError(f"{problem}; run the push again when OpenSearch answers")

    def _send(self, method: str, path: str, data: bytes | None, kind: str) -> OpenSearchAnswer:
        headers = {"Content-Type": kind} if data is not None else {}
        times = (min(CONNECT_TIMEOUT_S, self._config.timeout_s), self._config.timeout_s)
        url = self.url + path
        try:
            response = self._session.request(
                method,
                url,
                data=data,
                headers=headers,
                timeout=times,
                allow_redirects=False,
                stream=True,
            )
            with closing(response):
                return OpenSearchAnswer(
                    response.status_code, self._read(response), f"{self.url}: {method} {path}"
                )
        except requests.exceptions.SSLError as error:
            problem = (
                f"no trusted connection: {_short(error)}; {CA_VARIABLE} may name your own authority"
            )
            raise SearchAccessError(f"{self.url}: {problem}") from error
        except ValueError as error:
            raise ConfigError(f"push.url: {self.url} is no address of a server") from error
        except requests.RequestException as error:
            raise _NoAnswerError(f"{self.url} does not answer: {_short(error)}") from error
        except OSError as error:
            raise ConfigError(
                f"{CA_VARIABLE}: the certificates cannot be read: {_short(error)}"
            ) from error

    def _read(self, response: requests.Response) -> dict[str, JsonValue]:
        """Read a JSON object of bounded size, within a bounded time."""
        data, began_s = bytearray(), time.monotonic()
        for part in response.iter_content(1 << 16):
            self.work.go_on()
            data += part
            if len(data) > MAX_ANSWER_BYTES:
                raise SearchServerError(
                    f"{self.url}: an answer has more than {MAX_ANSWER_BYTES >> 20} MiB"
                )
            if time.monotonic() - began_s > self._config.timeout_s:
                raise _NoAnswerError(f"{self.url} has not finished an answer within push.timeout_s")
        try:
            found = json.loads(data) if data else {}
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict):
            if response.status_code < 300:
                raise SearchServerError(
                    f"{self.url}: an answer is no JSON object; push.url must name an OpenSearch"
                )
            return {}
        return found

    def _understood(
        self, answer: OpenSearchAnswer, request: str, accept: Collection[int]
    ) -> OpenSearchAnswer:
        status = answer.status
        if status < 300 or status in accept:
            return answer
        if status < 400:
            problem = "answers with a redirect, and a push follows none: put the final address into push.url"
            raise SearchServerError(f"{self.url}: {problem}")
        if status in (401, 403) and answer.kind != _BLOCKED:
            remedy = "see KRAKE_SEARCH_USER and KRAKE_SEARCH_PASSWORD, or Airflow's connection krake_search"
            raise SearchAccessError(f"{self.url}: refuses {request}: {answer.reason}; {remedy}")
        raise SearchServerError(f"{self.url}: refuses {request}: {answer.reason}")


class _Session(requests.Session):
    """A session that ignores redirects. To find the next address, the library requests would read the whole answer."""

    def get_redirect_target(self, resp: requests.Response) -> None:
        """Return no address."""


class _NoAnswerError(Exception):
    """A request had no answer; the message names the server."""


def _short(error: Exception) -> str:
    return str(error)[:MAX_REASON_CHARS]
