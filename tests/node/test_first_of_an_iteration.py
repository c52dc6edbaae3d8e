"""The first crawl task of an iteration names its folder, once it can work; the others find it."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from crawl_lib import stages
from crawl_lib.config import Config
from crawl_lib.errors import ConfigError, KrakeError
from crawl_lib.stores import open_stores
from tests.e2e.crawl import make_config

NODES = 4


@pytest.fixture
def config(tmp_path: Path) -> Config:
    return make_config(tmp_path, nodes=NODES, fetch={"host_delay_s": 0.0})


def folders(config: Config) -> list[str]:
    return [
        path.name for path in (Path(config.dfs_primary) / config.crawl.directory).glob("[0-9]*")
    ]


def test_of_all_that_begin_at_once_one_names_the_folder_and_commit_deletes_what_the_others_prepared(
    config: Config,
) -> None:
    with ThreadPoolExecutor(NODES) as pool:
        done = list(
            pool.map(
                lambda node: stages.crawl_node(
                    open_stores(config), run_id="r", iteration=1, node=node
                ),
                config.servers,
            )
        )
    [folder] = folders(config)
    assert {one["folder"] for one in done} == {folder}
    stages.commit_iteration(open_stores(config), run_id="r", iteration=1)
    hidden = (Path(config.dfs_primary) / config.crawl.directory).glob(".start-*")
    assert list(hidden) == []


def test_a_node_that_cannot_work_names_no_folder(config: Config) -> None:
    (Path(config.queue.local_dir) / "node-0" / "lock").mkdir(parents=True)
    with pytest.raises(KrakeError):
        stages.crawl_node(open_stores(config), run_id="r", iteration=1, node="node-0")
    assert folders(config) == []
    stages.crawl_node(open_stores(config), run_id="r", iteration=1, node="node-1")
    assert len(folders(config)) == 1


def test_the_batch_size_of_the_run_is_that_of_every_node_and_a_machine_with_another_of_its_own_is_refused(
    config: Config,
) -> None:
    other = replace(config, batch=replace(config.batch, size=7))
    stages.crawl_node(open_stores(config), run_id="r", iteration=1, node="node-0", batch_size=3)
    own = open_stores(config).crawl.find("r", 1)
    assert own is not None
    assert set(own.batch_sizes.values()) == {3}
    with pytest.raises(ConfigError, match=r"batch.size is 7 here and \d+ there"):
        stages.crawl_node(open_stores(other), run_id="r", iteration=1, node="node-1")
