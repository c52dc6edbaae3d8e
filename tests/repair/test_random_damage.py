"""Random damage to every kind of file; `python -m tests.repair.damage 2000` does more of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from crawl_lib.frontier import Queue
from demo import Serving
from tests.cli.conftest import Krake
from tests.repair.damage import Ground, run_here
from tests.repair.scenes import KINDS, SCENES, WEB, copy_scene, known

SEEDS = [range(1, 31), pytest.param(range(31, 101), marks=pytest.mark.slow)]


@pytest.fixture(scope="module")
def ground(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ground]:
    directory: Path = tmp_path_factory.mktemp("damage")
    with Serving(WEB) as web:
        yield Ground(directory, web)


def test_every_file_is_of_a_kind_and_every_kind_is_there(ground: Ground) -> None:
    """A file of no kind fails while the crawls are made."""
    there = {kind.name for files in ground.files.values() for kind in files.values()}
    assert sorted(kind.name for kind in KINDS if kind.name not in there) == []


@pytest.mark.parametrize("seeds", SEEDS, ids=str)
def test_a_damage_is_found_or_harmless_and_its_repair_loses_nothing(
    ground: Ground, seeds: range
) -> None:
    trials = [ground.trial(seed) for seed in seeds]
    wrong = [trial.to_text() for trial in trials if trial.wrong]
    assert not wrong, "\n".join(wrong)


def test_urls_that_only_a_half_done_rehoming_has_are_taken_in_again(
    ground: Ground, tmp_path: Path
) -> None:
    """The next task makes its files again from the queue, which lost these URLs."""
    without_data(ground, tmp_path, "rehomed")


def test_urls_that_only_what_is_put_back_has_are_taken_in_again(
    ground: Ground, tmp_path: Path
) -> None:
    """The same: a take that was not over puts back what the queue has then."""
    without_data(ground, tmp_path, "put back")


def without_data(ground: Ground, tmp_path: Path, name: str) -> None:
    """Empty the data files of a crawl: a repair and what follows find all of their URLs again."""
    [scene] = [scene for scene in SCENES if scene.name == name]
    copy_scene(ground.place(scene), tmp_path / "copy")
    krake = Krake(tmp_path / "copy", run_here)
    for number in Queue(krake.directory / "queue/node-a", "node-a").files.data_files():
        (krake.directory / f"queue/node-a/{number}").write_bytes(b"")
    krake("fsck", "--repair")
    for words in scene.more:
        krake.ok(*words)
    assert known(krake) >= ground.whole(scene).known
