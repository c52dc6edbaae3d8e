"""The harness finds what is wrong: each known mistake, put into the crawler, is a finding."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.torture.harness import LONGEST_S, Harness
from tests.torture.plants import PLANTS

pytestmark = pytest.mark.timeout(LONGEST_S)
USUAL, PASSING = "one node", "failures that pass"
FOUND = {
    "lost_rename": (("--power", 120), "power: "),
    "fsync_order": (("--power", 120), "power: "),
    "move_forgotten_early": (("--steps",), "QueueError"),
    "key_first": (("--steps",), "I1: lost: http://"),
    "passed_over_lost": ((5, "--flavours", PASSING), "I1: lost: http://"),
    "other_runs": (
        ("--steps", "--flavours", PASSING),
        "I1: lost: http://",
        "the crawl did not end",
    ),
    "failure_not_put_back": ((5, "--flavours", PASSING), "I2: a final row is not the last one"),
    "retries_forgotten": ((5, "--flavours", PASSING), "the crawl did not end"),
    "failures_final": ((5, "--flavours", PASSING), "I1: outcomes: "),
}
"""How each mistake is looked for, and what the output says then: one of these."""


@pytest.fixture(scope="module")
def harness() -> Iterator[Harness]:
    with Harness(USUAL, PASSING) as found:
        yield found


@pytest.mark.parametrize("plant", sorted(PLANTS))
def test_a_planted_mistake_is_found(plant: str, harness: Harness) -> None:
    options, *signs = FOUND[plant]
    for seed in (
        1,
        2,
        3,
    ):  # some show only where a kill falls together with the time at which a page is due
        asked = ("--flavours", USUAL, *options, "--plant", plant, "--until-found", "--seed", seed)
        code, output = harness.torture(*asked)
        if code:
            break
    assert code == 1, output
    assert "\nFINDING round" in output, output
    assert any(sign in output for sign in signs), output
    assert "Traceback" not in output, "the mistake itself fails, so nothing was shown"
