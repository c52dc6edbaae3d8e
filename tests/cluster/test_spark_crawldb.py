"""A version of the CrawlDb that Spark makes has the bytes of the one that DuckDB makes, and says the same of hosts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from crawl_lib.config import from_mapping
from crawl_lib.crawldb import host_statistics, newest_version, update
from crawl_lib.storage import open_storage
from tests.cluster.spark import LIMIT_S, with_spark
from tests.crawldb.crawls import Crawl, Visit
from tests.crawldb.test_determinism import grow, sums
from tests.crawldb.test_six_pages import HOME, ROUNDS
from tests.crawldb.test_update import DAY, NOW, A, B, C, T
from tests.export.crawls import key
from tests.stores import stores_on

pytestmark = pytest.mark.timeout(LIMIT_S)


def test_an_update_by_spark_is_that_of_duckdb(many_tasks: None, tmp_path: Path) -> None:
    """With seeds, several captures of a page, redirects, rules, orphans, and links of older segments."""
    found = []
    for name in ("duckdb", "spark"):
        (tmp_path / name).mkdir()
        rules = [{"status": "gone", "fixed_s": 77}, {"kind": "domain", "value": "7.example", "max_s": 99}]
        schedule = {"kind": "adaptive", "rules": rules, "sitemaps": True}
        options = {"servers": ["node-a"], "dfs_primary": "dfs", "urls": {"scope": "any"}, "schedule": schedule}
        config = from_mapping({**options, "scratch": {"directory": "scratch"}}, tmp_path / name)
        crawl = Crawl(stores_on(open_storage(config), config))
        crawl.seeds(f"{HOME}\tmax_depth=9")
        grow(crawl, 3, pages=300)
        for folder, visits in ROUNDS[:2]:
            crawl.segment(folder + 3 * DAY, visits)
        update(crawl.stores, now=NOW)
        crawl.seeds(f"{A}\tinterval_fixed_s=60\n{HOME}", "another run")
        crawl.segment(ROUNDS[2][0], ROUNDS[2][1])
        crawl.segment(T + 50 * DAY, [Visit(HOME, "timeout", retry_s=9), Visit(A, "redirect", redirect_url=B)])
        said = {"element": "loc", "rel": f"lastmod={T + 60 * DAY} every_s=90 priority=0.123456789"}
        robots = {"source": key(f"{HOME}robots.txt"), "element": "robots"}
        crawl.segment(T + 60 * DAY, [Visit(B, links=[HOME, A, C, f"{HOME}only"], link=said)])
        crawl.segment(T + 61 * DAY, [Visit(HOME, links=[f"{HOME}map"], link=robots)])
        if name == "spark":
            crawl = replace(crawl, stores=replace(crawl.stores, config=with_spark(config)))
        update(crawl.stores, now=NOW)
        version = newest_version(crawl.stores)
        assert version is not None
        found.append((sums(crawl.stores), len(crawl.rows()), list(host_statistics(crawl.stores, version, now=NOW))))
    assert found[0] == found[1]
    assert found[0][1] > 300
    assert len(found[0][2]) > 40
