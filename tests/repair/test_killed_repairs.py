"""`krake fsck --repair` killed after any of its steps and run again: no URL is lost, and the crawl is clean."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from crawl_lib.records import QueuedUrl
from crawl_lib.sealed import sealed_json, unsealed
from crawl_lib.urlfiles import encode_line
from tests.cli.conftest import Krake
from tests.repair.killed import ROOT, run_killed
from tests.repair.test_damages import (
    DAMAGES,
    REPAIR,
    Damage,
    found,
    queue,
    visited,
    waiting,
    whole,
    write,
)

__all__ = ["whole"]
STEPS = sorted(
    {
        "queue.lost",
        "queue.move.written",
        "queue.move.step",
        "queue.move.state",
        "queue.move.record",
        "queue.move.done",
    }
    | {
        step
        for path in (ROOT / "crawl_lib").rglob("*.py")
        for step in re.findall(
            r'reached\("(repair\.queue\.[a-z_]+)"\)', path.read_text(encoding="utf-8")
        )
    }
)


def _handed_on(directory: Path) -> None:
    """An adoption whose move cannot be read, with a URL for another node."""
    line = encode_line(QueuedUrl("http://elsewhere.example/"), "h") + b"\n"
    (queue(directory) / "adopted.handed_on").write_bytes(line)
    (queue(directory) / "move").write_bytes(b"{")


BY_STEP = {
    "repair.queue.aside": DAMAGES["leftover: nonsense"],
    "repair.queue.leftover": DAMAGES["positions of a part: cut"],
    "queue.lost": DAMAGES["a data file lost lines"],
    "repair.queue.made": DAMAGES["pages of a built segment: cut"],
    "repair.queue.reopened": DAMAGES["positions of a part: cut"],
    "repair.queue.rescued": DAMAGES["journal: nonsense"],
    "queue.move.written": DAMAGES["move half done: nonsense"],
    "queue.move.step": DAMAGES["journal: gone"],
    "queue.move.state": DAMAGES["state says more"],
    "queue.move.record": Damage("move_damaged", _handed_on),
    "queue.move.done": DAMAGES["a data file is cut within its last line"],
}


def test_every_step_has_a_damage_that_reaches_it() -> None:
    assert sorted(BY_STEP) == STEPS


@pytest.mark.parametrize("step", STEPS)
def test_killed_after_a_step_and_run_again(
    step: str, copy: Callable[..., Krake], whole: tuple[Counter[str], Counter[str]]
) -> None:
    damage = BY_STEP[step]
    krake = copy(damage.kill_at)
    damage.do(krake.directory)
    assert damage.name in found(krake)
    assert run_killed(["--config", str(krake.file), *REPAIR], step).code == -9, (
        f"{step} was not reached"
    )
    krake.ok(*REPAIR)
    if damage.do is _handed_on:
        assert b"http://elsewhere.example/" in (queue(krake.directory) / "handed_on").read_bytes()
    if damage.kill_at is None:
        krake.ok("settle")
        assert waiting(krake) == whole[1]
    else:
        krake.ok("crawl", "--run-id", "one", "--iterations", "4")
        some = set(visited(krake)) | set(waiting(krake))
        assert some >= set(whole[0]) | set(whole[1])
    assert found(krake) == Counter()


def test_a_repair_of_a_whole_queue_changes_nothing_that_counts(
    copy: Callable[..., Krake], whole: tuple[Counter[str], Counter[str]]
) -> None:
    krake = copy()
    for _ in range(2):
        krake.ok(*REPAIR)
    krake.ok("settle")
    assert waiting(krake) == whole[1]
    assert found(krake) == Counter()


def test_a_page_that_the_key_tables_call_crawled_is_not_fetched_again(
    copy: Callable[..., Krake],
) -> None:
    """Neither `state` nor the record can be read: what was processed comes from the key tables."""
    krake = copy()
    before = waiting(krake)
    for name in ("state", "state.krake"):
        write(name, b"{")(krake.directory)
    assert "are known as crawled" in krake.ok(*REPAIR).out
    krake.ok("settle")
    assert waiting(krake) == before


def test_no_take_is_made_again_that_is_not_the_queue_s(
    copy: Callable[..., Krake], whole: tuple[Counter[str], Counter[str]]
) -> None:
    """Not for a moment: killed then, the next task would take URLs for fetched that were not. The newest segment's take
    was moved past, which the record does not say any more."""
    krake = copy()
    write("take", b"{")(krake.directory)
    path = queue(krake.directory) / "state.krake"
    record = unsealed(path.read_bytes())
    assert record["last_move"]
    path.write_bytes(sealed_json(record | {"last_move": ""}))
    assert run_killed(["--config", str(krake.file), *REPAIR], "take.written").code == 0
    krake.ok("settle")
    assert waiting(krake) == whole[1]
    assert found(krake) == Counter()


FOLDER_STEPS = {
    "repair.folder.aside": "iteration: nonsense",
    "repair.folder.written": "an iteration and its scope are gone",
    "repair.folder.placed": "the decision of a repair that is none",
    "rounds.index.aside": "an index that says something else",
    "rounds.index.written": "index: nonsense",
}


def test_every_step_of_a_folder_repair_is_killed() -> None:
    texts = [
        (ROOT / "crawl_lib" / name).read_text()
        for name in ("repair/folders/folders.py", "rounds/commit.py")
    ]
    assert set(re.findall(r'reached\("((?:repair|rounds)[a-z._]+)"\)', "".join(texts))) == set(
        FOLDER_STEPS
    )


@pytest.mark.parametrize("step", FOLDER_STEPS)
def test_a_folder_repair_killed_after_a_step_and_run_again(
    step: str, copy: Callable[..., Krake], whole: tuple[Counter[str], Counter[str]]
) -> None:
    damage = DAMAGES[FOLDER_STEPS[step]]
    krake = copy()
    damage.do(krake.directory)
    assert run_killed(["--config", str(krake.file), *REPAIR], step).code == -9, (
        f"{step} was not reached"
    )
    krake.ok(*REPAIR)
    assert found(krake) == Counter()
    krake.ok("settle")
    assert waiting(krake) == whole[1]
    assert visited(krake) == whole[0]
