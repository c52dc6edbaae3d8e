"""What the harness says of a server's log."""

from __future__ import annotations

import pytest

from demo.log import LoggedRequest, RequestLog
from tests.torture.checks import polite
from tests.torture.children import Ended, Kill


@pytest.mark.parametrize(
    ("deaths", "impolite"),
    [
        ([], True),
        ([(1.03, 1.03)], False),
        ([(1.06, 1.06)], True),
        ([(0.99, 0.99)], True),
        ([(2.0, 2.0)], True),
        ([(0.5, 2.0)], False),
    ],
    ids=[
        "nobody died",
        "died waiting",
        "died waiting, too late",
        "died before",
        "died after",
        "died some time",
    ],
)
def test_a_delay_counts_from_the_end_of_an_answer_or_of_who_waited_for_it(
    deaths: list[tuple[float, float]], impolite: bool
) -> None:
    asked = [LoggedRequest("host", "/", 200, 1.0, 1.07), LoggedRequest("host", "/", 200, 1.1, 1.2)]
    found = list(polite(RequestLog(asked), 0.05, {}, deaths))
    assert bool(found) is impolite


def test_a_death_at_an_unknown_time_explains_one_request_of_a_host() -> None:
    times = [(1.0, 1.07), (1.01, 1.02), (1.03, 1.05), (1.04, 1.09)]
    asked = [
        LoggedRequest(host, "/", 200, *time)
        for host in ("one", "two")
        for time in times[: 4 if host == "one" else 3]
    ]
    assert [finding[:8] for finding in polite(RequestLog.of(asked), 0.005, {}, [(0.5, 2.0)])] == [
        "I6: one:"
    ]


@pytest.mark.parametrize(
    ("asked", "last"),
    [("", "c"), ("a", "a"), ("a:2", "a"), ("a:3", "c"), ("x", "c")],
    ids=[
        "at an instant",
        "at a step",
        "the second time",
        "not so often",
        "a step that was not reached",
    ],
)
def test_who_was_killed_at_a_step_died_after_it_whatever_others_still_did(
    asked: str, last: str
) -> None:
    ended = Ended(None, "", True, 0.0, 0.0, steps=("a", "b", "a", "c"))
    assert ended.last_step(Kill(step=asked)) == last
    assert Ended(None, "", True, 0.0, 0.0).last_step(Kill(step=asked)) == ""
