"""The harness finds what is wrong: each known mistake, put into the crawler, is a finding."""

from __future__ import annotations

import pytest

from tests.torture.harness import LONGEST_S, torture
from tests.torture.plants import PLANTS

pytestmark = pytest.mark.timeout(LONGEST_S)
PASSING = "failures that pass"
FOUND = {
    "lost_rename": (("--power", 120), "power: "),
    "fsync_order": (("--power", 120), "power: "),
    "move_forgotten_early": (("--steps",), "QueueError"),
    "key_first": (("--steps",), "I1: lost: http://"),
    "passed_over_lost": ((5, "--flavours", PASSING), "I1: lost: http://"),
    "other_runs": (("--steps", "--flavours", PASSING), "I1: lost: http://", "the crawl did not end"),
    "failure_not_put_back": ((5, "--flavours", PASSING), "I2: a final row is not the last one"),
    "retries_forgotten": ((5, "--flavours", PASSING), "the crawl did not end"),
    "failures_final": ((5, "--flavours", PASSING), "I1: outcomes: "),
}
"""How each mistake is looked for, and what the output says then: one of these."""


@pytest.mark.parametrize("plant", sorted(PLANTS))
def test_a_planted_mistake_is_found(plant: str) -> None:
    options, *signs = FOUND[plant]
    for seed in (1, 2, 3):  # some show only where a kill falls together with the time at which a page is due
        done = torture("--flavours", "one node", *options, "--plant", plant, "--until-found", "--seed", seed)
        if done.returncode:
            break
    assert done.returncode == 1, done.stdout + done.stderr
    assert "\nFINDING round" in done.stdout, done.stderr
    assert any(sign in done.stdout for sign in signs), done.stdout
    assert "Traceback" not in done.stdout, "the mistake itself fails, so nothing was shown"
