"""While a node fetches, full WARC files leave its disk; whatever stops it then, nothing is lost, nor fetched again."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from crawl_lib import stages
from crawl_lib.config import Config
from crawl_lib.durable import KILL_VARIABLE
from crawl_lib.errors import StoppedError, StorageError
from crawl_lib.repair.queue.node import repair_node
from crawl_lib.rounds import start_iteration
from crawl_lib.segment import Spool
from crawl_lib.stores import node_dir, open_stores
from demo import Serving, SynthWeb
from tests.e2e.crawl import Result, make_config, run_iteration
from tests.forked import run_forked
from tests.frontier.helpers import held
from tests.node.test_kill_at_every_step import rows

WEB = SynthWeb(seed=5, sites=1, pages_per_site=160, specials=False)
LIMIT_S = 240.0


@pytest.fixture(scope="module")
def seeds(serving: Serving) -> str:
    """Every page, so that one iteration fetches all."""
    return "\n".join(sorted(serving.truth().visits))


def small_parts(directory: Path) -> Config:
    """WARC files of 64 KiB, of which a few are filled, in some seconds."""
    directory.mkdir(exist_ok=True)
    return make_config(
        directory, nodes=1, fetch={"host_delay_s": 0.02}, segment={"max_warc_bytes": 1 << 16}
    )


def begin(config: Config, seeds: str) -> None:
    stages.inject(open_stores(config), run_id="run", seeds=seeds)
    start_iteration(open_stores(config), run_id="run", iteration=1)


def crawl(config: Config, **more: Any) -> dict[str, Any]:
    return stages.crawl_node(open_stores(config, **more), run_id="run", iteration=1, node="node-0")


@pytest.fixture(scope="module")
def unbroken(serving: Serving, seeds: str, tmp_path_factory: pytest.TempPathFactory) -> Result:
    config = small_parts(tmp_path_factory.mktemp("unbroken"))
    begin(config, seeds)
    crawl(config)
    assert len(Result(config).warcs()) > 2
    return Result(config)


def spool_of(config: Config) -> Path:
    return Path(config.queue.local_dir) / "node-0" / "spool"


def sealed_names(config: Config) -> list[str]:
    """The WARC files that only the store has."""
    return [part.warc.name for part in Spool(spool_of(config)).parts() if part.is_freed]


def stop_when_sealed(config: Config, stop: Event) -> Callable[[Mapping[str, Any]], None]:
    """Holds the task's own thread, while its workers fetch, until a WARC file is sealed; then stops it."""

    def on_progress(progress: Mapping[str, Any]) -> None:
        if progress["phase"] != "fetch" or not progress["fetched"]:
            return
        end_s = time.monotonic() + LIMIT_S
        while not sealed_names(config):
            assert time.monotonic() < end_s, "nothing was sealed while the workers fetched"
        stop.set()

    return on_progress


def crawl_until_sealed(config: Config, seeds: str) -> None:
    begin(config, seeds)
    stop = Event()
    with pytest.raises(StoppedError):
        crawl(config, stop=stop, on_progress=stop_when_sealed(config, stop))
    assert sealed_names(config)
    assert not Result(config).segments()


def hidden_file(config: Config, name: str) -> Path:
    [path] = Path(config.dfs_primary).glob(f"crawl/*/.node-0-*/{name}")
    return path


def test_stopped_after_the_first_seal(
    serving: Serving, seeds: str, unbroken: Result, tmp_path: Path
) -> None:
    """The next run trusts what is sealed: the file stays as it is, and none of its pages is fetched again."""
    before = serving.log().counts()
    config = small_parts(tmp_path)
    crawl_until_sealed(config, seeds)
    names = sealed_names(config)
    inodes = {name: hidden_file(config, name).stat().st_ino for name in names}
    counts = run_iteration(config, "run", 1)
    result = Result(config)
    assert (counts["pages"], counts["deferred"]) == (len(seeds.split()), 0)
    assert rows(result) == rows(unbroken)
    assert {
        path.name: path.stat().st_ino for path in result.warcs() if path.name in names
    } == inodes
    asked = serving.log().counts() - before
    trusted = {
        row["url"]
        for row in result.rows("pages", ["url", "warc_file"])
        if row["warc_file"] in names
    }
    assert trusted
    assert Counter({url: asked[url] for url in trusted}) == Counter(dict.fromkeys(trusted, 1))
    assert not spool_of(config).exists()


def crawl_and_die(config: Config, step: str) -> None:
    os.environ[KILL_VARIABLE] = step
    crawl(config)


@pytest.mark.parametrize("step", ["seal.uploaded", "seal.written", "seal.freed"])
def test_killed_while_the_workers_fetch(
    step: str, seeds: str, unbroken: Result, tmp_path: Path
) -> None:
    config = small_parts(tmp_path)
    begin(config, seeds)
    assert run_forked(crawl_and_die, config, step) == -signal.SIGKILL
    run_iteration(config, "run", 1)
    assert rows(Result(config)) == rows(unbroken)


def test_what_the_error_says_of_a_lost_file_helps(
    seeds: str, unbroken: Result, tmp_path: Path
) -> None:
    """Somebody deletes a sealed file. Its pages are fetched again, the others not."""
    config = small_parts(tmp_path)
    crawl_until_sealed(config, seeds)
    name = sealed_names(config)[0]
    hidden_file(config, name).unlink()
    with pytest.raises(StorageError, match=f"{name}: was sealed with .* and is gone") as caught:
        crawl(config)
    assert "run `krake fsck --repair`" in str(caught.value)
    assert (
        f"{name}: cannot be trusted; all of it is fetched again"
        in repair_node(open_stores(config), held(node_dir(config, "node-0"))).done
    )
    run_iteration(config, "run", 1)
    assert rows(Result(config)) == rows(unbroken)
