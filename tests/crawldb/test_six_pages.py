"""A site like Nutch's test site, six pages and three rounds: the rows after each round, written by hand.

`/` is the seed and links to all others; `/moved` leads to `/target`; `/copy` has the content of `/`; `/broken` cannot
be read; `/trap` links to ever deeper paths; `/page` is gone in the third round; robots.txt forbids `/secret`.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from crawl_lib.config import Config
from crawl_lib.crawldb import update
from crawl_lib.storage import open_storage
from crawl_lib.versions import Version
from tests.crawldb.crawls import Crawl, Visit
from tests.crawldb.test_update import DAY, NOW, T, at
from tests.stores import stores_on

SITE = "http://site.example/"
HOME, MOVED, TARGET, COPY, BROKEN = (
    SITE,
    f"{SITE}moved",
    f"{SITE}target",
    f"{SITE}copy",
    f"{SITE}broken",
)
TRAP, DEEP, DEEPER, GONE, SECRET = (
    f"{SITE}trap",
    f"{SITE}trap/b",
    f"{SITE}trap/b/b",
    f"{SITE}page",
    f"{SITE}secret",
)
ALL = [MOVED, COPY, BROKEN, TRAP, GONE, SECRET]
ONE, TWO = {"depth": 1}, {"depth": 2}
FIRST, SECOND, THIRD = T, T + DAY, T + 40 * DAY
ROUNDS = [
    (FIRST, [Visit(HOME, body="home", links=ALL)]),
    (
        SECOND,
        [
            Visit(MOVED, "redirect", status=301, redirect_url=TARGET, more=ONE),
            Visit(COPY, body="home", links=ALL, more=ONE),
            Visit(BROKEN, parse_error="not HTML", body="<", more=ONE),
            Visit(TRAP, body="<b><b>", links=[DEEP], more=ONE),
            Visit(GONE, body="page", links=[HOME], more=ONE),
            Visit(SECRET, "robots_denied", more=ONE | {"attempts": 0}),
        ],
    ),
    (
        THIRD,
        [
            Visit(HOME, body="home 2", links=[MOVED, COPY, BROKEN, TRAP, GONE]),
            Visit(TARGET, body="target", links=[HOME], more=ONE),
            Visit(DEEP, body="<b><b><b>", links=[DEEPER], more=TWO),
            Visit(GONE, "gone", more=ONE),
            Visit(COPY, "not_modified", refers_to=(f"{SECOND}/node-a", "0.warc.gz", 1), more=ONE),
            Visit(TRAP, "timeout", retry_s=600, more=ONE),
        ],
    ),
]
# URL: status, next visit, interval in days, depth, links to it, retries, days of the content that is known
MONTH = timedelta(days=30)
AFTER = [
    {
        HOME: ("fetched", at(FIRST) + MONTH, 30, 0, 0, 0, FIRST),
        **{url: ("unfetched", at(FIRST), 30, 1, 1, 0, None) for url in ALL},
    },
    {
        HOME: ("fetched", at(FIRST) + MONTH, 30, 0, 1, 0, FIRST),
        MOVED: ("redirected_permanent", at(SECOND) + MONTH, 30, 1, 2, 0, None),
        TARGET: ("unfetched", at(SECOND), 30, 1, 1, 0, None),
        COPY: ("fetched", at(SECOND) + MONTH, 30, 1, 1, 0, SECOND),
        BROKEN: ("parse_failed", at(SECOND) + timedelta(days=45), 45, 1, 2, 0, None),
        TRAP: ("fetched", at(SECOND) + MONTH, 30, 1, 2, 0, SECOND),
        DEEP: ("unfetched", at(SECOND), 30, 2, 1, 0, None),
        GONE: ("fetched", at(SECOND) + MONTH, 30, 1, 2, 0, SECOND),
        SECRET: ("gone", at(SECOND) + timedelta(days=45), 45, 1, 2, 0, None),
    },
    {
        HOME: ("fetched", at(THIRD) + timedelta(days=24), 24, 0, 2, 0, THIRD),
        MOVED: ("redirected_permanent", at(SECOND) + MONTH, 30, 1, 2, 0, None),
        TARGET: ("fetched", at(THIRD) + MONTH, 30, 1, 1, 0, THIRD),
        COPY: ("not_modified", at(THIRD) + timedelta(days=42), 42, 1, 1, 0, SECOND),
        BROKEN: ("parse_failed", at(SECOND) + timedelta(days=45), 45, 1, 2, 0, None),
        TRAP: ("fetched", at(THIRD) + timedelta(seconds=600), 30, 1, 2, 1, SECOND),
        DEEP: ("fetched", at(THIRD) + MONTH, 30, 2, 1, 0, THIRD),
        DEEPER: ("unfetched", at(THIRD), 30, 3, 1, 0, None),
        GONE: ("gone", at(THIRD) + timedelta(days=45), 45, 1, 2, 0, SECOND),
        SECRET: ("gone", at(SECOND) + timedelta(days=45), 45, 1, 1, 0, None),
    },
]


def rows_by_hand(crawl: Crawl, version: Version) -> dict[str, tuple[object, ...]]:
    """The rows in the form of `AFTER`."""
    return {
        url: (
            row["status"],
            row["fetch_time"],
            row["interval_s"] / DAY,
            row["depth"],
            row["inlinks"],
            row["retries"],
            None if row["modified_time"] is None else int(row["modified_time"].timestamp()) - 10,
        )
        for url, row in crawl.rows(version).items()
    }


def test_three_rounds(config: Config) -> None:
    config = replace(config, schedule=replace(config.schedule, kind="adaptive"))
    crawl = Crawl(stores_on(open_storage(config), config))
    crawl.seeds(HOME)
    update(crawl.stores, now=NOW)
    for (folder, visits), rows in zip(ROUNDS, AFTER, strict=True):
        crawl.segment(folder, visits)
        version = update(crawl.stores, now=NOW)
        assert rows_by_hand(crawl, version) == rows
    assert version.manifest["statuses"] == {
        "fetched": 4, "gone": 2, "not_modified": 1, "parse_failed": 1, "redirected_permanent": 1, "unfetched": 1
    }  # fmt: skip
