"""Counts of the newest pages: status codes, types and hosts, of a bounded number of rows."""

from __future__ import annotations

from pathlib import Path

import pytest

from crawl_lib.config import Config
from crawl_lib.rounds import pagecounts
from crawl_lib.rounds.pagecounts import SHOWN, count_pages
from crawl_lib.storage import LocalStorage
from crawl_lib.stores import Stores
from tests.export.crawls import Capture, CrawlMaker
from tests.stores import stores_on

ENTRIES = [
    {"folder": "1", "segments": ["node-0"]},
    {"folder": "2", "segments": ["node-0", "node-1"]},
]


@pytest.fixture
def stores(config: Config) -> Stores:
    root = Path(config.dfs_primary)
    made = CrawlMaker(root)
    made.segment("1", "node-0", [Capture(f"http://old.example/{number}") for number in range(5)])
    made.segment(
        "2", "node-0", [Capture(f"http://host-{number}.example/") for number in range(SHOWN + 3)]
    )
    gone = [
        Capture(f"http://a.example/{number}", status=404, outcome="gone", mime=None)
        for number in range(2)
    ]
    made.segment(
        "2", "node-1", [*gone, Capture("http://a.example/refused", status=None, mime=None)]
    )
    return stores_on(LocalStorage(root), config)


def test_all_rows_are_counted_and_the_most_frequent_values_shown(stores: Stores) -> None:
    found = count_pages(stores, ENTRIES)
    assert found["rows"] == 5 + SHOWN + 3 + 3
    assert found["status codes"] == {"200": SHOWN + 8, "404": 2}
    assert found["MIME types"] == {"text/html": SHOWN + 8}
    assert len(found["hosts"]) == SHOWN
    assert list(found["hosts"].items())[:2] == [("old.example", 5), ("a.example", 3)]


def test_rows_of_the_newest_iterations_come_first_and_have_a_bound(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pagecounts, "MOST_ROWS", SHOWN + 4)
    found = count_pages(stores, ENTRIES)
    assert found["rows"] == SHOWN + 4
    assert "old.example" not in found["hosts"]
