"""Sketches: what two pages have in common is what their words have in common, and nothing else counts."""

from __future__ import annotations

import random

import pytest

from crawl_lib.parse import SKETCH_BYTES, sketch

WORDS = [f"w{number}" for number in range(2000)]


def equal(one: bytes, other: bytes) -> float:
    slots = [(a, b) for a, b in zip(one, other, strict=True) if a or b]
    return sum(a == b for a, b in slots) / len(slots)


@pytest.mark.parametrize("share", [0.0, 0.5, 0.8, 0.95])
def test_the_share_of_equal_bytes_is_that_of_common_words(share: float) -> None:
    chance, found = random.Random(1), []
    for _ in range(30):
        words = chance.sample(WORDS, 600)
        common = round(600 * 2 * share / (1 + share) / 2)  # so many of 600 - common in both
        one, other = words[: 300 + common // 2], words[300 - common // 2 :]
        truth = len({*one} & {*other}) / len({*one, *other})
        found.append(
            equal(sketch(" ".join(one).encode()), sketch(" ".join(other).encode())) - truth
        )
    assert abs(sum(found) / 30) < 0.04


@pytest.mark.parametrize(
    "other",
    [
        b"three One TWO one one",
        b"<p class='four'>one<b>two</b> three</p><!-- four -->",
        b"<script>four = '<p>five'</script><style>four</style>one two three",
        b"<a href='/four'>one</a> two, three.",
    ],
)
def test_only_words_count_that_are_shown_each_once(other: bytes) -> None:
    assert sketch(other) == sketch(b"one two three")
    assert len(sketch(other)) == SKETCH_BYTES


@pytest.mark.parametrize("other", [b"one two", b"one two four", "one two dreißig".encode()])
def test_another_word_is_another_sketch(other: bytes) -> None:
    assert sketch(other) != sketch(b"one two three")


@pytest.mark.parametrize(
    "page", [b"", b"<", b"<p", b"<script>", b"\0\xff" * 9, b"<!--", b"<title>x", b"a" * 100_000]
)
def test_anything_has_a_sketch(page: bytes) -> None:
    assert len(sketch(page)) == SKETCH_BYTES
