"""Adding and retiring nodes: refused before all is settled; then no URL is lost or fetched twice, each by its owner."""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from crawl_lib import stages
from crawl_lib.config import Config
from crawl_lib.crawldir import Settled, SettledNotes
from crawl_lib.errors import ConfigError, PathNotFoundError
from crawl_lib.frontier import Queue
from crawl_lib.node.retire import RetireReport, retire_lost, retire_node
from crawl_lib.rounds import NodeLayout, start_iteration
from crawl_lib.sealed import sealed_json
from crawl_lib.stores import open_stores
from crawl_lib.urlfiles import TakenIn
from crawl_lib.urls import Owners
from demo import Serving, SynthWeb
from tests.e2e.crawl import Result, check_counts, make_config, run_iteration, settle
from tests.rounds.test_start import dying_after
from tests.worker.children import run_stage

WEB = SynthWeb(seed=9, sites=6, pages_per_site=8, specials=False)


def with_nodes(config: Config, *numbers: int) -> Config:
    return dataclasses.replace(config, servers=tuple(f"node-{number}" for number in numbers))


def begun(
    directory: Path, serving: Serving, *numbers: int, rounds: int = 2, routing: str = "host"
) -> Config:
    """A crawl by some nodes, in the middle of it; nothing is settled. Its takes have gaps."""
    crawl = {"max_iterations": 60, "min_nodes": 0.3}
    batch, fetch = {"size": 3, "max_per_host": 1}, {"host_delay_s": 0.0}
    config = make_config(directory, nodes=4, routing=routing, crawl=crawl, batch=batch, fetch=fetch)
    config = with_nodes(config, *numbers)
    stages.inject(open_stores(config), run_id="r", seeds="\n".join(serving.seeds))
    for number in range(1, rounds + 1):
        run_iteration(config, "r", number)
    return config


def retire(config: Config, node: str, directory: Path | None = None) -> RetireReport:
    return retire_node(open_stores(config), node=node, directory=directory)


def to_the_end(config: Config, run_id: str = "next") -> Result:
    config = dataclasses.replace(config, batch=dataclasses.replace(config.batch, size=100))
    taken: list[int] = []
    for number in range(1, 60):
        taken.append(run_iteration(config, run_id, number)["taken"])
        if taken[-2:] == [0, 0]:
            break
    settle(config)
    return Result(config)


def assert_truth(result: Result, serving: Serving, asked: Counter[str]) -> None:
    """Every URL once, and each by the owner of its host among the nodes of its iteration."""
    truth = serving.truth()
    assert result.visited() == Counter(dict.fromkeys(truth.visits, 1))
    again = [url for url, count in asked.items() if count > 1 and not url.endswith("/robots.txt")]
    assert not again, (
        "a page was fetched again"
    )  # a new owner reads robots.txt itself, also where that redirects to
    check_counts(result)
    for segment in result.segments():
        nodes = json.loads((segment.parent / "iteration.json").read_text())["nodes"]
        owners = Owners(nodes)
        for row in result.rows("pages", ["url", "host"], segment):
            assert owners.owner(row["host"]) == segment.name, row["url"]


def test_a_node_is_added_and_gets_what_is_its_own(serving: Serving, tmp_path: Path) -> None:
    before = serving.log().counts()
    old = begun(tmp_path, serving, 0, 1)
    settle(old)
    new = with_nodes(old, 0, 1, 2)
    moved = [
        item.url
        for node in old.servers
        for item in Queue(Path(old.queue.local_dir) / node)
        if Owners(new.servers).owner(item.url.split("/")[2].partition(":")[0]) == "node-2"
    ]
    assert moved, "else nothing is tested"
    result = to_the_end(new)
    assert_truth(result, serving, serving.log().counts() - before)
    owners = {
        row["url"]: s.name for s in result.segments() for row in result.rows("pages", ["url"], s)
    }
    assert {owners[url] for url in moved} == {"node-2"}
    handed = sum(manifest["intake"]["handed_on"] for manifest in result.manifests())
    assert handed == len(moved), "each URL that changes its queue is counted, once"


def test_a_changed_list_is_refused_until_all_have_settled(serving: Serving, tmp_path: Path) -> None:
    old = begun(tmp_path, serving, 0, 1)
    new = with_nodes(old, 0, 1, 2)

    def refused(config: Config, says: str, run_id: str = "x") -> None:
        with pytest.raises(ConfigError, match=says):
            start_iteration(open_stores(config), run_id=run_id, iteration=1)

    refused(
        new,
        "servers: .*node-0 has no mark that it settled: run `krake settle --node node-0`.*node-1 has no mark",
    )
    stages.settle_node(open_stores(new), node="node-0")  # also with the new list
    refused(new, "once all of them are settled: node-1 has no mark")
    stages.settle_node(open_stores(old), node="node-1")
    refused(with_nodes(old, 0, 2), "node-1 is not retired: run `krake nodes retire node-1`")
    stages.inject(open_stores(old), run_id="more", seeds=f"{serving.seeds[0]}?more")
    refused(new, "node-[01] has not taken in [0-9a-f]{40}/seeds")
    settle(old)
    local = dataclasses.replace(old, frontier=dataclasses.replace(old.frontier, routing="local"))
    start_iteration(open_stores(old), run_id="r", iteration=3)
    refused(new, "node-0 settled before iteration")
    refused(local, "with host routing, and the config now has node-0, node-1 with local")
    stages.crawl_node(open_stores(old), run_id="r", iteration=3, node="node-0")
    refused(new, "node-0 has no mark")
    stages.crawl_node(open_stores(old), run_id="r", iteration=3, node="node-1")
    stages.commit_iteration(open_stores(old), run_id="r", iteration=3)
    settle(old)
    assert start_iteration(open_stores(new), run_id="x", iteration=1).nodes == (
        "node-0",
        "node-1",
        "node-2",
    )
    with pytest.raises(ConfigError, match="servers"):
        stages.crawl_node(open_stores(old), run_id="x", iteration=1, node="node-0")


def test_a_start_that_was_slower_finds_what_the_faster_one_began(
    serving: Serving, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All nodes start at the same time. A node that began has no mark any more, which is no reason to refuse others."""
    old = begun(tmp_path, serving, 0, 1)
    settle(old)
    stores = open_stores(with_nodes(old, 0, 1, 2))

    def unsettled(*args: Any) -> list[str]:
        """What `start` asks once it knows the newest iteration: another node begins before that."""
        monkeypatch.undo()
        stages.crawl_node(stores, run_id="x", iteration=1, node="node-0")
        return NodeLayout.unsettled(*args)

    monkeypatch.setattr(NodeLayout, "unsettled", unsettled)
    found = start_iteration(stores, run_id="x", iteration=1)
    assert found.folder == stores.crawl.folders()[-1]
    assert SettledNotes(stores.crawl, "node-0").read() is None, "else nothing is tested"


def test_a_segment_that_came_after_a_node_settled_has_to_be_taken_in(
    serving: Serving, tmp_path: Path
) -> None:
    old = begun(tmp_path, serving, 0, 1)
    start_iteration(open_stores(old), run_id="r", iteration=3)
    stages.settle_node(open_stores(old), node="node-0")
    stages.crawl_node(open_stores(old), run_id="r", iteration=3, node="node-1")
    stages.settle_node(open_stores(old), node="node-1")
    with pytest.raises(ConfigError, match=r"node-0 has not taken in \d+/node-1"):
        start_iteration(open_stores(with_nodes(old, 0, 1, 2)), run_id="x", iteration=1)


@pytest.mark.parametrize(("moved", "routing"), [(False, "host"), (True, "host"), (False, "local")])
def test_a_retired_node_hands_its_queue_over(
    moved: bool, routing: str, serving: Serving, tmp_path: Path
) -> None:
    """On its machine, or where its directory was copied to."""
    before = serving.log().counts()
    old = begun(tmp_path, serving, 0, 1, 2, routing=routing)
    new = with_nodes(old, 0, 1)
    place = Path(old.queue.local_dir) / "node-2"
    with pytest.raises(ConfigError, match="node-2 is in servers: take it out"):
        retire(old, "node-2")
    with pytest.raises(ConfigError, match="before the others have settled: node-0 has no mark"):
        retire(new, "node-2")
    settle(old)
    waiting = Queue(place).length()
    assert waiting
    if moved:
        place = Path(shutil.move(place, tmp_path / "copy"))
        with pytest.raises(
            PathNotFoundError, match=r"holds no queue of node node-2; .*--dir.*--lost"
        ):
            retire(new, "node-2")
    directory = place if moved else None
    assert (
        retire_node(open_stores(new), node="node-2", directory=directory, dry_run=True).queue
        == waiting
    )
    assert Queue(place).length() == waiting, "a dry run changes nothing"
    assert retire(new, "node-2", directory).handed_over == waiting
    assert retire(new, "node-2", directory).handed_over == 0
    assert Queue(place).length() == 0
    result = to_the_end(new)
    if routing == "host":
        assert_truth(result, serving, serving.log().counts() - before)
    else:
        assert result.visited() == Counter(dict.fromkeys(serving.truth().visits, 1))


@pytest.mark.parametrize("how", ["with its queue", "lost"])
def test_an_iteration_whose_start_died_does_not_appear_after_a_node_of_it_was_retired(
    how: str, serving: Serving, tmp_path: Path
) -> None:
    config = begun(tmp_path, serving, 0, 1, 2, rounds=1)
    settle(config)
    with dying_after("start.decided"):
        start_iteration(open_stores(config), run_id="given up", iteration=1)
    new = with_nodes(config, 0, 1)
    if how == "lost":
        shutil.rmtree(Path(config.queue.local_dir) / "node-2")
    leave = retire_lost if how == "lost" else retire_node
    with pytest.raises(
        ConfigError, match="before the others have settled: node-0 settled before iteration"
    ):
        leave(open_stores(new), node="node-2")
    settle(new)
    leave(open_stores(new), node="node-2")
    assert start_iteration(open_stores(new), run_id="next", iteration=1).nodes == new.servers


def test_a_node_retires_with_its_take_open_and_things_to_take_in(
    serving: Serving, tmp_path: Path
) -> None:
    """What it has begun is committed in its folder, and what was sent to it meanwhile goes on to the new owners."""
    before = serving.log().counts()
    old = begun(tmp_path, serving, 0, 1, 2)
    new = with_nodes(old, 0, 1)
    start_iteration(open_stores(old), run_id="r", iteration=3)
    assert run_stage(old, "crawl_node", "hosts.begun", run_id="r", iteration=3, node="node-2") == -9
    for node in ("node-0", "node-1"):
        stages.crawl_node(open_stores(old), run_id="r", iteration=3, node=node)
    stages.commit_iteration(open_stores(old), run_id="r", iteration=3)
    for node in ("node-0", "node-1"):
        stages.settle_node(open_stores(old), node=node)
    retire(new, "node-2")
    settle(new)  # what the take found for the others; start would ask for it
    assert_truth(to_the_end(new), serving, serving.log().counts() - before)


RETIRE_STEPS = [
    "retire.decided",
    "inject.written",
    "inject.renamed",
    "retire.handed_over",
    "queue.move.written",
    "queue.move.record",
    "retire.emptied",
    "settle.marked",
    "retire.done",
]


@pytest.mark.parametrize("step", RETIRE_STEPS)
def test_retiring_killed_at_any_step_and_run_again_hands_over_each_url_once(
    step: str, serving: Serving, tmp_path: Path
) -> None:
    config = begun(tmp_path, serving, 0, 1, 2, rounds=1)
    settle(config)
    place = Path(config.queue.local_dir) / "node-2"
    waiting = sorted(item.url for item in Queue(place))
    new = with_nodes(config, 0, 1)
    assert run_stage(new, "retire_node", step, node="node-2") == -9, f"{step} was not reached"
    result = stages.retire_node(open_stores(new), node="node-2")
    assert result.retired
    assert Queue(place).length() == 0
    found = []
    for node in new.servers:
        stages.settle_node(open_stores(new), node=node)
        found += [item.url for item in Queue(Path(new.queue.local_dir) / node)]
    for url in waiting:
        assert found.count(url) == 1
    assert not (place / "retire").exists()
    assert start_iteration(open_stores(new), run_id="x", iteration=1).nodes == new.servers


def test_a_node_that_is_lost_loses_no_url_that_was_ever_sent_to_it(
    serving: Serving, tmp_path: Path
) -> None:
    """Its disk is gone, with a queue and an open take on it. Only what it had fetched of that take is fetched again."""
    old = begun(tmp_path, serving, 0, 1, 2)
    new = with_nodes(old, 0, 1)
    start_iteration(open_stores(old), run_id="r", iteration=3)
    assert (
        run_stage(old, "crawl_node", "take.leftover", run_id="r", iteration=3, node="node-2") == -9
    )
    for node in ("node-0", "node-1"):
        stages.crawl_node(open_stores(old), run_id="r", iteration=3, node=node)
    assert stages.commit_iteration(open_stores(old), run_id="r", iteration=3)["missing"] == [
        "node-2"
    ]
    for node in ("node-0", "node-1"):
        stages.settle_node(open_stores(old), node=node)
    with pytest.raises(
        ConfigError, match="node-2: is on this machine; retire node-2 without --lost"
    ):
        retire_lost(open_stores(new), node="node-2")
    shutil.rmtree(Path(old.queue.local_dir) / "node-2")
    with pytest.raises(
        ConfigError,
        match=r"node-2 has no mark that it settled: .*`krake nodes retire node-2 --lost`",
    ):
        start_iteration(open_stores(new), run_id="next", iteration=1)
    planned = retire_lost(open_stores(new), node="node-2", dry_run=True)
    done = retire_lost(open_stores(new), node="node-2")
    assert done.handed_over == planned.handed_over == done.requeued + done.new > 0
    assert retire_lost(open_stores(new), node="node-2").handed_over == 0
    result = to_the_end(new)
    assert result.visited() == Counter(dict.fromkeys(serving.truth().visits, 1))
    assert all(entry["complete"] for entry in stages.status_of(new)["iterations"])


def test_seeds_for_a_node_that_never_took_part_are_not_forgotten(
    serving: Serving, tmp_path: Path
) -> None:
    """A list that was changed for an inject, and changed back: no one would ever take in what is the third node's."""
    before = serving.log().counts()
    three = with_nodes(
        make_config(tmp_path, nodes=4, crawl={"max_iterations": 60}, fetch={"host_delay_s": 0.0}),
        0,
        1,
        2,
    )
    two = with_nodes(three, 0, 1)
    stages.inject(open_stores(three), run_id="r", seeds="\n".join(serving.seeds))
    with pytest.raises(
        ConfigError, match="seeds for node-2, which is not in servers: put it back, or run `krake"
    ):
        start_iteration(open_stores(two), run_id="r", iteration=1)
    with pytest.raises(ConfigError, match="node-2"):
        stages.inject(open_stores(two), run_id="s", seeds=serving.seeds[0])
    retired = retire_lost(open_stores(two), node="node-2")
    assert retired.new, "else nothing is tested"
    assert_truth(to_the_end(two), serving, serving.log().counts() - before)


def test_seeds_are_not_divided_among_nodes_that_no_iteration_may_have_yet(
    serving: Serving, tmp_path: Path
) -> None:
    old = begun(tmp_path, serving, 0, 1)
    new = with_nodes(old, 0, 1, 2)
    with pytest.raises(ConfigError, match="node-0 has no mark that it settled"):
        stages.inject(open_stores(new), run_id="more", seeds="\n".join(serving.seeds))
    settle(old)
    stages.inject(open_stores(new), run_id="more", seeds="\n".join(serving.seeds))
    with pytest.raises(ConfigError, match="seeds for node-2, which is not in servers: put it back"):
        start_iteration(open_stores(old), run_id="more", iteration=1)
    assert start_iteration(open_stores(new), run_id="more", iteration=1).nodes == new.servers


def test_a_mark_is_replaced_and_taken_away_and_the_newest_holds(config: Config) -> None:
    """Also where a writer died between writing the new one and deleting the old one."""
    stores = open_stores(config)
    first = Settled("node-a", "5", 7, 0, TakenIn(["4"], {"5": ["node-a"]}))
    second = dataclasses.replace(first, newest="6", taken_in=TakenIn(["4", "5"]))
    first.write(stores.crawl)
    kept = stores.storage.list("crawl/settled/node-a")
    first.write(stores.crawl)
    assert stores.storage.list("crawl/settled/node-a") == kept, (
        "nothing is written that is there already"
    )
    stores.storage.write_bytes("crawl/settled/node-a/2", sealed_json(second.to_mapping()))
    found = SettledNotes(stores.crawl, "node-a").read()
    assert found is not None
    assert found.to_mapping() == second.to_mapping()
    dataclasses.replace(second, queue=9).write(stores.crawl)
    assert [entry.name for entry in stores.storage.list("crawl/settled/node-a")] == ["3"]
    assert SettledNotes.nodes(stores.crawl) == ["node-a"]
    SettledNotes(stores.crawl, "node-a").delete()
    assert SettledNotes(stores.crawl, "node-a").read() is None
