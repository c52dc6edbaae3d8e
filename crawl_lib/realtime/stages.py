"""The stages of a URL's way through the service: small functions over a context object, in two lists.

`ACCEPTING`: the stages before the answer to a submission. `WORKING`: the stages of a due URL. A stage returns whether
the next stage of the list follows. Another stage is added to a list at any place.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import sha1
from typing import TYPE_CHECKING

from msgspec.structs import replace

from crawl_lib.config import PolicyConfig
from crawl_lib.errors import KeyStoreError, UrlError
from crawl_lib.realtime.answers import Decision
from crawl_lib.realtime.documents import (
    Document,
    Request,
    document_of,
    request_bytes,
    unchanged,
)
from crawl_lib.realtime.link import FetcherDiedError
from crawl_lib.realtime.pages import Row, Wish, part_of
from crawl_lib.realtime.protocol import Done, Hop, PageTarget, Refused
from crawl_lib.states import Outcome
from crawl_lib.urls import UrlFilter, canonicalize, host_of, key_of

if TYPE_CHECKING:
    from crawl_lib.realtime.scheduler import Scheduler

AGAIN_S = 60.0
"""The pause after a temporary failure without a time of its own."""
MOST_TRIES = 5
"""The deaths of fetchers after which a URL ends."""
UNAVAILABLE_S = 2
"""The advice for URLs whose key server is away."""
_PASSES = frozenset(
    {
        Outcome.SERVER_ERROR,
        Outcome.ROBOTS_UNREACHABLE,
        Outcome.DNS_FAILED,
        Outcome.CONNECT_FAILED,
        Outcome.TLS_FAILED,
        Outcome.TIMEOUT,
        Outcome.TOO_SLOW,
        Outcome.PROTOCOL_ERROR,
        Outcome.HOST_GAVE_UP,
    }
)
NOT_BEGUN = frozenset({"not_granted", "stopping"})


@dataclass(eq=False)
class Handing:
    """Handing a document on to rows whose redirects lead to its URL.

    `key`: of the URL. `policy`, `epoch`: of the document. `ahead`: URL, and hops ahead of the document, by the key of a
    row. `tasks`: at work.
    """

    key: bytes
    policy: PolicyConfig
    epoch: int
    ahead: dict[bytes, tuple[str, list[Hop]]] = field(default_factory=dict)
    tasks: list[asyncio.Task[None]] = field(default_factory=list)


@dataclass(eq=False)
class Visit:
    """The context of a URL, for all stages.

    `given`: as submitted. `max_age_s`: of the submission. `repeat`: names a submission that counts once. `request`: URL
    in canonical form, policy and hops before. `decision`: the answer of the accepting stages. `row`: from the table.
    `done`, `document`: the result of the fetch. `tries`: fetchers killed by the URL. `ahead`: earlier URLs of the host.
    `entered`: set once the table has the row; None: the table had the row before. `is_told`: a submission has had the
    answer `new`. `began_s`: start of the work, by the monotonic clock. `epoch`: of the lease for the fetch. `handing`:
    rows whose redirects lead here.
    """

    given: str
    policy: PolicyConfig
    max_age_s: float | None = None
    repeat: str = ""
    request: Request = field(default_factory=lambda: Request(url=""))
    key: bytes = b""
    host: str = ""
    decision: Decision | None = None
    row: Row | None = None
    done: Done | Refused | None = None
    document: Document | None = None
    tries: int = 0
    ahead: int = 0
    entered: asyncio.Event | None = None
    epoch: int = 0
    is_told: bool = False
    began_s: float = field(default_factory=time.monotonic)
    task: asyncio.Task[None] | None = None

    @property
    def url(self) -> str:
        """The canonical URL."""
        return self.request.url

    @cached_property
    def handing(self) -> Handing:
        """The rows that have had the document, or wait for it."""
        return Handing(self.key, self.policy, self.epoch)

    def set_request(self, request: Request) -> None:
        """Set the request, with key and host of its URL."""
        self.request, self.key, self.host = request, key_of(request.url), host_of(request.url)

    def decide(self, decision: str, **more: object) -> bool:
        """Set the decision; no stage follows."""
        self.decision = Decision(
            url=self.given,
            key=self.key.hex() or None,
            decision=decision,
            **more,  # type: ignore[arg-type]
        )
        return False


Stage = Callable[[Visit, "Scheduler"], Awaitable[bool]]


async def canonical(visit: Visit, service: Scheduler) -> bool:
    """Bring the URL into canonical form by the config's normalisers."""
    try:
        url = canonicalize(visit.given, max_length_chars=service.max_length_chars)
    except UrlError as error:
        return visit.decide("refused", rule=error.reason)
    visit.set_request(Request(url=service.filter.chain.normalize(url), policy=visit.policy.name))
    return True


async def rules(visit: Visit, service: Scheduler) -> bool:
    """Ask the crawl's filters and rules, and what operators block."""
    if service.is_blocked(visit.host):
        return visit.decide("refused", rule="blocked")
    is_ours, name = service.filter.verdict(visit.url, visit.host, 0)
    return is_ours or visit.decide("refused", rule=name)


async def decide(visit: Visit, service: Scheduler) -> bool:
    """Submit the URL to the table; the upsert decides about a fetch."""
    try:
        row = await _submitted(visit, service)
    except KeyStoreError as error:
        service.note_problem(error)
        return visit.decide("unavailable", retry_after_s=UNAVAILABLE_S)
    if row is None:
        return visit.decide("busy", retry_after_s=service.wait_s(visit.host))
    visit.row = row
    if not row.is_open:
        return visit.decide("known")
    opened = service.visits.get(visit.key)
    # Equal times: this submission made the row due. The recovery may have begun the row since.
    is_new = (
        row.due_ms is not None and row.due_ms == row.shared_ms and not (opened and opened.is_told)
    )
    visit.decide("new" if is_new else "waiting", wait_s=service.wait_s(visit.host))
    if row.is_due:
        opened = opened or service.begin(service.request_in(row) or visit.request, row)
        if opened:
            opened.is_told = True
    return True


async def _submitted(visit: Visit, service: Scheduler) -> Row | None:
    """Return the row after the submission.

    None: the host's wait is too long for a new URL.
    """
    if visit.key not in service.visits and service.is_full(visit.host, visit.key):
        row = await service.store.state(visit.key)
        if row is None or not (row.is_open or _is_fresh(row, visit)):
            return None
    with service.reserved(visit.host, visit.key):
        return await service.submit(_wish(visit))


def _wish(visit: Visit) -> Wish:
    max_age_ms = None if visit.max_age_s is None else round(visit.max_age_s * 1000)
    repeat = sha1(visit.repeat.encode() + visit.key).digest() if visit.repeat else b""
    return Wish(
        visit.key,
        part_of(visit.host),
        request_bytes(visit.request),
        max_age_ms=max_age_ms,
        repeat=repeat,
    )


def _is_fresh(row: Row, visit: Visit) -> bool:
    now_ms = time.time() * 1000
    is_old = visit.max_age_s is not None and row.fetched_ms < now_ms - visit.max_age_s * 1000
    return now_ms < row.again_ms and not is_old


async def fetch(visit: Visit, service: Scheduler) -> bool:
    """Have the URL fetched, then wait for its row.

    The request has the conditions of the document before.
    """
    before = await _document_before(visit, service)
    while True:
        try:
            said = await service.ask(visit, before)
        except FetcherDiedError:
            if service.is_stopping:
                return False
            if not await service.may_try_again(visit):
                visit.document = Document(
                    url=visit.url, outcome="fetcher_died", final_url=visit.url
                )
                return True
            continue
        if isinstance(said, Done) or said.rule not in NOT_BEGUN:
            break
        if service.is_stopping or said.rule == "cancelled" or not service.has_host(visit.host):
            return False  # the row stays due
        await asyncio.sleep(0.2)
    if visit.entered is not None:
        await visit.entered.wait()
    visit.done = said
    visit.document = _document(visit, said, before)
    return True


async def _document_before(visit: Visit, service: Scheduler) -> Document | None:
    if visit.row is None or not visit.row.fetched_ms:
        return None
    row = await service.persistent(service.store.read, visit.key)
    document = service.document_in(row)
    is_own = document is not None and len(document.hops) == 1 and document.outcome == Outcome.OK
    return document if is_own else None


def _document(visit: Visit, said: Done | Refused, before: Document | None) -> Document:
    if isinstance(said, Refused):
        return Document(
            url=visit.url,
            outcome=said.rule,
            final_url=visit.url,
            error=said.reason,
            retry_at=said.retry_at,
        )
    if said.hop.outcome == Outcome.NOT_MODIFIED and before is not None:
        return unchanged(before, said)
    document = document_of(visit.url, said)
    if (
        before is not None and document.outcome == Outcome.OK and document.warc is None
    ):  # the same bytes as before
        return replace(document, warc=before.warc, captured_ms=before.captured_ms)
    return document


async def follow(visit: Visit, service: Scheduler) -> bool:
    """Let the row wait for a redirect's target; submit the target."""
    if (
        not isinstance(visit.done, Done)
        or (target := visit.done.target) is None
        or visit.document is None
    ):
        return True
    if problem := no_target(visit.request, target, service.filter, service.max_redirects):
        outcome, error = problem
        visit.document = ended(visit.document, outcome, error)
        return True
    spent_ms = visit.request.spent_ms + visit.done.spent_ms
    followed = replace(visit.request, hop=visit.done.hop, target=target, spent_ms=spent_ms)
    rest = await service.redirects.follow(followed, visit.epoch)
    if rest is None:
        return False  # the end of the target's work finishes this row
    visit.document = rest
    return True


def no_target(
    request: Request, target: PageTarget, judge: UrlFilter, max_redirects: int
) -> tuple[str, str] | None:
    """Return outcome and error of a redirect without a usable target."""
    if target.url == request.url:
        return "redirect_loop", "the URL leads to itself"
    if request.redirects >= max_redirects:
        return (
            "too_many_redirects",
            f"the URL is hop {request.redirects} of a chain (fetch.max_redirects)",
        )
    is_ours, name = judge.verdict(target.url, host_of(target.url), 0)
    return None if is_ours else (Outcome.FILTERED, f"the target {target.url} is refused: {name}")


def ended(document: Document, outcome: str, error: str) -> Document:
    """Return the document of a redirect that ends here."""
    return Document(
        url=document.url,
        outcome=outcome,
        final_url=document.final_url,
        hops=document.hops,
        status=document.status,
        error=error,
        warc=document.warc,
    )


async def write(visit: Visit, service: Scheduler) -> bool:
    """Write the document into the row, and end the wait."""
    assert visit.document is not None
    stays_due = bool(
        _picture_of(visit)
    )  # a killed service has the picture probed after its next start
    if stays_due:
        service.pictureless.add(visit.key)
    await service.redirects.write(visit.document, visit.handing, stays_due=stays_due)
    if service.visits.get(visit.key) is visit:  # not for the second document, after a probe
        service.note_latency(visit)
    service.end(visit)
    return True


async def notify(visit: Visit, service: Scheduler) -> bool:
    """Wake readers and subscribers; hand the document to waiting rows."""
    assert visit.document is not None
    service.redirects.hand_on(visit.key, visit.document, visit.handing)
    return True


async def related(visit: Visit, service: Scheduler) -> bool:
    """Probe the picture of the page, if the policy asks.

    The document is written again.
    """
    assert visit.document is not None
    url = _picture_of(visit)
    if not url:
        return False
    seen = await service.probes.look(url, visit.key, visit.policy)
    for (
        task
    ) in visit.handing.tasks:  # the tasks add tasks; rows have the document before its second form
        await asyncio.wait([task])
    visit.document = replace(visit.document, image=seen)
    return True


async def hand_on_again(visit: Visit, service: Scheduler) -> bool:
    """Write the document with its picture into rows again.

    These rows have had the document without the picture.
    """
    assert visit.document is not None
    await service.redirects.hand_on_again(visit.document, visit.handing)
    return True


def _picture_of(visit: Visit) -> str:
    """Return the URL of the picture to probe; "" for none."""
    document = visit.document
    if document is None or document.image is not None or visit.policy.image != "probe":
        return ""
    image = document.facts.get("image")
    url = image.get("url") if isinstance(image, dict) else image
    return url if isinstance(url, str) else ""


ACCEPTING: list[Stage] = [canonical, rules, decide]
WORKING: list[Stage] = [fetch, follow, write, notify, related, write, notify, hand_on_again]


def again_ms(document: Document, policy: PolicyConfig) -> int:
    """Return how long a document is good for, in milliseconds."""
    if document.retry_at is not None:
        return max(0, round((document.retry_at - time.time()) * 1000))
    if document.outcome in _PASSES or document.outcome == "fetcher_died":
        return round(min(AGAIN_S, policy.refetch_after_s) * 1000)
    if document.outcome == "too_many_redirects":
        return 0  # a direct submission of this URL gets the whole chain
    return round(policy.refetch_after_s * 1000)
