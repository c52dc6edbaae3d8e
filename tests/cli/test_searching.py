"""`krake search`: results for people and for programs."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from crawl_lib.cli import searching
from crawl_lib.search import OpenIndex
from crawl_lib.stores import Stores
from tests.cli.conftest import Krake
from tests.search.made import opened, page

PAGES = [
    page("one", "hot lava flows", title="Vol\x1bcano"),
    page("two", "lava\nand ash", title="", published_us=86_400_000_000),
    page("ash", "ash alone"),
]


class InMemory:
    """Versions of an index that is in memory."""

    def __init__(self, _: Stores) -> None:
        self._index = opened(PAGES, near={"two": 1, "ash": 1})

    def newest(self, bad: frozenset[int]) -> int | None:
        return None if 7 in bad else 7

    def open(self, number: int) -> OpenIndex:
        return replace(self._index, number=number)

    def verify(self, number: int) -> None:
        raise AssertionError("a command reads no whole index")


@pytest.fixture
def krake(krake: Krake, monkeypatch: pytest.MonkeyPatch) -> Krake:
    krake.configure()
    monkeypatch.setattr(searching, "IndexVersions", InMemory)
    return krake


def test_results_for_people(krake: Krake) -> None:
    out = krake.ok("search", "lava", "hot").out
    assert "1. Vol\\x1bcano\n   http://example.org/one\n   captured 2023-11-14, score " in out
    assert "*hot* *lava* flows" in out
    assert "2. http://example.org/two\n" in out
    assert "published 1970-01-02" in out
    assert "without: hot" in out
    assert "pages with all words: 1" in out


def test_notes_a_suggestion_and_near_duplicates(krake: Krake) -> None:
    out = krake.ok("search", '"ash').out
    assert "A quotation mark is missing" in out
    assert "and 1 like it: http://example.org/" in out
    found = krake("search", "lavva")
    assert (found.code, "did you mean: lava" in found.out, "no page was found" in found.out) == (
        1,
        True,
        True,
    )


def test_results_for_programs_explain_their_scores(krake: Krake) -> None:
    answer = json.loads(krake.ok("search", "--json", "--explain", "hot lava").out)
    assert (answer["total"], answer["shown"], answer["version"], answer["query"]) == (
        1,
        2,
        7,
        "hot lava",
    )
    for one in answer["results"]:
        parts = one["explanation"]
        by_words = sum(
            share["bm25"] * share["weight"] * share["times"] for share in parts["shares"]
        )
        assert one["score"] == pytest.approx(
            by_words * parts["boost_factor"] * parts["site_factor"], abs=1e-6
        )
    assert [one["missing"] for one in answer["results"]] == [[], ["hot"]]
    assert (answer["results"][0]["type"], answer["results"][0]["date_is"]) == (
        "text/html",
        "captured",
    )


def test_explanations_for_people_sum_up(krake: Krake) -> None:
    out = krake.ok("search", "--explain", "lava").out
    assert "lava in words_en: " in out
    assert "(boost 1) * 1 (site) = " in out


def test_every_page_has_a_line(krake: Krake) -> None:
    assert set(krake.ok("search", "--all", "lava").out.split()) == {
        "http://example.org/one",
        "http://example.org/two",
    }
    lines = [
        json.loads(line) for line in krake.ok("search", "--all", "--json", "ash").out.splitlines()
    ]
    assert {line["url"] for line in lines} == {"http://example.org/two", "http://example.org/ash"}
    assert krake("search", "--all", "nothing").code == 1


def test_before_the_first_index_a_search_says_what_to_do(
    krake: Krake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    assert "there is no index yet" in krake("search", "lava").error()


def test_a_site_in_the_config_must_be_a_host(krake: Krake) -> None:
    krake.configure(search={"sites": [{"site": "a%b", "factor": 0}]})
    assert "search.sites: 'a%b' is no host and no domain" in krake("search", "lava").error()
