"""A crawl whose key tables are gone says so; with new, empty ones it would fetch all its pages again (I2)."""

from pathlib import Path

import pytest

from crawl_lib import stages
from crawl_lib.cli import main
from crawl_lib.errors import KeyTablesError
from crawl_lib.rounds import start_iteration
from crawl_lib.stores import open_stores
from demo import Serving, SynthWeb, TruthOptions
from tests.e2e.crawl import Result, make_config, run_iteration, write_config

WEB = SynthWeb(seed=5, sites=1, pages_per_site=8, specials=False)


def test_the_way_that_the_error_names_leads_back(tmp_path: Path) -> None:
    config = make_config(tmp_path, nodes=1, fetch={"host_delay_s": 0.0})
    file = str(write_config(config, tmp_path))
    with Serving(WEB) as serving:
        stages.inject(open_stores(config), run_id="run", seeds=serving.seeds[0])
        run_iteration(config, "run", 1)
        for path in Path(config.key_storage.servers[0]).parent.iterdir():
            path.unlink()
        start_iteration(open_stores(config), run_id="run", iteration=2)
        with pytest.raises(KeyTablesError, match=r"0.sqlite: no key tables .*krake fsck --repair"):
            stages.crawl_node(open_stores(config), run_id="run", iteration=2, node="node-0")
        assert not Path(config.key_storage.servers[0]).exists()
        assert main(["--config", file, "fsck", "--repair"]) == 0
        for iteration in (2, 3):
            run_iteration(config, "run", iteration)
        truth, asked = serving.truth(options=TruthOptions(rounds=3)), serving.log().counts()
    assert set(Result(config).visited()) == set(truth.visits)
    assert set(asked.values()) == {1}


def test_one_replica_of_two_may_be_gone(tmp_path: Path) -> None:
    keys = {"servers": ["keys/0.sqlite", "keys/1.sqlite"], "replication": 2}
    config = make_config(tmp_path, nodes=1, fetch={"host_delay_s": 0.0}, key_storage=keys)
    with Serving(WEB) as serving:
        stages.inject(open_stores(config), run_id="run", seeds=serving.seeds[0])
        run_iteration(config, "run", 1)
        Path(config.key_storage.servers[0]).unlink()
        run_iteration(config, "run", 2)
        assert set(serving.log().counts().values()) == {1}


def test_one_server_of_several_without_replicas_is_missed_too(tmp_path: Path) -> None:
    """Its keys would all be new: made again in silence, empty, it had a third of the pages crawled twice."""
    keys = {"servers": [f"keys/{number}.sqlite" for number in range(3)]}
    config = make_config(tmp_path, nodes=1, fetch={"host_delay_s": 0.0}, key_storage=keys)
    with Serving(WEB) as serving:
        stages.inject(open_stores(config), run_id="run", seeds=serving.seeds[0])
        run_iteration(config, "run", 1)
        gone = Path(config.key_storage.servers[1])
        gone.unlink()
        start_iteration(open_stores(config), run_id="run", iteration=2)
        with pytest.raises(KeyTablesError, match=r"/1.sqlite: no key tables .*krake fsck --repair"):
            stages.crawl_node(open_stores(config), run_id="run", iteration=2, node="node-0")
        assert not gone.exists()


def test_a_server_that_is_new_is_not_called_gone(tmp_path: Path) -> None:
    config = make_config(tmp_path, nodes=1, fetch={"host_delay_s": 0.0})
    more = make_config(
        tmp_path, nodes=1, key_storage={"servers": ["keys/0.sqlite", "keys/1.sqlite"]}
    )
    with Serving(WEB) as serving:
        stages.inject(open_stores(config), run_id="run", seeds=serving.seeds[0])
        run_iteration(config, "run", 1)
        with pytest.raises(KeyTablesError, match="run `krake keys reshard`"):
            stages.settle_node(open_stores(more), node="node-0")
