"""A command that deletes looks first: it asks for `--yes` only where something would be lost."""

from __future__ import annotations

import pytest

from demo import Serving
from tests.cli.conftest import Krake

ASKED = "give --yes to go on"
NEVER = "http://never.example/"


@pytest.fixture
def crawled(krake: Krake, serving: Serving) -> Krake:
    krake.configure(servers=["node-a"])
    krake.ok("inject", serving.seeds[0], "--run-id", "one")
    krake.ok("crawl", "--run-id", "one", "--iterations", "1", "--batch-size", "2")
    krake.ok("settle")
    return krake


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (("segment", "drop", "nope"), 1, "nope: is neither a URL"),
        (("segment", "drop", NEVER, "f" * 40), 1, f"not found: {NEVER} is in no segment"),
        (("segment", "compact"), 0, "nothing to do: no page is dropped"),
        (("segment", "compact", "5/node-a"), 1, "there is no such iteration"),
        (("forget", NEVER), 0, "would forget 0 of 1 URLs; 1 were not known"),
        (("forget", "never.example"), 1, "no page of a host of that name"),
        (
            ("nodes", "retire", "nope", "--lost"),
            1,
            "never had a node of that name: the newest iteration had node-a",
        ),
        (
            ("nodes", "retire", "nope"),
            1,
            "never had a node of that name: the newest iteration had node-a",
        ),
    ],
)
def test_where_nothing_would_be_lost_nothing_is_asked(
    crawled: Krake, words: tuple[str, ...], code: int, says: str
) -> None:
    done = crawled(*words)
    assert says in done.out + done.err
    assert ASKED not in done.err
    assert done.code == code


def test_what_would_be_lost_is_asked_about_once_and_then_done(
    crawled: Krake, serving: Serving
) -> None:
    page = serving.seeds[0]
    for words, lost in (
        (("segment", "drop", page, NEVER), "1 page is taken out of all results for good"),
        (("segment", "compact"), "the records of dropped pages are deleted"),
        (("forget", page), f"pages of {page} become new"),
    ):
        asked = crawled(*words)
        assert (asked.code, lost in asked.err, ASKED in asked.err) == (1, True, True)
        assert asked.err.count("config: ") == 1
        done = crawled(*words, "--yes")
        assert "would drop" not in done.out + done.err
        assert done.err.count("config: ") == 1
