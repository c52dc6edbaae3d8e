"""A node's queue is gone with its disk, or `queue.local_dir` is wrong: no one begins an empty one in its place."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from crawl_lib.records import QueuedUrl
from crawl_lib.urlfiles import encode_line
from demo import Serving
from tests.cli.conftest import Krake, krake
from tests.repair.conftest import configure
from tests.repair.killed import run_killed
from tests.repair.test_damages import found, queue, snapshot, visited, waiting

__all__ = ["krake"]

DROP = ("fsck", "--repair")
LOST = ("nodes", "restart", "node-a")
TASKS = [("crawl", "--iterations", "1"), ("settle",)]


def all_of_it(directory: Path) -> None:
    shutil.rmtree(queue(directory))


def what_is_in_it(directory: Path) -> None:
    shutil.rmtree(queue(directory))
    queue(directory).mkdir()


@pytest.mark.parametrize("lose", [all_of_it, what_is_in_it])
def test_a_lost_queue_is_refused_named_and_found_again(
    lose: Callable[[Path], None], copy: Callable[..., Krake]
) -> None:
    krake = copy()
    queued, crawled = waiting(krake), visited(krake)
    assert queued
    lose(krake.directory)
    for words in TASKS:
        assert "run `krake nodes restart node-a`" in krake(*words).error()
    assert found(krake, "--fast") == found(krake) == {"queue_missing": 1}
    before = snapshot(krake.directory)
    assert f"{queued.total()} URLs waited" in krake.ok(*LOST, "--dry-run").out
    assert snapshot(krake.directory) == before
    for _ in range(2):
        assert f"{queued.total()} URLs are in no file" in krake.ok(*LOST).out
    assert set(found(krake)) == {"urls_lost"}
    krake.ok(*DROP)
    krake.ok("settle")
    assert found(krake) == {}
    assert waiting(krake) == queued
    krake.ok("crawl", "--iterations", "1")
    assert max(visited(krake).values()) == 1
    assert set(visited(krake)) > set(crawled)


@pytest.mark.parametrize(
    "step", ["intake.chunk.inserted", "take.written", "segment.publish.uploaded"]
)
def test_a_queue_lost_in_the_first_iteration_of_its_node_is_missed_too(
    step: str, krake: Krake, web: Serving
) -> None:
    """The node has neither settled nor a segment, and the keys of the seeds are known: an empty queue loses them."""
    configure(krake)
    krake.ok("inject", "\n".join(web.seeds))
    assert (
        run_killed(
            ["--config", str(krake.file), "crawl", "--run-id", "one", "--iterations", "1"], step
        ).code
        == -9
    )
    shutil.rmtree(queue(krake.directory))
    for words in TASKS:
        assert "run `krake nodes restart node-a`" in krake(*words).error()
    assert "queue_missing" in found(krake)
    krake.ok(*LOST)
    krake.ok(*DROP)
    krake.ok("settle")
    assert found(krake) == {}
    assert set(waiting(krake)) == set(web.seeds)


def test_the_queue_that_comes_back_is_gone_on_with(copy: Callable[..., Krake]) -> None:
    """As after a wrong `queue.local_dir`: what the refused tasks left is in no one's way."""
    krake = copy()
    queued = waiting(krake)
    away = krake.directory / "away"
    queue(krake.directory).rename(away)
    assert "holds no queue" in krake("settle").error()
    shutil.copytree(away, queue(krake.directory), dirs_exist_ok=True)
    krake.ok("settle")
    assert found(krake) == {}
    assert waiting(krake) == queued


def test_a_queue_that_stands_is_not_lost(copy: Callable[..., Krake]) -> None:
    krake = copy()
    queued = waiting(krake)
    assert "holds a queue" in krake(*LOST).error()
    assert waiting(krake) == queued


def record_damaged(krake: Krake) -> None:
    (queue(krake.directory) / "state.krake").write_bytes(b"{")
    krake.ok(*DROP)


def record_deleted(krake: Krake) -> None:
    """What waits is still there, and adopted."""
    (queue(krake.directory) / "state.krake").unlink()


def queue_lost(krake: Krake) -> None:
    shutil.rmtree(queue(krake.directory))
    krake.ok(*LOST)
    krake.ok(*DROP)


def all_anew(krake: Krake) -> None:
    krake.ok("settle", "--all-again")


@pytest.mark.parametrize("read_again", [record_damaged, record_deleted, queue_lost, all_anew])
def test_what_was_handed_on_is_not_crawled_again_when_all_is_read_again(
    read_again: Callable[[Krake], None], copy: Callable[..., Krake]
) -> None:
    """A page that was put into the queue by hand once more is crawled once more, not whenever all is read again."""
    krake = copy()
    [again, *_] = visited(krake)
    (queue(krake.directory) / "handed_on").write_bytes(encode_line(QueuedUrl(again), "h") + b"\n")
    krake.ok("crawl", "--iterations", "3")
    krake.ok("settle")
    assert visited(krake)[again] == 2
    queued = waiting(krake)
    read_again(krake)
    krake.ok("settle")
    assert waiting(krake) == queued
    krake.ok("crawl", "--iterations", "2")
    assert visited(krake)[again] == 2
    assert found(krake) == {}


@pytest.mark.parametrize(
    "step", [None, "intake.record_begun", "intake.planned", "intake.chunk.inserted"]
)
def test_an_empty_queue_whose_record_is_gone_crawls_nothing_again(
    copy: Callable[..., Krake], step: str | None
) -> None:
    """It looks as one that has yet to begin; what was handed on to it would come past the key check once more."""
    krake = copy()
    directory = queue(krake.directory)
    [again, *_] = visited(krake)
    (directory / "handed_on").write_bytes(encode_line(QueuedUrl(again), "h") + b"\n")
    krake.ok("crawl", "--iterations", "3")
    krake.ok("settle")
    assert visited(krake)[again] == 2
    for number in range(len((directory / "state").read_text().split()) - 1):
        (directory / str(number)).unlink()
        (directory / f"{number}.meta").unlink(missing_ok=True)
    (directory / "0").touch()
    (directory / "state").write_text("0\n0\n")
    (directory / "state.krake").unlink()
    if step:
        assert run_killed(["--config", str(krake.file), "settle"], step).code != 0
    krake.ok("settle")
    assert not waiting(krake)
