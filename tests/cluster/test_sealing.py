"""Full WARC files go to HDFS while a node fetches; servers that die meanwhile cost no URL and no second fetch."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from crawl_lib import stages
from crawl_lib.config import Config
from crawl_lib.config.model import DfsConfig
from crawl_lib.errors import StorageError
from crawl_lib.segment import SegmentReader, Spool
from crawl_lib.storage import LocalStorage, open_storage
from crawl_lib.stores import open_stores
from demo import Serving, SynthWeb
from tests.cluster.hdfs import Hdfs
from tests.cluster.test_crawl import copy_of
from tests.e2e.crawl import Result, check_warcs
from tests.node.test_sealing import begin, crawl, sealed_names, small_parts, spool_of

WEB = SynthWeb(seed=5, sites=1, pages_per_site=160, specials=False)
LIMIT_S = 240.0


@pytest.fixture(scope="module")
def seeds(serving: Serving) -> str:
    """Every page, so that one iteration fetches all."""
    return "\n".join(sorted(serving.truth().visits))


def config_in(cluster: Hdfs, directory: Path, wait_s: float) -> Config:
    address = f"{cluster.address}/krake/{directory.name}"
    return dataclasses.replace(
        small_parts(directory), dfs_primary=address, dfs=DfsConfig(wait_s=wait_s)
    )


def at_the_first_seal(
    config: Config, happens: Callable[[], None]
) -> Callable[[Mapping[str, Any]], None]:
    """Holds the task's own thread until a WARC file is sealed; then something happens, once."""
    left = [happens]

    def on_progress(progress: Mapping[str, Any]) -> None:
        if progress["phase"] != "fetch" or not progress["fetched"] or not left:
            return
        end_s = time.monotonic() + LIMIT_S
        while not sealed_names(config):
            assert time.monotonic() < end_s, "nothing was sealed while the workers fetched"
        left.pop()()

    return on_progress


def check(
    config: Config, serving: Serving, seeds: str, before: Mapping[str, int], directory: Path
) -> None:
    """Each page once: asked of its server, in the rows, and in a WARC file that can be read."""
    copied = LocalStorage.open(directory / "copied")
    copy_of(open_storage(config), config.crawl.directory, copied)
    result = Result(dataclasses.replace(config, dfs_primary=str(copied.root)))
    [segment] = result.segments()
    reader = SegmentReader(copied, str(segment.relative_to(copied.root)))
    assert len(reader.warc_files) > 2
    expected = dict.fromkeys(seeds.split(), 1)
    assert dict(result.visited()) == expected
    assert dict(serving.log().counts() - before) == expected
    assert check_warcs(result)["response"] > 0
    assert list(copied.root.rglob(".*")) == []
    assert not spool_of(config).exists()


@pytest.mark.parametrize("name", ["nn1", "dn"])
def test_a_server_restarts_while_files_are_sealed(
    name: str, breakable: Hdfs, serving: Serving, seeds: str, tmp_path: Path
) -> None:
    breakable.wait_ready()
    config, before = (
        config_in(breakable, tmp_path / f"restart-{name}", wait_s=240.0),
        serving.log().counts(),
    )
    begin(config, seeds)

    def restart() -> None:
        breakable.kill(name)
        breakable.start(name)

    crawl(config, on_progress=at_the_first_seal(config, restart))
    check(config, serving, seeds, before, tmp_path)


def test_namenodes_fail_over_in_the_middle_of_a_crawl(
    pair: Hdfs, serving: Serving, seeds: str, tmp_path: Path
) -> None:
    """The active one dies for good while pages are fetched; the task and the one after it go on with the other."""
    config, before = config_in(pair, tmp_path / "fail-over", wait_s=240.0), serving.log().counts()
    begin(config, seeds)
    crawl(config, on_progress=at_the_first_seal(config, pair.fail_over))
    stages.commit_iteration(open_stores(config), run_id="run", iteration=1)
    assert "nn1" not in pair.running
    check(config, serving, seeds, before, tmp_path)


def test_hdfs_goes_away_for_longer_than_it_is_waited_for(
    breakable: Hdfs, serving: Serving, seeds: str, tmp_path: Path
) -> None:
    """All is fetched nevertheless; then the task fails with the store's error, and the next one only sends the rest."""
    breakable.wait_ready()
    config, before = config_in(breakable, tmp_path / "away", wait_s=1.0), serving.log().counts()
    begin(config, seeds)
    with pytest.raises(StorageError, match=str(breakable.data_ports[1])):
        crawl(config, on_progress=at_the_first_seal(config, lambda: breakable.kill("dn")))
    assert len(serving.log().counts() - before) == len(seeds.split())
    waiting = [part for part in Spool(spool_of(config)).parts() if part.warc.exists()]
    assert waiting
    assert all(part.is_closed for part in waiting)
    breakable.start("dn")  # the namenode does not know yet that it was away: requests wait for it
    patient = dataclasses.replace(config, dfs=DfsConfig(wait_s=240.0))
    stages.crawl_node(open_stores(patient), run_id="run", iteration=1, node="node-0")
    check(patient, serving, seeds, before, tmp_path)
