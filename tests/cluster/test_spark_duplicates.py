"""Near duplicates, statuses and reports that Spark makes are those of DuckDB, byte by byte."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from crawl_lib.config import Config, from_mapping
from crawl_lib.crawldb import update
from crawl_lib.duplicates import find_mirrors, find_near, find_templates, mark_duplicates
from crawl_lib.engine import Room, open_engine
from crawl_lib.storage import LocalStorage, open_storage
from crawl_lib.stores import Stores
from tests.cluster.spark import LIMIT_S, keep_warm, with_spark
from tests.crawldb.test_update import DAY, NOW
from tests.duplicates.web import FOLDER, leave, make_web
from tests.stores import stores_on

pytestmark = pytest.mark.timeout(LIMIT_S)


def test_duplicates_by_spark_are_those_of_duckdb(
    many_tasks: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = [results(crawl_of(tmp_path / f"duckdb-{order}", order)) for order in ("fifo", "crawldb")]
    assert all(all(found) for found in expected)
    crawls = [crawl_of(tmp_path / f"spark-{order}", order) for order in ("fifo", "crawldb")]
    config = with_spark(crawls[0].config)
    with open_engine(config, Room(LocalStorage.open(tmp_path), tmp_path, "hidden", 1 << 30)) as running:
        keep_warm(running, monkeypatch)
        found = [results(replace(stores, config=with_spark(stores.config))) for stores in crawls]
    assert found == expected


def config_of(place: Path, order: str) -> Config:
    (place / "dfs").mkdir(parents=True)
    options = {"servers": ["node-a"], "dfs_primary": "dfs", "scratch": {"directory": "scratch"}}
    more = {"frontier": {"order": order}, "urls": {"scope": "any"}, "duplicates": {"near": True, "cosine": 0.88}}
    return from_mapping({**options, **more}, place)


def crawl_of(place: Path, order: str) -> Stores:
    """Two iterations, in the second of which some pages have moved on to other texts."""
    config = config_of(place, order)
    stores = stores_on(open_storage(config), config)
    texts = make_web(5, mirrors=3, pairs=30, templates=2, others=20).texts
    leave(stores, texts)
    leave(stores, dict(zip(list(texts)[10:40], list(texts.values())[40:70], strict=True)), FOLDER + DAY)
    if order == "crawldb":
        update(stores, now=NOW)
    return stores


def results(stores: Stores) -> list[object]:
    """Each query once."""
    if not stores.config.frontier.is_crawldb:
        return [find_mirrors(stores)]
    near, marked = find_near(stores, now=NOW), mark_duplicates(stores, now=NOW)
    counts = [near.manifest["groups"], marked.manifest["statuses"]["duplicate"]]
    return [near.manifest["parts"], marked.manifest["parts"], *counts, find_templates(stores)]
