"""`krake score update`: the CrawlDb's scores are the ranks of an export's pages, in their order."""

from __future__ import annotations

import dataclasses
import os
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from crawl_lib.config import Config, LinkRankConfig
from crawl_lib.crawldb import filter_crawldb, update
from crawl_lib.crawldb.table import CRAWLDB
from crawl_lib.durable import KILL_VARIABLE
from crawl_lib.errors import InputError, PathNotFoundError
from crawl_lib.ranks import LINKRANK, update_score, update_score_by_links
from crawl_lib.ranks.score import scores_of
from crawl_lib.repair import sweep
from crawl_lib.storage import open_storage
from crawl_lib.stores import Stores
from crawl_lib.versions import Version, Versions
from tests.crawldb.crawls import Crawl, Visit
from tests.crawldb.tables import NOW, at, leave_version, row_of
from tests.export.conftest import crawl, storage
from tests.export.crawls import CrawlMaker
from tests.forked import run_forked
from tests.ranks.test_exported import LINKS, exported, table
from tests.stores import stores_on

__all__ = ["crawl", "storage"]
LACKING = "http://d.example/"


@pytest.fixture
def stores(storage: Any, config: Config, crawl: CrawlMaker) -> Stores:
    """An export, and a CrawlDb of its pages and of one that it lacks."""
    found = stores_on(storage, config)
    exported(found, crawl)
    leave_version(found, 1, [row_of(url, score=Decimal("0.5")) for url in [*LINKS, LACKING]])
    return found


def scores(stores: Stores, version: Version) -> dict[str, Decimal]:
    found: dict[str, Decimal] = {}
    for path in version.paths:
        with stores.storage.open_read(path) as file:
            found |= {row["url"]: row["score"] for row in pq.read_table(file).to_pylist()}
    return found


def test_scores_are_ranks_times_pages_and_0_where_the_graph_lacks_the_url(stores: Stores) -> None:
    version = update_score(stores, export="x", now=at(NOW))
    ranks = table(stores, "pages")
    wanted = {
        url: Decimal(round(rank * len(ranks) * 10**9)).scaleb(-9) for url, rank in ranks.items()
    }
    assert scores(stores, version) == {**wanted, LACKING: Decimal(0)}
    assert abs(sum(wanted.values()) / len(wanted) - 1) < Decimal("1e-8")


def test_the_same_ranks_make_no_other_version(stores: Stores) -> None:
    assert [update_score(stores, export="x", now=at(NOW + later)).number for later in (0, 5)] == [
        2,
        2,
    ]


def updated(stores: Stores, by_links: bool) -> Version:
    if by_links:
        return update_score_by_links(stores, now=at(NOW))
    return update_score(stores, export="x", now=at(NOW))


def update_and_die(config: Config, step: str, by_links: bool) -> None:
    os.environ[KILL_VARIABLE] = step
    updated(stores_on(open_storage(config), config), by_links)


@pytest.mark.parametrize("step", ["versions.written", "versions.renamed"])
@pytest.mark.parametrize("by_links", [False, True], ids=["export", "links"])
def test_killed_and_run_again_the_scores_are_the_same(
    stores: Stores, config: Config, step: str, by_links: bool
) -> None:
    """And once more, when nothing is left of the killed one. Of links the step is that of their ranks, made first."""
    assert run_forked(update_and_die, config, step, by_links) == -9
    version = updated(stores, by_links)
    found = scores(stores, version)
    stores.storage.delete(version.path)
    assert scores(stores, updated(stores, by_links)) == found
    sweep(stores)
    folder = Versions(stores, CRAWLDB).folder
    assert not [entry.name for entry in stores.storage.list(folder) if entry.name.startswith(".")]


def test_link_ranks_are_scores_as_they_are(stores: Stores) -> None:
    stores = dataclasses.replace(
        stores,
        config=dataclasses.replace(
            stores.config, linkrank=LinkRankConfig(within_host=True, within_domain=True)
        ),
    )
    version = update_score_by_links(stores, now=at(NOW))
    ranks = Versions(stores, LINKRANK)
    wanted = dict.fromkeys([*LINKS, LACKING], Decimal(0))
    for batch in ranks.batches(ranks.newest(), ["url", "rank"]):
        wanted |= {
            row["url"]: Decimal(round(row["rank"] * 10**9)).scaleb(-9) for row in batch.to_pylist()
        }
    found = scores(stores, version)
    assert found == {url: wanted[url] for url in found}
    assert sum(score > 0 for score in found.values()) > 1
    assert update_score_by_links(stores, now=at(NOW + 5)).number == version.number


@pytest.mark.parametrize("by_links", [False, True], ids=["export", "links"])
def test_an_update_keeps_a_rank_until_the_next_one(stores: Stores, by_links: bool) -> None:
    """Links hand nothing on meanwhile: what is new has no rank yet. Seeds have what their lines say."""
    ranked = scores(stores, updated(stores, by_links))
    best, new, seed = (
        max(ranked, key=lambda url: ranked[url]),
        "http://new.example/",
        "http://seed.example/",
    )
    hand_made = Crawl(stores)
    hand_made.seeds(f"{seed}\tscore=3")
    links = [new, LACKING, *LINKS]
    hand_made.segment(
        2_000_000_000, [Visit(best, links=links, more={"depth": 1}), Visit(seed, links=links)]
    )
    for _ in range(2):
        grown = update(stores, now=at(NOW))
        assert scores(stores, grown) == {**ranked, new: Decimal(0), seed: Decimal(3)}
        hand_made.segment(2_000_000_000 + grown.number, [Visit(LACKING, links=links)])
    assert set(scores(stores, filter_crawldb(stores, now=at(NOW))).values()) >= set(ranked.values())
    again = updated(stores, by_links)
    assert again.number > grown.number
    assert scores(stores, again)[seed] != Decimal(3)


def test_scores_keep_order_and_fit_the_column() -> None:
    values = np.array(
        [0.0, 4e-10, 6e-10, 0.15, 0.1500000006, 1.0, 123456789.5, 999_999_999.9999, 1e12]
    )
    found = scores_of(values).to_pylist()
    texts = ["0", "0", "1E-9", "0.15", "0.150000001", "1", "123456789.5"]
    assert found[:7] == [Decimal(text) for text in texts]
    assert found == sorted(found)
    assert found[-1] == Decimal("999999999.999999999")


def test_what_is_missing_is_named(storage: Any, config: Config, crawl: CrawlMaker) -> None:
    stores = stores_on(storage, config)
    with pytest.raises(PathNotFoundError, match="there is no such export"):
        update_score(stores, export="x", now=at(NOW))
    exported(stores, crawl)
    with pytest.raises(InputError, match="there is no version yet; run an update first"):
        update_score(stores, export="x", now=at(NOW))
