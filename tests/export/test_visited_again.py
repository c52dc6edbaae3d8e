"""Where lists ask for pages again, what ended is not exported, and a revisit counts as its full capture."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from crawl_lib.config import Config
from crawl_lib.export import export_pages
from crawl_lib.graph import link_export
from crawl_lib.storage import Storage
from tests.export.crawls import Capture, CrawlMaker, key
from tests.export.test_choice import contents
from tests.stores import stores_on

A, B, C = "http://a.example/", "http://b.example/", "http://c.example/"
GONE: dict[str, Any] = {"status": 404, "outcome": "gone"}
MOVED: dict[str, Any] = {"status": 301, "outcome": "redirect"}
TIMEOUT: dict[str, Any] = {"status": None, "outcome": "timeout"}
NOT_MODIFIED: dict[str, Any] = {"status": 304, "outcome": "not_modified", "refers_to": "1/node-a"}
SAME: dict[str, Any] = {"status": 200, "refers_to": "1/node-a"}


@pytest.fixture
def again(config: Config) -> Config:
    """The config of a crawl whose pages are visited again."""
    return replace(config, frontier=replace(config.frontier, order="crawldb"))


def exported(
    storage: Storage, config: Config, crawl: CrawlMaker, name: str = "x"
) -> dict[bytes, bytes]:
    export_pages(stores_on(storage, config), name=name, segments=crawl.segments)
    return contents(config, name)


@pytest.mark.parametrize(
    ("later", "stays"),
    [
        ([Capture(A, time=20, **GONE)], False),
        ([Capture(A, time=20, **MOVED)], False),
        ([Capture(A, time=20, **TIMEOUT)], True),
        ([Capture(A, time=20, status=500, outcome="server_error")], True),
        ([Capture(A, time=20, **GONE), Capture(A, b"back", time=30)], True),
        ([Capture(A, time=20, **GONE), Capture(A, time=30, **TIMEOUT)], True),
        ([Capture(A, time=20, **GONE), Capture(A, time=30, retry_at=99, **TIMEOUT)], False),
        ([Capture(A, time=20, **NOT_MODIFIED)], True),
        ([Capture(A, time=20, **NOT_MODIFIED), Capture(A, time=30, **GONE)], False),
    ],
)
def test_what_ended_is_not_exported(
    storage: Storage,
    again: Config,
    config: Config,
    crawl: CrawlMaker,
    later: list[Capture],
    stays: bool,
) -> None:
    crawl.segment("1", "node-a", [Capture(A, b"first", time=10), Capture(B, b"other", time=10)])
    for number, capture in enumerate(later, 2):
        crawl.segment(str(number), "node-a", [capture])
    body = b"back" if later[-1].body else b"first"
    assert exported(storage, again, crawl) == {
        key(B): b"other",
        **({key(A): body} if stays else {}),
    }
    assert exported(storage, config, crawl, "once")[key(A)] == body, "with fifo as ever"


@pytest.mark.parametrize("visit", [NOT_MODIFIED, SAME])
def test_a_revisit_counts_as_its_full_capture_with_its_links(
    storage: Storage, again: Config, crawl: CrawlMaker, visit: dict[str, Any]
) -> None:
    """Also where another capture came between them: the page is as it was before that one."""
    crawl.segment(
        "1",
        "node-a",
        [Capture(A, b"first", time=10, links=[B, C]), Capture(B, b"b"), Capture(C, b"c")],
    )
    crawl.segment("2", "node-a", [Capture(A, b"second", time=20, links=[C])])
    crawl.segment("3", "node-a", [Capture(A, time=30, **visit)])
    assert exported(storage, again, crawl) == {key(A): b"first", key(B): b"b", key(C): b"c"}
    link_export(stores_on(storage, again), name="x")
    folder = Path(again.dfs_primary) / "export" / "x"
    assert pq.read_table(folder / "arcs-out.parquet").num_rows == 2
    [time] = [
        one["time"]
        for one in pq.read_table(folder / "pages.parquet").to_pylist()
        if one["url"] == A
    ]
    assert time.timestamp() == 10, "the row of the full capture"


def test_a_revisit_whose_full_capture_is_not_there_does_not_count(
    storage: Storage, again: Config, crawl: CrawlMaker
) -> None:
    crawl.segment("2", "node-a", [Capture(A, b"second", time=20)])
    crawl.segment("3", "node-a", [Capture(A, time=30, **NOT_MODIFIED), Capture(B, time=30, **SAME)])
    assert exported(storage, again, crawl) == {key(A): b"second"}


def test_inputs_say_so_and_those_of_fifo_say_what_they_did(
    storage: Storage, again: Config, config: Config, crawl: CrawlMaker
) -> None:
    crawl.segment("1", "node-a", [Capture(A, b"first", time=10)])
    for given, name in ((again, "x"), (config, "once")):
        exported(storage, given, crawl, name)
        inputs = json.loads((Path(config.dfs_primary) / "export" / name / "inputs").read_text())
        assert inputs["options"].get("revisited") == (True if given is again else None)
        exported(storage, given, crawl, name)  # complete, nothing to do
