"""How good answers are, with floors that a change may not fall below; `make bench PARTS=search` has more."""

from __future__ import annotations

from pathlib import Path
from statistics import mean
from typing import Any

import pytest

from benchmarks.known import POSTGRESQL, read_web
from benchmarks.search import mean_reciprocal_rank, write_index
from crawl_lib.search import OpenIndex, Wanted, Weights, answers, open_index, ranked
from crawl_lib.urls import key_of
from tests.search.judged import average_precision, documents, ndcg, queries
from tests.search.made import LANGUAGES, NO_SITES, NOW_US, opened

WORDS_ALONE = Weights(fields={"words": 1.0})


@pytest.fixture(scope="module")
def cisi() -> OpenIndex:
    return opened(documents())


def judged(index: OpenIndex, **wanted: Any) -> tuple[float, float]:
    """Means of nDCG at 10, and of average precision over all results."""
    values = []
    numbers = {key_of(f"http://example.org/{number}"): str(number) for number in range(1, 1_461)}
    for query, relevant in queries():
        found = ranked(index, query, NO_SITES, Wanted(**wanted), NOW_US)
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


@pytest.mark.skipif(not POSTGRESQL.is_there, reason="the Debian package postgresql-doc-15 is needed")
def test_known_items(tmp_path: Path) -> None:
    """Title, anchors, boost and the order of pages with all words are each worth something on their own pages."""
    web = read_web([POSTGRESQL])
    pages, boosts, urls = web.linked(), web.boosts(), {page.key: page.url for page in web.pages}
    write_index(tmp_path / "index", ((page, boosts[page.url]) for page in pages))
    index = open_index(tmp_path / "index", 1, LANGUAGES)
    assert mean_reciprocal_rank(index, POSTGRESQL, urls, 300) >= 0.66
