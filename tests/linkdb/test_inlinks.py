"""Who links to a page: against the files of real sites, in any script, within the limits."""

from __future__ import annotations

import random
from dataclasses import replace
from hashlib import sha1
from typing import Any

import pyarrow as pa
import pytest

from crawl_lib.ask import inlinks_of, links_left_out
from crawl_lib.config import ChainsConfig, Config, StepConfig
from crawl_lib.engine import first_of_each
from crawl_lib.linkdb import LINKDB, update_linkdb, update_outlinks
from crawl_lib.storage import open_storage
from tests.crawldb.crawls import Crawl, Visit
from tests.crawldb.test_update import NOW, T
from tests.linkdb.docs import links_in_files, visits
from tests.linkdb.tables import A, B, C, inlinks, rows_of
from tests.stores import stores_on

PYTHON = "http://python.example/"
NAMES = """library/asyncio library/functions glossary library/index c-api/unicode howto/sorting whatsnew/3.11
    tutorial/errors reference/expressions library/zlib"""
TEN = {f"{PYTHON}{name}.html" for name in NAMES.split()}


def limited(config: Config, **options: Any) -> Crawl:
    """A crawl with other options of `linkdb`."""
    config = replace(config, linkdb=replace(config.linkdb, **options))
    return Crawl(stores_on(open_storage(config), config))


def test_the_inlinks_of_ten_pages_are_those_that_their_site_s_files_have(config: Config) -> None:
    crawl = limited(config, within_host=True, max_outlinks=100_000, max_anchor_chars=200)
    crawl.segment(T, visits(PYTHON))
    update_linkdb(crawl.stores, now=NOW)
    rows = rows_of(crawl.stores, LINKDB)
    found = {(row["source_url"], row["url"], row["anchor"]) for row in rows if row["url"] in TEN}
    assert found == {(source, url, text[:200]) for source, url, text in links_in_files(PYTHON, TEN)}
    assert {url for _, url, _ in found} == TEN
    assert len(found) > 1500


def test_words_in_any_script_are_kept_and_cut_by_characters(config: Config) -> None:
    words = [
        "Ελληνικά",
        "日本語のページ",
        "العربية",
        "עברית",
        "हिन्दी",
        "ไทย",
        "👩‍🚀",
        "",
        "Русский " * 20,
    ]
    crawl = limited(config, max_anchor_chars=30)
    crawl.segment(T, [Visit(A, links=[(B, word) for word in words])])
    update_linkdb(crawl.stores, now=NOW)
    assert sorted(row["anchor"] for row in rows_of(crawl.stores, LINKDB)) == sorted(
        {word[:30] for word in words}
    )


def test_words_that_are_the_same_once_they_are_cut_count_once(config: Config) -> None:
    crawl = limited(config, max_anchor_chars=2, max_outlinks=2)
    crawl.segment(T, [Visit(A, links=[(B, "one"), (B, "only"), (B, "two"), (B, "two")])])
    update_linkdb(crawl.stores, now=NOW)
    assert [row["anchor"] for row in rows_of(crawl.stores, LINKDB)] == ["on", "tw"]


def test_links_within_a_host_count_by_option(config: Config) -> None:
    visit = Visit(A, links=["http://a.example:8080/", "http://www.a.example/", f"{A}page"])
    for within_host, count in ((False, 1), (True, 3)):
        crawl = limited(config, within_host=within_host)
        if not within_host:
            crawl.segment(T, [visit])
        assert len(inlinks(crawl)) == count


def smallest(urls: list[str], most: int) -> set[str]:
    return set(sorted(urls, key=lambda url: sha1(url.encode()).digest())[:most])


def test_where_a_limit_cuts_the_smallest_keys_stay(config: Config) -> None:
    """A page with 100,000 links, and one that 3,000 pages link to."""
    crawl = limited(config, max_inlinks=1000)
    many = [f"http://{number}.example/" for number in range(100_000)]
    crawl.segment(T, [Visit(A, links=many), *(Visit(url, links=[A]) for url in many[:3000])])
    found = inlinks(crawl)
    assert set(found.pop(A)) == smallest(many[:3000], 1000)
    assert set(found) == smallest(many, 100)


@pytest.mark.parametrize(
    ("options", "left_out"),
    [
        ({"max_inlinks": 2}, {"linkdb.max_inlinks: 2": 2, "linkdb.within_host: false": 1}),
        ({"max_outlinks": 1}, {"linkdb.max_outlinks: 1": 1, "linkdb.within_host: false": 1}),
        ({"within_host": True}, {}),
    ],
)
def test_what_limits_leave_out_is_counted_by_option(
    options: dict[str, Any], left_out: dict[str, int], config: Config
) -> None:
    """Texts that are the same once they are cut are one link."""
    crawl = limited(config, max_anchor_chars=3, **options)
    page = f"{A}page"
    links = [
        Visit(page, links=[A]),
        Visit(B, links=[(A, "word"), (A, "words"), (A, "other")]),
        Visit(C, links=[A]),
    ]
    crawl.segment(T, [*links, Visit("http://d.example/", links=[A])])
    update_linkdb(crawl.stores, now=NOW)
    found = inlinks_of(crawl.stores, A)
    assert links_left_out(crawl.stores, A, found) == left_out
    crawl.segment(T + 1000, [Visit("http://e.example/", links=[A])])
    update_outlinks(crawl.stores, now=NOW)
    assert links_left_out(crawl.stores, A, found)["new since the last `krake linkdb update`"] >= 1


@pytest.mark.parametrize("size", [1, 2, 7, 1000])
def test_runs_are_cut_alike_however_they_come_in_batches(size: int) -> None:
    rng = random.Random(size)
    keys = sorted(rng.choice([b"a", b"b", b"c" * 20, b"d"]) for _ in range(200))
    table = pa.table({"key": keys, "text": [rng.choice("xy") for _ in keys]}).sort_by(
        [("key", "ascending")]
    )
    batches = [
        pa.RecordBatch.from_pydict(
            {"key": pa.array([], pa.binary()), "text": pa.array([], pa.string())}
        )
    ]
    batches += table.combine_chunks().to_batches(size)
    rows = list(zip(*(table[name].to_pylist() for name in ("key", "text")), strict=True))
    once = [row for before, row in zip([None, *rows], rows, strict=False) if row != before]
    assert taken(first_of_each(batches, ["key", "text"], 1)) == once
    assert taken(first_of_each(batches, ["key"], 3)) == [
        row
        for number, row in enumerate(rows)
        if [key for key, _ in rows[:number]].count(row[0]) < 3
    ]


def taken(batches: Any) -> list[tuple[bytes, str]]:
    return [tuple(row.values()) for batch in batches for row in batch.to_pylist()]


def test_rules_of_the_scope_linkdb_hold_for_both_ends(config: Config) -> None:
    """Normalised links are in order again, each once; a filter that rejects an end rejects the link."""
    crawl = limited(config)
    crawl.segment(
        T,
        [
            Visit(f"{A}?b=1&a=2", links=[B, C, f"{B}x.zip"]),
            Visit(A, links=[f"{B}?d&c", f"{B}?c&d"]),
        ],
    )
    chains = {
        "normalizers": ChainsConfig(linkdb=(StepConfig("query"),)),
        "filters": ChainsConfig(linkdb=(StepConfig("suffix", None, "+P\n.zip"),)),
    }
    ruled = replace(crawl.stores.config, urls=replace(crawl.stores.config.urls, **chains))
    crawl = replace(crawl, stores=replace(crawl.stores, config=ruled))
    assert inlinks(crawl) == {B: [f"{A}?a=2&b=1"], C: [f"{A}?a=2&b=1"], f"{B}?c&d": [A]}
    again = replace(ruled, urls=replace(ruled.urls, normalizers=ChainsConfig()))
    crawl = replace(crawl, stores=replace(crawl.stores, config=again))
    assert set(inlinks(crawl)) == {B, C, f"{B}?c&d", f"{B}?d&c"}
