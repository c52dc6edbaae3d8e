"""A node's task makes many objects and little garbage, so garbage is looked for seldom."""

import gc
from pathlib import Path

from crawl_lib import stages
from crawl_lib.stores import open_stores
from tests.e2e.crawl import make_config


def test_collections_are_rare_in_a_task_and_usual_after_it(tmp_path: Path) -> None:
    usual, seen = gc.get_threshold(), list[int]()
    stores = open_stores(
        make_config(tmp_path, nodes=1), on_progress=lambda _: seen.append(gc.get_threshold()[0])
    )
    stages.settle_node(stores, node="node-0")
    assert seen[-1] > 100 * usual[0]
    assert gc.get_threshold() == usual
