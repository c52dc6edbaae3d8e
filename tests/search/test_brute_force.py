"""The engine and an evaluator in plain Python find the same pages, with the same scores."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from crawl_lib.index import IndexedPage
from crawl_lib.search import OpenIndex, answers
from tests.search.brute import Brute
from tests.search.made import LANGUAGES, ask, opened, page

PAGES, QUERIES = 50, 1_000
WORDS = [
    "volcano",
    "volcanoes",
    "lava",
    "the",
    "die",
    "und",
    "island",
    "islands",
    "résumé",
    "resume",
    "der",
    "hot",
    "of",
]
WORDS += [f"word{number}" for number in range(25)]


def made_pages(chosen: random.Random) -> Iterator[IndexedPage]:
    weights = [1 / (rank + 1) for rank in range(len(WORDS))]
    for number in range(PAGES):

        def text(count: int) -> str:
            return " ".join(chosen.choices(WORDS, weights, k=count))

        language = chosen.choice(["en", "en", "de", "fr", "sv", None])
        anchors = tuple(text(2) for _ in range(chosen.randint(0, 4)))
        more = {
            "title": text(chosen.randint(0, 4)),
            "headings": text(chosen.randint(0, 6)),
            "anchors": anchors,
        }
        yield page(f"p{number}", text(chosen.choice([1, 5, 40, 200])), language=language, **more)


@pytest.fixture(scope="module")
def both() -> tuple[OpenIndex, Brute]:
    chosen = random.Random(36)
    pages = list(made_pages(chosen))
    boosts = {f"p{number}": chosen.choice([0.1, 1.0, 9.0]) for number in range(PAGES)}
    return opened(pages, boosts=boosts, commits=3), Brute(pages, boosts, LANGUAGES)


def test_generated_queries_find_the_same_pages_with_the_same_scores(
    both: tuple[OpenIndex, Brute], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answers, "PAGE_SIZE", PAGES)
    index, brute = both
    chosen = random.Random(37)
    found = 0
    for _ in range(QUERIES):
        words = chosen.sample(WORDS, chosen.choice([0, 1, 1, 2, 2, 3, 5]))
        words += words[:1] * chosen.choice([0, 0, 1])
        phrases = [
            " ".join(chosen.choices(WORDS[:6], k=2)) for _ in range(chosen.choice([0, 0, 0, 1]))
        ]
        minus = chosen.sample(WORDS[8:], chosen.choice([0, 0, 1]))
        query = " ".join(
            [*words, *(f'"{phrase}"' for phrase in phrases), *(f"-{word}" for word in minus)]
        )
        if not words and not phrases:
            continue
        expected = brute.answer(words, phrases, minus)
        got = {one.url: (one.score, not one.missing) for one in ask(index, query).results}
        assert got.keys() == expected.keys(), query
        for url, (score, has_all) in expected.items():
            assert got[url] == (pytest.approx(score, rel=1e-4), has_all), (query, url)
        found += bool(got)
    assert found > QUERIES // 2
