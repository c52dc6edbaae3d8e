"""How good answers are, with floors that a change may not fall below; `make bench PARTS=search` has more."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any

import pytest

from benchmarks.known import POSTGRESQL, PYTHON, Docs, read_web
from benchmarks.search import FLOORS, mean_reciprocal_rank, write_index
from crawl_lib.search import OpenIndex, SearchOptions, Weights, answers, open_index, ranked
from crawl_lib.urls import key_of
from tests.search.judged import average_precision, documents, ndcg, queries
from tests.search.made import LANGUAGES, NO_SITES, NOW_US, opened

ENTRIES = 200
WORDS_ALONE = Weights(fields={"words": 1.0})


@pytest.fixture(scope="module")
def cisi() -> OpenIndex:
    return opened(documents())


def judged(index: OpenIndex, **wanted: Any) -> tuple[float, float]:
    """Means of nDCG at 10, and of average precision over all results."""
    values = []
    numbers = {key_of(f"http://example.org/{number}"): str(number) for number in range(1, 1_461)}
    for query, relevant in queries():
        found = ranked(index, query, NO_SITES, SearchOptions(**wanted), NOW_US)
        results = [numbers[one.fact.key] for one in found]
        values.append((ndcg(results, relevant), average_precision(results, relevant)))
    return mean(one for one, _ in values), mean(one for _, one in values)


def test_judged_queries(cisi: OpenIndex, monkeypatch: pytest.MonkeyPatch) -> None:
    """Precision is averaged over all results, so none is cut."""
    monkeypatch.setattr(answers, "CANDIDATES", 1_460)
    gain, precision = judged(cisi)
    assert gain >= 0.385
    assert precision >= 0.218
    assert judged(cisi, is_broader=True)[1] >= 0.24
    assert judged(cisi, weights=WORDS_ALONE)[0] < gain


@dataclass(frozen=True)
class Known:
    """The index of a documentation, and what is worth what on it."""

    docs: Docs
    index: OpenIndex
    urls: dict[bytes, str]

    @classmethod
    def of(cls, docs: Docs, folder: Path) -> Known:
        if not docs.is_there:
            pytest.skip(f"{docs.folder} is not there: a documentation package of Debian")
        web = read_web([docs])
        boosts = web.boosts()
        write_index(folder, ((page, boosts[page.url]) for page in web.linked()))
        return cls(
            docs, open_index(folder, 1, LANGUAGES), {page.key: page.url for page in web.pages}
        )

    def rank(self, **weights: Any) -> float:
        return mean_reciprocal_rank(
            self.index, self.docs, self.urls, ENTRIES, SearchOptions(weights=Weights(**weights))
        )


@pytest.fixture(scope="module")
def postgresql(tmp_path_factory: pytest.TempPathFactory) -> Known:
    return Known.of(POSTGRESQL, tmp_path_factory.mktemp("known") / "index")


def test_known_items_of_postgresql(postgresql: Known) -> None:
    assert postgresql.rank() >= FLOORS[POSTGRESQL]


@pytest.mark.slow
def test_known_items_of_python(tmp_path: Path) -> None:
    assert Known.of(PYTHON, tmp_path / "index").rank() >= FLOORS[PYTHON]


@pytest.mark.parametrize(
    "without",
    [{"fields": {"words": 1.0, "title": 0.25}}, {"boost": 0.0}, {"all_words_first": False}],
    ids=str,
)
def test_anchors_boost_and_all_words_first_are_each_worth_something(
    postgresql: Known, without: dict[str, Any]
) -> None:
    """Titles are, among the judged queries."""
    assert postgresql.rank(**without) < postgresql.rank()
