"""Plug-ins make the same bytes with Spark as with DuckDB: OPIC, depth, and others, expressions and functions."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from crawl_lib.config import from_mapping
from crawl_lib.crawldb import generate, update
from crawl_lib.storage import open_storage
from tests.cluster.spark import LIMIT_S, with_spark
from tests.crawldb.crawls import Crawl, Visit
from tests.crawldb.test_determinism import sums
from tests.crawldb.test_update import DAY, NOW, A, B, T
from tests.scoring.simulation import Simulation, Web, as_simulated, rounds
from tests.scoring.test_plugins import halved, plugin
from tests.scoring.wheel import give_wheel
from tests.stores import stores_on

pytestmark = pytest.mark.timeout(LIMIT_S)


def test_an_update_and_a_list_by_spark_are_those_of_duckdb(
    many_tasks: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    give_wheel(tmp_path / "site", monkeypatch)
    plugin(monkeypatch, "halved", injected=staticmethod(halved), sort_value="sort_value + sqrt(score) / 3")
    found = []
    for name in ("duckdb", "spark"):
        (tmp_path / name).mkdir()
        options = {"servers": ["node-a"], "dfs_primary": "dfs", "urls": {"scope": "any"}}
        scoring = {"plugins": ["halved", "opic", "depth", "titled"], "max_depth": 3}
        options |= {"frontier": {"order": "crawldb"}, "generate": {"order": "score", "top_n": 20}, "scoring": scoring}
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
        lists = crawl.root / "lists" / made["list"]
        found.append((sums(crawl.stores), as_simulated(crawl), made["counts"], (lists / "outlinks").read_bytes()))
    assert found[0] == found[1]
