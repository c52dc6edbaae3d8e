"""Pages that only sitemaps and feeds list are crawled if the config says so, also where a kill comes in between."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from crawl_lib import stages
from crawl_lib.repair.segments.salvage import salvage_segment
from crawl_lib.rounds import start_iteration
from crawl_lib.segment import check_segment
from crawl_lib.stores import open_stores
from tests.e2e.crawl import Result, check_counts, make_config, run_crawl, run_iteration
from tests.harms import garbage
from tests.repair.crawled import stores_of
from tests.web.sitemaps import SitemapServing
from tests.worker.children import run_stage

LISTED = {"/a", "/b", "/c", "/d", "/e", "/index.xml", "/map.xml.gz", "/list.txt", "/rss", "/atom"}
ENDLESS = {f"/endless?{number}" for number in range(1, 12)}


@pytest.fixture(scope="module")
def site() -> Iterator[SitemapServing]:
    with SitemapServing() as serving:
        yield serving


def paths(result: Result) -> set[str]:
    assert set(result.visited().values()) == {1}
    return {"/" + url.split("/", 3)[3] for url in result.visited()}


@pytest.mark.parametrize("order", ["fifo", "crawldb"])
def test_what_sitemaps_and_feeds_list_is_crawled(
    order: str, tmp_path: Path, site: SitemapServing
) -> None:
    frontier = {"order": order}
    config = make_config(
        tmp_path, nodes=1, fetch={"host_delay_s": 0.0}, parse={"sitemaps": True}, frontier=frontier
    )
    result = run_crawl(config, [site.url("/"), site.url("/notes")], process=False)
    assert paths(result) == {"/", "/notes"} | LISTED | ENDLESS, (
        "an enclosure is no page; indexes end after ten hops"
    )
    check_counts(result)
    rejected: Counter[str] = Counter()
    for manifest in result.manifests():
        rejected.update(manifest["counts"]["rejections"])
    assert rejected == {"scope": 1, "redirect_limit": 1, "element": 1}
    rows = {
        row["url"].split("/", 3)[3]: row
        for row in result.rows("pages", ["url", "depth", "parse_error"])
    }
    assert [rows[path]["depth"] for path in ("", "index.xml", "map.xml.gz", "a", "c")] == [
        0,
        1,
        2,
        3,
        2,
    ]
    assert {row["parse_error"] for row in rows.values()} == {None}
    elements = {"sitemap", "loc", "item", "link", "entry", "robots"}
    assert {row["element"] for row in result.rows("links", ["element"])} == elements
    stores = open_stores(config)
    assert [
        one for path in stores.crawl.segments() for one in check_segment(stores.storage, path.path)
    ] == []


def test_by_default_none_is_read(tmp_path: Path, site: SitemapServing) -> None:
    config = make_config(tmp_path, nodes=1, fetch={"host_delay_s": 0.0})
    result = run_crawl(config, [site.url("/"), site.url("/index.xml")], process=False)
    assert paths(result) == {"/", "/index.xml"}
    assert result.rows("links", ["element"]) == []


def test_a_kill_after_robots_txt_was_fetched_loses_no_sitemap(
    tmp_path: Path, site: SitemapServing
) -> None:
    """The part of the spool is made again from its records, that of robots.txt among them."""
    config = make_config(tmp_path, nodes=1, fetch={"host_delay_s": 0.0}, parse={"sitemaps": True})
    stages.inject(open_stores(config), run_id="run-1", seeds=site.url("/"))
    start_iteration(open_stores(config), run_id="run-1", iteration=1)
    task = {"run_id": "run-1", "iteration": 1, "node": "node-0"}
    assert run_stage(config, "crawl_node", kill_at="segment.part.log_synced", **task) != 0
    before = len(site.log().requests)
    run_iteration(config, "run-1", 1)
    assert len(site.log().requests) == before, "nothing is fetched again"
    run_iteration(config, "run-1", 2)
    assert paths(Result(config)) == {"/", "/index.xml", "/list.txt"}


def test_outlinks_that_are_made_again_have_the_sitemaps_too(
    tmp_path: Path, site: SitemapServing
) -> None:
    config = make_config(tmp_path, nodes=1, fetch={"host_delay_s": 0.0}, parse={"sitemaps": True})
    result = run_crawl(config, [site.url("/")], 1, process=False)
    [segment] = result.segments()
    whole = (segment / "outlinks").read_bytes()
    garbage(segment / "outlinks")
    stores = stores_of(config)
    salvage_segment(stores, stores.crawl.segment(segment.parent.name, segment.name))
    assert (segment / "outlinks").read_bytes() == whole
