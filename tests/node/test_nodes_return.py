"""A node that was retired, or was about to be, and takes part again: no URL is lost, and none fetched twice."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from crawl_lib import stages
from crawl_lib.config import Config
from crawl_lib.errors import ConfigError
from crawl_lib.frontier import Queue
from crawl_lib.node import retire as leaving
from crawl_lib.node.retire import admit_node, retire_lost, retire_node
from crawl_lib.repair import repair_crawl
from crawl_lib.repair.keys.again import take_all_in_again
from crawl_lib.rounds import start_iteration
from crawl_lib.stores import node_dir, open_stores
from demo import Serving
from tests.e2e.crawl import run_iteration
from tests.frontier.helpers import held
from tests.rounds.test_nodes_change import (
    WEB,
    assert_truth,
    begun,
    retire,
    settle,
    to_the_end,
    with_nodes,
)
from tests.worker.children import run_stage

__all__ = ["WEB"]


def admit(config: Config, node: str) -> bool:
    return admit_node(open_stores(config), node=node)


def test_a_lost_node_is_refused_until_it_is_admitted(
    serving: Serving, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its name is on the DFS as retired; with an empty disk it would take for new what others have yet to take in."""
    before = serving.log().counts()
    old = begun(tmp_path, serving, 0, 1, 2)
    settle(old)
    two = with_nodes(old, 0, 1)
    place = Path(old.queue.local_dir) / "node-2"
    kept = tmp_path / "kept"
    shutil.copytree(place, kept)
    shutil.rmtree(place)
    assert retire_lost(open_stores(two), node="node-2").handed_over
    for refused in (
        lambda: stages.settle_node(open_stores(old), node="node-2"),
        lambda: stages.crawl_node(open_stores(old), run_id="r", iteration=1, node="node-2"),
    ):
        with pytest.raises(
            ConfigError, match=r"node-2 was retired as lost.*`krake nodes admit node-2`"
        ):
            refused()
    settle(two)
    start_iteration(open_stores(two), run_id="two", iteration=1)
    for node in two.servers:
        stages.crawl_node(open_stores(two), run_id="two", iteration=1, node=node)
    stages.commit_iteration(open_stores(two), run_id="two", iteration=1)
    settle(two)
    with pytest.raises(
        ConfigError, match="once all of them are settled: node node-2 was retired as lost"
    ):
        start_iteration(open_stores(old), run_id="again", iteration=1)
    shutil.copytree(kept, place, dirs_exist_ok=True)
    with pytest.raises(
        ConfigError,
        match=r"holds the queue of before node node-2 was retired.*move the directory away",
    ):
        admit(old, "node-2")
    shutil.rmtree(place)

    def die(step: str) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(leaving, "reached", die)
        with pytest.raises(KeyboardInterrupt):
            admit(old, "node-2")
    assert admit(old, "node-2")
    assert not admit(old, "node-2")
    assert_truth(to_the_end(old, "again"), serving, serving.log().counts() - before)


def test_a_directory_that_was_retired_elsewhere_is_refused(
    serving: Serving, tmp_path: Path
) -> None:
    """The copy was emptied; the directory at its own place still has the queue."""
    old = begun(tmp_path, serving, 0, 1, 2)
    settle(old)
    copy = tmp_path / "copy"
    shutil.copytree(Path(old.queue.local_dir) / "node-2", copy)
    assert retire(with_nodes(old, 0, 1), "node-2", copy).handed_over
    with pytest.raises(ConfigError, match="node-2 was retired"):
        stages.settle_node(open_stores(old), node="node-2")
    with pytest.raises(ConfigError, match="move the directory away"):
        admit(old, "node-2")


@pytest.mark.parametrize(
    "step", ["retire.decided", "inject.written", "inject.renamed", "queue.move.written"]
)
def test_a_retirement_that_was_begun_and_given_up(
    step: str, serving: Serving, tmp_path: Path
) -> None:
    """The node goes on crawling, and is retired later: no decision of before empties its queue."""
    before = serving.log().counts()
    old = begun(tmp_path, serving, 0, 1, 2)
    settle(old)
    two = with_nodes(old, 0, 1)
    assert run_stage(two, "retire_node", step, node="node-2") == -9
    for number in (1, 2):
        start_iteration(open_stores(old), run_id="back", iteration=number)
        for node in ("node-2", "node-0", "node-1"):
            stages.crawl_node(open_stores(old), run_id="back", iteration=number, node=node)
        stages.commit_iteration(open_stores(old), run_id="back", iteration=number)
    settle(old)
    waiting = Queue(Path(old.queue.local_dir) / "node-2").length()
    assert retire(two, "node-2").handed_over == waiting
    assert_truth(to_the_end(two), serving, serving.log().counts() - before)


def test_a_queue_that_was_repaired_since_it_was_to_be_handed_over(
    serving: Serving, tmp_path: Path
) -> None:
    """Lines that no intake has looked at went to others as they were, and no task could take them."""
    before = serving.log().counts()
    old = begun(tmp_path, serving, 0, 1, 2)
    settle(old)
    two = with_nodes(old, 0, 1)
    assert run_stage(two, "retire_node", "retire.decided", node="node-2") == -9
    path = Path(old.queue.local_dir) / "node-2" / "0"
    data = path.read_bytes()
    last = data.rindex(b"\n", 0, -1) + 1
    path.write_bytes(data[:last] + b"\xe8" + data[last + 1 :])
    repair_crawl(open_stores(two))
    settle(two)
    assert retire(two, "node-2").handed_over
    assert_truth(to_the_end(two), serving, serving.log().counts() - before)


@pytest.mark.parametrize("has_disk", [True, False])
def test_what_was_sent_to_a_node_after_it_was_retired_goes_to_others(
    has_disk: bool, serving: Serving, tmp_path: Path
) -> None:
    """Node-0 was being replaced by node-2, whose turn had been over: its operator died, and took the list back."""
    before = serving.log().counts()
    old = begun(tmp_path, serving, 0, 1, 2)
    settle(old)
    two = with_nodes(old, 0, 1)
    assert retire(two, "node-2").handed_over
    run_iteration(two, "two", 1)
    settle(two)
    assert (
        run_stage(with_nodes(old, 1, 2), "retire_node", "retire.handed_over", node="node-0") == -9
    )
    settle(two)
    with pytest.raises(ConfigError, match=r"seeds for node-2, .* run `krake nodes retire node-2`"):
        start_iteration(open_stores(two), run_id="again", iteration=1)
    if has_disk:
        assert retire(two, "node-2").handed_over
    else:
        shutil.rmtree(Path(old.queue.local_dir) / "node-2")
        done = retire_lost(open_stores(two), node="node-2")
        assert done.handed_over == done.requeued > 0
        assert retire_lost(open_stores(two), node="node-2").handed_over == 0
    assert_truth(to_the_end(two), serving, serving.log().counts() - before)


def test_what_was_sent_to_a_node_that_never_worked_goes_to_others(
    serving: Serving, tmp_path: Path
) -> None:
    """Node-0 was being replaced by node-2: its operator died, and took the list back."""
    before = serving.log().counts()
    old = begun(tmp_path, serving, 0, 1)
    settle(old)
    assert (
        run_stage(with_nodes(old, 1, 2), "retire_node", "retire.handed_over", node="node-0") == -9
    )
    settle(old)
    with pytest.raises(ConfigError, match=r"seeds for node-2, .* run `krake nodes retire node-2`"):
        start_iteration(open_stores(old), run_id="again", iteration=1)
    with pytest.raises(ConfigError, match="node-3: this crawl has never had a node of that name"):
        retire(old, "node-3")
    assert retire_node(open_stores(old), node="node-2", dry_run=True).handed_over
    assert retire(old, "node-2").handed_over
    assert retire(old, "node-2").handed_over == 0
    run_iteration(old, "less", 1)
    settle(old)
    assert_truth(
        to_the_end(with_nodes(old, 0, 1, 2), "more"), serving, serving.log().counts() - before
    )


def test_a_retired_node_that_returns_with_nothing_crawls_nothing_again(
    serving: Serving, tmp_path: Path
) -> None:
    """All that was ever handed on to it is in old segments, past the key check; others crawled it meanwhile."""
    before = serving.log().counts()
    old = begun(tmp_path, serving, 0, 1)
    settle(old)
    more = with_nodes(old, 0, 1, 2)
    for number in (1, 2):
        run_iteration(more, "more", number)
    settle(more)
    assert Queue(Path(old.queue.local_dir) / "node-2").taken_in().complete
    assert retire(old, "node-2").retired
    shutil.rmtree(Path(old.queue.local_dir) / "node-2")
    run_iteration(old, "less", 1)
    settle(old)
    assert_truth(to_the_end(more), serving, serving.log().counts() - before)


def test_what_was_handed_on_is_not_handed_on_once_more_when_all_is_read_again(
    serving: Serving, tmp_path: Path
) -> None:
    """Its new owner crawls it in the iteration in which it would be handed on (operators, seeds 3495 and 3524)."""
    before = serving.log().counts()
    old = begun(tmp_path, serving, 0, 1, 2)
    settle(old)
    assert retire(with_nodes(old, 0, 1), "node-2").handed_over
    run_iteration(old, "back", 1)
    segments = [path.parent for path in Path(old.dfs_primary).glob("crawl/*/node-*/manifest.json")]
    assert any(
        json.loads((one / "manifest.json").read_text())["intake"]["handed_on"] for one in segments
    )
    for node in ("node-0", "node-1"):
        take_all_in_again(open_stores(old), held(node_dir(old, node)))
    assert_truth(to_the_end(old, "again"), serving, serving.log().counts() - before)


def test_an_admission_that_was_killed_before_its_move_is_run_again(
    serving: Serving, tmp_path: Path
) -> None:
    old = begun(tmp_path, serving, 0, 1, 2)
    settle(old)
    place = Path(old.queue.local_dir) / "node-2"
    shutil.rmtree(place)
    retire_lost(open_stores(with_nodes(old, 0, 1)), node="node-2")
    place.mkdir()
    held(place).queue.create()
    assert admit(old, "node-2")
