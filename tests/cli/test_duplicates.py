"""`krake duplicates ...` as a user types it."""

from __future__ import annotations

import pytest

from crawl_lib.config import load_config
from crawl_lib.crawldb import update
from crawl_lib.rounds import CrawlName
from crawl_lib.storage import open_storage
from crawl_lib.stores import Stores
from tests.cli.conftest import Krake
from tests.crawldb.test_update import NOW
from tests.duplicates.web import leave
from tests.stores import stores_on

TEXTS = {
    f"http://{host}.example/{number}": f"page number{number} has one word of its own\n{'x' * 5} All rights reserved"
    for host in "ab"
    for number in range(6)
}


def opened(krake: Krake) -> Stores:
    config = load_config(krake.file)
    (krake.directory / "dfs").mkdir(exist_ok=True)
    stores = stores_on(open_storage(config), config)
    CrawlName(stores).note()
    return stores


@pytest.mark.parametrize("order", ["fifo", "crawldb"])
def test_all_commands(krake: Krake, order: str) -> None:
    krake.configure(frontier={"order": order}, duplicates={"cosine": 0.95})
    assert (
        "has no CrawlDb yet"
        if order == "crawldb"
        else "has no segment yet" in krake("duplicates", "near").error()
    )
    stores = opened(krake)
    leave(stores, TEXTS)
    if order == "crawldb":
        update(stores, now=NOW)
    found = krake.ok("duplicates", "near", "--json").json
    assert {name: found[name] for name in ("cosine", "groups", "pages", "rows", "version")} == {
        "cosine": 0.95,
        "groups": 6,
        "pages": 12,
        "rows": 12,
        "version": 1,
    }
    assert "duplicates/1" in krake.ok("duplicates", "near").out
    [mirror] = krake.ok("duplicates", "mirrors", "--json").json
    assert mirror == {
        "host": "a.example",
        "mirror": "b.example",
        "mirror_texts": 6,
        "shared": 6,
        "texts": 6,
    }
    assert "mirror texts" in krake.ok("duplicates", "mirrors").out
    assert "All rights reserved" in krake.ok("duplicates", "templates").out
    assert "duplicates" not in krake("fsck").out
    if order == "crawldb":
        assert krake.ok("duplicates", "mark", "--json").json["statuses"] == {
            "duplicate": 6,
            "fetched": 6,
        }
    else:
        assert "this needs crawldb" in krake("duplicates", "mark").error()
    part = krake.directory / "dfs" / "crawl" / "duplicates" / "1" / "part-00000.parquet"
    part.write_bytes(b"")
    assert "krake duplicates near" in krake("fsck").out


def test_without_any_there_are_words_for_it(krake: Krake) -> None:
    krake.configure()
    leave(opened(krake), {"http://a.example/": "one"})
    assert "no two hosts" in krake.ok("duplicates", "mirrors").out
    assert "no block" in krake.ok("duplicates", "templates").out


def test_texts_of_another_crawl_are_left_alone(krake: Krake) -> None:
    krake.configure(
        crawl={"name": "other", "directory": "other"},
        crawldb={"signature": "text"},
        export={"directory": "exports"},
        key_storage={"servers": ["keys/1.sqlite"]},
        queue={"local_dir": "q"},
    )
    opened(krake)
    krake.configure()
    leave(opened(krake), TEXTS)
    assert "text is of the crawl 'other'" in krake("duplicates", "near").error()
