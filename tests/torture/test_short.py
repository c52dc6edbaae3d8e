"""The short form of `make torture`: some kills by chance, every durable step once, and some losses of power.

Whatever was killed, wherever: no URL is lost, none fetched twice but in the fetch that was killed, segments are whole,
and the export is that of the unbroken crawl, byte for byte (I1 to I6).
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from tests.torture.harness import LONGEST_S, Harness

pytestmark = pytest.mark.timeout(LONGEST_S)
KILLS = 25
FEW = 8
"""A kill in a crawl with a CrawlDb takes three times as long."""


def killed(output: str) -> int:
    """How many kills the harness counted."""
    found = re.search(r"^(\d+) kills in", output, re.MULTILINE)
    assert found, output
    return int(found[1])


@pytest.fixture(scope="module")
def harness() -> Iterator[Harness]:
    with Harness("one node", "two nodes") as found:
        yield found


@pytest.mark.parametrize(
    "options",
    [
        (FEW, "--flavours", "lists"),
        (KILLS, "--flavours", "one node,two nodes"),
        (KILLS, "--flavours", "failures that pass"),
        ("--steps", "--flavours", "one node"),
        (KILLS, "--power", "--flavours", "two nodes"),
    ],
    ids=["by chance, with a CrawlDb", "by chance", "failures that pass", "every step", "power"],
)
def test_nothing_is_lost(options: tuple[object, ...], harness: Harness) -> None:
    code, output = harness.torture(*options)
    assert code == 0, output
    assert killed(output) >= (KILLS if options[0] == "--steps" else options[0])
