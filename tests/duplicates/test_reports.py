"""Mirrors and templates of the made web: all that it has, and no other."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from crawl_lib.config import Config
from crawl_lib.duplicates import find_mirrors, find_templates
from crawl_lib.storage import open_storage
from crawl_lib.stores import Stores
from crawl_lib.text import count_words
from tests.duplicates.web import TEMPLATE, leave, make_web
from tests.stores import stores_on


def test_all_mirrors_and_templates_are_found_and_no_others(stores: Stores) -> None:
    web = make_web(3, mirrors=20, pairs=10, templates=3, others=30)
    leave(stores, web.texts)
    row = {"texts": 9, "mirror_texts": 9, "shared": 8}
    expected = [{**row, "host": one, "mirror": other} for one, other in web.mirrors]
    assert find_mirrors(stores) == sorted(expected, key=lambda row: str(row["host"]))
    expected = [
        {"host": f"t{number}.example", "pages": 14, "line": line, "pages_with_line": 14}
        for number in range(3)
        for line in sorted(TEMPLATE)
    ]
    assert find_templates(stores) == expected
    left = list(Path(stores.config.dfs_primary, "crawl", "duplicates").glob("*"))
    assert left == [], "a report leaves nothing"


@pytest.mark.parametrize(("shared", "is_mirror"), [(5, False), (6, True)])
def test_a_mirror_shares_more_than_half_of_the_texts_of_the_smaller_host(
    stores: Stores, shared: int, is_mirror: bool
) -> None:
    own = {f"http://a.example/{n}": f"text number{n} of this host alone" for n in range(10)}
    more = {f"http://b.example/{n}": own[f"http://a.example/{n}"] for n in range(shared)}
    more |= {f"http://b.example/own{n}": f"another text number{n} of that host" for n in range(30)}
    leave(stores, {**own, **more})
    assert [(row["host"], row["mirror"], row["shared"]) for row in find_mirrors(stores)] == [
        ("a.example", "b.example", shared)
    ] * is_mirror


def test_small_hosts_and_texts_that_many_hosts_have_make_no_mirrors(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("crawl_lib.duplicates.reports.MOST_HOSTS", 3)
    few = {
        f"http://{host}.example/{n}": f"text number{n} of two hosts"
        for host in "ab"
        for n in range(4)
    }
    many = {
        f"http://{host}.example/{n}": f"one text number{n} of four hosts"
        for host in "cdef"
        for n in range(6)
    }
    leave(stores, {**few, **many})
    assert find_mirrors(stores) == []


def test_a_line_counts_once_a_page_and_is_a_template_from_half_of_the_pages_on(
    stores: Stores,
) -> None:
    texts = {f"http://a.example/{n}": f"own text number{n}" for n in range(12)}
    for number in range(6):
        texts[f"http://a.example/{number}"] += "\nHalf \t of them\n\nHalf of them"
    for number in range(5):
        texts[f"http://a.example/{number}"] += "\nLess than half"
    texts |= {f"http://b.example/{n}": "On four pages only" for n in range(4)}
    assert count_words(texts["http://a.example/0"])["half"] == 3
    leave(stores, texts)
    found = {"host": "a.example", "pages": 12, "line": "Half of them", "pages_with_line": 6}
    assert find_templates(stores) == [found]


def test_a_crawl_with_one_empty_page_has_neither(config: Config) -> None:
    stores = stores_on(open_storage(config), replace(config))
    leave(stores, {"http://a.example/": ""})
    assert (find_mirrors(stores), find_templates(stores)) == ([], [])
