"""Tables of links, and ranks, that Spark makes have the bytes of those that DuckDB makes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from crawl_lib.config import from_mapping
from crawl_lib.curate import drop_pages
from crawl_lib.linkdb import LINKDB, OUTLINKS, update_linkdb
from crawl_lib.ranks import LINKRANK, update_linkrank
from crawl_lib.storage import open_storage
from tests.cluster.spark import LIMIT_S, with_spark
from tests.crawldb.crawls import Crawl, Visit
from tests.crawldb.test_update import DAY, NOW, T
from tests.linkdb.tables import A, B, C
from tests.linkdb.test_determinism import grow, sums
from tests.stores import stores_on

pytestmark = pytest.mark.timeout(LIMIT_S)


def test_tables_of_links_by_spark_are_those_of_duckdb(many_tasks: None, tmp_path: Path) -> None:
    """A version on top of another one, with pages that changed, are gone, or were dropped, and with rules."""
    found = []
    for name in ("duckdb", "spark"):
        (tmp_path / name).mkdir()
        urls = {"scope": "any", "normalizers": {"linkdb": [{"kind": "query"}]}}
        options = {"servers": ["node-a"], "dfs_primary": "dfs", "urls": urls, "linkdb": {"max_inlinks": 12}}
        config = from_mapping({**options, "scratch": {"directory": "scratch"}}, tmp_path / name)
        crawl = Crawl(stores_on(open_storage(config), config))
        grow(crawl, 2, pages=300)
        crawl.segment(T + 5 * DAY, [Visit(A, links=[B, f"{C}?b&a"]), Visit(B, links=[A])])
        update_linkdb(crawl.stores, now=NOW)
        drop_pages(crawl.stores, [B])
        crawl.segment(T + 6 * DAY, [Visit(A, links=[(C, "Ä"), (C, "")]), Visit(C, links=[A, "http://only.test/"])])
        if name == "spark":
            crawl = replace(crawl, stores=replace(crawl.stores, config=with_spark(config)))
        update_linkdb(crawl.stores, now=NOW)
        update_linkrank(crawl.stores, now=NOW)
        made = sums(crawl, OUTLINKS, LINKDB, LINKRANK)
        rank = replace(config.linkrank, drop_reciprocal=True, drop_triangles=True)
        changed = replace(crawl.stores.config, linkrank=rank)
        update_linkrank(replace(crawl.stores, config=changed), now=NOW)
        found.append([*made, *sums(crawl, LINKRANK)])
    assert found[0] == found[1]
    assert len(set(found[0])) == 4
