"""Of equal pages one stays; the others are duplicates until they change, or become the best."""

from __future__ import annotations

import os
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from crawl_lib import stages
from crawl_lib.config import Config
from crawl_lib.crawldb import update
from crawl_lib.duplicates import find_near, mark_duplicates
from crawl_lib.durable import KILL_VARIABLE
from crawl_lib.errors import InputError, OutputConflictError, PathNotFoundError
from crawl_lib.export.readers import UrlMapping
from crawl_lib.repair import sweep
from crawl_lib.segment import PAGES_SCHEMA
from crawl_lib.storage import open_storage
from crawl_lib.stores import Stores
from tests.crawldb.crawls import Crawl, Visit
from tests.crawldb.tables import leave_version, row_of
from tests.crawldb.test_update import DAY, NOW, T
from tests.duplicates.web import leave
from tests.export.crawls import Capture, CrawlMaker, key
from tests.forked import run_forked
from tests.stores import stores_on

SECURE, PLAIN, LONG, ESCAPED = (
    "https://a.example/",
    "http://a.example/",
    "http://a.example/xx",
    "http://a.example/%41",
)
OTHER, SUB = "http://b.example/", "http://www.a.example/"
EARLIER, LATER = sorted(["http://b.example/1", "http://b.example/2"], key=key)
A, B, C = "http://a.example/", "http://b.example/", "http://c.example/"
TEN = "one two three four five six seven eight nine ten"


def stores_of(config: Config, export: str = "keep", **options: Any) -> Stores:
    config = replace(config, frontier=replace(config.frontier, order="crawldb"))
    config = replace(config, export=replace(config.export, duplicates=export))
    return stores_on(
        open_storage(config), replace(config, duplicates=replace(config.duplicates, **options))
    )


def known(
    url: str, signature: bytes | None = b"same", status: str = "fetched", **fields: Any
) -> dict[str, Any]:
    fields = {"fetch_status": "fetched", "fetched_time": T, **fields}
    return row_of(url, status=status, signature=signature, **fields)


def statuses(stores: Stores) -> dict[str, str]:
    return {
        url: row["status"]
        for url, row in Crawl(stores).rows(mark_duplicates(stores, now=NOW)).items()
    }


def duplicates(stores: Stores) -> set[str]:
    return {url for url, status in statuses(stores).items() if status == "duplicate"}


@pytest.mark.parametrize(
    ("worse", "better"),
    [
        (known(SECURE), known(LONG, score=Decimal("0.5"), fetched_time=T - 9)),
        (known(SECURE), known(LONG, fetched_time=T + 1)),
        (known(SECURE, fetched_time=None), known(LONG)),
        (known(OTHER), known("https://b.example/longer")),
        (known(LONG), known(ESCAPED)),
        (known(LATER), known(EARLIER)),
    ],
    ids=[
        "score",
        "newest visit",
        "visited at all",
        "https",
        "length of the decoded URL",
        "smallest key",
    ],
)
def test_which_one_stays(config: Config, worse: dict[str, Any], better: dict[str, Any]) -> None:
    """Each rule where the rules before it do not decide, and those after it would decide otherwise."""
    stores = stores_of(config)
    leave_version(stores, 1, [worse, better])
    assert duplicates(stores) == {worse["url"]}


def test_only_what_has_content_has_duplicates(config: Config) -> None:
    rest = (
        "unfetched",
        "redirected_temporary",
        "redirected_permanent",
        "gone",
        "parse_failed",
        "orphan",
    )
    stores = stores_of(config)
    others = [
        known(f"http://{status[:4]}{number}.example/", status=status)
        for number, status in enumerate(rest)
    ]
    unknown = [known("http://x.example/", None), known("http://y.example/", None)]
    leave_version(
        stores, 1, [*others, *unknown, known(A, status="not_modified", fetch_status="not_modified")]
    )
    found = statuses(stores)
    assert [found[row["url"]] for row in [*others, *unknown]] == [*rest, "fetched", "fetched"]
    assert found[A] == "not_modified"


@pytest.mark.parametrize(
    ("among", "found"), [("none", {OTHER, PLAIN, SUB}), ("domain", {PLAIN, SUB}), ("host", {PLAIN})]
)
def test_one_stays_of_all_or_of_a_domain_or_of_a_host(
    config: Config, among: str, found: set[str]
) -> None:
    stores = stores_of(config, among=among)
    leave_version(
        stores, 1, [known(SECURE), known(PLAIN), known(OTHER), known(SUB, domain="a.example")]
    )
    assert duplicates(stores) == found


def test_other_columns_stay_and_what_was_done_is_not_done_again(config: Config) -> None:
    stores = stores_of(config)
    leave_version(stores, 1, [known(A), known(B)])
    first = mark_duplicates(stores, now=NOW)
    assert (first.number, mark_duplicates(stores, now=NOW).number) == (2, 2)
    rows = Crawl(stores).rows(first)
    assert {url: {**row, "status": "fetched"} for url, row in rows.items()} == {
        A: known(A),
        B: known(B),
    }
    assert mark_duplicates(stores_of(config, among="host"), now=NOW).number == 3
    assert duplicates(stores_of(config, among="host")) == set(), (
        "a duplicate of before has its status of visits again"
    )


def test_a_duplicate_that_changes_is_none_any_more_over_rounds(config: Config) -> None:
    """It is visited as others are; as long as it says the same it stays a duplicate, in the update too."""
    stores = stores_of(config)
    crawl = Crawl(stores)
    crawl.seeds(f"{A}\n{B}\n{C}")

    def round_of(day: int, **bodies: str) -> dict[str, str]:
        urls = {"a": A, "b": B, "c": C}
        crawl.segment(
            T + day * DAY, [Visit(urls[name], body=body) for name, body in bodies.items()]
        )
        return {url: row["status"] for url, row in crawl.rows(update(stores, now=NOW)).items()}

    round_of(0, a="x", b="x", c="x")
    [stays] = {A, B, C} - duplicates(stores)
    names = {A: "a", B: "b", C: "c"}
    first, second = (names[url] for url in (A, B, C) if url != stays)
    found = round_of(1, **{first: "x", second: "new"})
    assert [found[url] for url in (A, B, C) if url != stays] == ["duplicate", "fetched"]
    kept = duplicates(stores)
    assert kept == {stays}, "the newest visit stays"
    found = round_of(2, **{first: "also new"})
    assert set(found.values()) == {"fetched", "duplicate"}
    assert duplicates(stores) == set(), "nothing is equal to it any more"
    assert statuses(stores)[stays] == "fetched"


def test_near_duplicates_are_duplicates_by_option(config: Config) -> None:
    stores = stores_of(config, near=True)
    texts = {A: TEN, B: TEN.replace("ten", "eleven"), C: "something else"}
    leave(stores, texts)
    update(stores, now=NOW)
    with pytest.raises(InputError, match="run `krake duplicates near` first"):
        mark_duplicates(stores, now=NOW)
    find_near(stores, now=NOW)
    assert duplicates(stores_of(config)) == set()
    found = duplicates(stores)
    assert len(found) == 1
    assert found < {A, B}
    near = find_near(stores, now=NOW)
    assert (near.number, near.manifest["rows"]) == (1, 2), "other statuses change nothing"
    leave(stores, {A: texts[B]}, T + DAY)
    update(stores, now=NOW)
    assert find_near(stores, now=NOW).number == 2
    assert len(duplicates(stores)) == 1, "a duplicate is in its group still"


def exported(stores: Stores, label: str) -> set[bytes]:
    stages.export_pages(stores, label=label)
    with UrlMapping(Path(stores.config.dfs_primary) / "export" / label / "urlmapping") as mapping:
        return set(mapping)


def captured(stores: Stores) -> Stores:
    """Three pages that say the same, taken in."""
    maker = CrawlMaker(Path(stores.config.dfs_primary))
    place = maker.segment(str(T), "node-a", [Capture(url, b"x", time=T) for url in (A, B, C)])
    rows = [
        {**row, "digest": b"x" * 20} for row in pq.read_table(place / "pages.parquet").to_pylist()
    ]
    pq.write_table(pa.Table.from_pylist(rows, PAGES_SCHEMA), place / "pages.parquet")
    update(stores, now=NOW)
    return stores


def test_duplicates_leave_the_export_by_option(config: Config) -> None:
    stores, keeping = captured(stores_of(config, "drop")), stores_of(config)
    assert exported(stores, "before") == set(map(key, (A, B, C)))
    gone = set(map(key, duplicates(stores)))
    assert len(gone) == 2
    assert exported(stores, "drop") == set(map(key, (A, B, C))) - gone
    assert exported(keeping, "keep") == set(map(key, (A, B, C)))
    assert exported(stores, "before") == set(map(key, (A, B, C))), (
        "it has the statuses with which it was begun"
    )
    with pytest.raises(OutputConflictError):
        exported(keeping, "drop")


def test_an_export_goes_on_with_the_statuses_it_was_begun_with_or_says_that_they_are_gone(
    config: Config,
) -> None:
    stores = captured(stores_of(config, "drop"))
    exported(stores, "x")
    folder = Path(config.dfs_primary) / "export" / "x"
    for file in folder.iterdir():
        if file.name != "inputs":
            file.unlink()
    assert len(duplicates(stores)) == 2
    assert exported(stores, "x") == set(map(key, (A, B, C)))
    (folder / "pages.parquet").unlink()
    (Path(config.dfs_primary) / "crawl" / "crawldb" / "1" / "part-00000.parquet").unlink()
    with pytest.raises(
        PathNotFoundError, match=r"crawldb/1/part-00000.parquet, which was deleted since; move"
    ):
        exported(stores, "x")


def mark_and_die(config: Config, step: str) -> None:
    os.environ[KILL_VARIABLE] = step
    mark_duplicates(stores_of(config), now=NOW)


@pytest.mark.parametrize("step", ["versions.written", "versions.renamed"])
def test_killed_and_run_again_the_same_ones_are_duplicates(config: Config, step: str) -> None:
    stores = stores_of(config)
    leave_version(stores, 1, [known(SECURE), known(LONG), known(OTHER, signature=b"other")])
    assert run_forked(mark_and_die, config, step) == -9
    assert duplicates(stores) == {LONG}
    assert mark_duplicates(stores, now=NOW).number == 2
    sweep(stores)
    assert sorted(entry.name for entry in stores.storage.list(stores.crawl.at("crawldb"))) == [
        "1",
        "2",
    ]
