"""Below a watermark a crawl pauses, then stops with its reason; nothing is half-written, lost or fetched twice."""

import shutil
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from crawl_lib import stages
from crawl_lib.config import Config
from crawl_lib.errors import NoRoomError
from crawl_lib.frontier import Take
from crawl_lib.node import watermarks
from crawl_lib.rounds import start_iteration
from crawl_lib.stopping import OnProgress
from crawl_lib.storage.local import LocalStorage
from crawl_lib.stores import open_stores
from crawl_lib.worker.worker import _Worker
from crawl_lib.worker.workers import WorkerTask
from demo import Serving, SynthWeb, TruthOptions
from tests.e2e.crawl import Result, make_config, run_iteration

WEB = SynthWeb(seed=5, sites=1, pages_per_site=12, specials=False)
LEAST = 1000


class Disk:
    """A disk whose free room the test sets; the real one has enough."""

    def __init__(self) -> None:
        self.free = LEAST

    def usage(self, path: object) -> SimpleNamespace:
        assert Path(str(path)).is_dir()
        return SimpleNamespace(free=self.free)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    disk = Disk()
    monkeypatch.setattr(watermarks, "shutil", SimpleNamespace(disk_usage=disk.usage))
    monkeypatch.setattr(watermarks, "LOOK_INTERVAL_S", 0.05)
    return disk


def config_of(directory: Path, max_pause_s: float) -> Config:
    marks = {"min_free_local_bytes": LEAST, "min_free_dfs_bytes": 0, "max_pause_s": max_pause_s}
    return make_config(directory, nodes=1, fetch={"host_delay_s": 0.4}, watermarks=marks)


def crawl(config: Config, iteration: int, on_progress: OnProgress | None = None) -> dict[str, Any]:
    start_iteration(open_stores(config), run_id="run", iteration=iteration)
    stores = open_stores(config, on_progress=on_progress)
    return stages.crawl_node(stores, run_id="run", iteration=iteration, node="node-0")


def test_nothing_is_begun_below_the_mark(tmp_path: Path, disk: Disk) -> None:
    """The error and the status name disk, option and figures; with room again the same task does its work."""
    config = config_of(tmp_path, max_pause_s=0)
    disk.free = LEAST - 1
    with Serving(WEB) as serving:
        stages.inject(open_stores(config), run_id="run", seeds=serving.seeds[0])
        with pytest.raises(
            NoRoomError, match=r"node-0: 999 bytes are free.*min_free_local_bytes.*make room"
        ):
            crawl(config, 1)
        assert Take.open(Path(config.queue.local_dir) / "node-0") is None
        assert sum(serving.log().counts().values()) == 0
        halted = stages.status_of(config)["queues"]["node-0"]["progress"]
        assert (halted["phase"], "999 bytes" in halted["reason"]) == ("failed", True)
        disk.free = LEAST
        assert crawl(config, 1)["pages"] == 1
    assert "progress" not in stages.status_of(config)["queues"]["node-0"]


@pytest.mark.parametrize("room_comes_back", [True, False])
def test_pause_in_the_middle_of_the_fetch(
    tmp_path: Path, disk: Disk, room_comes_back: bool
) -> None:
    """What is in flight ends, the rest waits, in the same task or for the next one; every URL is fetched once."""
    config = config_of(tmp_path, max_pause_s=600 if room_comes_back else 0)
    phases: list[str] = []

    def on_progress(progress: Mapping[str, Any]) -> None:
        phases.append(progress["phase"])
        if progress["phase"] == "fetch" and progress["fetched"] and "paused" not in phases:
            disk.free = 0
        if progress["phase"] == "paused" and room_comes_back:
            assert "min_free_local_bytes" in progress["reason"]
            disk.free = LEAST

    with Serving(WEB) as serving:
        stages.inject(open_stores(config), run_id="run", seeds=serving.seeds[0])
        run_iteration(config, "run", 1)
        if room_comes_back:
            crawl(config, 2, on_progress=on_progress)
        else:
            with pytest.raises(NoRoomError):
                crawl(config, 2, on_progress=on_progress)
            assert not any(path.name == "node-0" for path in Result(config).segments()[1:])
        assert "paused" in phases
        disk.free = LEAST
        counts = run_iteration(config, "run", 2)
        truth, asked = serving.truth(options=TruthOptions(rounds=2)), serving.log().counts()
    assert counts["deferred"] == 0
    assert set(Result(config).visited()) == set(truth.visits)
    assert set(asked.values()) == {1}


def test_full_dfs_stops_the_task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = make_config(
        tmp_path, nodes=1, watermarks={"min_free_dfs_bytes": 5 << 30, "max_pause_s": 0}
    )
    monkeypatch.setattr(LocalStorage, "free_bytes", lambda self: 3 << 30)
    with pytest.raises(NoRoomError, match=r"dfs: 3.0 GiB are free.*min_free_dfs_bytes \(5.0 GiB\)"):
        crawl(config, 1)
    monkeypatch.setattr(LocalStorage, "free_bytes", lambda self: 5 << 30)
    assert crawl(config, 1)["pages"] == 0


def test_a_dfs_without_room_is_asked_less_and_less(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In ten minutes of pause not 600 times; the local disk is still looked at each second, and first."""
    now_s, asked = 0.0, []
    free_local = LEAST
    monkeypatch.setattr(watermarks, "time", SimpleNamespace(monotonic=lambda: now_s))
    monkeypatch.setattr(
        watermarks,
        "shutil",
        SimpleNamespace(disk_usage=lambda path: SimpleNamespace(free=free_local)),
    )
    marks = make_config(
        tmp_path, nodes=1, watermarks={"min_free_local_bytes": LEAST, "min_free_dfs_bytes": 2}
    ).watermarks
    store = SimpleNamespace(
        name="dfs", free_bytes=lambda: asked.append(now_s) or (1 if now_s < 600 else 2)
    )
    room = watermarks.FreeSpace(marks, tmp_path, lambda: store)
    while (reason := room.shortage()) is not None:
        assert "min_free_dfs_bytes" in reason
        now_s += 1.0
    assert asked[:6] == [0.0, 1.0, 3.0, 7.0, 15.0, 31.0]
    assert {later - earlier for earlier, later in pairwise(asked[5:])} == {30.0}
    assert 600 <= now_s <= 631
    free_local = 0
    assert "min_free_local_bytes" in room.shortage()


def no_dfs() -> Any:
    raise AssertionError("the DFS is not asked")


def test_free_room_is_what_the_system_says(tmp_path: Path) -> None:
    def shortage(least: int) -> str | None:
        marks = {"min_free_local_bytes": least, "min_free_dfs_bytes": 0}
        return watermarks.FreeSpace(
            make_config(tmp_path, nodes=1, watermarks=marks).watermarks, tmp_path, no_dfs
        ).shortage()

    assert "free" in (shortage(1 << 60) or "")
    assert shutil.disk_usage(tmp_path).free > 1
    assert shortage(1) is None


def test_what_is_in_flight_brings_a_quarter_of_the_mark_at_most(tmp_path: Path) -> None:
    """The rest is abandoned; 10,000 requests of 16 MB each would fill the disk."""
    config = make_config(tmp_path, nodes=1, watermarks={"min_free_local_bytes": 512 << 20})
    task = WorkerTask(
        config.to_mapping(),
        ["node-0"],
        "node-0",
        str(tmp_path),
        str(tmp_path),
        "p",
        0,
        processes=2,
        seconds_left=9.0,
        info={},
    )
    worker = _Worker(task, 0, config)
    worker.handler = SimpleNamespace(large=SimpleNamespace(failed=None))  # type: ignore[assignment]
    worker.bytes = 5 << 30
    assert not worker.stop()
    worker.pause()
    assert worker.close()
    assert not worker.stop()
    worker.bytes += 63 << 20
    assert not worker.stop()
    worker.bytes += 1 << 20
    assert worker.stop()
