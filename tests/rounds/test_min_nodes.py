"""`crawl.min_nodes`: a round goes on without a dead node; its segment comes late, and nothing is lost or doubled."""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from crawl_lib import stages
from crawl_lib.config import Config
from crawl_lib.crawldb import generate
from crawl_lib.errors import PathNotFoundError
from crawl_lib.frontier import Take
from crawl_lib.node.retire import retire_lost
from crawl_lib.rounds import refresh_index
from crawl_lib.rounds.commit import commit_iteration, keep_late_scope, needed_segments
from crawl_lib.rounds.start import start_iteration
from crawl_lib.stores import Stores, open_stores
from demo import Serving, SynthWeb
from tests.e2e.crawl import Result, check_counts, make_config, run_iteration, settle
from tests.rounds.test_start import lay_segment
from tests.worker.children import run_stage

WEB = SynthWeb(seed=9, sites=5, pages_per_site=6, specials=False)
NODES = ["node-0", "node-1", "node-2"]
DEAD = "node-2"  # it owns four of the five hosts


@pytest.fixture
def stores(config: Config) -> Stores:
    crawl = dataclasses.replace(config.crawl, min_nodes=0.5, max_pages=100)
    return open_stores(dataclasses.replace(config, crawl=crawl))


def small(directory: Path, **sections: Any) -> Config:
    crawl = {"min_nodes": 0.6, "max_iterations": 60}
    return make_config(
        directory, nodes=3, crawl=crawl, batch={"size": 4}, fetch={"host_delay_s": 0.0}, **sections
    )


def round_without(config: Config, number: int, *dead: str) -> dict[str, Any]:
    start_iteration(open_stores(config), run_id="r", iteration=number)
    for node in config.servers:
        if node not in dead:
            stages.crawl_node(open_stores(config), run_id="r", iteration=number, node=node)
    return stages.commit_iteration(open_stores(config), run_id="r", iteration=number)


def to_the_end(config: Config, first: int) -> Result:
    config = dataclasses.replace(config, batch=dataclasses.replace(config.batch, size=100))
    result = Result(config)
    for number in range(first, 60):
        # Two in a row: a URL that one node found in the last round that fetched waits for its owner.
        result.commits.append(run_iteration(config, "r", number))
        if [commit["taken"] for commit in result.commits[-2:]] == [0, 0]:
            break
    settle(config)
    return result


@pytest.mark.parametrize(
    ("nodes", "share", "needed"),
    [
        (3, 1.0, 3),
        (3, 0.6, 2),
        (10, 0.7, 7),
        (3, 1 / 3, 1),
        (3, 0.01, 1),
        (1, 0.5, 1),
        (100, 0.95, 95),
        (100, 0.951, 96),
    ],
)
def test_the_share_is_rounded_up_and_never_by_a_digit_of_floating_point(
    nodes: int, share: float, needed: int
) -> None:
    assert needed_segments(nodes, share) == needed


def test_commit_goes_on_without_a_node_and_says_which(stores: Stores) -> None:
    first = start_iteration(stores, run_id="r", iteration=1)
    with pytest.raises(
        PathNotFoundError,
        match=r"no segment of node-a, node-b; .*min_nodes is 0.5: 1 of 2 must exist",
    ):
        commit_iteration(stores, run_id="r", iteration=1)
    lay_segment(stores, first.folder, "node-b", pages=2)
    done = commit_iteration(stores, run_id="r", iteration=1)
    assert (done.missing, done.counts["fetched"]) == (["node-a"], 2)
    index = stores.storage.read_bytes(f"crawl/{first.folder}/index.json")
    lay_segment(stores, first.folder, "node-a", pages=3)
    again = commit_iteration(stores, run_id="r", iteration=1)
    assert (again.missing, again.counts["fetched"], again.counts["outcomes"]) == ([], 5, {"ok": 5})
    assert stores.storage.read_bytes(f"crawl/{first.folder}/index.json") == index, (
        "finished output stays as it is"
    )


def test_a_damaged_index_is_written_again_whatever_share_of_the_nodes_is_asked_for_now(
    stores: Stores,
) -> None:
    first = start_iteration(stores, run_id="r", iteration=1)
    lay_segment(stores, first.folder, "node-b", pages=2)
    commit_iteration(stores, run_id="r", iteration=1)
    path = f"crawl/{first.folder}/index.json"
    index = stores.storage.read_bytes(path)
    stores.storage.delete(path)
    stores.storage.write_bytes(path, b"rubbish")
    crawl = dataclasses.replace(stores.config.crawl, min_nodes=1.0)
    refresh_index(open_stores(dataclasses.replace(stores.config, crawl=crawl)), first.folder)
    assert stores.storage.read_bytes(path) == index


def test_a_folder_is_summed_up_once_its_late_segments_stand(stores: Stores) -> None:
    """`crawl.max_pages` counts what a late node may still fetch, and then what it has fetched, once."""
    first = start_iteration(stores, run_id="r", iteration=1, batch_size=10)
    lay_segment(stores, first.folder, "node-b", pages=10)
    commit_iteration(stores, run_id="r", iteration=1)
    second = start_iteration(stores, run_id="r", iteration=2, batch_size=100)
    assert sum(second.batch_sizes.values()) == 100 - 10 - 10
    assert (second.taken_before, second.summed) == (0, ())
    for node in ("node-a", "node-b"):
        lay_segment(stores, second.folder, node)
    commit_iteration(stores, run_id="r", iteration=2)
    lay_segment(stores, first.folder, "node-a", pages=3, scope=["late.example"])
    third = start_iteration(stores, run_id="r", iteration=3, batch_size=100)
    assert sum(third.batch_sizes.values()) == 100 - 13
    assert (third.taken_before, third.summed) == (13, (first.folder, second.folder))
    assert b"late.example" in stores.storage.read_bytes(stores.crawl.scopes.path(third))


@pytest.mark.parametrize("order", ["segment, commit", "commit, segment"])
def test_hosts_of_a_late_segment_outlive_its_folder(stores: Stores, order: str) -> None:
    """Whichever of commit and the late segment is later keeps them; then the folder may be deleted by hand."""
    first = start_iteration(stores, run_id="r", iteration=1)
    lay_segment(stores, first.folder, "node-b", scope=["b.example"])
    commit_iteration(stores, run_id="r", iteration=1)
    lay_segment(stores, first.folder, "node-a", scope=["late.example"])
    if order == "commit, segment":
        keep_late_scope(stores, first.folder)
    else:
        commit_iteration(stores, run_id="r", iteration=1)
    stores.storage.delete(f"crawl/{first.folder}")
    second = start_iteration(stores, run_id="r", iteration=2)
    assert (
        stores.storage.read_bytes(stores.crawl.scopes.path(second)) == b"b.example\nlate.example\n"
    )


def test_commit_that_died_between_scope_and_index_keeps_the_hosts_of_who_came_since(
    stores: Stores,
) -> None:
    first = start_iteration(stores, run_id="r", iteration=1)
    stores.storage.write_bytes(f"crawl/scope/{first.folder}", b"b.example\n")
    lay_segment(stores, first.folder, "node-b", scope=["b.example"])
    lay_segment(stores, first.folder, "node-a", scope=["late.example"])
    commit_iteration(stores, run_id="r", iteration=1)
    stores.storage.delete(f"crawl/{first.folder}")
    second = start_iteration(stores, run_id="r", iteration=2)
    assert (
        stores.storage.read_bytes(stores.crawl.scopes.path(second)) == b"b.example\nlate.example\n"
    )


# Before its take; in the middle of the fetch; with all fetched; with the segment there, and the queue not yet moved.
@pytest.mark.parametrize(
    "step",
    ["queue.move.done", "take.written", "hosts.begun", "take.leftover", "segment.publish.renamed"],
)
def test_a_node_that_dies_and_comes_back_finishes_its_take_in_the_old_folder(
    step: str, serving: Serving, tmp_path: Path
) -> None:
    """The truth is that of an unbroken crawl, each page is fetched once, and all sums hold."""
    config = small(tmp_path)
    before = serving.log().counts()
    stages.inject(open_stores(config), run_id="r", seeds="\n".join(serving.seeds))
    round_without(config, 1)
    folders = [start_iteration(open_stores(config), run_id="r", iteration=2).folder]
    assert run_stage(config, "crawl_node", step, run_id="r", iteration=2, node=DEAD) == -9, (
        f"{step} was not reached"
    )
    has_segment = (Result(config).crawl_dir / folders[0] / DEAD).exists()
    for number in (2, 3):
        commit = round_without(config, number, DEAD)
        assert commit.get("missing") == (None if number == 2 and has_segment else [DEAD])
        folders.append(commit["folder"])
    # It comes back: one task finishes what was open, and leaves an empty segment where it took nothing.
    took = Take.open(Path(config.queue.local_dir) / DEAD) is not None
    round_without(config, 4)
    crawl_dir = Result(config).crawl_dir
    late = [
        json.loads((crawl_dir / folder / DEAD / "manifest.json").read_text())
        for folder in folders[1:]
    ]
    assert [manifest["counts"]["taken"] for manifest in late[1:]] == [0]
    assert (late[0]["counts"]["taken"] > 0) == took
    result = to_the_end(config, 5)
    truth = serving.truth()
    assert result.visited() == Counter(dict.fromkeys(truth.visits, 1))
    asked = serving.log().counts() - before
    assert set(asked.values()) == {1}, "a page was fetched again"
    assert set(asked) <= set(truth.visits)
    check_counts(result)
    status = stages.status_of(config)
    assert status["totals"]["fetched"] == len(truth.visits)
    assert all(entry["complete"] for entry in status["iterations"])
    newest = json.loads(
        (
            crawl_dir / max(folder.name for folder in crawl_dir.glob("[0-9]*")) / "iteration.json"
        ).read_text()
    )
    assert newest["taken_before"] == len(truth.visits), (
        "start has summed every folder up, late segments with it"
    )


def test_a_node_that_was_never_there_before_leaves_empty_segments_too(
    serving: Serving, tmp_path: Path
) -> None:
    """Its directory is made by the very task that fills what it missed."""
    config = small(tmp_path)
    folders = [round_without(config, number, DEAD)["folder"] for number in (1, 2)]
    stages.settle_node(open_stores(config), node=DEAD)
    for folder in folders:
        manifest = json.loads(
            (Result(config).crawl_dir / folder / DEAD / "manifest.json").read_text()
        )
        assert manifest["counts"]["taken"] == 0
    assert [entry["late"] for entry in stages.status_of(config)["iterations"]] == [[], []]


def test_late_segments_are_taken_in_once_by_every_node(serving: Serving, tmp_path: Path) -> None:
    """And a folder with a node missing does not count as complete before that."""
    config = small(tmp_path)
    stages.inject(open_stores(config), run_id="r", seeds="\n".join(serving.seeds))
    round_without(config, 1)
    late = round_without(config, 2, "node-2")["folder"]
    for node in NODES[:2]:
        stages.settle_node(open_stores(config), node=node)

    def taken_in(node: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(
            (Path(config.queue.local_dir) / node / "state.krake").read_text()
        )["taken_in"]
        return found

    assert taken_in("node-0")["partial"][late] == NODES[:2]
    stages.crawl_node(
        open_stores(config), run_id="r", iteration=2, node="node-2"
    )  # its task is cleared: late, and not empty
    seen = stages.settle_node(open_stores(config), node="node-0")["seen"]
    assert late in taken_in("node-0")["complete"]
    assert stages.settle_node(open_stores(config), node="node-0")["seen"] == seen
    shutil.rmtree(Result(config).crawl_dir / late)
    assert stages.settle_node(open_stores(config), node="node-0")["seen"] == seen


def test_an_export_takes_in_what_stands_and_the_next_one_the_late_segment(
    serving: Serving, tmp_path: Path
) -> None:
    config = small(tmp_path)
    stages.inject(open_stores(config), run_id="r", seeds="\n".join(serving.seeds))
    round_without(config, 1)
    round_without(config, 2, "node-2")
    first = stages.export_pages(open_stores(config), run_id="r", label="first")["pages"]
    stages.crawl_node(open_stores(config), run_id="r", iteration=2, node="node-2")
    assert stages.export_pages(open_stores(config), run_id="r", label="second")["pages"] > first


# -- with a CrawlDb

LEASE = timedelta(days=7)


def visit(
    config: Config, number: int, *dead: str, later: timedelta = timedelta()
) -> dict[str, Any]:
    """A round as the DAG `recrawl` has it; returns what its commit and its list say. `dead`: nodes without a task."""
    listed = generate(open_stores(config), "r", number, now=datetime.now(UTC) + later)
    if listed.ended:
        return vars(listed)
    commit = round_without(config, number, *dead)
    stages.update_crawldb(open_stores(config))
    return {**commit, **vars(listed)}


def visit_all(config: Config, first: int, later: timedelta = timedelta()) -> None:
    """Rounds until nothing is due."""
    config = dataclasses.replace(config, batch=dataclasses.replace(config.batch, size=100))
    said = [visit(config, number, later=later) for number in range(first, first + 5)]
    assert said[-1].get("ended"), said


@pytest.fixture
def without_dead(serving: Serving, tmp_path: Path) -> Config:
    """A crawl with a CrawlDb, two rounds of it: DEAD was killed in the first, with its part of the list taken."""
    config = small(tmp_path, frontier={"order": "crawldb"})
    stages.inject(open_stores(config), run_id="r", seeds="\n".join(serving.seeds))
    generate(open_stores(config), "r", 1, now=datetime.now(UTC))
    assert run_stage(config, "crawl_node", "take.written", run_id="r", iteration=1, node=DEAD) == -9
    first, second = (visit(config, number, DEAD) for number in (1, 2))
    assert (first["missing"], first["taken"], first["counts"]) == ([DEAD], 1, {"listed": 5})
    assert (second["missing"], second["counts"]["leased"]) == ([DEAD], 4), (
        "no other list has what it took"
    )
    return config


def test_with_a_crawldb_a_node_that_comes_back_fetches_its_list(
    without_dead: Config, serving: Serving
) -> None:
    visit_all(without_dead, 3)
    assert Result(without_dead).visited() == Counter(dict.fromkeys(serving.truth().visits, 1))
    assert all(entry["complete"] for entry in stages.status_of(without_dead)["iterations"])


def test_with_a_crawldb_the_list_of_a_node_that_is_lost_comes_again_after_the_lease(
    without_dead: Config, serving: Serving
) -> None:
    for node in NODES[:2]:
        stages.settle_node(open_stores(without_dead), node=node)
    shutil.rmtree(Path(without_dead.queue.local_dir) / DEAD)
    rest = dataclasses.replace(without_dead, servers=tuple(NODES[:2]))
    assert retire_lost(open_stores(rest), node=DEAD).handed_over == 0
    assert visit(rest, 3)["counts"]["leased"] == 4
    visit_all(rest, 4, LEASE)
    assert Result(rest).visited() == Counter(dict.fromkeys(serving.truth().visits, 1))
