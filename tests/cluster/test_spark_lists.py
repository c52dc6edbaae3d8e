"""A list that Spark makes has the bytes of the one that DuckDB makes, and the same reasons."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from crawl_lib.crawldb import explain
from crawl_lib.stores import open_stores
from tests.cluster.spark import LIMIT_S, with_spark
from tests.crawldb.tables import NOW, leave_version
from tests.crawldb.test_generate import DAY, config_of, make, some_rows, with_generate

pytestmark = pytest.mark.timeout(LIMIT_S)


def test_a_list_of_spark_is_that_of_duckdb(many_tasks: None, tmp_path: Path) -> None:
    """With leases, filters and all limits, on the rows of two versions."""
    rows = some_rows(random.Random(5), 300)
    made: list[tuple[Any, ...]] = []
    for name in ("duckdb", "spark"):
        urls = {"rules": [{"action": "-", "kind": "suffix", "value": ".zip"}], "max_depth": 4}
        config = config_of(tmp_path / name, 3, batch={"size": 20}, urls=urls)
        (tmp_path / name).mkdir()
        leave_version(open_stores(config), 1, rows)
        make(with_generate(config, top_n=30), 1, NOW - DAY)
        config = replace(config, scratch=replace(config.scratch, directory=str(tmp_path / name / "scratch")))
        config = with_generate(config, order="score", min_score=0.6, statuses=("unfetched", "gone"), max_per_host=5)
        config = with_generate(config, max_per_domain=9, spread=True, top_n=40, max_per_failing_host=2)
        config = with_spark(config) if name == "spark" else config
        result = make(config, 2)
        folder = Path(config.dfs_primary) / "crawl" / "lists" / result["list"]
        reason = explain(open_stores(config), rows[0]["url"])
        made.append(
            (result["counts"], (folder / "outlinks").read_bytes(), (folder / "listed.parquet").read_bytes(), reason)
        )
    assert made[0] == made[1]
    assert made[0][0]["listed"] > 0
    assert len(made[0][0]) >= 7, "so many reasons"
