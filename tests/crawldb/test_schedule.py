"""When a page is visited again: fixed, adaptive, by rules, by metadata of its seed."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from crawl_lib.config import Config, from_mapping
from crawl_lib.crawldb import rebuild, update
from crawl_lib.crawldb.inputs import SeedFacts
from crawl_lib.errors import ConfigError
from crawl_lib.storage import open_storage
from tests.crawldb.crawls import Crawl, Visit
from tests.crawldb.test_update import DAY, NOW, A, B, C, T, at
from tests.stores import stores_on


def crawl_with(config: Config, tmp_path: Any, **schedule: Any) -> Crawl:
    config = from_mapping({**config.to_mapping(), "schedule": schedule}, tmp_path)
    return Crawl(stores_on(open_storage(config), config))


def intervals(crawl: Crawl, bodies: str, **more: Any) -> list[int]:
    """The intervals of a page after each visit; "g": it was gone, "3": a 304."""
    found = []
    for number, body in enumerate(bodies):
        visit = Visit(A, body=body, more=more)
        if body == "g":
            visit = Visit(A, "gone", more=more)
        if body == "3":
            visit = Visit(A, "not_modified", refers_to=("1/a", "0", 0), more=more)
        crawl.segment(T + number * 400 * DAY, [visit])
        found.append(crawl.rows(update(crawl.stores, now=NOW))[A]["interval_s"])
    return found


def test_the_adaptive_schedule_by_the_notes(config: Config, tmp_path: Any) -> None:
    """First: as it was; changed: 0.2 less; the same: 0.4 more."""
    crawl = crawl_with(config, tmp_path, kind="adaptive", interval_s=1000)
    assert intervals(crawl, "xxyz3") == [1000, 1400, 1120, 896, 1254]


def test_the_fixed_schedule(config: Config, tmp_path: Any) -> None:
    crawl = crawl_with(config, tmp_path, kind="fixed", interval_s=1000)
    assert intervals(crawl, "xxyz3") == [1000] * 5


def test_intervals_have_bounds(config: Config, tmp_path: Any) -> None:
    crawl = crawl_with(
        config, tmp_path, kind="adaptive", interval_s=100, min_s=70, max_s=130, always_s=120
    )
    assert intervals(crawl, "xyzzzz") == [100, 80, 70, 98, 130, 130]
    row = crawl.rows()[A]
    assert row["fetch_time"] == at(T + 5 * 400 * DAY) + timedelta(
        seconds=120
    )  # a visit at most always_s later


def test_what_is_gone_is_tried_at_longer_and_longer_intervals(
    config: Config, tmp_path: Any
) -> None:
    crawl = crawl_with(config, tmp_path, interval_s=1000, always_s=2000)
    assert intervals(crawl, "gggx") == [1500, 1800, 1800, 1800]


RULES: list[tuple[dict[str, Any], list[int]]] = [
    ({"fixed_s": 500}, [500, 500, 500]),
    ({"kind": "domain", "value": "example", "fixed_s": 500}, [500, 500, 500]),
    ({"kind": "domain", "value": "other.example", "fixed_s": 500}, [1000, 1400, 1120]),
    ({"kind": "regex", "value": r"^a\.", "max_s": 1200}, [1000, 1200, 960]),
    ({"kind": "regex", "value": r"^b\.", "max_s": 1200}, [1000, 1400, 1120]),
    ({"mime_type": "text/*", "min_s": 1300}, [1300, 1820, 1456]),
    ({"mime_type": "image/*", "min_s": 1300}, [1000, 1400, 1120]),
    ({"metadata": "topic=news", "fixed_s": 60}, [60, 60, 60]),
    ({"metadata": "topic=old", "fixed_s": 60}, [1000, 1400, 1120]),
    ({"status": "not_modified", "fixed_s": 60}, [1000, 60, 60]),
    ({"max_s": 10**9, "min_s": 1}, [1000, 1400, 1120]),
]


@pytest.mark.parametrize(("rule", "wanted"), RULES, ids=str)
def test_a_rule(config: Config, tmp_path: Any, rule: dict[str, Any], wanted: list[int]) -> None:
    crawl = crawl_with(config, tmp_path, kind="adaptive", interval_s=1000, rules=[rule])
    more = {"mime_detected": "text/HTML", "metadata": '{"topic": "news", "list": "1-1"}'}
    assert intervals(crawl, "xxy", **more) == wanted


def test_the_first_rule_that_matches_counts(config: Config, tmp_path: Any) -> None:
    rules = [
        {"status": "gone", "fixed_s": 9},
        {"kind": "domain", "value": "a.example", "fixed_s": 8},
        {"fixed_s": 7},
    ]
    crawl = crawl_with(config, tmp_path, rules=rules)
    assert intervals(crawl, "xg") == [8, 9]


def test_a_seed_sets_its_first_interval_or_its_only_one(config: Config, tmp_path: Any) -> None:
    crawl = crawl_with(config, tmp_path, kind="adaptive", rules=[{"fixed_s": 7}])
    crawl.seeds(f"{A}\tinterval_fixed_s=300\n{B}\tinterval_s=400\thalf=1")
    rows = crawl.rows(update(crawl.stores, now=NOW))
    assert (rows[A]["interval_s"], rows[B]["interval_s"]) == (300, 400)
    assert intervals(crawl, "xxy", metadata=rows[A]["metadata"]) == [300, 300, 300]


@pytest.mark.parametrize("value", ["x", "-1", "1e400", "²", "nan", ""])
def test_metadata_that_is_no_number_asks_for_nothing(
    config: Config, tmp_path: Any, value: str
) -> None:
    crawl = crawl_with(config, tmp_path, interval_s=1000)
    crawl.seeds(
        f"{A}\tinterval_s={value}\tinterval_fixed_s={value}\tmax_depth={value}\tscore={value}0x"
    )
    row = crawl.rows(update(crawl.stores, now=NOW))[A]
    assert (row["interval_s"], float(row["score"])) == (1000, 1)


@pytest.mark.parametrize("text", ["no JSON", "[1]", "7", '{"score": [', None, ""])
def test_metadata_that_is_no_object_asks_for_nothing(
    config: Config, tmp_path: Any, text: str | None
) -> None:
    """A queue that people made may have any text there."""
    assert SeedFacts.of(text) == SeedFacts()
    crawl = crawl_with(
        config, tmp_path, interval_s=1000, rules=[{"metadata": "half=1", "fixed_s": 5}]
    )
    assert intervals(crawl, "xy", metadata=text) == [1000, 1000]


@pytest.mark.parametrize(
    ("schedule", "message"),
    [
        ({"min_s": 9, "max_s": 8}, r"schedule\.min_s: 9 is more than schedule\.max_s"),
        (
            {"rules": [{"kind": "regex", "value": "("}]},
            r"schedule\.rules\[0\]\.value: .*not a regular expression",
        ),
        ({"rules": [{"min_s": 9, "max_s": 8}]}, r"schedule\.rules\[0\]\.min_s"),
        ({"rules": [{"status": "fetch"}]}, r"schedule\.rules\[0\]\.status: must be one of"),
        ({"rules": [{"metadata": "topic"}]}, r"schedule\.rules\[0\]\.metadata"),
    ],
)
def test_a_schedule_that_cannot_be_is_refused(
    config: Config, tmp_path: Any, schedule: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        crawl_with(config, tmp_path, **schedule)


def test_where_the_schedule_changes_only_later_visits_do(config: Config) -> None:
    crawl = Crawl(stores_on(open_storage(config), config))
    crawl.segment(T, [Visit(A), Visit(B)])
    update(crawl.stores, now=NOW)
    config = replace(
        config, schedule=replace(config.schedule, interval_s=60, max_s=3600, kind="adaptive")
    )
    crawl = Crawl(stores_on(open_storage(config), config))
    crawl.segment(T + DAY, [Visit(A)])
    rows = crawl.rows(update(crawl.stores, now=NOW))
    assert (rows[A]["interval_s"], rows[B]["interval_s"]) == (3600, 30 * DAY)


SAID = {
    f"lastmod={T + 3600}": 60,
    f"lastmod={T + 40 * DAY}": 60,
    f"lastmod={T}": 30 * DAY,
    f"every_s={DAY}": DAY,
    "every_s=10": 60,
    f"lastmod={T} every_s={DAY}": DAY,
    f"lastmod={T + 3600} every_s={DAY}": 60,
    "": 30 * DAY,
}
"""What a sitemap says a day after a visit at T: how many seconds after it the next one is."""


def test_what_a_sitemap_says_brings_a_visit_forward(config: Config, tmp_path: Any) -> None:
    """Not before `min_s` have passed since the last one; and of a visit that came later, or has failed, nothing."""
    crawl = crawl_with(config, tmp_path, sitemaps=True)
    maps, pages, later = (
        [f"http://{name}.example/{number}" for number in range(len(SAID))] for name in "mpl"
    )
    crawl.seeds("\n".join([*maps, *pages, *later, A]))
    crawl.segment(T, [*map(Visit, [*pages, *later]), Visit(A, "timeout", retry_s=7 * DAY)])
    update(crawl.stores, now=NOW)
    links = [{"element": "loc", "rel": said} for said in SAID]
    listed = zip(maps, pages, later, links, strict=True)
    crawl.segment(
        T + DAY,
        [Visit(one, links=[page, other, A], link=link) for one, page, other, link in listed],
    )
    update(crawl.stores, now=NOW)
    crawl.segment(T + 2 * DAY, list(map(Visit, later)))
    grown, built = (crawl.rows(make(crawl.stores, now=NOW)) for make in (update, rebuild))
    waits = {
        url: (row["fetch_time"] - (row["fetched_time"] or row["fetch_time"])).total_seconds()
        for url, row in grown.items()
    }
    assert dict(zip(SAID, map(waits.get, pages), strict=True)) == SAID
    assert {waits[url] for url in later} == {30 * DAY}
    assert waits[A] == 7 * DAY
    assert {url: row["fetch_time"] for url, row in built.items()} == {
        u: row["fetch_time"] for u, row in grown.items()
    }


@pytest.mark.parametrize(("counts", "score"), [(True, "0.250000000"), (False, "1.000000000")])
def test_hints_count_by_option_only(
    counts: bool, score: str, config: Config, tmp_path: Any
) -> None:
    crawl = crawl_with(config, tmp_path, sitemaps=counts)
    crawl.seeds(f"{A}\n{B}")
    update(crawl.stores, now=NOW)
    crawl.segment(T, [Visit(B)])
    said = {"element": "loc", "rel": f"lastmod={T + 3600} priority=0.25"}
    crawl.segment(T + DAY, [Visit(A, links=[B, C], link=said)])
    rows = crawl.rows(update(crawl.stores, now=NOW))
    assert str(rows[C]["score"]) == score
    assert (rows[B]["fetch_time"] < at(T + DAY)) is counts
