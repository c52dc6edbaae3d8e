"""What the tables of links say after visits: whose links count, and for how long."""

from __future__ import annotations

import shutil
from dataclasses import replace

import pytest

from crawl_lib.config import Config
from crawl_lib.curate import drop_pages
from crawl_lib.errors import InputError
from crawl_lib.linkdb import update_linkdb
from crawl_lib.storage import open_storage
from tests.crawldb.crawls import Crawl, Visit
from tests.crawldb.test_update import DAY, NOW, T
from tests.linkdb.tables import A, B, C, change_links, inlinks
from tests.stores import stores_on


@pytest.fixture
def crawl(config: Config) -> Crawl:
    return Crawl(stores_on(open_storage(config), config))


def test_a_newer_capture_replaces_the_links_of_its_page(crawl: Crawl) -> None:
    crawl.segment(T, [Visit(A, links=[B, C, A]), Visit(B, links=[C])])
    assert inlinks(crawl) == {B: [A], C: [A, B]}
    crawl.segment(T + DAY, [Visit(A, links=[C])])
    assert inlinks(crawl) == {C: [A, B]}
    crawl.segment(T + 2 * DAY, [Visit(A)])
    assert inlinks(crawl) == {C: [B]}


@pytest.mark.parametrize(
    "visit",
    [
        Visit(A, "not_modified"),
        Visit(A, refers_to=(f"{T}/node-a", "0.warc.gz", 0)),
        Visit(A, "timeout"),
        Visit(A, "timeout", retry_s=9),
        Visit(A, parse_error="gzip: cut"),
    ],
    ids=["304", "same content", "failed", "failed for now", "cannot be read"],
)
def test_a_page_without_new_content_keeps_its_links(crawl: Crawl, visit: Visit) -> None:
    crawl.segment(T, [Visit(A, links=[B])])
    crawl.segment(T + DAY, [visit])
    assert inlinks(crawl) == {B: [A]}


@pytest.mark.parametrize(
    "visit", [Visit(A, "gone"), Visit(A, "redirect", redirect_url=C)], ids=["gone", "moved"]
)
@pytest.mark.parametrize("at_once", [True, False])
def test_the_links_of_a_page_that_is_gone_come_back_with_it(
    crawl: Crawl, visit: Visit, at_once: bool
) -> None:
    crawl.segment(T, [Visit(A, links=[B])])
    assert at_once or inlinks(crawl) == {B: [A]}
    crawl.segment(T + DAY, [visit])
    assert inlinks(crawl) == {}
    crawl.segment(T + 2 * DAY, [Visit(A, "not_modified")])
    assert inlinks(crawl) == {B: [A]}


def test_what_comes_late_does_not_replace_what_is_newer(crawl: Crawl) -> None:
    crawl.segment(T + DAY, [Visit(A, links=[B]), Visit(B)])
    crawl.segment(T + 2 * DAY, [Visit(C, "gone")])
    assert inlinks(crawl) == {B: [A]}
    crawl.segment(T, [Visit(A, links=[C]), Visit(B, links=[C]), Visit(C, links=[A])])
    assert inlinks(crawl) == {B: [A]}


def test_a_segment_that_is_gone_leaves_what_is_known_of_it(crawl: Crawl) -> None:
    crawl.segment(T, [Visit(A, links=[B])])
    inlinks(crawl)
    shutil.rmtree(crawl.root / str(T))
    crawl.segment(T + DAY, [Visit(C, links=[B])])
    assert inlinks(crawl) == {B: [A, C]}


@pytest.mark.parametrize("known", [True, False])
def test_links_on_a_dropped_page_go(crawl: Crawl, known: bool) -> None:
    crawl.segment(T, [Visit(A, links=[B]), Visit(B, links=[C])])
    assert not known or inlinks(crawl) == {B: [A], C: [B]}
    drop_pages(crawl.stores, [A])
    assert inlinks(crawl) == {C: [B]}
    crawl.segment(T + DAY, [Visit(A, links=[C])])
    assert inlinks(crawl) == {C: [A, B]}


def test_links_count_that_are_followed_or_are_beyond_scope_or_depth(crawl: Crawl) -> None:
    urls = {
        rule: f"http://{rule.replace('_', '-')}.example/"
        for rule in ("scope", "depth", "nofollow", "element")
    }
    crawl.segment(T, [Visit(A, links=[B, *urls.values()])])
    rules = {url: rule for rule, url in urls.items()}
    change_links(
        crawl,
        f"{T}/node-a",
        lambda row: {"followed": row["target_url"] == B, "rule": rules.get(row["target_url"])},
    )
    assert inlinks(crawl) == {B: [A], urls["scope"]: [A], urls["depth"]: [A]}


def test_nothing_is_made_again_where_nothing_is_new(crawl: Crawl) -> None:
    crawl.segment(T, [Visit(A, links=[B])])
    first = update_linkdb(crawl.stores, now=NOW)
    assert update_linkdb(crawl.stores, now=NOW) == first
    config = replace(
        crawl.stores.config, linkdb=replace(crawl.stores.config.linkdb, max_anchor_chars=1)
    )
    assert update_linkdb(replace(crawl.stores, config=config), now=NOW).number == 2
    (crawl.root / "linkdb" / "2" / "manifest.json").unlink()
    (crawl.root / "linkdb" / "1" / "manifest.json").unlink()
    assert update_linkdb(crawl.stores, now=NOW).number == 3
    assert inlinks(crawl) == {B: [A]}


def test_without_a_segment_it_says_what_to_do(crawl: Crawl) -> None:
    with pytest.raises(InputError, match="has no segment yet, and so no links; crawl first"):
        update_linkdb(crawl.stores, now=NOW)


def test_pages_without_links_give_an_empty_table(crawl: Crawl) -> None:
    crawl.segment(T, [Visit(A)])
    assert inlinks(crawl) == {}


def test_the_links_of_a_page_that_was_read_in_part_count(crawl: Crawl) -> None:
    crawl.segment(T, [Visit(A, parse_error="cut at 9 bytes", links=[B])])
    assert inlinks(crawl) == {B: [A]}
    crawl.segment(T + DAY, [Visit(A, parse_error="gzip: ends too early", links=[C])])
    assert inlinks(crawl) == {C: [A]}
