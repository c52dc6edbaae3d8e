"""OPIC and depth over five rounds are what plain Python says; the same bytes with one thread and two."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from crawl_lib.config import Config
from crawl_lib.crawldb import rebuild, update
from crawl_lib.storage import open_storage
from tests.crawldb.crawls import Crawl, Visit
from tests.crawldb.tables import leave_version, row_of
from tests.crawldb.test_determinism import grow, sums
from tests.crawldb.test_generate import config_of, lines_of, make
from tests.crawldb.test_update import DAY, NOW, A, B, C, T
from tests.engine.threads import use_threads
from tests.scoring.simulation import Simulation, Web, as_simulated, rounds
from tests.stores import stores_on


def crawl_with(config: Config, *plugins: str, **options: Any) -> Crawl:
    config = replace(config, scoring=replace(config.scoring, plugins=plugins, **options))
    return Crawl(stores_on(open_storage(config), config))


def scores(crawl: Crawl) -> dict[str, float]:
    update(crawl.stores, now=NOW)
    return {url: float(row["score"]) for url, row in crawl.rows().items()}


@pytest.mark.parametrize("gives", ["changed", "always"])
def test_five_rounds_are_those_of_the_simulation(config: Config, gives: str) -> None:
    crawl = crawl_with(config, "opic", "depth", max_depth=3, opic_gives=gives)
    simulation = Simulation(max_depth=3, gives_always=gives == "always")
    for _ in rounds(crawl, simulation, Web(7)):
        update(crawl.stores, now=NOW)
        assert as_simulated(crawl) == (simulation.scores, simulation.depths)
    assert len(simulation.scores) > 20
    assert max(simulation.depths.values()) == 3
    assert sum(simulation.scores.values()) > 4 * 10**9


def test_one_thread_and_two_give_the_same_bytes(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of shares that are added in any order."""
    crawl = crawl_with(config, "opic", "depth")
    grow(crawl, 2, 600)
    found = []
    for threads in (1, 2):
        use_threads(monkeypatch, threads)
        rebuild(crawl.stores, now=NOW)
        found.append(sums(crawl.stores))
    assert found[0] == found[1]


def test_a_page_gives_once_for_each_content_and_a_redirect_all_it_has(config: Config) -> None:
    crawl = crawl_with(config, "opic")
    crawl.seeds(f"{A}\n{B}\tscore=0.5")
    assert scores(crawl) == {A: 1, B: 0.5}
    crawl.segment(T, [Visit(A, body="x", links=[B, C, A]), Visit(B, "redirect", redirect_url=C)])
    assert scores(crawl) == {A: 1, B: 1, C: 1}
    crawl.segment(T + DAY, [Visit(A, body="x", links=[B, C]), Visit(B, "redirect", redirect_url=C)])
    assert scores(crawl) == {A: 1, B: 1, C: 1}
    crawl.segment(T + 2 * DAY, [Visit(A, body="y", links=[C])])
    assert scores(crawl) == {A: 1, B: 1, C: 2}


def test_links_beyond_the_depth_add_no_row_and_a_seed_may_say_another_one(config: Config) -> None:
    crawl = crawl_with(config, "depth", max_depth=0)
    crawl.seeds(f"{A}\n{B}\tmax_depth=1")
    of_seed = {"metadata": '{"max_depth": "1"}'}
    update(crawl.stores, now=NOW)
    crawl.segment(
        T, [Visit(A, body="x", links=[f"{A}x"]), Visit(B, body="x", links=[C], more=of_seed)]
    )
    assert scores(crawl) == {A: 1, B: 1, C: 1}, "pages still have the score of what links to them"


def test_a_rank_is_not_handed_on(config: Config) -> None:
    crawl = crawl_with(config, "linkrank")
    crawl.seeds(f"{A}\tscore=3")
    crawl.segment(T, [Visit(A, body="x", links=[B])])
    assert scores(crawl) == {A: 3, B: 0}


def test_a_list_takes_what_the_chain_is_worth(tmp_path: Path) -> None:
    """By score alone the deep page is first; by depth too it is not."""
    rows = [row_of(A, score=Decimal(2), depth=9), row_of(B, score=Decimal(1), depth=0)]
    for number, (plugins, first) in enumerate(
        {(): A, ("linkrank",): A, ("linkrank", "depth"): B}.items()
    ):
        config = config_of(
            tmp_path / str(number),
            generate={"order": "score", "top_n": 1},
            scoring={"plugins": list(plugins), "max_depth": 9},
        )
        Path(config.dfs_primary).parent.mkdir()
        crawl = Crawl(stores_on(open_storage(config), config))
        leave_version(crawl.stores, 1, rows)
        assert [line.url for line in lines_of(config, make(config).list)] == [first]
