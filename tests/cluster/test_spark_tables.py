"""The CrawlDb, lists, scores, links, ranks and duplicates that Spark makes have the bytes of those of DuckDB.

Spark is started once for all of them.
"""

from __future__ import annotations

import random
import shutil
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from crawl_lib.config import Config, from_mapping
from crawl_lib.crawldb import explain, generate, host_statistics, newest_version, update
from crawl_lib.curate import drop_pages
from crawl_lib.duplicates import find_mirrors, find_near, find_templates, mark_duplicates
from crawl_lib.linkdb import LINKDB, OUTLINKS, update_linkdb
from crawl_lib.ranks import LINKRANK, update_linkrank
from crawl_lib.statistics import StatisticsFiles, update_statistics
from crawl_lib.storage import open_storage
from crawl_lib.stores import Stores, open_stores
from crawl_lib.terms import search_terms, update_terms
from tests.cluster.spark import LIMIT_S, with_spark
from tests.crawldb import tables
from tests.crawldb.crawls import Crawl, Visit
from tests.crawldb.tables import leave_version
from tests.crawldb.test_determinism import grow, sums
from tests.crawldb.test_generate import config_of, make, some_rows, with_generate
from tests.crawldb.test_six_pages import HOME, ROUNDS
from tests.crawldb.test_update import DAY, NOW, A, B, C, T
from tests.duplicates.web import FOLDER, leave, make_web
from tests.export.crawls import key
from tests.linkdb import tables as linked
from tests.linkdb import test_determinism as links
from tests.scoring.simulation import Simulation, Web, as_simulated, rounds
from tests.scoring.test_plugins import halved, plugin
from tests.scoring.wheel import give_wheel
from tests.statistics.served import BEGIN, collect, service_config, some_requests, some_shares
from tests.statistics.served import leave as leave_served
from tests.stores import stores_on

pytestmark = [pytest.mark.timeout(LIMIT_S), pytest.mark.usefixtures("warm")]


def test_an_update_by_spark_is_that_of_duckdb(tmp_path: Path) -> None:
    """With seeds, several captures of a page, redirects, rules, orphans, links of older segments, and requisites."""
    found = []
    for name in ("duckdb", "spark"):
        (tmp_path / name).mkdir()
        rules = [
            {"status": "gone", "fixed_s": 77},
            {"kind": "domain", "value": "7.example", "max_s": 99},
        ]
        schedule = {"kind": "adaptive", "rules": rules, "sitemaps": True}
        options = {
            "servers": ["node-a"],
            "dfs_primary": "dfs",
            "urls": {"scope": "any"},
            "schedule": schedule,
        }
        config = from_mapping({**options, "scratch": {"directory": "scratch"}}, tmp_path / name)
        crawl = Crawl(stores_on(open_storage(config), config))
        crawl.seeds(f"{HOME}\tmax_depth=9")
        grow(crawl, 3, pages=300)
        for folder, visits in ROUNDS[:2]:
            crawl.segment(folder + 3 * DAY, visits)
        update(crawl.stores, now=NOW)
        crawl.seeds(f"{A}\tinterval_fixed_s=60\n{HOME}", "another run")
        crawl.segment(ROUNDS[2][0], ROUNDS[2][1])
        crawl.segment(
            T + 50 * DAY, [Visit(HOME, "timeout", retry_s=9), Visit(A, "redirect", redirect_url=B)]
        )
        needs = [f"{A}s.css", f"{A}t.css"]
        moved = Visit(needs[1], "redirect", redirect_url=f"{A}u.css", more={"hop": "E", "depth": 1})
        crawl.segment(T + 55 * DAY, [Visit(B, body="b", needs=needs), moved])
        crawl.segment(T + 56 * DAY, [Visit(needs[0], body="s", more={"hop": "E", "depth": 1})])
        said = {"element": "loc", "rel": f"lastmod={T + 60 * DAY} every_s=90 priority=0.123456789"}
        robots = {"source": key(f"{HOME}robots.txt"), "element": "robots"}
        crawl.segment(T + 60 * DAY, [Visit(B, links=[HOME, A, C, f"{HOME}only"], link=said)])
        crawl.segment(T + 61 * DAY, [Visit(HOME, links=[f"{HOME}map"], link=robots)])
        if name == "spark":
            crawl = replace(crawl, stores=replace(crawl.stores, config=with_spark(config)))
        update(crawl.stores, now=NOW)
        version = newest_version(crawl.stores)
        assert version is not None
        found.append(
            (
                sums(crawl.stores),
                len(crawl.rows()),
                list(host_statistics(crawl.stores, version, now=NOW)),
            )
        )
    assert found[0] == found[1]
    assert found[0][1] > 300
    assert len(found[0][2]) > 40


def test_tables_of_links_by_spark_are_those_of_duckdb(tmp_path: Path) -> None:
    """A version on top of another one, with pages that changed, are gone, or were dropped, and with rules."""
    found = []
    for name in ("duckdb", "spark"):
        (tmp_path / name).mkdir()
        urls = {"scope": "any", "normalizers": {"linkdb": [{"kind": "query"}]}}
        options = {
            "servers": ["node-a"],
            "dfs_primary": "dfs",
            "urls": urls,
            "linkdb": {"max_inlinks": 12},
        }
        config = from_mapping({**options, "scratch": {"directory": "scratch"}}, tmp_path / name)
        crawl = Crawl(stores_on(open_storage(config), config))
        links.grow(crawl, 2, pages=300)
        crawl.segment(
            T + 5 * DAY,
            [
                Visit(linked.A, links=[linked.B, f"{linked.C}?b&a"]),
                Visit(linked.B, links=[linked.A]),
            ],
        )
        update_linkdb(crawl.stores, now=NOW)
        drop_pages(crawl.stores, [linked.B])
        crawl.segment(
            T + 6 * DAY,
            [
                Visit(linked.A, links=[(linked.C, "Ä"), (linked.C, "")]),
                Visit(linked.C, links=[linked.A, "http://only.test/"]),
            ],
        )
        if name == "spark":
            crawl = replace(crawl, stores=replace(crawl.stores, config=with_spark(config)))
        update_linkdb(crawl.stores, now=NOW)
        update_linkrank(crawl.stores, now=NOW)
        made = links.sums(crawl, OUTLINKS, LINKDB, LINKRANK)
        rank = replace(config.linkrank, drop_reciprocal=True, drop_triangles=True)
        changed = replace(crawl.stores.config, linkrank=rank)
        update_linkrank(replace(crawl.stores, config=changed), now=NOW)
        found.append([*made, *links.sums(crawl, LINKRANK)])
    assert found[0] == found[1]
    assert len(set(found[0])) == 4


def test_a_list_of_spark_is_that_of_duckdb(tmp_path: Path) -> None:
    """With leases, filters, traps, budgets and all limits, on the rows of two versions."""
    rows = some_rows(random.Random(5), 300)
    rows += [
        tables.row_of(f"http://dates.test/?month={number}", depth=1, score=Decimal(1))
        for number in range(6)
    ]
    made: list[tuple[Any, ...]] = []
    for name in ("duckdb", "spark"):
        urls = {"rules": [{"action": "-", "kind": "suffix", "value": ".zip"}], "max_depth": 4}
        urls |= {"max_pages_per_host": 11, "max_hosts_per_domain": 2, "max_pages_per_domain": 18}
        config = config_of(
            tmp_path / name, 3, batch={"size": 20}, urls=urls, traps={"max_dates": 3}
        )
        (tmp_path / name).mkdir()
        leave_version(open_stores(config), 1, rows)
        make(with_generate(config, top_n=30), 1, tables.NOW - DAY)
        config = replace(
            config, scratch=replace(config.scratch, directory=str(tmp_path / name / "scratch"))
        )
        config = with_generate(
            config, order="score", min_score=0.6, statuses=("unfetched", "gone"), max_per_host=5
        )
        config = with_generate(
            config, max_per_domain=9, spread=True, top_n=40, max_per_failing_host=2
        )
        config = with_spark(config) if name == "spark" else config
        result = make(config, 2)
        folder = Path(config.dfs_primary) / "crawl" / "lists" / result.list
        reason = explain(open_stores(config), rows[0]["url"])
        made.append(
            (
                result.counts,
                (folder / "outlinks").read_bytes(),
                (folder / "listed.parquet").read_bytes(),
                reason,
            )
        )
    assert made[0] == made[1]
    assert made[0][0]["listed"] > 0
    ranked = {"trap", "host_pages", "domain_hosts", "domain_pages"}
    assert ranked < made[0][0].keys()
    assert len(made[0][0]) >= 11, "so many reasons"


def test_duplicates_by_spark_are_those_of_duckdb(tmp_path: Path) -> None:
    expected = [
        results(crawl_of(tmp_path / f"duckdb-{order}", order)) for order in ("fifo", "crawldb")
    ]
    assert all(all(found) for found in expected)
    crawls = [crawl_of(tmp_path / f"spark-{order}", order) for order in ("fifo", "crawldb")]
    assert [
        results(replace(stores, config=with_spark(stores.config))) for stores in crawls
    ] == expected


def small_config_of(place: Path, order: str) -> Config:
    (place / "dfs").mkdir(parents=True)
    options = {"servers": ["node-a"], "dfs_primary": "dfs", "scratch": {"directory": "scratch"}}
    more = {
        "frontier": {"order": order},
        "urls": {"scope": "any"},
        "duplicates": {"near": True, "cosine": 0.88},
    }
    return from_mapping({**options, **more}, place)


def crawl_of(place: Path, order: str) -> Stores:
    """Two iterations, in the second of which some pages have moved on to other texts."""
    config = small_config_of(place, order)
    stores = stores_on(open_storage(config), config)
    texts = make_web(5, mirrors=3, pairs=30, templates=2, others=20).texts
    leave(stores, texts)
    leave(
        stores,
        dict(zip(list(texts)[10:40], list(texts.values())[40:70], strict=True)),
        FOLDER + DAY,
    )
    if order == "crawldb":
        update(stores, now=NOW)
    return stores


def results(stores: Stores) -> list[object]:
    """Each query once."""
    if not stores.config.order.has_crawldb:
        words = " ".join(f"word{number}" for number in range(0, 300, 50))
        return [
            find_mirrors(stores),
            update_terms(stores, now=NOW).manifest["parts"],
            search_terms(stores, [words]),
        ]
    near, marked = find_near(stores, now=NOW), mark_duplicates(stores, now=NOW)
    counts = [near.manifest["groups"], marked.manifest["statuses"]["duplicate"]]
    return [near.manifest["parts"], marked.manifest["parts"], *counts, find_templates(stores)]


def test_an_update_and_a_list_by_spark_are_those_of_duckdb(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    give_wheel(tmp_path / "site", monkeypatch)
    plugin(
        monkeypatch,
        "halved",
        injected=staticmethod(halved),
        sort_value="sort_value + sqrt(score) / 3",
    )
    found = []
    for name in ("duckdb", "spark"):
        (tmp_path / name).mkdir()
        options = {"servers": ["node-a"], "dfs_primary": "dfs", "urls": {"scope": "any"}}
        scoring = {"plugins": ["halved", "opic", "depth", "titled"], "max_depth": 3}
        options |= {
            "frontier": {"order": "crawldb"},
            "generate": {"order": "score", "top_n": 20},
            "scoring": scoring,
        }
        config = from_mapping({**options, "scratch": {"directory": "scratch"}}, tmp_path / name)
        crawl = Crawl(stores_on(open_storage(config), config))
        for number, _ in enumerate(rounds(crawl, Simulation(3, False), Web(7, size=20))):
            if number in {0, 2}:
                update(crawl.stores, now=NOW)
        noted = {"metadata": '{"scoring": {"titled": 1.0, "was_worth": 0.333333333}}'}
        crawl.segment(T + 9 * DAY, [Visit(A, body="new", links=[B], more=noted)])
        if name == "spark":
            crawl = replace(crawl, stores=replace(crawl.stores, config=with_spark(config)))
        update(crawl.stores, now=NOW)
        made = generate(crawl.stores, "run", 1, now=NOW)
        lists = crawl.root / "lists" / made.list
        found.append(
            (
                sums(crawl.stores),
                as_simulated(crawl),
                made.counts,
                (lists / "outlinks").read_bytes(),
            )
        )
    assert found[0] == found[1]


def test_statistics_by_spark_are_those_of_duckdb(tmp_path: Path) -> None:
    (tmp_path / "duckdb").mkdir()
    config, rng = service_config(tmp_path / "duckdb"), random.Random(43)
    for hour in (22, 23):
        leave_served(
            config, some_requests(200, rng, hour=hour), some_shares(50, rng, hour=hour), number=hour
        )
        collect(config, hour=hour + 1.02)
    shutil.copytree(tmp_path / "duckdb", tmp_path / "spark")
    spark = service_config(tmp_path / "spark")
    found = []
    for stores in (open_stores(config), open_stores(with_spark(spark))):
        update_statistics(stores, hour=BEGIN + timedelta(hours=23), now=BEGIN + timedelta(hours=25))
        versions = [*StatisticsFiles(stores).all()]
        found.append({one.path: stores.storage.read_bytes(one.path) for one in versions})
    assert found[0] == found[1]
    assert len(found[0]) == 3
