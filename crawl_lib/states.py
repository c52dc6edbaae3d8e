"""The two states of a URL: what the key store believes (`KeyState`), and what one fetch saw (`Outcome`).

A key's state only grows: unknown -> QUEUED -> CRAWLED or GONE. It never goes back to QUEUED; only `krake forget`
makes a key unknown again. Every URL that leaves the queue for good ends in exactly one Outcome.
"""

from collections.abc import Mapping
from enum import IntEnum, StrEnum


class KeyState(IntEnum):
    """State of a key in `keyinfo`."""

    QUEUED = 1
    """Taken in: its URL is in a queue, also to be tried again, or in an open take."""
    CRAWLED = 2
    """A committed segment has a final row of it in `pages`, and it was not gone."""
    GONE = 3
    """The last fetch answered 404 or 410."""


class Outcome(StrEnum):
    """How the last try to fetch a URL ended: the same words in `pages`, manifests, task results and `krake status`."""

    OK = "ok"
    """An answer with a status of 200 to 299."""
    REDIRECT = "redirect"
    """An answer with a status of 300 to 399 and a usable Location."""
    NOT_MODIFIED = "not_modified"
    """A 304 answer to a request that named an earlier capture: the page is unchanged."""
    GONE = "gone"
    """A 404 or 410 answer."""
    CLIENT_ERROR = "client_error"
    """Any other answer of 400 to 499."""
    SERVER_ERROR = "server_error"
    """An answer of 500 to 599, also at the last try."""
    UNEXPECTED_STATUS = "unexpected_status"
    """Any other answer: no known status class, or a redirect without a usable target."""
    MIME_REFUSED = "mime_refused"
    """An answer of a type outside `fetch.mime_types`; the body was not read."""
    ROBOTS_DENIED = "robots_denied"
    """robots.txt forbids the URL. Not fetched."""
    ROBOTS_UNREACHABLE = "robots_unreachable"
    """robots.txt answered 5xx or 429, broke off, or redirects to a failure (RFC 9309, 2.3.1.4). Not fetched."""
    DNS_FAILED = "dns_failed"
    """The host name has no address, or the look-up took longer than `fetch.dns_timeout_s`."""
    CONNECT_FAILED = "connect_failed"
    """No connection: refused, unreachable, or broken off before an answer."""
    TLS_FAILED = "tls_failed"
    """No trusted TLS connection."""
    TIMEOUT = "timeout"
    """`fetch.connect_timeout_s` or `fetch.time_limit_s` ran out before the answer's headers were complete."""
    TOO_SLOW = "too_slow"
    """An answer began, then brought less than `fetch.min_bytes_per_s` for `fetch.min_speed_s`; not kept."""
    PROTOCOL_ERROR = "protocol_error"
    """The answer is not HTTP, or the headers exceed the limit."""
    ADDRESS_REFUSED = "address_refused"
    """The address is in an inner network outside `fetch.allow_networks`. Not fetched."""
    PORT_REFUSED = "port_refused"
    """Browsers refuse the port; the URL was queued by hand or by an early version. Not fetched."""
    FILTERED = "filtered"
    """A filter of `urls.filters` rejects the queued URL (rule in `error`); or a normaliser replaces the URL (new URL in
    `redirect_url`); or pages with the same words make the URL a trap (`error` begins with `similar`). Not fetched."""
    HOST_GAVE_UP = "host_gave_up"
    """The host failed too often in this iteration, or is busy; this URL was not tried again."""


KEY_STATE_OF_OUTCOME = {
    outcome: KeyState.GONE if outcome is Outcome.GONE else KeyState.CRAWLED for outcome in Outcome
}
"""The key state that a committed outcome leaves where it is final; every outcome has one."""

WITH_RESPONSE = frozenset(
    {
        Outcome.OK,
        Outcome.REDIRECT,
        Outcome.NOT_MODIFIED,
        Outcome.GONE,
        Outcome.CLIENT_ERROR,
        Outcome.SERVER_ERROR,
        Outcome.UNEXPECTED_STATUS,
        Outcome.MIME_REFUSED,
    }
)
"""Outcomes whose WARC group holds a request and a response; the others are a metadata record alone."""

ERROR_ANSWERS = frozenset(
    {Outcome.GONE, Outcome.CLIENT_ERROR, Outcome.SERVER_ERROR, Outcome.UNEXPECTED_STATUS}
)
"""Outcomes of answers whose status says that there is no page."""

NOT_ASKED = frozenset(
    {Outcome.ROBOTS_DENIED, Outcome.ADDRESS_REFUSED, Outcome.PORT_REFUSED, Outcome.FILTERED}
)
"""Outcomes of URLs that a rule kept us from asking for, of the site or of ours: they say nothing of the network."""


def answers_of(outcomes: Mapping[str, int]) -> tuple[int, int]:
    """Return how many URLs were answered, and of how many.

    Any response counts as an answer; URLs in `NOT_ASKED` do not count.
    """
    answered = sum(number for outcome, number in outcomes.items() if outcome in WITH_RESPONSE)
    return answered, sum(number for outcome, number in outcomes.items() if outcome not in NOT_ASKED)
