"""The judge of acts against a cluster: it finds what must not be, and accuses no host by mistake."""

from __future__ import annotations

import pytest

from tests.torture.cluster import DELAY_S, SILENT_S, Judge, Site, host_of

PORT = 80
FIRST, SECOND = host_of(1), host_of(2)


def judged(
    requests: list[tuple[float, str, str]],
    accepted: dict[str, float],
    events_s: list[tuple[float, float]] | None = None,
) -> list[str]:
    """The kinds of findings; all URLs came in before the second 1,000."""
    site = Site(PORT, requests=requests)
    return [
        finding.partition(":")[0]
        for finding in Judge(site, accepted, events_s or []).findings(1_000.0)
    ]


def url(name: str) -> str:
    return f"http://{FIRST}:{PORT}/c//{name}"


def test_a_host_without_work_is_silent_by_right() -> None:
    requests = [(1.0, FIRST, "/c//a"), (50.0, FIRST, "/c//b")]
    assert judged(requests, {url("a"): 0.5, url("b"): 49.5}) == []


def test_a_host_with_work_is_silent_for_too_long() -> None:
    requests = [(1.0, FIRST, "/c//a"), (50.0, FIRST, "/c//b")]
    assert judged(requests, {url("a"): 0.5, url("b"): 2.0}) == ["silent"]


@pytest.mark.parametrize("count", [1, 2])
def test_acts_explain_silence_from_each_one_on(count: int) -> None:
    requests = [(1.0, FIRST, "/c//a"), (15.0, FIRST, "/c//b")]
    accepted = {url("a"): 0.5, url("b"): 1.0}
    events_s = [(2.0, SILENT_S), (8.0, SILENT_S)][:count]
    assert judged(requests, accepted, events_s) == ["silent"] * (count == 1)


def test_a_hop_is_work_from_the_hop_before_on() -> None:
    chain = f"http://{FIRST}:{PORT}/c/2/x"
    requests = [(0.5, SECOND, "/robots.txt"), (30.0, FIRST, "/c/2/x"), (31.0, SECOND, "/c//x")]
    assert judged(requests, {chain: 29.0}) == []
    late = [*requests[:2], (60.0, SECOND, "/c//x")]
    assert judged(late, {chain: 29.0}) == ["silent"]
    again = [*requests[:2], (59.5, FIRST, "/c/2/x"), (60.0, SECOND, "/c//x")]
    assert judged(again, {chain: 29.0}) == [], "the first answer was lost with its fetcher"


def test_a_request_within_the_delay_is_found() -> None:
    requests = [(1.0, FIRST, "/c//a"), (1.0 + DELAY_S / 2, FIRST, "/c//b")]
    assert judged(requests, {url("a"): 0.5, url("b"): 0.5}) == ["asked again"]
