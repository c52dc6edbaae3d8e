"""Rows that C makes of links, from any bytes, are those of a plain reader."""

from __future__ import annotations

import pytest

from tests.parse import fuzzed_rows
from tests.parse.driver import Driver


@pytest.mark.parametrize("first", range(0, 2000, 500))
def test_mutated_links_are_read_alike_under_sanitizers(driver: Driver, first: int) -> None:
    try:
        fuzzed_rows.check(driver, range(first, first + 500))
    except AssertionError as error:
        raise AssertionError(
            f"python -m tests.parse.fuzzed_rows --first {first} --seeds 500: {error}"
        ) from error


def test_every_cut_of_links_is_read(driver: Driver) -> None:
    """Nothing behind their end is looked at, and a link that is not whole does not count."""
    links = b"ax#1\0text\0nofollow\0My\0\0\0lz\0\0next\0"
    pages = [fuzzed_rows.Page(links[:length], 0, "f/") for length in range(len(links) + 1)]
    plain = fuzzed_rows.Plain()
    for page, answer in zip(pages, driver.rows(pages), strict=True):
        assert fuzzed_rows._handed_on(answer.data)[1] == plain.answer(page)[0]
