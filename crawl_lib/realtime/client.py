"""A client of the real-time service."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any, TypeVar

import msgspec
import requests

from crawl_lib.errors import BusyError, InputError, KrakeError
from crawl_lib.realtime import answers
from crawl_lib.realtime.answers import Page

_T = TypeVar("_T")
TIMEOUT_S = 90.0
"""The time for an answer: the longest wait of a reader, and some more."""


class Client:
    """The service at `url`, with a token. Use the client by `with`, in one thread at a time.

    Methods raise BusyError where a later try makes sense, InputError for a refused request, else KrakeError.
    """

    def __init__(self, url: str, token: str, *, timeout_s: float = TIMEOUT_S) -> None:
        self._url, self._timeout_s = url.rstrip("/"), timeout_s
        self._session = requests.Session()
        self._session.headers["Authorization"] = f"Bearer {token}"
        self._session.trust_env = False  # a .netrc file would replace the token

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *error: object) -> None:
        self._session.close()

    def submit(
        self,
        urls: Sequence[str],
        policy: str = "default",
        *,
        max_age_s: float | None = None,
        idempotency_key: str | None = None,
    ) -> list[answers.Decision]:
        """Submit 1 to 300 URLs; a document older than `max_age_s` is refetched."""
        body = answers.Submission(urls=list(urls), policy=policy, max_age_s=max_age_s)
        headers = {"Idempotency-Key": idempotency_key} if idempotency_key else {}
        return self._said("POST", "/v1/urls", answers.Decisions, body, headers=headers).decisions

    def page(self, url: str, *, wait_s: float = 0, max_age_s: float | None = None) -> Page | None:
        """Return the page of a URL, None for an unknown URL.

        `wait_s`: for a document under way, at most 60.
        """
        age_s = None if max_age_s is None else f"{max_age_s:f}"
        query = {"url": url, "wait_s": f"{wait_s:f}", "max_age_s": age_s}
        with suppress(_UnknownError):
            return self._said("GET", "/v1/pages", Page, params=query)
        return None

    def pages(self, urls: Sequence[str], *, max_age_s: float | None = None) -> list[Page]:
        """Return the pages of 1 to 300 URLs."""
        body = answers.Question(urls=list(urls), max_age_s=max_age_s)
        return self._said("POST", "/v1/pages:batch", answers.Pages, body).pages

    def fetch(self, url: str, policy: str = "default") -> answers.BareAnswer:
        """Fetch a URL without a trace."""
        body = answers.BareRequest(url=url, policy=policy)
        return self._said("POST", "/v1/fetch", answers.BareAnswer, body)

    def events(self, last_id: str | None = None) -> Iterator[tuple[str, Page]]:
        """Yield new documents, some twice, with the ids for `last_id`."""
        headers = {"Last-Event-ID": last_id} if last_id else {}
        event_id, data = "", ""
        with self._ask("GET", "/v1/events", headers=headers, stream=True) as answer:
            for line in _lines(answer):
                name, _, value = line.partition(": ")
                if name == "id":
                    event_id = value
                elif name == "data":
                    data = value
                elif not line and data:
                    yield event_id, msgspec.json.decode(data, type=Page)
                    data = ""

    def _said(self, method: str, path: str, kind: type[_T], body: object = None, **more: Any) -> _T:
        data = None if body is None else msgspec.json.encode(body)
        with self._ask(method, path, data=data, **more) as answer:
            try:
                return msgspec.json.decode(answer.content, type=kind)
            except (msgspec.DecodeError, requests.RequestException) as error:
                raise KrakeError(f"{self._url}{path}: malformed answer: {error}") from error

    def _ask(self, method: str, path: str, **options: Any) -> requests.Response:
        url, options["timeout"] = f"{self._url}{path}", self._timeout_s
        try:
            answer = self._session.request(method, url, allow_redirects=False, **options)
        except requests.RequestException as error:
            raise KrakeError(f"{self._url}: the service does not answer: {error}") from error
        if answer.ok:
            return answer
        text = f"{url}: {answer.status_code}: {answer.text[:500]}"
        retry_after = answer.headers.get("Retry-After", "")
        if retry_after.isascii() and retry_after.isdigit():
            raise BusyError(text, int(retry_after))
        if answer.status_code >= requests.codes.server_error:
            raise KrakeError(text)
        is_unknown = answer.status_code == requests.codes.not_found
        raise _UnknownError(text) if is_unknown else InputError(text)


class _UnknownError(InputError):
    """The service knows nothing of a URL."""


def _lines(answer: requests.Response) -> Iterator[str]:
    try:
        yield from (line.decode() for line in answer.iter_lines(chunk_size=1))
    except requests.RequestException as error:
        raise KrakeError(f"the stream of events has broken off: {error}") from error
