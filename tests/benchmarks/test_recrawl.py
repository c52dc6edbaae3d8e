"""The simulated years: Krake visits what the model of its schedule says, and the adaptive one keeps its promise."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.recrawl import DAYS as DAYS_OF_ALL
from benchmarks.recrawl import PAGES as MANY
from benchmarks.recrawl import SEEDS, Web, Years, freshness, simulate

PAGES, DAYS, A_ROUND = 60, 16, 20


@pytest.mark.parametrize("kind", ["adaptive", "fixed"])
def test_krake_visits_what_the_model_visits_each_day(kind: str, tmp_path: Path) -> None:
    webs, models = ([Web(PAGES, seed) for seed in range(2)] for _ in range(2))
    expected = [
        [visits.tolist() for visits in simulate(model, kind, DAYS, A_ROUND)] for model in models
    ]
    found = [
        [pages.tolist() for pages in visits]
        for visits in Years(tmp_path, webs, kind, A_ROUND).days(DAYS)
    ]
    assert found == [list(day) for day in zip(*expected, strict=True)]
    assert [web.end(DAYS) for web in webs] == [model.end(DAYS) for model in models]
    visits = [page for of_web in found for page in of_web[0]]
    assert max(map(visits.count, range(PAGES))) > 1


@pytest.mark.parametrize("seed", range(SEEDS))
def test_for_as_many_fetches_adaptive_is_fresher_and_less_old(seed: int) -> None:
    adaptive, fixed = freshness("adaptive", seed), freshness("fixed", seed)
    assert adaptive.fetches == fixed.fetches
    assert adaptive.fresh >= fixed.fresh + 0.02
    assert adaptive.age_days <= 0.85 * fixed.age_days


def test_without_a_limit_adaptive_loses_where_pages_change_faster_than_rounds_come() -> None:
    adaptive = freshness("adaptive", 0, fastest_days=1 / 1440, a_round=MANY)
    as_many = round((adaptive.fetches - MANY) / (DAYS_OF_ALL - 1))
    fixed = freshness("fixed", 0, fastest_days=1 / 1440, a_round=as_many)
    assert fixed.fetches == pytest.approx(adaptive.fetches, rel=0.001)
    assert adaptive.fresh < fixed.fresh - 0.02
    assert adaptive.age_days > fixed.age_days
