"""A host that is busy, or fails too often, is left alone: for the rest of the batch, and for longer each time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from email.utils import format_datetime
from pathlib import Path
from typing import Any

import pytest

from crawl_lib.config import RetryConfig
from crawl_lib.fetch import HostStore
from crawl_lib.fetch.hoststore import NO_BACK_OFF, BackOff
from crawl_lib.states import Outcome
from tests.fetch.driver import CONFIG, FakeCarrier, Run, answer, run_virtual
from tests.fetch.test_politeness import gaps, of_hosts

OBEY = replace(CONFIG, robots="obey")
START = 1_000_000.0
"""A clock of virtual time stops where its numbers are so large that they are coarse."""
URLS = [f"http://busy.test/{page}" for page in range(10)]
DAY_S = 86_400.0


def retry_after(seconds: float) -> bytes:
    return b"Retry-After: %d\r\n" % seconds


def retry_after_date(seconds: float) -> bytes:
    """So long after the first request."""
    return f"Retry-After: {format_datetime(datetime.fromtimestamp(START + seconds, UTC), usegmt=True)}\r\n".encode()


def busy(headers: bytes = b"", status: int = 503) -> FakeCarrier:
    """Hosts of which `busy.test` is busy."""
    return FakeCarrier(lambda url, _: answer(status, headers) if "//busy." in url else answer())


def go(
    directory: Path, carrier: FakeCarrier, urls: list[str] = URLS, start: float = START, **more: Any
) -> Run:
    """One batch."""
    carrier.closed = False
    return run_virtual(directory, urls, more.pop("config", CONFIG), carrier, start=start, **more)


def back_off(directory: Path, host: str = "busy.test") -> BackOff:
    with HostStore(directory) as store:
        return store.back_off(host)


def outcomes(found: Run) -> list[tuple[str, int]]:
    """Outcome and tries of each URL, in their order."""
    return [
        (fetched.outcome.value, fetched.attempts)
        for fetched in sorted(found.fetched, key=lambda one: one.url)
    ]


@pytest.mark.parametrize(("status", "outcome"), [(429, "client_error"), (503, "server_error")])
def test_after_the_tries_of_one_url_the_rest_of_its_host_ends_untried(
    tmp_path: Path, status: int, outcome: str
) -> None:
    """It costs them no retry, and none is due before the host may be asked again. Other hosts go on."""
    carrier = busy(status=status)
    found = go(tmp_path, carrier, [*URLS, "http://fine.test/1", "http://fine.test/2"])
    assert outcomes(found) == [(outcome, 3), *[("host_gave_up", 0)] * 9, ("ok", 1), ("ok", 1)]
    assert [sent.url for sent in of_hosts(carrier)["busy.test"]] == [URLS[0]] * 3
    until, times = back_off(tmp_path)
    assert (until, times) == (pytest.approx(of_hosts(carrier)["busy.test"][-1].end + 600), 1)
    assert all(fetched.retry_at >= until for fetched in found.fetched if "busy" in fetched.url)
    assert back_off(tmp_path, "fine.test") == NO_BACK_OFF


@pytest.mark.parametrize("form", [retry_after, retry_after_date])
@pytest.mark.parametrize(("asked_s", "waits_s"), [(3600, 3600), (31, 600), (10 * DAY_S, DAY_S)])
def test_what_a_host_asks_for_counts_up_to_the_limit_and_it_is_asked_no_more(
    tmp_path: Path, form: Callable[[float], bytes], asked_s: float, waits_s: float
) -> None:
    carrier = busy(form(asked_s))
    found = go(tmp_path, carrier)
    assert len(carrier.sent) == 1
    assert outcomes(found) == [("server_error", 1), *[("host_gave_up", 0)] * 9]
    until = back_off(tmp_path).until
    assert until == pytest.approx(START + waits_s, abs=1.0)
    assert {fetched.retry_at for fetched in found.fetched} <= {
        int(until),
        int(until) + 1,
        int(until) + 2,
    }
    assert min(fetched.retry_at or 0 for fetched in found.fetched) >= until


def test_a_short_wait_that_a_host_asks_for_is_waited_for_in_the_batch(tmp_path: Path) -> None:
    carrier = FakeCarrier(lambda _, tries: answer(503, retry_after(30)) if tries == 1 else answer())
    found = go(tmp_path, carrier, URLS[:1], config=replace(CONFIG, max_crawl_delay_s=30.0))
    assert outcomes(found) == [("ok", 2)]
    assert gaps(carrier.sent) == pytest.approx([30.0], abs=0.1)
    assert back_off(tmp_path) == NO_BACK_OFF


def test_the_back_off_grows_until_a_page_is_answered(tmp_path: Path) -> None:
    """An answer of robots.txt is not yet one of a page."""
    now, waits = START, []
    answers = FakeCarrier(lambda url, _: answer(503) if "robots" not in url else answer(404))
    for _ in range(5):
        go(tmp_path, answers, start=now, config=replace(OBEY, robots_ttl_s=0.0))
        until = back_off(tmp_path).until
        waits.append(until - answers.sent[-1].end)
        now = until + 1.0
    assert waits == pytest.approx([600, 3600, 21_600, DAY_S, DAY_S])
    assert back_off(tmp_path).times == 5
    found = go(tmp_path, FakeCarrier(lambda *_: answer(404)), start=now)
    assert found.outcomes() == ["gone"] * 10
    assert back_off(tmp_path) == NO_BACK_OFF
    go(tmp_path, busy(), start=now + 100.0)
    assert back_off(tmp_path).times == 1


@pytest.mark.parametrize("status", [429, 503])
def test_a_busy_robots_txt_counts_in_the_same_way(tmp_path: Path, status: int) -> None:
    """Its URLs cost a retry, since none of them is ever tried. Nothing else of the host is asked for."""
    carrier = FakeCarrier(lambda *_: answer(status, retry_after(7200)))
    found = go(tmp_path, carrier, [*URLS, "https://busy.test/other"], config=OBEY)
    assert len(carrier.sent) == 1
    assert found.outcomes() == ["robots_unreachable"] * 11
    assert found.fetched[0].error == f"robots.txt: status {status}"
    assert back_off(tmp_path) == (pytest.approx(START + 7200, abs=1.0), 1)
    assert min(fetched.retry_at or 0 for fetched in found.fetched) >= back_off(tmp_path).until


def test_a_host_that_fails_too_often_is_left_alone_too(tmp_path: Path) -> None:
    found = go(tmp_path, FakeCarrier(lambda *_: answer(0, code=7)))
    until, times = back_off(tmp_path)
    assert (times, until > START + 600) == (1, True)
    given_up = [fetched for fetched in found.fetched if fetched.outcome is Outcome.HOST_GAVE_UP]
    assert len(given_up) == 8
    assert min(fetched.retry_at or 0 for fetched in given_up) >= until


def test_a_host_that_is_in_back_off_is_not_asked_by_a_batch_that_has_it_already(
    tmp_path: Path,
) -> None:
    """Such as one that goes on after a kill; nor is a robots.txt that leads to it."""
    go(tmp_path, busy(retry_after(3600)))
    until = back_off(tmp_path).until

    def respond(url: str, _: int) -> Any:
        leads = url == "http://other.test/robots.txt"
        return answer(301, b"Location: http://busy.test/robots.txt\r\n") if leads else answer()

    carrier = FakeCarrier(respond)
    found = go(tmp_path, carrier, [*URLS, "http://other.test/"], start=START + 1800.0, config=OBEY)
    assert [sent.url for sent in carrier.sent] == ["http://other.test/robots.txt"]
    assert outcomes(found) == [*[("host_gave_up", 0)] * 10, ("robots_unreachable", 0)]
    assert {fetched.retry_at for fetched in found.fetched if "busy" in fetched.url} == {
        int(until) + 1
    }
    assert back_off(tmp_path) == (until, 1)


def test_what_waits_to_be_tried_again_is_not_when_the_host_asks_to_be_left_alone(
    tmp_path: Path,
) -> None:
    """Over several connections: 0 waits for its next try, 1 is under way, 2 waits for the turn of the IP."""

    def respond(url: str, _: int) -> Any:
        if url.endswith("0"):
            return answer(503)
        return answer(503, retry_after(3600)) if url.endswith("1") else answer()

    takes_s = {"0": 0.1, "1": 3.0, "2": 3.5}
    carrier = FakeCarrier(respond, takes_s=lambda url: takes_s.get(url[-1], 1.0))
    config = replace(CONFIG, connections_per_host=3, ip_delay_s=2.0)
    found = go(tmp_path, carrier, config=config)
    ended = next(sent.end for sent in carrier.sent if sent.url.endswith("1"))
    assert max(sent.start for sent in carrier.sent) < ended
    assert ("host_gave_up", 1) in outcomes(found)
    assert back_off(tmp_path).times == 1, "an answer that was under way ends no back-off"


def test_a_clock_that_is_set_back_leaves_no_host_alone_for_longer_than_the_limit(
    tmp_path: Path,
) -> None:
    go(tmp_path, busy(), start=START + 2 * DAY_S)
    found = go(tmp_path, FakeCarrier(lambda *_: answer()), start=START)
    assert found.outcomes() == ["ok"] * 10
    go(tmp_path, busy(), start=START + 2 * DAY_S)
    assert back_off(tmp_path).times == 1
    go(tmp_path, carrier := busy(), start=START, retry=RetryConfig(max_wait_s=3 * DAY_S))
    assert not carrier.sent, "so long it may be"
