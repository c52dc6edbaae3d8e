"""Updates of the CrawlDb: from seeds and segments to rows."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from hashlib import sha1
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from crawl_lib.config import Config, ScoringConfig
from crawl_lib.crawldb import generate, rebuild, update
from crawl_lib.crawldir import FileName
from crawl_lib.engine.duck import Duck
from crawl_lib.errors import ConfigError
from crawl_lib.segment import LINKS_SCHEMA, DroppedLists
from crawl_lib.storage import open_storage
from tests.crawldb.crawls import Crawl, Visit
from tests.export.crawls import key
from tests.stores import stores_on

A, B, C = "http://a.example/", "http://a.example/b", "http://a.example/c"
NOW = datetime(2026, 11, 1, tzinfo=UTC)
T = 1_790_000_000
DAY = 86400


def at(folder: int, seconds: float = 10) -> datetime:
    return datetime.fromtimestamp(folder, UTC) + timedelta(seconds=seconds)


@pytest.fixture
def crawl(config: Config) -> Crawl:
    return Crawl(stores_on(open_storage(config), config))


def test_seeds_alone_make_a_first_version(crawl: Crawl) -> None:
    crawl.seeds(f"{A}\tscore=2.5\tinterval_s=3600\n{B}\ttopic=news")
    version = update(crawl.stores, now=NOW)
    rows = crawl.rows(version)
    assert version.number == 1
    assert version.manifest["now"] == int(NOW.timestamp())
    assert {
        url: (row["status"], row["depth"], str(row["score"]), row["interval_s"])
        for url, row in rows.items()
    } == {
        A: ("unfetched", 0, "2.500000000", 3600),
        B: ("unfetched", 0, "1.000000000", 30 * DAY),
    }
    assert rows[B]["metadata"] == '{"topic": "news"}'
    assert (rows[A]["host"], rows[A]["domain"]) == ("a.example", "a.example")
    assert all(row["fetch_time"] < NOW for row in rows.values())


def test_hops_are_asked_for_where_something_leads_on_alone(
    crawl: Crawl, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, rows = list[str](), Duck.rows

    def noted(engine: Duck, query: str, stage: str = "") -> Iterator[dict[str, Any]]:
        asked.append(query)
        return rows(engine, query, stage)

    monkeypatch.setattr(Duck, "rows", noted)
    visits = [
        (Visit(A, links=[B]), False),
        (Visit(A, "redirect", redirect_url=B), True),
        (Visit(A, links=[B], link={"element": "meta"}), True),
        (Visit(A, links=[B], link={"element": "sitemap"}), True),
    ]
    for number, (visit, is_hop) in enumerate(visits):
        crawl.segment(T + number * DAY, [visit])
        update(crawl.stores, now=NOW)
        assert ("crawldb/hops" in asked) == is_hop
        asked.clear()


def test_a_run_without_seeds_and_segments_makes_no_version(crawl: Crawl) -> None:
    """Such as the next scheduled one, where nothing is due."""
    crawl.seeds(A)
    version = update(crawl.stores, now=NOW)
    crawl.seeds("", "another run")
    assert update(crawl.stores, now=NOW) == version
    crawl.seeds(B, "one more")
    grown = update(crawl.stores, now=NOW)
    assert set(crawl.rows(grown)) == {A, B}
    assert grown.manifest["seeds"] == sorted(
        crawl.stores.crawl.inbox.seeds()
    )  # those of none are not read again


def test_seeds_come_before_what_their_iteration_fetched_also_if_it_was_named_by_a_later_time(
    crawl: Crawl,
) -> None:
    """Folders are named in whole seconds, and quick rounds run ahead of the clock."""
    crawl.seeds(f"{A}\tscore=2.5\tinterval_s=3600")
    update(crawl.stores, now=NOW)
    crawl.segment(T, [Visit(A, links=[B], at=-0.5)])
    grown, built = (crawl.rows(make(crawl.stores, now=NOW)) for make in (update, rebuild))
    assert (built[A]["interval_s"], built[A]["fetch_time"]) == (3600, at(T, 3599.5))
    assert [{**rows[url], "score": 0} for rows in (grown, built) for url in (A, B)] == [
        {**grown[url], "score": 0} for _ in range(2) for url in (A, B)
    ]


def test_what_only_a_robots_txt_names_is_found_and_is_no_orphan(crawl: Crawl) -> None:
    crawl.seeds(A)
    robots = {"source": key("http://a.example/robots.txt"), "element": "robots"}
    crawl.segment(T, [Visit(A, links=[B], link=robots)])
    row = crawl.rows(update(crawl.stores, now=NOW))[B]
    assert (row["status"], row["depth"], row["inlinks"], row["fetch_time"]) == (
        "unfetched",
        1,
        1,
        at(T, 0),
    )
    crawl.segment(T + DAY, [Visit(A, body="x"), Visit(B)])
    assert crawl.rows(update(crawl.stores, now=NOW))[B]["status"] == "fetched"
    assert crawl.rows(rebuild(crawl.stores, now=NOW))[B]["status"] == "fetched"


def test_a_round(crawl: Crawl) -> None:
    crawl.seeds(A)
    update(crawl.stores, now=NOW)
    name = crawl.segment(T, [Visit(A, body="x", links=[B, C, A, B])])
    rows = crawl.rows(update(crawl.stores, now=NOW))
    assert (rows[A]["status"], rows[A]["fetch_time"]) == ("fetched", at(T) + timedelta(days=30))
    assert (rows[A]["capture_segment"], rows[A]["capture_time"], rows[A]["modified_time"]) == (
        name,
        at(T),
        at(T),
    )
    assert {
        url: (row["status"], row["depth"], row["inlinks"], row["fetch_time"])
        for url, row in rows.items()
    } == {
        A: ("fetched", 0, 0, at(T) + timedelta(days=30)),
        B: ("unfetched", 1, 2, at(T)),
        C: ("unfetched", 1, 1, at(T)),
    }
    assert update(crawl.stores, now=NOW).number == 2


def test_all_captures_since_the_last_update_count_in_order_of_time(crawl: Crawl) -> None:
    """Fetched, gone, twice a failure that passes, then other content: one update, or one for each."""
    crawl.seeds(A)
    update(crawl.stores, now=NOW)
    crawl.segment(T, [Visit(A, body="one")])
    crawl.segment(T + 10 * DAY, [Visit(A, "gone")])
    crawl.segment(T + 20 * DAY, [Visit(A, "timeout", retry_s=60)])
    crawl.segment(T + 21 * DAY, [Visit(A, "timeout", retry_s=120)])
    rows = crawl.rows(update(crawl.stores, now=NOW))
    assert (rows[A]["status"], rows[A]["retries"], rows[A]["interval_s"]) == ("gone", 2, 45 * DAY)
    assert rows[A]["fetch_time"] == at(T + 21 * DAY) + timedelta(seconds=120)
    last = crawl.segment(T + 22 * DAY, [Visit(A, body="two")])
    rows = crawl.rows(update(crawl.stores, now=NOW))
    assert (rows[A]["status"], rows[A]["retries"], rows[A]["capture_segment"]) == (
        "fetched",
        0,
        last,
    )
    assert rows[A]["modified_time"] == at(T + 22 * DAY)


def test_a_page_of_two_nodes_and_one_twice_in_a_segment(crawl: Crawl) -> None:
    crawl.segment(T, [Visit(A, body="one", at=5, links=[B]), Visit(A, body="two", at=9, links=[C])])
    crawl.segment(T, [Visit(A, body="three", at=7)], node="node-b")
    rows = crawl.rows(update(crawl.stores, now=NOW))
    assert (rows[A]["modified_time"], rows[A]["capture_offset"]) == (at(T, 9), 1)
    assert set(rows) == {A, B, C}


def test_a_redirect_adds_its_target_without_a_step_of_depth(crawl: Crawl) -> None:
    crawl.segment(T, [Visit(A, "redirect", redirect_url=B, more={"depth": 3})])
    rows = crawl.rows(update(crawl.stores, now=NOW))
    assert (rows[A]["status"], rows[A]["redirect_url"]) == ("redirected_temporary", B)
    assert (rows[B]["status"], rows[B]["depth"], rows[B]["redirects"]) == ("unfetched", 3, 1)
    crawl.segment(T + DAY, [Visit(B, "redirect", status=301, redirect_url=C, more={"depth": 3})])
    rows = crawl.rows(update(crawl.stores, now=NOW))
    assert (rows[B]["status"], rows[C]["redirects"]) == ("redirected_permanent", 2)
    crawl.segment(T + 2 * DAY, [Visit(A, links=[C])])
    assert crawl.rows(update(crawl.stores, now=NOW))[C]["redirects"] == 0


@pytest.mark.parametrize("grouped", [False, True])
def test_hops_without_a_link_between_them_are_limited(crawl: Crawl, grouped: bool) -> None:
    urls = [f"http://a.example/{number}" for number in range(20)]
    for number in range(15):
        crawl.segment(
            T + number, [Visit(urls[number], "redirect", redirect_url=urls[number + 1], at=0)]
        )
        if not grouped and urls[number + 1] not in crawl.rows(update(crawl.stores, now=NOW)):
            break
        if grouped and number == crawl.stores.config.fetch.max_redirects:
            break
    rows = crawl.rows(update(crawl.stores, now=NOW))
    assert max(row["redirects"] for row in rows.values()) == crawl.stores.config.fetch.max_redirects


def test_a_redirect_that_leaves_the_scope_adds_nothing_but_that_of_a_seed(config: Config) -> None:
    config = replace(config, urls=replace(config.urls, scope="hosts"))
    crawl = Crawl(stores_on(open_storage(config), config))
    away = ["http://elsewhere.example/1", "http://elsewhere.example/2"]
    visits = [
        Visit(A, "redirect", redirect_url=away[0]),
        Visit(B, "redirect", redirect_url=away[1]),
    ]
    visits[1].more["depth"] = 1
    crawl.segment(T, visits)
    assert set(crawl.rows(update(crawl.stores, now=NOW))) == {A, B, away[0]}


def test_links_that_are_not_followed_and_to_itself_are_none(crawl: Crawl) -> None:
    crawl.segment(T, [Visit(A, links=[A, B])])
    path = crawl.root / str(T) / "node-a" / "links.parquet"
    table = pq.read_table(path).to_pylist()
    pq.write_table(
        pa.Table.from_pylist(
            [{**row, "followed": row["target_url"] != B} for row in table], LINKS_SCHEMA
        ),
        path,
    )
    rows = crawl.rows(update(crawl.stores, now=NOW))
    assert set(rows) == {A}


def test_a_dropped_page_and_its_links_are_not_taken_in(crawl: Crawl) -> None:
    name = crawl.segment(T, [Visit(A, links=[B]), Visit(C)])
    DroppedLists(crawl.stores.storage, f"crawl/{name}").write([key(A)])
    (crawl.root / str(T) / FileName.DROPPED).touch()
    assert set(crawl.rows(update(crawl.stores, now=NOW))) == {C}


@pytest.mark.parametrize("how", ["drop", "delete"])
def test_what_is_known_of_a_capture_that_is_gone_is_forgotten(crawl: Crawl, how: str) -> None:
    """The next visit is without conditions; a 304 that was asked for before is none."""
    name = crawl.segment(T, [Visit(A, body="x", more={"etag": '"1"'})])
    rows = crawl.rows(update(crawl.stores, now=NOW))
    assert (rows[A]["etag"], rows[A]["capture_segment"]) == ('"1"', name)
    if how == "drop":
        DroppedLists(crawl.stores.storage, f"crawl/{name}").write([key(A)])
        (crawl.root / str(T) / FileName.DROPPED).touch()
    else:
        shutil.rmtree(crawl.root / str(T))
    crawl.segment(T + DAY, [Visit(B)])
    row = crawl.rows(update(crawl.stores, now=NOW))[A]
    assert (row["etag"], row["capture_segment"], row["capture_time"]) == (None, None, None)
    assert (row["status"], row["signature"]) == ("fetched", sha1(b"x").digest())
    crawl.segment(T + 2 * DAY, [Visit(A, "not_modified", refers_to=(name, "0.warc.gz", 0))])
    row = crawl.rows(update(crawl.stores, now=NOW))[A]
    assert (row["status"], row["signature"], row["fetch_time"]) == (
        "unfetched",
        None,
        at(T + 2 * DAY),
    )


def test_a_late_segment_is_taken_in_by_a_later_update(crawl: Crawl) -> None:
    crawl.segment(T, [Visit(A)])
    update(crawl.stores, now=NOW)
    crawl.segment(T, [Visit(B)], node="node-b")
    version = update(crawl.stores, now=NOW)
    assert set(crawl.rows(version)) == {A, B}
    assert set(version.manifest["segments"]) == {f"{T}/node-a", f"{T}/node-b"}


def test_older_segments_without_later_columns_are_taken_in(crawl: Crawl) -> None:
    name = crawl.segment(T, [Visit(A), Visit(B, "timeout")])
    path = crawl.root / name / "pages.parquet"
    pq.write_table(
        pq.read_table(path).drop_columns(["retry_at", "refers_to", "parse_error", "error"]), path
    )
    rows = crawl.rows(update(crawl.stores, now=NOW))
    assert (rows[A]["status"], rows[B]["status"]) == ("fetched", "gone")


def test_a_host_that_was_given_up_costs_an_untried_url_no_retry(crawl: Crawl) -> None:
    visits = [
        Visit(A, "host_gave_up", retry_s=60, more={"attempts": 0}),
        Visit(B, "host_gave_up", retry_s=60),
    ]
    crawl.segment(T, visits)
    rows = crawl.rows(update(crawl.stores, now=NOW))
    assert (rows[A]["retries"], rows[B]["retries"]) == (0, 1)


def test_scores_are_handed_on(crawl: Crawl) -> None:
    crawl.seeds(f"{A}\tscore=2.5\n{C}")
    update(crawl.stores, now=NOW)
    crawl.segment(T, [Visit(A, links=[B, C]), Visit(C, links=[B])])
    rows = crawl.rows(update(crawl.stores, now=NOW))
    assert {url: float(row["score"]) for url, row in rows.items()} == {A: 2.5, B: 2.5, C: 1.0}


@pytest.mark.parametrize("grouped", [False, True])
def test_max_depth_of_a_seed_ends_its_links(crawl: Crawl, grouped: bool) -> None:
    crawl.seeds(f"{A}\tmax_depth=2")
    limit = {"metadata": '{"max_depth": "2"}'}
    urls = [A, *(f"http://a.example/{number}" for number in range(1, 5))]
    for depth in range(3):
        if not grouped:
            update(crawl.stores, now=NOW)
        crawl.segment(
            T + depth,
            [Visit(urls[depth], links=[urls[depth + 1]], more={"depth": depth, **limit}, at=0)],
        )
    rows = crawl.rows(update(crawl.stores, now=NOW))
    assert {url: row["metadata"] for url, row in rows.items()} == dict.fromkeys(
        urls[:3], '{"max_depth": "2"}'
    )
    crawl.segment(T + DAY, [Visit(B, links=[urls[2]])])
    rows = crawl.rows(update(crawl.stores, now=NOW))
    assert (rows[urls[2]]["metadata"], rows[urls[1]]["metadata"]) == (None, '{"max_depth": "2"}')


@pytest.mark.parametrize("make", [update, rebuild])
def test_of_many_rounds_at_once_each_hands_on_what_the_one_before_has_left(
    crawl: Crawl, make: Any
) -> None:
    """B has the score of a seed that comes later in the end, and gave C what it had before."""
    crawl.seeds(A)
    crawl.segment(T, [Visit(A, links=[B])])
    crawl.segment(T + DAY, [Visit(B, links=[C], more={"depth": 1})])
    later = "http://later.example/"
    crawl.seeds(f"{later}\tscore=7", "two")
    crawl.segment(T + 2 * DAY, [Visit(later, links=[B])])
    rows = crawl.rows(make(crawl.stores, now=NOW))
    assert {url: float(row["score"]) for url, row in rows.items()} == {A: 1, B: 7, C: 1, later: 7}


def test_an_unknown_plug_in_is_an_error_also_if_nothing_is_new(crawl: Crawl) -> None:
    crawl.seeds(A)
    update(crawl.stores, now=NOW)
    config = replace(crawl.stores.config, scoring=ScoringConfig(plugins=("nobody",)))
    stores = replace(crawl.stores, config=config)
    with pytest.raises(ConfigError, match=r"scoring\.plugins: nobody: is not installed"):
        update(stores, now=NOW)
    with pytest.raises(ConfigError, match=r"scoring\.plugins: nobody: is not installed"):
        generate(stores, "run", 1, now=NOW)
