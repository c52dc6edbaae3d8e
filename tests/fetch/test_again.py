"""When a URL is tried again in a later iteration: what passes, after how long, how often, and as its host asks."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from email.utils import format_datetime

import pytest

from crawl_lib.config import RetryConfig
from crawl_lib.fetch import costs_a_retry
from crawl_lib.fetch.again import back_off_s, retry_after_s, retry_at
from crawl_lib.records import Fetched
from crawl_lib.states import Outcome

BEGUN = 1_700_000_000
PASSES = {
    Outcome.CONNECT_FAILED: 600,
    Outcome.TIMEOUT: 600,
    Outcome.TOO_SLOW: 600,
    Outcome.HOST_GAVE_UP: 600,
    Outcome.DNS_FAILED: 3600,
    Outcome.ROBOTS_UNREACHABLE: 3600,
    Outcome.SERVER_ERROR: 3600,
}


def failed(
    outcome: Outcome, *, attempts: int = 1, status: int | None = None, retry_after: str = ""
) -> Fetched:
    head = (
        f"HTTP/1.1 {status} No\r\nRetry-After: {retry_after}\r\n\r\n".encode()
        if retry_after
        else b""
    )
    return Fetched("http://a.test/", BEGUN, outcome, status=status, head=head, attempts=attempts)


def wait_s(fetched: Fetched, retries: int = 0, **options: float) -> float | None:
    at = retry_at(fetched, retries, RetryConfig(**options))  # type: ignore[arg-type]
    return None if at is None else at - BEGUN


@pytest.mark.parametrize("outcome", list(Outcome))
def test_each_outcome_passes_or_is_final(outcome: Outcome) -> None:
    assert wait_s(failed(outcome)) == PASSES.get(outcome)


@pytest.mark.parametrize(
    ("outcome", "status"), [(Outcome.CLIENT_ERROR, 429), (Outcome.SERVER_ERROR, 503)]
)
def test_a_busy_host_is_asked_again_sooner_than_a_broken_one(outcome: Outcome, status: int) -> None:
    assert wait_s(failed(outcome, status=status)) == 600
    assert wait_s(failed(Outcome.CLIENT_ERROR, status=403)) is None


def test_waits_grow_up_to_a_limit_and_the_last_failure_is_final() -> None:
    waits = [wait_s(failed(Outcome.TIMEOUT), retries) for retries in range(6)]
    assert waits == [600, 3600, 21_600, 86_400, None, None]
    assert wait_s(failed(Outcome.TIMEOUT), 500, max=1000) == 86_400


def test_a_url_that_was_given_up_untried_costs_nothing() -> None:
    untried = failed(Outcome.HOST_GAVE_UP, attempts=0)
    assert not costs_a_retry(untried.outcome, untried.attempts)
    assert wait_s(untried, retries=4) is not None
    assert wait_s(failed(Outcome.HOST_GAVE_UP, attempts=2), retries=4) is None
    assert costs_a_retry(Outcome.DNS_FAILED, 0)


def test_no_url_is_due_before_its_host_may_be_asked() -> None:
    given_up = failed(Outcome.HOST_GAVE_UP, attempts=0)
    assert retry_at(given_up, 0, RetryConfig(), BEGUN + 5000.5) == BEGUN + 5001
    assert retry_at(given_up, 0, RetryConfig(), BEGUN - 9.0) == BEGUN + 600
    assert retry_at(failed(Outcome.OK), 0, RetryConfig(), BEGUN + 5000) is None


def test_a_hosts_back_off_grows_and_lasts_as_long_as_it_asks_for_up_to_the_limit() -> None:
    assert [back_off_s(times, 0.0, RetryConfig()) for times in range(5)] == [
        600,
        3600,
        21_600,
        86_400,
        86_400,
    ]
    assert [back_off_s(0, asked_s, RetryConfig()) for asked_s in (7200.0, 1e8)] == [7200, 86_400]
    assert back_off_s(10**6, 0.0, RetryConfig()) == 86_400
    assert back_off_s(0, 7200.0, RetryConfig(max_wait_s=60.0)) == 60


def test_with_no_retries_every_failure_is_final() -> None:
    assert {wait_s(failed(outcome, attempts=0), max=0) for outcome in Outcome} == {None}


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("7200", 7200),
        (format_datetime(datetime.fromtimestamp(BEGUN + 9000, UTC), usegmt=True), 9000),
        ("5", 600),
        ("99999999", 86_400),
        (format_datetime(datetime.fromtimestamp(BEGUN - 9000, UTC), usegmt=True), 600),
        *(
            (text, 600)
            for text in ("-1", "1e9", "soon", "9" * 30, "Thu, 99 Foo 2023 25:61:00 GMT", "\x00")
        ),
    ],
)
def test_retry_after_counts_as_a_number_and_as_a_date(text: str, seconds: float) -> None:
    assert wait_s(failed(Outcome.SERVER_ERROR, status=503, retry_after=text)) == seconds


ZONES = ("UTC", "Asia/Tokyo", "America/Los_Angeles")
LATER = datetime.fromtimestamp(BEGUN + 7000, UTC)


@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.parametrize(
    "form", ["%a, %d %b %Y %H:%M:%S GMT", "%A, %d-%b-%y %H:%M:%S GMT", "%a %b %e %H:%M:%S %Y"]
)
def test_a_date_means_the_same_on_machines_of_each_zone(
    form: str, zone: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """RFC 9110, 5.6.7: the form of asctime names no zone, and is in UTC."""
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    try:
        assert (
            retry_after_s(
                b"HTTP/1.1 503\r\nRetry-After: %b\r\n\r\n" % LATER.strftime(form).encode(), BEGUN
            )
            == 7000
        )
    finally:
        monkeypatch.undo()
        time.tzset()


@pytest.mark.parametrize(
    ("values", "seconds"),
    [
        (["60", "7000"], 7000),
        (["7000", "60"], 7000),
        (["60, 7000"], 7000),
        (["soon", "7000"], 7000),
        (["", "x"], 0),
    ],
)
def test_the_longest_wait_of_several_counts(values: list[str], seconds: int) -> None:
    head = "".join(f"Retry-After: {value}\r\n" for value in values)
    assert retry_after_s(f"HTTP/1.1 503 Busy\r\n{head}\r\n".encode(), BEGUN) == seconds
