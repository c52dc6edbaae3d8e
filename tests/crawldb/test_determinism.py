"""The same inputs give the same bytes; also with one thread and two, and with updates at the same time."""

from __future__ import annotations

import random
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from crawl_lib.config import Config
from crawl_lib.crawldb import newest_version, rebuild, update
from crawl_lib.errors import DamagedFileError
from crawl_lib.storage import open_storage
from crawl_lib.stores import Stores
from crawl_lib.versions import write_version, writing
from tests.crawldb.crawls import Crawl, Visit
from tests.crawldb.test_update import DAY, NOW, A, B, C, T
from tests.engine.threads import use_threads
from tests.stores import stores_on

updating = sys.modules["crawl_lib.crawldb.update"]


def grow(crawl: Crawl, seed: int, pages: int = 3000) -> None:
    """A crawl of two rounds, large enough for several threads."""
    rng = random.Random(seed)
    urls = [f"http://{number % 50}.example/{number}" for number in range(pages)]
    crawl.seeds("\n".join(f"{url}\tscore=0.{number}" for number, url in enumerate(urls[:50], 1)))
    for number in range(2):
        visits = [
            Visit(
                url,
                body=str(rng.random()),
                links=rng.choices(urls, k=10),
                at=rng.random(),
                more={"depth": 1},
            )
            for url in rng.sample(urls, pages // 2)
        ]
        crawl.segment(T + number * DAY, visits)


def sums(stores: Stores) -> list[str]:
    """What the parts of the newest version are."""
    return [part["sha256"] for part in newest_version(stores).manifest["parts"]]


def test_one_thread_and_two_and_shares_of_the_keys_give_the_same_bytes(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    crawl = Crawl(stores_on(open_storage(config), config))
    grow(crawl, 1)
    monkeypatch.setattr(writing, "PART_ROWS", 1000)
    monkeypatch.setattr(updating, "GROUP_ROWS", 500)
    found = []
    for threads, memory_bytes in ((1, 1 << 30), (2, 1 << 30), (2, 1 << 18)):
        use_threads(monkeypatch, threads, memory_bytes)
        rebuild(crawl.stores, now=NOW)
        found.append(sums(crawl.stores))
    assert found[0] == found[1] == found[2]
    assert len(found[0]) == 3


def test_of_two_updates_at_once_the_second_takes_in_what_the_first_has_left(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    crawl = Crawl(stores_on(open_storage(config), config))
    crawl.segment(T, [Visit(A)])
    written, others = write_version, []

    def after_another(*arguments: Any, **named: Any) -> Any:
        if not others:
            others.append(None)
            others.append(update(crawl.stores, now=NOW))
            crawl.segment(T + DAY, [Visit(B)])
        return written(*arguments, **named)

    monkeypatch.setattr(updating, "write_version", after_another)
    version = update(crawl.stores, now=NOW)
    assert (others[1].number, version.number) == (1, 2)
    assert set(crawl.rows(version)) == {A, B}
    assert not [path for path in (crawl.root / "crawldb").iterdir() if path.name.startswith(".")]


def test_the_last_whole_version_is_used_and_what_it_lacks_is_taken_in(config: Config) -> None:
    crawl = Crawl(stores_on(open_storage(config), config))
    for number, url in enumerate([A, B, C]):
        crawl.segment(T + number * DAY, [Visit(url)])
        version = update(crawl.stores, now=NOW)
    (Path(config.dfs_primary) / version.paths[0]).write_bytes(b"")
    assert newest_version(crawl.stores).number == 2
    again = update(crawl.stores, now=NOW)
    assert (again.number, again.manifest["parent"], set(crawl.rows(again))) == (4, 2, {A, B, C})


def test_where_no_version_is_whole_update_refuses_and_rebuild_makes_one(config: Config) -> None:
    crawl = Crawl(stores_on(open_storage(config), config))
    crawl.segment(T, [Visit(A)])
    version = update(crawl.stores, now=NOW)
    shutil.copy(Path(config.dfs_primary) / version.paths[0], crawl.root / "copy")
    (Path(config.dfs_primary) / version.paths[0]).unlink()
    with pytest.raises(DamagedFileError, match="rebuild"):
        update(crawl.stores, now=NOW)
    built = rebuild(crawl.stores, now=NOW)
    assert built.number == 2
    assert (Path(config.dfs_primary) / built.paths[0]).read_bytes() == (
        crawl.root / "copy"
    ).read_bytes()


def test_an_update_that_fails_leaves_nothing(config: Config) -> None:
    crawl = Crawl(stores_on(open_storage(config), config))
    crawl.segment(T, [Visit(A)])
    (crawl.root / str(T) / "node-a" / "links.parquet").write_bytes(b"PAR1")
    with pytest.raises(Exception, match=r"links\.parquet"):
        update(crawl.stores, now=NOW)
    assert not [
        path.name for path in crawl.root.rglob("*") if "crawldb" in path.parts and path.is_file()
    ]
    assert newest_version(crawl.stores) is None
