"""The one reader of iterations: a complete one is read once, and a repair of it is seen within a minute."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from statistics import median
from time import process_time
from typing import Any

import pytest

from crawl_lib.config import Config
from crawl_lib.crawldir import FileName
from crawl_lib.dfsfiles import read_json, write_json_bytes
from crawl_lib.rounds import (
    CrawlReader,
    commit_iteration,
    refresh_index,
    start_iteration,
    status_of,
)
from crawl_lib.rounds.iterations import ASK_AGAIN_S, Iterations
from crawl_lib.storage import LocalStorage
from crawl_lib.stores import Stores, open_stores
from tests.rounds.test_start import lay_segment


class CountingStorage(LocalStorage):
    """Notes the files that are read, and the paths that are asked for."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.read: list[str] = []
        self.asked = 0

    def read_bytes(self, path: str) -> bytes:
        self.read.append(path)
        return super().read_bytes(path)

    def stat(self, path: str) -> Any:
        self.asked += 1
        return super().stat(path)

    def stamp(self, path: str) -> str | None:
        self.asked += 1
        return super().stamp(path)


class Looks:
    """A crawl with three complete iterations, its reader, and a clock that the test turns."""

    def __init__(self, config: Config) -> None:
        opened = open_stores(config)
        self.storage = CountingStorage(Path(config.dfs_primary))
        self.stores: Stores = replace(opened, storage=self.storage)
        self.now_s = 0.0
        self.reader = Iterations(lambda: self.now_s)
        self.folders = [self.add(number, commit=True) for number in (1, 2, 3)]

    def add(self, number: int, *, commit: bool) -> str:
        folder = start_iteration(
            self.stores, run_id="r", iteration=number, clock=lambda: 1000.0 + number
        ).folder
        for node in self.stores.config.servers:
            lay_segment(self.stores, folder, node, pages=number)
        if commit:
            commit_iteration(self.stores, run_id="r", iteration=number)
        return folder

    def look(self) -> list[dict[str, Any]]:
        self.storage.read, self.storage.asked = [], 0
        return self.reader.entries(self.stores)


@pytest.fixture
def looks(config: Config) -> Looks:
    return Looks(config)


def test_a_complete_iteration_is_read_once(looks: Looks) -> None:
    """Finding 2: at 1,000 iterations each look read 2,014 files, and asked for 5,060 paths."""
    first = looks.look()
    assert [entry["folder"] for entry in first] == looks.folders
    assert len(looks.storage.read) >= len(first)
    assert looks.look() == first
    assert (looks.storage.read, looks.storage.asked) == ([], 0)


def test_the_newest_iterations_are_read_first_within_a_time(looks: Looks) -> None:
    """The first look at 1,000 iterations on HDFS made 5,000 requests before anything was shown."""

    def look() -> list[str]:
        return [entry["folder"] for entry in looks.reader.entries(looks.stores, read_s=0.0)]

    assert look() == looks.folders[2:]
    looks.now_s = 1.0
    looks.reader.entries(looks.stores, read_s=0.5)
    assert [entry["folder"] for entry in looks.reader.entries(looks.stores)] == looks.folders
    assert look() == looks.folders, "what is known is shown"


def test_the_status_says_what_is_not_read_yet(looks: Looks) -> None:
    reader = CrawlReader(looks.stores.config)
    first = reader.status(read_s=0.0)
    assert (len(first["iterations"]), first["unread"]) == (1, 2)
    assert first["totals"]["urls"] == first["iterations"][0]["counts"]["urls"]
    assert "unread" not in reader.status(read_s=60.0)


def test_it_is_asked_for_a_change_once_a_minute(looks: Looks) -> None:
    first = looks.look()
    for minute in range(1, 4):
        looks.now_s = ASK_AGAIN_S * minute
        assert looks.look() == first
        assert (looks.storage.read, looks.storage.asked) == ([], 2 * len(first))
        looks.now_s += ASK_AGAIN_S - 1
        assert looks.look() == first
        assert looks.storage.asked == 0


def test_a_repair_is_seen_within_a_minute(looks: Looks) -> None:
    repaired, node = looks.folders[1], looks.stores.config.servers[0]
    before = looks.look()
    path = looks.stores.crawl.segment(repaired, node).path + "/manifest.json"
    manifest = read_json(looks.storage, path)
    looks.storage.delete(path)
    manifest["counts"]["outcomes"] = {"ok": 7}
    manifest["counts"]["pages"] = 7
    looks.storage.write_bytes(path, write_json_bytes(manifest))
    refresh_index(looks.stores, repaired)
    assert looks.look() == before
    looks.now_s = ASK_AGAIN_S
    after = looks.look()
    assert [entry["counts"]["urls"] for entry in after] == [2, 9, 6]
    assert {path.split("/")[1] for path in looks.storage.read} == {repaired}, (
        "the others are not read again"
    )


def test_pages_that_are_dropped_are_seen_within_a_minute(looks: Looks) -> None:
    looks.look()
    looks.storage.write_bytes(looks.stores.crawl.at(looks.folders[0], FileName.DROPPED), b"")
    looks.now_s = ASK_AGAIN_S
    looks.look()
    assert any(looks.folders[0] in path for path in looks.storage.read)


def test_what_is_not_complete_is_read_at_each_look(looks: Looks) -> None:
    looks.look()
    folder = looks.add(4, commit=False)
    assert [entry["complete"] for entry in looks.look()] == [True, True, True, False]
    assert {path.split("/")[1] for path in looks.storage.read} == {folder}
    commit_iteration(looks.stores, run_id="r", iteration=4)
    assert looks.look()[3]["complete"]
    assert looks.look()[3]["complete"]
    assert looks.storage.read == []


def test_a_folder_that_is_gone_is_forgotten_at_once(looks: Looks) -> None:
    looks.look()
    looks.storage.delete(looks.stores.crawl.at(looks.folders[0]))
    assert [entry["folder"] for entry in looks.look()] == looks.folders[1:]


def test_damage_is_told_and_what_is_repaired_is_read(looks: Looks) -> None:
    looks.look()
    path = looks.stores.crawl.at(looks.folders[2], "index.json")
    whole = looks.storage.read_bytes(path)
    looks.storage.delete(path)
    looks.storage.write_bytes(path, b"{")
    looks.now_s = ASK_AGAIN_S
    assert "krake fsck" in looks.look()[2]["error"]
    looks.storage.delete(path)
    looks.storage.write_bytes(path, whole)
    assert looks.look()[2]["complete"]


def test_sizes_are_listed_once(looks: Looks) -> None:
    first = looks.look()
    sized = [looks.reader.with_bytes(looks.stores, entry) for entry in first]
    assert all(entry["bytes"] > 0 for entry in sized)
    looks.storage.list = None  # type: ignore[method-assign, assignment]
    assert [looks.reader.with_bytes(looks.stores, entry) for entry in first] == sized


def test_a_second_look_says_the_same_and_costs_little(config: Config) -> None:
    looks = Looks(config)
    base = looks.stores.crawl.path
    for number in range(4, 150):
        name = str(1000 + number)
        for file in ("iteration.json", "index.json"):
            data = looks.storage.read_bytes(f"{base}/{looks.folders[0]}/{file}")
            looks.storage.write_bytes(f"{base}/{name}/{file}", data)
    cold, warm, reader = [], [], CrawlReader(config)
    for _ in range(3):
        began = process_time()
        fresh = status_of(config)
        cold.append(process_time() - began)
        reader.status()
        began = process_time()
        assert reader.status() == fresh
        warm.append(process_time() - began)
    assert median(warm) < median(cold) / 3
