"""What nothing links to any more; and seeds that are known already."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from crawl_lib.config import Config
from crawl_lib.crawldb import update
from crawl_lib.storage import open_storage
from crawl_lib.worker.reading import BARRED
from tests.crawldb.crawls import Crawl, Visit
from tests.crawldb.test_update import DAY, NOW, A, B, C, T, at
from tests.stores import stores_on


def crawl_with(config: Config, **options: Any) -> Crawl:
    config = replace(config, crawldb=replace(config.crawldb, **options))
    return Crawl(stores_on(open_storage(config), config))


def linked(crawl: Crawl) -> None:
    """A seed that links to two pages, one of which was visited."""
    crawl.seeds(A)
    update(crawl.stores, now=NOW)
    crawl.segment(
        T, [Visit(A, body="one", links=[B, C]), Visit(B, body="b", more={"depth": 1}, at=20)]
    )
    update(crawl.stores, now=NOW)


@pytest.mark.parametrize("orphans", ["keep", "gone", "drop"])
def test_what_nothing_links_to_any_more(config: Config, orphans: str) -> None:
    crawl = crawl_with(config, orphans=orphans)
    linked(crawl)
    crawl.segment(T + DAY, [Visit(A, body="two", links=[C])])
    rows = crawl.rows(update(crawl.stores, now=NOW))
    assert (rows[A]["status"], rows[C]["status"], rows[C]["inlinks"]) == ("fetched", "unfetched", 1)
    if orphans == "drop":
        assert B not in rows
        return
    assert rows[B]["inlinks"] == 0
    assert rows[B]["status"] == {"keep": "orphan", "gone": "gone"}[orphans]
    assert rows[B]["interval_s"] == {"keep": 30 * DAY, "gone": 45 * DAY}[orphans]
    assert rows[B]["fetch_time"] == at(T, 20) + timedelta(days=30)  # it is visited all the same


def test_an_orphan_is_visited_and_no_orphan_once_it_is_linked_to_again(config: Config) -> None:
    crawl = crawl_with(config)
    linked(crawl)
    crawl.segment(T + DAY, [Visit(A, body="two")])
    assert crawl.rows(update(crawl.stores, now=NOW))[B]["status"] == "orphan"
    crawl.segment(T + 2 * DAY, [Visit(B, body="b", more={"depth": 1})])
    row = crawl.rows(update(crawl.stores, now=NOW))[B]
    assert (row["status"], row["fetch_status"]) == ("orphan", "not_modified")
    crawl.segment(T + 3 * DAY, [Visit(A, body="three", links=[B])])
    assert crawl.rows(update(crawl.stores, now=NOW))[B]["status"] == "not_modified"


NO_NEW_LINKS = {
    "not read": [],
    "not modified": [Visit(A, "not_modified", refers_to=(f"{T}/node-a", "0.warc.gz", 0))],
    "revisit": [Visit(A, "ok", refers_to=(f"{T}/node-a", "0.warc.gz", 0))],
    "redirect": [Visit(A, "redirect", redirect_url="http://a.example/new")],
    "failed": [Visit(A, "timeout", retry_s=60)],
    "gone": [Visit(A, "gone")],
    "the same": [Visit(A, body="one", links=[B, C])],
}


@pytest.mark.parametrize("what", NO_NEW_LINKS)
def test_a_parent_that_has_not_changed_orphans_nobody(config: Config, what: str) -> None:
    crawl = crawl_with(config)
    linked(crawl)
    crawl.segment(T + DAY, NO_NEW_LINKS[what])
    rows = crawl.rows(update(crawl.stores, now=NOW))
    assert (rows[B]["status"], rows[B]["inlinks"], rows[C]["inlinks"]) == ("fetched", 1, 1)
    crawl.segment(T + 2 * DAY, [Visit(A, body="two", links=[C])])
    assert crawl.rows(update(crawl.stores, now=NOW))[B]["status"] == "orphan"


def test_a_parent_whose_capture_was_deleted_orphans_nobody(config: Config) -> None:
    crawl = crawl_with(config)
    linked(crawl)
    crawl.stores.storage.delete(f"crawl/{T}")
    crawl.segment(T + DAY, [Visit(A, body="two")])
    assert crawl.rows(update(crawl.stores, now=NOW))[B]["status"] == "fetched"


def test_where_two_pages_link_one_is_enough(config: Config) -> None:
    crawl = crawl_with(config)
    linked(crawl)
    crawl.segment(
        T + DAY, [Visit(C, links=[B], more={"depth": 1}), Visit(A, body="two", links=[C])]
    )
    assert crawl.rows(update(crawl.stores, now=NOW))[B]["status"] == "fetched"


def test_what_a_redirect_leads_to_is_no_orphan(config: Config) -> None:
    crawl = crawl_with(config)
    linked(crawl)
    crawl.segment(
        T + DAY,
        [Visit(C, "redirect", redirect_url=B, more={"depth": 1}), Visit(A, body="two", links=[C])],
    )
    assert crawl.rows(update(crawl.stores, now=NOW))[B]["status"] == "fetched"


@pytest.mark.parametrize("seeds", ["keep", "update", "overwrite"])
def test_a_seed_that_is_known(config: Config, seeds: str) -> None:
    crawl = crawl_with(config, seeds=seeds)
    linked(crawl)
    crawl.seeds(f"{B}\tscore=7\tinterval_s=60\ttopic=x", "another run")
    row = crawl.rows(update(crawl.stores, now=NOW))[B]
    given = (float(row["score"]), row["interval_s"], row["metadata"])
    if seeds == "keep":
        assert given == (1, 30 * DAY, None)
    else:
        assert given == (7, 60, '{"score": "7", "interval_s": "60", "topic": "x"}')
    assert row["depth"] == 0
    if seeds == "overwrite":
        assert (row["status"], row["signature"], row["etag"], row["capture_time"]) == (
            "unfetched",
            *[None] * 3,
        )
        assert row["fetch_time"] < at(T)
    else:
        assert (row["status"], row["fetch_time"]) == ("fetched", at(T, 20) + timedelta(days=30))


def test_a_seed_is_no_orphan(config: Config) -> None:
    crawl = crawl_with(config)
    linked(crawl)
    crawl.seeds(B, "another run")
    crawl.segment(T + DAY, [Visit(A, body="two")])
    rows = crawl.rows(update(crawl.stores, now=NOW))
    assert (rows[B]["status"], rows[C]["status"]) == ("fetched", "orphan")


def test_links_that_were_not_counted_are_not_taken_off(config: Config) -> None:
    """B is as deep as its seed allows when its links are seen, and no more when it has others."""
    crawl = crawl_with(config)
    crawl.seeds(f"{A}\tmax_depth=1")
    limited = {"depth": 1, "metadata": '{"max_depth": "1"}'}
    crawl.segment(
        T,
        [
            Visit(A, links=[B, C], more={"metadata": '{"max_depth": "1"}'}),
            Visit(B, links=[C], more=limited),
        ],
    )
    assert crawl.rows(update(crawl.stores, now=NOW))[C]["inlinks"] == 1
    crawl.seeds("http://a.example/other\tmax_depth=5", "another run")
    further = {"metadata": '{"max_depth": "5"}'}
    crawl.segment(T + DAY, [Visit("http://a.example/other", links=[B], more=further)])
    update(crawl.stores, now=NOW)
    crawl.segment(T + 2 * DAY, [Visit(B, body="two", more={"depth": 1} | further)])
    assert crawl.rows(update(crawl.stores, now=NOW))[C]["inlinks"] == 1


def test_a_seed_that_begins_again_keeps_its_links_until_it_has_others(config: Config) -> None:
    crawl = crawl_with(config, seeds="overwrite")
    linked(crawl)
    crawl.seeds(A, "another run")
    assert crawl.rows(update(crawl.stores, now=NOW))[B]["inlinks"] == 1
    crawl.segment(T + DAY, [Visit(A, body="two", links=[C])])
    rows = crawl.rows(update(crawl.stores, now=NOW))
    assert (rows[B]["inlinks"], rows[C]["inlinks"]) == (0, 1)


PARTLY_READ = {
    "damaged coding": {"parse_error": "gzip: ends too early", "more": {"length": 90}},
    "cut": {"parse_error": "cut at 100 bytes", "more": {"length": 100}},
    "unknown coding": {"parse_error": "utf-8: unknown coding", "more": {"length": 90}},
    "only links are known": {"parse_error": "gzip: ends too early"},
}


@pytest.mark.parametrize("what", PARTLY_READ)
@pytest.mark.parametrize("orphans", ["keep", "drop"])
def test_links_of_a_page_that_was_read_in_part_count(
    config: Config, what: str, orphans: str
) -> None:
    crawl = crawl_with(config, orphans=orphans)
    crawl.seeds(A)
    crawl.segment(T, [Visit(A, links=[B, C], **PARTLY_READ[what])])
    rows = crawl.rows(update(crawl.stores, now=NOW))
    assert {url: (row["status"], row["inlinks"]) for url, row in rows.items()} == {
        A: ("fetched", 0),
        B: ("unfetched", 1),
        C: ("unfetched", 1),
    }
    crawl.segment(T + DAY, [Visit(A, body="two", links=[C], **PARTLY_READ[what])])
    rows = crawl.rows(update(crawl.stores, now=NOW))
    assert rows[C]["inlinks"] == 1
    assert B not in rows if orphans == "drop" else rows[B]["status"] == "orphan"


@pytest.mark.parametrize(
    ("error", "more", "status"),
    [
        ("gzip: ends too early", {"length": 0}, "parse_failed"),
        (f"cut at 9 bytes; {BARRED}", {"length": 9}, "parse_failed"),
        ("zstd: unknown coding", {"length": 9}, "parse_failed"),
        ("zstd: unknown coding", {"length": 9, "title": "It is no zstd"}, "fetched"),
        ("cut at 9 bytes", {"length": 9}, "fetched"),
        ("gzip: ends too early", {"length": 9, "mime_detected": "application/pdf"}, "fetched"),
    ],
)
def test_a_page_without_links_failed_only_if_nothing_was_read(
    config: Config, error: str, more: dict[str, Any], status: str
) -> None:
    crawl = crawl_with(config)
    crawl.segment(T, [Visit(A, parse_error=error, more=more), Visit(B, links=[C])])
    assert crawl.rows(update(crawl.stores, now=NOW))[A]["status"] == status
