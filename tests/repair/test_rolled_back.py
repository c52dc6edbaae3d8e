"""A node's directory is an older copy (a backup put back), or the crawl is not on the DFS: no one goes on with it."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Sequence

import pytest

from crawl_lib.frontier import Queue
from tests.cli.conftest import Krake
from tests.repair.test_damages import found, queue, visited, waiting

CRAWL = ("crawl", "--iterations", "1", "--batch-size", "5")
TASKS = [CRAWL, ("settle",)]


def put_back_after(krake: Krake, commands: Sequence[tuple[str, ...]]) -> None:
    """Keep a copy of the queue, run commands, put the copy in the queue's place."""
    kept = krake.directory / "kept"
    shutil.copytree(queue(krake.directory), kept)
    for words in commands:
        krake.ok(*words)
    shutil.rmtree(queue(krake.directory))
    kept.rename(queue(krake.directory))


@pytest.mark.parametrize(
    "commands", [(CRAWL,), (CRAWL, CRAWL)], ids=["one iteration", "two iterations"]
)
def test_an_older_copy_is_refused_named_and_begun_anew(
    commands: Sequence[tuple[str, ...]], copy: Callable[..., Krake]
) -> None:
    """Nothing is fetched twice, and nothing is lost: what it had taken in since is found again in the segments."""
    krake = copy()
    put_back_after(krake, commands)
    crawled = visited(krake)
    folders = sorted((krake.directory / "dfs" / "crawl").iterdir())
    for words in TASKS:
        problem = krake(*words).error()
        assert "holds an older copy of the queue: its newest take was of" in problem
        assert "run `krake nodes restart node-a`" in problem
    assert set(found(krake, "--fast")) == {"queue_rolled_back"}
    assert "queue_rolled_back" in found(krake)
    assert visited(krake) == crawled
    assert sorted((krake.directory / "dfs" / "crawl").iterdir()) == folders
    queue(krake.directory).rename(krake.directory / "away")
    for words in (("nodes", "restart", "node-a"), ("fsck", "--repair"), ("settle",)):
        krake.ok(*words)
    assert found(krake) == {}
    while any(one.due <= time.time() for one in Queue(queue(krake.directory), "node-a")):
        krake.ok(*CRAWL)
    assert max(visited(krake).values()) == 1
    assert set(visited(krake)) > set(crawled)


def test_a_copy_of_before_the_settling_is_refused(copy: Callable[..., Krake]) -> None:
    """No segment tells, since there is none since; the mark does."""
    krake = copy()
    put_back_after(krake, (("inject", "http://new.example/", "--run-id", "two"), ("settle",)))
    assert "has settled since" in krake("settle").error()
    assert set(found(krake, "--fast")) == {"queue_rolled_back"}


@pytest.mark.parametrize("kill_at", [None, "take.written"])
def test_a_crawl_that_is_not_on_the_dfs_is_missed(
    kill_at: str | None, copy: Callable[..., Krake]
) -> None:
    """A disk that is not mounted, another `dfs_primary`: nothing is fetched into the wrong place."""
    krake = copy(kill_at)
    dfs, away = krake.directory / "dfs", krake.directory / "away"
    dfs.rename(away)
    before = waiting(krake)
    for words in TASKS:
        problem = krake(*words).error()
        assert f"is of a crawl of which nothing is in {dfs}/crawl" in problem
        assert "put dfs_primary" in problem
    assert "crawl_missing" in found(krake, "--fast")
    assert waiting(krake) == before
    assert not list(dfs.rglob("*.parquet"))
    shutil.rmtree(dfs)
    away.rename(dfs)
    krake.ok("crawl", "--run-id", "one", "--iterations", "4") if kill_at else krake.ok(*CRAWL)
    assert found(krake) == {}


def test_folders_that_were_deleted_by_hand_are_not_missed(copy: Callable[..., Krake]) -> None:
    krake = copy()
    for folder in [
        *(krake.directory / "dfs" / "crawl").glob("1*"),
        krake.directory / "dfs" / "crawl" / "seeds",
    ]:
        shutil.rmtree(folder)
    assert "crawl_missing" not in found(krake, "--fast")
    krake.ok(*CRAWL)
    krake.ok(*CRAWL)


def test_the_newest_copy_is_gone_on_with(copy: Callable[..., Krake]) -> None:
    krake = copy()
    put_back_after(krake, (("fsck",),))
    krake.ok("settle")
    krake.ok(*CRAWL)
    assert found(krake) == {}
