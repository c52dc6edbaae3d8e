"""Times of the next try of a URL after a passing failure, and of its host: by the retry table, and as hosts ask."""

from math import ceil

from crawl_lib.config import RetryConfig
from crawl_lib.fetch.classify import row_of_answer
from crawl_lib.fetch.retry import GROWS, RETRIES, costs_a_retry
from crawl_lib.parse import http_date, parse_head
from crawl_lib.records import Fetched
from crawl_lib.states import Outcome

GROWTH = 6.0
"""How many times longer each wait is than the one before: ten minutes, an hour, six hours, then a day."""
_MOST_DIGITS = 9
_MOST_NUMBERS = 9


def retry_at(
    fetched: Fetched, retries: int, config: RetryConfig, host_until: float = 0.0
) -> int | None:
    """Return when a URL may be tried again, in POSIX seconds.

    None: the outcome is final.

    `retries`: number of earlier iterations with a passing failure. `host_until`: the end of its host's
    back-off.
    """
    row = RETRIES[row_of_answer(fetched.outcome, fetched.status)]
    used_up = retries >= config.max and costs_a_retry(fetched.outcome, fetched.attempts)
    if row.passes_s is None or used_up or not config.max:
        return None
    wait_s = _wait_s(row.passes_s, retries, retry_after_s(fetched.head, fetched.time), config)
    return ceil(max(fetched.time + wait_s, host_until))


def back_off_s(before: int, asked_s: float, config: RetryConfig) -> float:
    """Return for how long a host is left alone, in seconds.

    `before`: the earlier back-offs in a row; `asked_s`: the seconds requested by the host.
    """
    return _wait_s(RETRIES[Outcome.HOST_GAVE_UP].passes_s or 0.0, before, asked_s, config)


def _wait_s(first_s: float, before: int, asked_s: float, config: RetryConfig) -> float:
    return min(max(first_s * GROWTH ** min(before, GROWS), asked_s), config.max_wait_s)


def retry_after_s(head: bytes, now: float) -> float:
    """Return the seconds of Retry-After fields, 0 without a field.

    See RFC 9110, 10.2.3. Each field has a number or a date. Among several fields, or numbers with commas between them,
    the longest wait counts: the host is asked too late rather than too early. `now`: POSIX seconds.
    """
    values = parse_head(head).all("retry-after")
    return max(
        (
            _asked_s(text, now)
            for value in values
            for text in (value, *value.split(",", _MOST_NUMBERS))
        ),
        default=0.0,
    )


def _asked_s(text: str, now: float) -> float:
    text = text.strip()
    if text.isascii() and text.isdigit():
        return float(text) if len(text) < _MOST_DIGITS else 0.0
    return max(0.0, (http_date(text, now) or 0.0) - now)
