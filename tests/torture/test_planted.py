"""The harness finds what is wrong: each known mistake, put into the crawler, is a finding."""

from __future__ import annotations

import pytest

from tests.torture.harness import LONGEST_S, torture
from tests.torture.plants import PLANTS

pytestmark = pytest.mark.timeout(LONGEST_S)
FOUND = {
    "lost_rename": (("--power", 60), "power: "),
    "fsync_order": (("--power", 60), "power: "),
    "move_forgotten_early": (("--steps",), "QueueError"),
    "key_first": (("--steps",), "I1: lost: http://"),
}
"""How each mistake is looked for, and what the output says then."""


@pytest.mark.parametrize("plant", sorted(PLANTS))
def test_a_planted_mistake_is_found(plant: str) -> None:
    options, sign = FOUND[plant]
    done = torture(*options, "--plant", plant, "--until-found", "--flavours", "one node")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "\nFINDING round" in done.stdout, done.stderr
    assert sign in done.stdout
    assert "Traceback" not in done.stdout, "the mistake itself fails, so nothing was shown"
