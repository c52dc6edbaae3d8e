"""The index that Spark chooses the pages of is that of DuckDB; on HDFS it is made of, and asked by, verified copies."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from crawl_lib.config import Config
from crawl_lib.curate import drop_pages
from crawl_lib.duplicates import find_near
from crawl_lib.durable import KILL_VARIABLE
from crawl_lib.index import INDEX, PAGES_FILE, update_index
from crawl_lib.index.versions import LEFT_OUT_FILE
from crawl_lib.ranks import update_linkrank
from crawl_lib.search import IndexReader, IndexVersions, Sites, every_page
from crawl_lib.stores import Stores, open_stores
from crawl_lib.terms import search_terms, update_terms
from crawl_lib.versions import Version, Versions
from tests.cluster.hdfs import Hdfs
from tests.cluster.spark import LIMIT_S, spark_url, with_spark
from tests.export.crawls import CrawlMaker
from tests.forked import run_forked
from tests.index.made import NOW, Made, a, answer, linking, page
from tests.index.test_searched import CAPTURES
from tests.index.test_wanted import with_crawldb

pytestmark = pytest.mark.timeout(LIMIT_S)
LATER = [
    page(a("plain"), "A walrus has changed", time=3000.0),
    answer(a("there"), "gone", 404, time=3000.0),
    linking(a("new"), "A yak", {a("plain"): "tusks", a("chain0"): "primates"}, time=3000.0),
]


def grown(place: Path, *, spark: bool) -> list[Any]:
    """The tables of an index that grew from another one, what answers find in it, and the table of terms."""
    made = Made.below(
        place, urls={"scope": "any"}, linkrank={"within_host": True, "within_domain": True}
    )
    made.crawl(*CAPTURES)
    made.update()
    made.crawl(*LATER)
    drop_pages(made.stores, [a("zh")])
    find_near(made.stores, now=NOW)
    update_linkrank(made.stores, now=NOW)
    if spark:
        made.config = with_spark(made.config)
    version, terms = made.update(), update_terms(made.stores, now=NOW)
    assert not version.manifest["is_anew"]
    searched = search_terms(made.stores, ["walrus octopus hotels"])
    found = pages_of(made.stores, "walrus OR ocelots")
    return [
        *tables_of(made, version),
        version.manifest["pages"],
        found,
        terms.manifest["parts"],
        searched,
    ]


def tables_of(made: Made, version: Version) -> list[Any]:
    """The digests of an index version's tables, and the counts of its manifest."""
    digests = [
        sha256((made.folder(version) / name).read_bytes()).hexdigest()
        for name in (PAGES_FILE, LEFT_OUT_FILE)
    ]
    return [
        *digests,
        *(version.manifest[name] for name in ("added", "removed", "deleted", "left_out", "boosts")),
    ]


def pages_of(stores: Stores, query: str) -> list[str]:
    index = IndexReader(IndexVersions(stores), background=None).current()
    return [url for _, url in every_page(index, query, Sites({}))]


@pytest.mark.usefixtures("warm")
def test_an_index_and_terms_by_spark_are_those_of_duckdb(tmp_path: Path) -> None:
    by_spark, by_duckdb = (
        grown(tmp_path / name, spark=name == "spark") for name in ("spark", "duckdb")
    )
    assert by_spark == by_duckdb


@pytest.mark.usefixtures("warm")
def test_with_a_crawldb_an_index_by_spark_is_that_of_duckdb(tmp_path: Path) -> None:
    by_spark, by_duckdb = (with_crawldb(tmp_path / name) for name in ("spark", "duckdb"))
    by_spark.config = with_spark(by_spark.config)
    assert tables_of(by_spark, by_spark.update()) == tables_of(by_duckdb, by_duckdb.update())


def crawl_on(
    on_hdfs: Callable[[CrawlMaker], Config], maker: CrawlMaker, place: Path, *captures: Any
) -> Config:
    """A config of a crawl on HDFS with these pages."""
    maker.segment("1", "node-0", captures)
    config = on_hdfs(maker)
    return replace(config, search=replace(config.search, directory=str(place / "search")))


def killed(config: Config, step: str) -> None:
    os.environ[KILL_VARIABLE] = step
    update_index(open_stores(config), now=NOW)


def test_on_hdfs_an_index_is_made_searched_purged_and_killed(
    hdfs: Hdfs, maker: CrawlMaker, on_hdfs: Callable[[CrawlMaker], Config], tmp_path: Path
) -> None:
    """Nothing is left of a killed update after the next one."""
    config = crawl_on(on_hdfs, maker, tmp_path, *CAPTURES)
    copies = tmp_path / "search" / config.crawl.name
    stores = open_stores(config)
    assert run_forked(killed, config, "index.uploaded") == -9
    first = update_index(stores, now=NOW)
    assert [entry.name for entry in stores.storage.list(Versions(stores, INDEX).folder)] == [
        str(first.number)
    ]
    require_copy(stores, first, copies)
    assert pages_of(stores, "walrus tusks") == [a("plain")]
    assert searched_terms(stores, "walrus tusks")[0]["url"] == a("plain")
    drop_pages(stores, [a("plain")])
    second = update_index(stores, now=NOW)
    require_copy(stores, second, copies)
    assert pages_of(stores, "walrus tusks") == []
    third = update_index(stores, now=NOW, purge=True)
    require_copy(stores, third, copies)
    assert [entry.name for entry in stores.storage.list(Versions(stores, INDEX).folder)] == [
        str(third.number)
    ]


def searched_terms(stores: Stores, words: str) -> list[dict[str, Any]]:
    update_terms(stores, now=NOW)
    return search_terms(stores, [words])


def require_copy(stores: Stores, version: Version, copies: Path) -> None:
    """This machine has a copy of the version, and nothing else."""
    assert [file.name for file in copies.iterdir()] == [str(version.number)]
    digests = {
        file.name: sha256(file.read_bytes()).hexdigest()
        for file in (copies / str(version.number)).iterdir()
    }
    assert digests == {part["name"]: part["sha256"] for part in version.manifest["parts"]}
    assert Versions(stores, INDEX).check(full=True) == []


@pytest.mark.usefixtures("warm")
def test_spark_reads_and_writes_the_tables_of_an_index_on_hdfs(
    hdfs: Hdfs, maker: CrawlMaker, on_hdfs: Callable[[CrawlMaker], Config], tmp_path: Path
) -> None:
    config = crawl_on(on_hdfs, maker, tmp_path, *CAPTURES)
    expected = update_index(open_stores(config), now=NOW)
    stores = open_stores(with_spark(config, dfs_url=spark_url(hdfs, config)))
    version = update_index(stores, now=NOW, purge=True)
    parts = [
        {
            part["name"]: part["sha256"]
            for part in one.manifest["parts"]
            if part["name"].endswith(".parquet")
        }
        for one in (expected, version)
    ]
    assert parts[0] == parts[1]
    assert version.manifest["left_out"] == expected.manifest["left_out"]
