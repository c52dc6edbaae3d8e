"""The first row of each pair of an owner and a group, however rows are divided."""

from __future__ import annotations

import random

import numpy as np
import pytest

from crawl_lib.ranks import Firsts, arcs

Pair = tuple[int, int]


def marked(pairs: list[Pair], sizes: list[int], groups: int) -> list[bool]:
    first, found, start = Firsts(groups), list[bool](), 0
    for size in sizes:
        owners, groups_of = np.array(pairs[start : start + size], np.int32).reshape(-1, 2).T
        found += first.of(owners, groups_of).tolist()
        start += size
    return found


def plainly(pairs: list[Pair]) -> list[bool]:
    return [pair not in pairs[:place] for place, pair in enumerate(pairs)]


@pytest.mark.parametrize("places", [1, 2, 8, 1 << 16])
@pytest.mark.parametrize("owners", [1, 3, 40])
def test_firsts_are_those_of_plain_python(
    monkeypatch: pytest.MonkeyPatch, places: int, owners: int
) -> None:
    """One owner has more rows than are sorted at a time; an owner's rows go on over many blocks."""
    monkeypatch.setattr(arcs, "_PLACES", places)
    chance = random.Random(owners)
    pairs = sorted(
        ((chance.randrange(owners), chance.randrange(9)) for _ in range(400)),
        key=lambda pair: pair[0],
    )
    sizes = [chance.choice([0, 1, 5, 30]) for _ in range(200)]
    assert marked(pairs, [*sizes, 400], 9) == plainly(pairs)


def test_more_groups_than_any_table_has() -> None:
    """Numbers of owners and groups have 31 bits."""
    most = (1 << 31) - 1
    pairs = [
        (0, most - 1),
        (0, most - 2),
        (0, most - 1),
        (most, 0),
        (most, most - 1),
        (most, most - 1),
    ]
    assert marked(pairs, [2, 2, 2], most) == plainly(pairs)
