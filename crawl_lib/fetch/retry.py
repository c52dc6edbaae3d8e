"""The action after a failed try, as a table: how long to wait, how many tries in all, and whose trouble it is.

Trouble of the host holds back the whole host, and may count towards giving it up; other URLs of the host go on while a
URL waits. The host's delay comes on top of every wait.
"""

from dataclasses import dataclass, replace
from enum import StrEnum

from crawl_lib.states import Outcome


class Trouble(StrEnum):
    """Failures that differ in retries only; rows record the `Outcome` only."""

    STALE_CONNECTION = "stale_connection"
    """The server had closed a kept connection when our request came. Ends as CONNECT_FAILED."""
    TURN_OVER = "turn_over"
    """Connecting took longer than the turn of an address shared by nodes; nothing was sent. Ends as
    CONNECT_FAILED."""
    DNS_TEMPORARY = "dns_temporary"
    """The resolver got no answer, unlike the answer that the name does not exist. Ends as DNS_FAILED."""
    TOO_MANY_REQUESTS = "too_many_requests"
    """Status 429. Ends as CLIENT_ERROR."""
    UNAVAILABLE = "unavailable"
    """Status 503. Ends as SERVER_ERROR."""


@dataclass(frozen=True, slots=True)
class Retry:
    """A row: seconds to wait before the next try, tries in all.

    `of_host`: whether the host is at fault, and all URLs of the host wait; `counts`: towards giving the host up.
    `passes_s`: it may pass, and the URL is tried again in a later iteration, after so many seconds the first time
    (`again`); None: the URL ends with this outcome.
    """

    wait_s: float
    max_tries: int
    of_host: bool = False
    counts: bool = False
    passes_s: float | None = None


GROWS = 10
"""How often the wait of a URL, or of a host, grows at most (`again`): it is some centuries then."""
_FINAL = Retry(0.0, 1)
_MINUTES_10, _HOUR = 600.0, 3600.0

RETRIES: dict[Outcome | Trouble, Retry] = {
    Outcome.OK: _FINAL,
    Outcome.REDIRECT: _FINAL,
    Outcome.NOT_MODIFIED: _FINAL,
    Outcome.GONE: _FINAL,
    Outcome.CLIENT_ERROR: _FINAL,
    Outcome.SERVER_ERROR: Retry(2.0, 3, passes_s=_HOUR),
    Outcome.UNEXPECTED_STATUS: _FINAL,
    Outcome.MIME_REFUSED: _FINAL,
    Outcome.ROBOTS_DENIED: _FINAL,
    Outcome.ROBOTS_UNREACHABLE: Retry(0.0, 1, passes_s=_HOUR),
    Outcome.DNS_FAILED: Retry(0.0, 1, of_host=True, counts=True, passes_s=_HOUR),
    Outcome.CONNECT_FAILED: Retry(2.0, 3, of_host=True, counts=True, passes_s=_MINUTES_10),
    Outcome.TLS_FAILED: _FINAL,
    Outcome.TIMEOUT: Retry(5.0, 2, of_host=True, counts=True, passes_s=_MINUTES_10),
    Outcome.TOO_SLOW: Retry(5.0, 2, of_host=True, counts=True, passes_s=_MINUTES_10),
    Outcome.PROTOCOL_ERROR: _FINAL,
    Outcome.ADDRESS_REFUSED: _FINAL,
    Outcome.PORT_REFUSED: _FINAL,
    Outcome.FILTERED: _FINAL,
    Outcome.HOST_GAVE_UP: Retry(0.0, 1, passes_s=_MINUTES_10),
    Trouble.STALE_CONNECTION: Retry(0.0, 4, of_host=True),
    Trouble.TURN_OVER: Retry(0.0, 5, of_host=True),
    Trouble.DNS_TEMPORARY: Retry(2.0, 2, of_host=True, counts=True),
    Trouble.TOO_MANY_REQUESTS: Retry(5.0, 3, of_host=True, passes_s=_MINUTES_10),
    Trouble.UNAVAILABLE: Retry(5.0, 3, of_host=True, passes_s=_MINUTES_10),
}
"""Every `Outcome` and every `Trouble` has a row."""

LIVE_TRIES = 2
LIVE_WAIT_S = 1.0

LIVE_RETRIES = {
    failure: replace(
        row, wait_s=min(row.wait_s, LIVE_WAIT_S), max_tries=min(row.max_tries, LIVE_TRIES)
    )
    for failure, row in RETRIES.items()
}
"""The same where somebody waits for the answer: two tries at most, a second apart at most."""

HOST_GIVES_UP_AFTER = 5
"""Number of counted failures in a row after which the rest of a host's URLs are given up."""


def costs_a_retry(outcome: Outcome, attempts: int) -> bool:
    """Return whether a failure counts for `retry.max`.

    A URL that was given up with its host, without a request, does not count.
    """
    return outcome is not Outcome.HOST_GAVE_UP or attempts > 0
