"""A URL that waits for another try, and what people do by hand: no command takes its row for the final one."""

from __future__ import annotations

import copy
import json
from pathlib import Path

import pytest

from crawl_lib import stages
from crawl_lib.crawldir import SegmentRef
from crawl_lib.curate import (
    ForgottenPages,
    compact_segment,
    drop_pages,
    forget,
    import_archives,
    merge_indexes,
)
from crawl_lib.export import show_page
from crawl_lib.fetch import HostStore
from crawl_lib.fetch.hoststore import NO_BACK_OFF
from crawl_lib.keys import open_key_store
from crawl_lib.node import shares
from crawl_lib.repair import fsck, repair_crawl
from crawl_lib.states import KeyState
from crawl_lib.stores import Stores, open_stores
from crawl_lib.urls import host_of
from tests.e2e.crawl import Result
from tests.node.test_retries import NODE, Down, answering
from tests.repair.archives import answer, archive, write
from tests.repair.crawled import copy_of


class Busy(Down):
    """A crawl of one URL whose server said that it is busy."""

    def copied(self, directory: Path) -> Busy:
        """The same crawl in another directory."""
        other = copy.copy(self)
        other.config = copy_of(Result(self.config), directory).config
        return other

    @property
    def stores(self) -> Stores:
        return open_stores(self.config)

    @property
    def segment(self) -> SegmentRef:
        """The newest."""
        [*_, found] = self.stores.crawl.segments()
        return found

    def answered(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """It is due, its host's back-off is over, and it is fetched."""
        with HostStore(Path(self.config.queue.local_dir) / NODE / "hosts") as hosts:
            hosts.save_back_off(host_of(self.url), NO_BACK_OFF)
        monkeypatch.setattr(shares, "time", lambda: float(self.queued()[0].due))
        with answering(self.port):
            assert self.go_on()["outcomes"] == {"ok": 1}


@pytest.fixture(scope="module")
def busy(tmp_path_factory: pytest.TempPathFactory) -> Busy:
    made = Busy(tmp_path_factory.mktemp("busy"), urls={"max_pages_per_host": 5})
    with answering(made.port, 503):
        assert made.go_on()["retried"] == {"server_error": 1}
    return made


@pytest.fixture
def crawl(busy: Busy, tmp_path: Path) -> Busy:
    return busy.copied(tmp_path / "crawl")


def test_forget_leaves_it_and_counts_it_as_waiting(crawl: Busy) -> None:
    for pages in (
        ForgottenPages(hosts={host_of(crawl.url)}),
        ForgottenPages(urls=[crawl.url]),
        ForgottenPages(older_than_s=-1.0),
    ):
        with open_key_store(crawl.config.key_storage) as keys:
            report = forget(crawl.stores, keys, pages)
        assert (report.asked, report.forgotten, report.waiting) == (1, 0, 1)
    assert crawl.key_state() is KeyState.QUEUED


def test_a_dropped_and_compacted_try_is_no_page_that_stays_known(
    crawl: Busy, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = crawl.segment
    assert drop_pages(crawl.stores, [crawl.url]).dropped == {str(before): [crawl.url]}
    assert compact_segment(crawl.stores, before).pages == 1
    counts = before.manifest()["counts"]
    assert (counts["outcomes"], counts["retried"], counts["dropped"]) == ({}, {}, 1)
    assert fsck(crawl.stores).findings == []
    repair_crawl(crawl.stores)
    assert crawl.key_state() is KeyState.QUEUED
    crawl.answered(monkeypatch)
    assert (crawl.rows(), crawl.key_state()) == ([("ok", True)], KeyState.CRAWLED)
    assert drop_pages(crawl.stores, [crawl.url]).dropped == {str(crawl.segment): [crawl.url]}


def test_what_is_imported_meanwhile_is_final_and_it_still_waits(
    crawl: Busy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = write(tmp_path / "other.warc.gz", archive([answer(crawl.url, b"<p>found elsewhere")]))
    [imported] = import_archives(crawl.stores, [str(file)]).files
    assert (imported.pages, imported.waiting) == (1, 1)
    assert (crawl.key_state(), len(crawl.queued())) == (KeyState.CRAWLED, 1)
    assert stages.export_pages(crawl.stores, label="early")["pages"] == 1
    crawl.answered(monkeypatch)
    assert fsck(crawl.stores).findings == []


def test_an_export_has_the_answer_and_an_index_all_captures(
    crawl: Busy, monkeypatch: pytest.MonkeyPatch
) -> None:
    stages.export_pages(crawl.stores, label="early")
    crawl.answered(monkeypatch)
    assert stages.export_pages(crawl.stores, label="late")["pages"] == 1
    page = show_page(crawl.stores, name="late", page=crawl.url)
    assert (page.url, page.row["status"], page.row["segment_path"]) == (
        crawl.url,
        200,
        crawl.segment.path,
    )
    report = merge_indexes(crawl.stores)
    lines = [
        json.loads(line.split(" ", 2)[2]) for line in Path(report.file).read_text().splitlines()
    ]
    assert {line["status"] for line in lines if line["url"] == crawl.url} == {"503", "200"}
