"""Many rounds in one update: as many queries as for two, and the scores that one update a round gives."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

import pytest

from crawl_lib.config import Config
from crawl_lib.crawldb import rebuild, update
from crawl_lib.engine.duck import Duck
from crawl_lib.storage import open_storage
from tests.crawldb.crawls import Crawl, Visit
from tests.crawldb.test_update import DAY, NOW, T
from tests.stores import stores_on


def url_of(number: int) -> str:
    return f"http://a.example/{number}"


def queries_of(config: Config, rounds: int, monkeypatch: pytest.MonkeyPatch) -> int:
    """Rebuild a crawl of so many rounds, each with new pages; returns how many queries that takes."""
    crawl = Crawl(stores_on(open_storage(config), config))
    for number in range(rounds):
        crawl.seeds(f"http://seed.example/{number}\tscore={number}", f"run {number}")
        crawl.segment(
            T + number * DAY,
            [Visit(url_of(number), links=[url_of(number + 1)], more={"depth": number})],
        )
    asked = []
    whole = Duck._whole
    with monkeypatch.context() as patch:
        patch.setattr(Duck, "_whole", lambda duck, query: asked.append(query) or whole(duck, query))
        rows = crawl.rows(rebuild(crawl.stores, now=NOW))
    assert len(rows) == 2 * rounds + 1
    return len(asked)


def test_many_rounds_take_as_many_queries_as_two(
    config: Config, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A query for each round would cost 0.08 s of CPU a round."""
    other = replace(config, dfs_primary=tmp_path_factory.mktemp("dfs").as_posix())
    assert queries_of(config, 2, monkeypatch) == queries_of(other, 40, monkeypatch)


PRIORITIES = ["0.5", "0.333333333", "1.0", "0", "0.000000001"]
SCORES = ["0.000000001", "-0.000000003", "999999999.999999999", "-999999999.999999999", "7"]


def test_the_priority_of_a_sitemap_is_rounded_as_in_one_update_a_round(config: Config) -> None:
    """Chains of pages, one for each score, of which each page hands on the score that it was given."""
    crawl = Crawl(
        stores_on(
            open_storage(config), replace(config, schedule=replace(config.schedule, sitemaps=True))
        )
    )
    chains = {
        score: [f"http://{place}.example/{page}" for page in range(6)]
        for place, score in enumerate(SCORES)
    }
    crawl.seeds("\n".join(f"{urls[0]}\tscore={score}" for score, urls in chains.items()))
    for number, priority in enumerate(PRIORITIES):
        link, more = {"element": "loc", "rel": f"priority={priority}"}, {"depth": number}
        visits = [
            Visit(urls[number], links=[urls[number + 1]], link=link, more=more)
            for urls in chains.values()
        ]
        crawl.segment(T + number * DAY, visits)
        grown = update(crawl.stores, now=NOW)
    rows = crawl.rows(grown)
    assert crawl.rows(rebuild(crawl.stores, now=NOW)) == rows
    for score, urls in chains.items():
        wanted = [Decimal(score)]
        for priority in PRIORITIES:
            wanted.append(
                (wanted[-1] * Decimal(priority)).quantize(Decimal("1e-9"), "ROUND_HALF_UP")
            )
        assert [rows[url]["score"] for url in urls] == wanted
