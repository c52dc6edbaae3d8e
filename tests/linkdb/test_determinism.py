"""The same segments give the same bytes: by one thread and two, at once or one after the other, after kills."""

from __future__ import annotations

import random
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from crawl_lib import durable
from crawl_lib.config import Config
from crawl_lib.errors import DamagedFileError
from crawl_lib.linkdb import LINKDB, OUTLINKS, update_linkdb
from crawl_lib.storage import open_storage
from crawl_lib.versions import Family, Versions, writing
from tests.crawldb.crawls import Crawl, Visit
from tests.crawldb.test_update import DAY, NOW, T
from tests.engine.threads import use_threads
from tests.linkdb.tables import A, B, C, inlinks
from tests.stores import stores_on


@pytest.fixture
def crawl(config: Config) -> Crawl:
    config = replace(config, linkdb=replace(config.linkdb, max_inlinks=12, max_outlinks=7))
    return Crawl(stores_on(open_storage(config), config))


def grow(crawl: Crawl, rounds: int = 3, pages: int = 1000) -> None:
    """Rounds of visits, of pages that change, do not, are gone, and come back."""
    rng = random.Random(1)
    urls = [f"http://{number % 50}.example/{number}" for number in range(pages)]
    for number in range(rounds):
        visits = [
            Visit(url, rng.choice(["ok", "ok", "not_modified", "gone", "timeout"]), at=rng.random())
            for url in rng.sample(urls, pages // 2)
        ]
        for visit in visits:
            links = [
                (url, rng.choice(["", "here", "Ä"]))
                for url in rng.choices(urls[: pages // 5], k=10)
            ]
            visit.links = links if visit.outcome == "ok" else ()
        crawl.segment(T + number * DAY, visits)


def sums(crawl: Crawl, *families: Family) -> list[str]:
    """What the parts of the newest versions are."""
    found = [Versions(crawl.stores, family).newest() for family in families or (OUTLINKS, LINKDB)]
    return [part["sha256"] for version in found if version for part in version.manifest["parts"]]


def forget(crawl: Crawl) -> None:
    """As if there had been no update yet."""
    for family in (OUTLINKS, LINKDB):
        shutil.rmtree(crawl.root / family.folder, ignore_errors=True)


def test_threads_and_groups_of_segments_change_no_byte(
    crawl: Crawl, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writing, "PART_ROWS", 1000)
    monkeypatch.setattr("crawl_lib.linkdb.links.GROUP_ROWS", 500)
    grow(crawl)
    found = []
    for threads in (1, 2):
        use_threads(monkeypatch, threads)
        forget(crawl)
        update_linkdb(crawl.stores, now=NOW)
        found.append(sums(crawl))
    forget(crawl)
    folders = [T, T + DAY, T + 2 * DAY]
    for folder in folders:
        (crawl.root / str(folder)).rename(crawl.root / f"{folder}.away")
    for folder in (folders[1], folders[0], folders[2]):
        (crawl.root / f"{folder}.away").rename(crawl.root / str(folder))
        update_linkdb(crawl.stores, now=NOW)
    found.append(sums(crawl))
    assert found[0] == found[1] == found[2]
    assert len(found[0]) > 4


@pytest.mark.parametrize("step", ["versions.written", "versions.renamed"])
@pytest.mark.parametrize("which", [1, 2], ids=["table of links", "LinkDb"])
def test_killed_it_makes_the_same_when_it_is_run_again(
    crawl: Crawl, monkeypatch: pytest.MonkeyPatch, step: str, which: int
) -> None:
    crawl.segment(T, [Visit(A, links=[B, C]), Visit(B, links=[C])])
    update_linkdb(crawl.stores, now=NOW)
    expected = sums(crawl)
    forget(crawl)
    came: list[str] = []

    class KilledError(BaseException):
        pass

    def reached(name: str) -> None:
        came.append(name)
        if name == step and came.count(step) == which:
            raise KilledError

    monkeypatch.setattr(writing, "reached", reached)
    with pytest.raises(KilledError):
        update_linkdb(crawl.stores, now=NOW)
    monkeypatch.setattr(writing, "reached", durable.reached)
    update_linkdb(crawl.stores, now=NOW)
    assert sums(crawl) == expected


def test_a_damaged_table_is_named_and_the_last_whole_one_goes_on(crawl: Crawl) -> None:
    crawl.segment(T, [Visit(A, links=[B])])
    first = update_linkdb(crawl.stores, now=NOW)
    crawl.segment(T + DAY, [Visit(B, links=[C])])
    assert update_linkdb(crawl.stores, now=NOW).number == first.number + 1
    root = Path(crawl.stores.config.dfs_primary)
    newest = Versions(crawl.stores, OUTLINKS).read(2)
    (root / newest.paths[0]).unlink()
    assert inlinks(crawl) == {B: [A], C: [B]}
    for version in (1, 3):
        path = root / Versions(crawl.stores, OUTLINKS).read(version).paths[0]
        path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(
        DamagedFileError, match="no version is whole: move all of them away: `krake linkdb update`"
    ):
        update_linkdb(crawl.stores, now=NOW)


def test_damaged_links_of_a_segment_are_named_and_leave_nothing(crawl: Crawl) -> None:
    crawl.segment(T, [Visit(A, links=[B])])
    (crawl.root / str(T) / "node-a" / "links.parquet").write_bytes(b"PAR1")
    with pytest.raises(Exception, match=r"links\.parquet"):
        update_linkdb(crawl.stores, now=NOW)
    assert sums(crawl) == []
    assert not [
        path for path in crawl.root.rglob("*") if "outlinks" in path.parts and path.is_file()
    ]


def test_bytes_that_changed_are_named_with_what_to_do(crawl: Crawl) -> None:
    crawl.segment(T, [Visit(A, links=[B])])
    version = update_linkdb(crawl.stores, now=NOW)
    part = Path(crawl.stores.config.dfs_primary) / Versions(crawl.stores, OUTLINKS).read(1).paths[0]
    shutil.copy(part, part.with_name("copy"))
    part.write_bytes(b"x" * part.stat().st_size)
    crawl.stores.storage.delete(version.path)
    with pytest.raises(
        DamagedFileError, match=r"outlinks/1/part-00000\.parquet.*; run `krake fsck --repair`"
    ):
        update_linkdb(crawl.stores, now=NOW)
