"""Requisites in the CrawlDb: rows of their own, which are due where a page asks for them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from crawl_lib.config import Config
from crawl_lib.crawldb import Reason, explain, look_up, rebuild, update
from crawl_lib.crawldb.table import NEVER
from crawl_lib.storage import open_storage
from crawl_lib.stores import open_stores
from tests.crawldb.crawls import Crawl, Visit
from tests.crawldb.tables import leave_version, row_of
from tests.crawldb.test_generate import config_of, lines_of, make, urls_of, with_generate
from tests.crawldb.test_update import DAY, A, B, T, at
from tests.crawldb.test_update import NOW as NOW_OF_UPDATES
from tests.stores import stores_on

NOW = NOW_OF_UPDATES
SHEET, FONT, IMAGE = (
    "http://a.example/s.css",
    "http://cdn.example/f.woff2",
    "http://a.example/i.png",
)
MONTH = 30 * DAY
E1, E2 = {"hop": "E", "depth": 1}, {"hop": "E", "depth": 2}


@pytest.fixture
def crawl(config: Config) -> Crawl:
    config = replace(config, parse=replace(config.parse, requisites="all"))
    crawl = Crawl(stores_on(open_storage(config), config))
    crawl.seeds(A)
    update(crawl.stores, now=NOW)
    return crawl


def grown(crawl: Crawl, *rounds: tuple[int, Sequence[Visit]]) -> dict[str, dict[str, Any]]:
    """The rows after an update for each round."""
    for folder, visits in rounds:
        crawl.segment(folder, visits)
        version = update(crawl.stores, now=NOW)
    return crawl.rows(version)


def same_once_more(crawl: Crawl) -> bool:
    """Whether one update of all segments says the same as the updates before."""
    rows = crawl.rows()
    return crawl.rows(rebuild(crawl.stores, now=NOW)) == rows


FIRST = (T, [Visit(A, body="a", needs=[SHEET, IMAGE])])
SECOND = (T + 60, [Visit(SHEET, body="s", needs=[FONT], more=E1), Visit(IMAGE, "gone", more=E1)])
THIRD = (T + 120, [Visit(FONT, body="f", more=E2)])


def states(rows: dict[str, dict[str, Any]]) -> dict[str, tuple[Any, ...]]:
    return {
        url: (row["status"], row["fetch_status"], row["fetch_time"], row["depth"])
        for url, row in rows.items()
    }


def test_a_requisite_is_a_row_that_is_due_once_a_page_names_it(crawl: Crawl) -> None:
    rows = grown(crawl, FIRST)
    asked = ("requisite", "unfetched", at(T), 1)
    assert (states(rows)[SHEET], states(rows)[IMAGE]) == (asked, asked)
    rows = grown(crawl, SECOND)
    assert states(rows)[SHEET] == ("requisite", "fetched", NEVER, 1)
    assert states(rows)[IMAGE] == ("requisite", "gone", NEVER, 1)
    assert states(rows)[FONT] == ("requisite", "unfetched", at(T + 60), 2)
    rows = grown(crawl, THIRD)
    assert states(rows)[FONT] == ("requisite", "fetched", NEVER, 2)
    assert {row["inlinks"] for row in rows.values()} == {0}


@pytest.mark.parametrize(("age", "is_due"), [(MONTH + DAY, True), (MONTH - DAY, False)])
def test_a_page_that_is_fetched_anew_asks_for_requisites_older_than_its_interval(
    crawl: Crawl, age: int, is_due: bool
) -> None:
    seen = T + 60
    again = (seen + age, [Visit(A, body="b", needs=[SHEET])])
    rows = grown(crawl, FIRST, SECOND, THIRD, again)
    assert states(rows)[SHEET][2] == (at(seen + age) if is_due else NEVER)
    assert states(rows)[IMAGE][2] == NEVER, "the page does not name it any more"
    assert states(rows)[FONT][2] == NEVER, "the style sheet asks for it once it is fetched"
    rows = grown(
        crawl,
        (
            seen + age + 60,
            [Visit(SHEET, "not_modified", refers_to=("x", "y", 0), needs=[], more=E1)],
        ),
    )
    assert states(rows)[SHEET][2] == NEVER


def test_the_interval_of_the_page_counts(crawl: Crawl) -> None:
    crawl.seeds(f"{B}\tinterval_s=3600")
    page = Visit(B, body="b", needs=[SHEET])
    crawl.iteration(T - 60)
    update(crawl.stores, now=NOW)
    rows = grown(crawl, FIRST, SECOND, (T + 7200, [page]))
    assert states(rows)[SHEET][2] == at(T + 7200)


def test_a_requisite_that_a_page_links_to_is_a_page(crawl: Crawl) -> None:
    """The table says the same, whether the link comes before the visit, with it, or after it."""
    link = Visit(B, body="b", links=[SHEET, FONT], more={"depth": 1})
    rows = grown(crawl, FIRST, SECOND, (T + 120, [link]))
    assert states(rows)[SHEET] == ("fetched", "fetched", at(T + 60 + MONTH), 2), (
        "due as if it had been a page"
    )
    assert states(rows)[FONT] == ("unfetched", "unfetched", at(T + 120), 2)
    assert (rows[SHEET]["inlinks"], rows[SHEET]["redirects"]) == (1, 0)
    rows = grown(crawl, (T + 180, [Visit(SHEET, body="s2", more={"depth": 2, "hop": "L"})]))
    assert states(rows)[SHEET][:2] == ("fetched", "fetched")
    rows = grown(crawl, (T + 240, [Visit(A, body="c", needs=[SHEET])]))
    assert states(rows)[SHEET][0] == "fetched", "a page stays one"
    assert same_once_more(crawl)


def test_a_page_that_was_fetched_as_a_requisite_stays_a_page(crawl: Crawl) -> None:
    """Its line waited in a queue when a page linked to it."""
    link = Visit(B, body="b", links=[SHEET], more={"depth": 1})
    rows = grown(crawl, FIRST, (T + 30, [link]), SECOND)
    assert states(rows)[SHEET] == ("fetched", "fetched", at(T + 60 + MONTH), 2)
    assert same_once_more(crawl)


@pytest.mark.parametrize("policy", ["keep", "update", "overwrite"])
def test_a_seed_makes_a_requisite_a_page(config: Config, policy: str) -> None:
    config = replace(config, crawldb=replace(config.crawldb, seeds=policy))
    crawl = Crawl(stores_on(open_storage(config), config))
    crawl.seeds(A)
    grown(crawl, FIRST, SECOND)
    crawl.seeds(f"{SHEET}\tscore=3\n{FONT}", "later")
    crawl.iteration(T + 200)
    rows = crawl.rows(update(crawl.stores, now=NOW))
    assert (rows[FONT]["status"], rows[FONT]["depth"], str(rows[FONT]["score"])) == (
        "unfetched",
        0,
        "1.000000000",
    )
    assert (rows[SHEET]["depth"], str(rows[SHEET]["score"])) == (0, "3.000000000")
    assert rows[SHEET]["status"] == ("unfetched" if policy == "overwrite" else "fetched")
    assert same_once_more(crawl)


def test_a_redirect_of_a_requisite_leads_to_a_requisite(crawl: Crawl) -> None:
    moved = Visit(SHEET, "redirect", redirect_url=FONT, more=E1)
    loop = Visit(FONT, "redirect", redirect_url=SHEET, more=E2)
    rows = grown(crawl, FIRST, (T + 60, [moved]), (T + 120, [loop]))
    assert states(rows)[SHEET] == ("requisite", "redirected_temporary", NEVER, 1)
    assert states(rows)[FONT] == ("requisite", "redirected_temporary", NEVER, 2)
    far = Visit(FONT, "redirect", redirect_url=B, more={"hop": "E", "depth": 7})
    assert B not in grown(crawl, (T + 180, [far])), "no requisite is more than 7 steps away"
    assert same_once_more(crawl)


def test_with_same_site_a_redirect_stays_on_the_site(config: Config) -> None:
    config = replace(config, parse=replace(config.parse, requisites="same_site"))
    crawl = Crawl(stores_on(open_storage(config), config))
    crawl.seeds(A)
    moved = Visit(SHEET, "redirect", redirect_url=FONT, more=E1)
    assert FONT not in grown(crawl, FIRST, (T + 60, [moved]))


def test_a_failure_that_passes_is_tried_again(crawl: Crawl) -> None:
    rows = grown(crawl, FIRST, (T + 60, [Visit(SHEET, "timeout", retry_s=600, more=E1)]))
    assert states(rows)[SHEET] == ("requisite", "unfetched", at(T + 60, 610), 1)
    assert rows[SHEET]["retries"] == 1


def test_one_update_of_many_rounds_says_the_same(crawl: Crawl) -> None:
    """Also for pages that links and visits made of requisites in between."""
    link = Visit(B, body="b", links=[SHEET], more={"depth": 1})
    later = (T + MONTH + 2 * DAY, [Visit(A, body="z", needs=[SHEET, IMAGE], links=[B])])
    rows = grown(crawl, FIRST, SECOND, (T + 90, [link]), THIRD, later)
    assert states(rows)[IMAGE][2] == at(later[0])
    assert same_once_more(crawl)


# The list


def needed(url: str, **fields: Any) -> dict[str, Any]:
    return row_of(url, **({"status": "requisite", "depth": 1} | fields))


def test_a_list_has_the_requisites_that_pages_ask_for(tmp_path: Path) -> None:
    config = with_generate(config_of(tmp_path), min_score=0.5)
    config = replace(config, urls=replace(config.urls, max_depth=0))
    rows = [needed(SHEET), needed(FONT, depth=3), needed(IMAGE, fetch_time=NEVER.timestamp())]
    leave_version(open_stores(config), 1, rows)
    made = make(config)
    assert {line.url: line.requisite for line in lines_of(config, made.list)} == {
        SHEET: 1,
        FONT: 3,
    }
    assert made.counts == {"listed": 2, "not_needed": 1}
    for ask in (explain, look_up):
        assert ask(open_stores(config), IMAGE).reason is Reason.NOT_NEEDED


def test_limits_of_pages_do_not_count_requisites(tmp_path: Path) -> None:
    hosts = [f"http://h{number}.example" for number in range(3)]
    pages = [row_of(f"{host}/{page}") for host in hosts for page in range(3)]
    requisites = [needed(f"{host}/{number}.png") for host in hosts for number in range(4)]
    limits = {"top_n": 4, "max_per_host": 2, "max_per_domain": 2, "spread": True}
    config = with_generate(config_of(tmp_path), **limits, requisites_top_n=10)
    leave_version(open_stores(config), 1, chain(pages, requisites))
    made = make(config)
    listed = urls_of(config, made.list)
    assert (len(listed), sum(url.endswith(".png") for url in listed)) == (14, 10)
    assert made.counts == {"listed": 14, "host_limit": 3, "top_n": 2, "requisites_top_n": 2}


def test_requisites_come_before_pages_of_their_domain_and_leave_room_for_others(
    tmp_path: Path,
) -> None:
    farm = [needed(f"http://farm.example/{number}.png") for number in range(200)]
    good = [row_of(f"http://good.example/{number}") for number in range(10)]
    own = [row_of(f"http://farm.example/{number}") for number in range(10)]
    config = config_of(tmp_path)
    leave_version(open_stores(config), 1, chain(farm, good, own))
    listed = urls_of(config, make(config, batch_size=40).list)
    assert sum("good" in url for url in listed) == 10
    assert sum("farm" in url for url in listed) == 30
    assert not any(url in listed for url in (row["url"] for row in own))


def test_a_round_of_requisites_lists_no_page_and_ends_where_none_waits(tmp_path: Path) -> None:
    config = config_of(tmp_path)
    config = replace(config, parse=replace(config.parse, requisites="all"))
    first = config.crawl.max_iterations + 1
    leave_version(open_stores(config), 1, [row_of(A), needed(SHEET)])
    made = make(config, first)
    assert urls_of(config, made.list) == {SHEET}
    assert made.counts == {"listed": 1, "page": 1}
    assert make(config, first + 1).ended
