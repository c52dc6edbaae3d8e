"""What the harness says of a server's log."""

from __future__ import annotations

import pytest

from crawl_lib.synthweb.log import LoggedRequest, RequestLog
from tests.torture.checks import polite


@pytest.mark.parametrize(
    ("deaths", "impolite"),
    [([], True), ([(1.03, 1.03)], False), ([(1.06, 1.06)], True), ([(0.99, 0.99)], True), ([(2.0, 2.0)], True)],
    ids=["nobody died", "died waiting", "died waiting, too late", "died before", "died after"],
)
def test_a_delay_counts_from_the_end_of_an_answer_or_of_who_waited_for_it(
    deaths: list[tuple[float, float]], impolite: bool
) -> None:
    asked = [LoggedRequest("host", "/", 200, 1.0, 1.07), LoggedRequest("host", "/", 200, 1.1, 1.2)]
    found = list(polite(RequestLog(asked), 0.05, {}, deaths))
    assert bool(found) is impolite
