"""When a URL whose failure passes is tried again, and its host asked again: by the retry table, and as hosts ask."""

from contextlib import suppress
from math import ceil

from crawl_lib.config import RetryConfig
from crawl_lib.fetch.classify import row_of_answer
from crawl_lib.fetch.retry import RETRIES
from crawl_lib.parse import parse_head
from crawl_lib.records import Fetched
from crawl_lib.states import Outcome

GROWTH = 6.0
"""How many times longer each wait is than the one before: ten minutes, an hour, six hours, then a day."""
GROWS = 10
"""How often a wait grows at most: it is some centuries then."""


def retry_at(fetched: Fetched, retries: int, config: RetryConfig, host_until: float = 0.0) -> int | None:
    """POSIX seconds from which on a URL may be tried again; None: what came is final.

    `retries`: in how many earlier iterations it failed in a way that passes. `host_until`: the end of its host's
    back-off.
    """
    row = RETRIES[row_of_answer(fetched.outcome, fetched.status)]
    used_up = retries >= config.max and costs_a_retry(fetched.outcome, fetched.attempts)
    if row.passes_s is None or used_up or not config.max:
        return None
    wait_s = _wait_s(row.passes_s, retries, retry_after_s(fetched.head, fetched.time), config)
    return ceil(max(fetched.time + wait_s, host_until))


def back_off_s(before: int, asked_s: float, config: RetryConfig) -> float:
    """How long a host is left alone. `before`: how often it was, in a row; `asked_s`: for how long it asks."""
    return _wait_s(RETRIES[Outcome.HOST_GAVE_UP].passes_s or 0.0, before, asked_s, config)


def _wait_s(first_s: float, before: int, asked_s: float, config: RetryConfig) -> float:
    return min(max(first_s * GROWTH ** min(before, GROWS), asked_s), config.max_wait_s)


def costs_a_retry(outcome: Outcome, attempts: int) -> bool:
    """Whether a failure counts for `retry.max`: not that of a URL that was given up with its host, untried."""
    return outcome is not Outcome.HOST_GAVE_UP or attempts > 0


def retry_after_s(head: bytes, now: float) -> float:
    """Seconds that a Retry-After header asks for, as a number or a date (RFC 9110, 10.2.3); 0 if there is none."""
    text = (parse_head(head).get("retry-after") or "").strip()
    if text.isascii() and text.isdigit() and len(text) < 9:
        return float(text)
    from email.utils import parsedate_to_datetime  # noqa: PLC0415 - few answers have a date there

    with suppress(ValueError, TypeError, OverflowError):
        return max(0.0, parsedate_to_datetime(text).timestamp() - now)
    return 0.0
