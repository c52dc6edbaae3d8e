"""The types of the API's bodies, for the service, the client and `/openapi.json`."""

from typing import Annotated

import msgspec

from crawl_lib.realtime.documents import Document

MOST_URLS = 300
MAX_WAIT_S = 60.0
"""The longest wait of a reader."""
MAX_BARE_BYTES = 2 << 20
Url = Annotated[str, msgspec.Meta(min_length=1, max_length=65_535)]
Urls = Annotated[list[Url], msgspec.Meta(min_length=1, max_length=MOST_URLS)]
Age = Annotated[float, msgspec.Meta(ge=0, le=1e9)]


class Submission(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """URLs to fetch. `policy`: a name of `realtime.policies`. `max_age_s`: an older document is fetched again."""

    urls: Urls
    policy: str = "default"
    max_age_s: Age | None = None


class Decision(msgspec.Struct, kw_only=True, omit_defaults=True):
    """The decision on a submitted URL.

    `decision`: `new`, `waiting`, `known`, `refused` (by `rule`), `busy` or `unavailable` (both with
    `retry_after_s`; nothing was written). `wait_s`: about how long the URL waits for its host. `key`: None for a
    malformed URL.
    """

    url: str
    decision: str
    key: str | None = None
    rule: str | None = None
    wait_s: float | None = None
    retry_after_s: int | None = None


class Decisions(msgspec.Struct, kw_only=True):
    """A decision for each URL, in the order of the submission."""

    decisions: list[Decision]


class Question(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """URLs to read. `max_age_s`: an older document is marked `stale`."""

    urls: Urls
    max_age_s: Age | None = None


class Page(msgspec.Struct, kw_only=True):
    """The state of a URL, with its document. `url`: as in the question.

    `state`: `known`, `waiting` (a fetch is under way), `unknown`, or `unavailable` (its key server is away). `stale`:
    the document is older than the request allows. `document`: the newest one, None before the first.
    """

    url: str
    state: str
    key: str | None = None
    stale: bool = False
    fetched_ms: int = 0
    again_ms: int = 0
    shares: int = 0
    document: Document | None = None


class RawPage(msgspec.Struct, kw_only=True):
    """A `Page` whose document is the JSON of the row: the service passes the bytes on."""

    url: str
    state: str
    key: str | None = None
    stale: bool = False
    fetched_ms: int = 0
    again_ms: int = 0
    shares: int = 0
    document: msgspec.Raw | None = None


class Pages(msgspec.Struct, kw_only=True):
    """A page for each URL, in the order of the question."""

    pages: list[Page]


class BareRequest(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A URL to fetch at once, by the limits of a policy, without a trace in table and archive."""

    url: Url
    policy: str = "default"


class BareAnswer(msgspec.Struct, kw_only=True, omit_defaults=True):
    """The result of a bare fetch. `head`, `body`: as the server sent both, in base64; no redirect is followed."""

    url: str
    outcome: str
    status: int | None = None
    error: str = ""
    redirect_url: str | None = None
    head: bytes = b""
    body: bytes = b""


class Deleted(msgspec.Struct, kw_only=True):
    """How many rows were deleted."""

    deleted: int


class Health(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Whether the service answers. `problems`: a sentence each."""

    status: str
    problems: list[str] = []


class Problem(msgspec.Struct, kw_only=True):
    """An answer with an error, in one sentence."""

    error: str
