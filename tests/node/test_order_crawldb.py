"""`frontier.order: crawldb`: only what lists hold is queued; keys say nothing; what fails is not put back."""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from crawl_lib import stages
from crawl_lib.config import Config, from_mapping
from crawl_lib.crawldir import FileName
from crawl_lib.curate import Failures, retry
from crawl_lib.errors import ConfigError
from crawl_lib.frontier import Queue
from crawl_lib.keys import open_key_store
from crawl_lib.node.retire import retire_lost, retire_node
from crawl_lib.records import QueuedUrl
from crawl_lib.repair import fsck, repair_crawl, restart_node
from crawl_lib.rounds import CrawlName, crawl_status, start_iteration
from crawl_lib.seeds import Division, hand_over
from crawl_lib.states import Outcome
from crawl_lib.stores import open_stores
from crawl_lib.urlfiles import HANDED_ON, encode_line
from tests.curate.test_retry import LEAVES, Sites
from tests.e2e.crawl import Result, make_config, run_iteration, settle
from tests.worker.children import run_stage


@pytest.fixture
def site() -> Iterator[Sites]:
    with ExitStack() as stack:
        yield Sites(stack, 1)


def config_of(directory: Path, nodes: int = 1, order: str = "crawldb", **sections: Any) -> Config:
    frontier = {"order": order, **sections.pop("frontier", {})}
    usual: dict[str, Any] = {"fetch": {"host_delay_s": 0.0, "robots": "ignore"}}
    return make_config(directory, nodes=nodes, frontier=frontier, **(usual | sections))


def leave(config: Config, name: str, urls: Sequence[str], **fields: Any) -> None:
    """Leave a list as `generate` does."""
    lines = [encode_line(QueuedUrl(url, list_name=name, **fields), HANDED_ON) for url in urls]
    hand_over(open_stores(config).crawl, name, lines, Division.of(config), facts={}, scope=None)


def inject(config: Config, seeds: Sequence[str], run_id: str = "run") -> None:
    stages.inject(open_stores(config), run_id=run_id, seeds="\n".join(seeds))


def keys_of(config: Config) -> int:
    with open_key_store(config.key_storage) as keys:
        return sum(count.total for count in keys.counts())


def queued(config: Config, node: str = "node-0") -> list[QueuedUrl]:
    return list(Queue(Path(config.queue.local_dir) / node))


def assert_clean(config: Config) -> None:
    report = fsck(open_stores(config))
    assert report.findings == []
    assert report.skipped == []


@pytest.mark.parametrize(("nodes", "routing"), [(1, "host"), (3, "host"), (3, "local")])
def test_only_what_lists_hold_is_fetched(nodes: int, routing: str, tmp_path: Path) -> None:
    """Seeds and links are not; they give the scope, and no key is written."""
    with ExitStack() as stack:
        sites = Sites(stack, 4)
        config = config_of(tmp_path, nodes, frontier={"routing": routing})
        inject(config, sites.seeds)
        leave(config, "1-1", sites.seeds[:2])
        assert run_iteration(config, "run", 1)["taken"] == 2
        assert sites.asked == Counter(sites.seeds[:2])
        assert run_iteration(config, "run", 2)["taken"] == 0, (
            "what the pages link to waits in no queue"
        )
        leave(config, "2-1", [*sites.seeds, *sorted(sites.leaves)])
        commit = run_iteration(config, "run", 3)
        assert commit["taken"] == 16, "a page that was crawled is fetched again"
        assert "ended" not in commit
        links = Result(config).rows("links", ["followed"])
        assert all(link["followed"] for link in links), "their hosts are in the scope of the seeds"
        assert keys_of(config) == 0
        settle(config)
        assert_clean(config)
        assert len({row["url"] for row in Result(config).rows("pages", ["url"])}) == 16


def test_a_failure_that_passes_is_not_queued_again_and_its_retries_travel(tmp_path: Path) -> None:
    with ExitStack() as stack:
        seed = Sites(stack, 1).seeds[0]
    config = config_of(tmp_path, retry={"max": 4})  # no one listens there now
    inject(config, [seed])
    leave(config, "1-1", [seed], retries=0)
    commit = run_iteration(config, "run", 1)
    [row] = Result(config).rows("pages", ["retry_at"])
    assert commit["retried"] == {"connect_failed": 1}
    assert row["retry_at"] is not None
    assert queued(config) == []
    [manifest] = Result(config).manifests()
    assert manifest["queue_after"] == 0
    leave(config, "2-1", [seed], retries=4)
    run_iteration(config, "run", 2)
    rows = Result(config).rows("pages", ["retry_at"])
    assert [row["retry_at"] is None for row in rows] == [False, True], (
        "the fifth try is the last one"
    )


def test_what_the_time_limit_leaves_goes_back(site: Sites, tmp_path: Path) -> None:
    config = config_of(
        tmp_path,
        batch={"time_limit_s": 1, "max_per_host": 9},
        fetch={"host_delay_s": 0.7, "robots": "ignore"},
    )
    inject(config, site.seeds)
    leave(config, "1-1", sorted(site.leaves))
    commit = run_iteration(config, "run", 1)
    assert commit["deferred"] > 0
    assert len(queued(config)) == commit["deferred"]
    assert {one.list_name for one in queued(config)} == {"1-1"}
    while queued(config):
        run_iteration(config, "run", len(Result(config).manifests()) + 1)
    assert site.asked == Counter(dict.fromkeys(site.leaves, 1))


def test_what_a_lost_queue_held_waits_for_its_lease(site: Sites, tmp_path: Path) -> None:
    """And is in no queue before another list has it."""
    config = config_of(tmp_path, batch={"size": 2})
    inject(config, site.seeds)
    urls = [*site.seeds, *sorted(site.leaves)]
    leave(config, "1-1", urls)
    assert run_iteration(config, "run", 1)["taken"] == 2
    settle(config)
    shutil.rmtree(Path(config.queue.local_dir) / "node-0")
    restart_node(open_stores(config), "node-0")
    assert {finding.name for finding in fsck(open_stores(config)).findings} == {"urls_lost"}
    done = repair_crawl(open_stores(config)).done
    assert any("listed again when its lease is over" in line for line in done)
    assert_clean(config)
    assert run_iteration(config, "run", 2)["taken"] == 0
    leave(config, "2-1", [url for url in urls if url not in site.asked])
    assert run_iteration(config, "run", 3)["taken"] == 2
    assert site.asked == Counter(dict.fromkeys(urls, 1))
    settle(config)
    assert_clean(config)


def test_a_node_that_is_retired_as_lost_hands_nothing_over(tmp_path: Path) -> None:
    with ExitStack() as stack:
        sites = Sites(stack, 4)
        three = config_of(tmp_path, 3, batch={"size": 1})
        inject(three, sites.seeds)
        leave(three, "1-1", [*sites.seeds, *sorted(sites.leaves)])
        run_iteration(three, "run", 1)
        settle(three)
        lost = max(three.servers, key=lambda node: len(queued(three, node)))
        assert queued(three, lost)
        shutil.rmtree(Path(three.queue.local_dir) / lost)
        rest = dataclasses.replace(
            three, servers=tuple(node for node in three.servers if node != lost)
        )
        assert retire_lost(open_stores(rest), node=lost).handed_over == 0
        for number in range(1, 9):
            run_iteration(rest, "rest", number)
        assert max(sites.asked.values()) == 1


def test_what_waits_goes_to_the_nodes_that_own_it_when_nodes_join_and_leave(tmp_path: Path) -> None:
    """By segments and seeds' folders, of which nothing else is queued."""
    with ExitStack() as stack:
        sites = Sites(stack, 4)
        one = config_of(tmp_path, 1, batch={"size": 1})
        inject(one, sites.seeds)
        leave(one, "1-1", [*sites.seeds, *sorted(sites.leaves)])
        run_iteration(one, "run", 1)
        settle(one)
        three = config_of(tmp_path, 3, batch={"size": 2})
        for number in (1, 2):
            run_iteration(three, "three", number)
        settle(three)
        assert all(queued(three, node) for node in three.servers[1:]), "else nothing was handed on"
        leaver = three.servers[1]
        rest = dataclasses.replace(
            three, servers=tuple(node for node in three.servers if node != leaver)
        )
        waiting = len(queued(three, leaver))
        assert retire_node(open_stores(rest), node=leaver).handed_over == waiting
        for number in range(1, 9):
            run_iteration(rest, "rest", number)
        assert sites.asked == Counter([*sites.seeds, *sites.leaves]), "each once"
        assert keys_of(rest) == 0


def test_a_queue_that_cannot_be_read_is_not_judged_by_keys(site: Sites, tmp_path: Path) -> None:
    config = config_of(tmp_path, batch={"size": 1})
    inject(config, site.seeds)
    leave(config, "1-1", sorted(site.leaves))
    run_iteration(config, "run", 1)
    settle(config)
    (Path(config.queue.local_dir) / "node-0" / "state").write_bytes(b"x")
    shutil.rmtree(tmp_path / "keys")
    repair_crawl(open_stores(config))
    assert_clean(config)
    for number in range(2, 5):
        run_iteration(config, "run", number)
    assert set(site.asked) == site.leaves
    assert keys_of(config) == 0


def test_key_tables_that_are_gone_stop_nobody(site: Sites, tmp_path: Path) -> None:
    config = config_of(tmp_path)
    inject(config, site.seeds)
    leave(config, "1-1", site.seeds)
    run_iteration(config, "run", 1)
    shutil.rmtree(tmp_path / "keys")
    leave(config, "2-1", site.seeds)
    assert run_iteration(config, "run", 2)["taken"] == 1
    stages.maintain_keys(open_stores(config))


STEPS = [
    "intake.record_begun",
    "intake.planned",
    "intake.chunk.journalled",
    "queue.move.written",
    "take.put_back",
]


@pytest.mark.parametrize("step", STEPS)
def test_killed_while_it_takes_in_a_list(step: str, site: Sites, tmp_path: Path) -> None:
    config = config_of(
        tmp_path, frontier={"routing": "local" if step == "intake.planned" else "host"}
    )
    inject(config, site.seeds)
    leave(config, "1-1", site.seeds)
    run_iteration(config, "run", 1)
    if step == "intake.record_begun":
        (Path(config.queue.local_dir) / "node-0" / "state.krake").unlink()
    leave(config, "2-1", sorted(site.leaves))
    start_iteration(open_stores(config), run_id="again", iteration=1)
    options = {"run_id": "again", "iteration": 1, "node": "node-0"}
    assert run_stage(config, "crawl_node", step, **options), (
        f"{step} was not reached, so nothing was tested"
    )
    stages.crawl_node(open_stores(config), **options)
    stages.commit_iteration(open_stores(config), run_id="again", iteration=1)
    without_record = step == "intake.record_begun"  # which lists it had taken in is not known then
    assert site.asked == Counter([*site.seeds, *(() if without_record else site.leaves)])


def test_lists_that_are_deleted_leave_nothing_in_the_record(site: Sites, tmp_path: Path) -> None:
    """Also not a refusal: the settled note speaks of lists that the queue has forgotten."""
    config = config_of(tmp_path)
    inject(config, site.seeds)
    for number in range(1, 4):
        leave(config, f"{number}-1", site.seeds)
        run_iteration(config, "run", number)
        settle(config)
        shutil.rmtree(Path(config.dfs_primary) / "crawl" / FileName.LISTS / f"{number}-1")
    leave(config, "4-1", site.seeds)
    start_iteration(open_stores(config), run_id="last", iteration=1)
    options = {"run_id": "last", "iteration": 1, "node": "node-0"}
    assert run_stage(config, "crawl_node", "queue.move.done", **options)
    stages.crawl_node(open_stores(config), **options)
    taken_in = Queue(Path(config.queue.local_dir) / "node-0", "node-0").taken_in()
    assert {name for name in taken_in.complete if "-" in name} == {"4-1"}
    assert site.asked == Counter(dict.fromkeys(site.seeds, 4))


def test_each_visit_counts_for_max_pages_and_what_krake_retry_lists_does_not(
    site: Sites, tmp_path: Path
) -> None:
    config = config_of(tmp_path, crawl={"max_pages": 5})
    inject(config, site.seeds)
    leave(config, "1-1", sorted(site.leaves))
    assert run_iteration(config, "run", 1)["urls"] == len(LEAVES)
    report = retry(open_stores(config), Failures(Outcome.CLIENT_ERROR))
    assert (report.listed, report.deleted) == (3, [])
    commit = run_iteration(config, "run", 2)
    assert (commit["taken"], commit["urls"]) == (2, 0), "two are left of five; they count already"
    settle(config)
    leave(config, "2-1", site.seeds)
    assert run_iteration(config, "run", 3)["taken"] == 2
    assert crawl_status(open_stores(config))["totals"]["fetched"] == 7


def other_order(config: Config) -> Config:
    mapping = config.to_mapping()
    mapping["frontier"]["order"] = "fifo" if config.order.has_crawldb else "crawldb"
    return from_mapping(mapping, base=Path("/"))


@pytest.mark.parametrize(
    ("order", "said"), [("crawldb", "there is no way back to fifo"), ("fifo", "crawldb init")]
)
def test_a_crawl_keeps_its_order(order: str, said: str, site: Sites, tmp_path: Path) -> None:
    config = config_of(tmp_path, order=order)
    inject(config, site.seeds)
    other = other_order(config)
    with pytest.raises(ConfigError, match=said):
        inject(other, site.seeds, "other")
    with pytest.raises(ConfigError, match=said):
        start_iteration(open_stores(other), run_id="other", iteration=1)
    [problem] = CrawlName(open_stores(other)).others()
    assert "frontier.order: " in problem
    run_iteration(config, "run", 1)
    assert CrawlName(open_stores(config)).others() == []


def test_a_crawl_of_fifo_goes_on_with_a_crawldb_once_it_is_noted(
    site: Sites, tmp_path: Path
) -> None:
    config = config_of(tmp_path, order="fifo")
    inject(config, site.seeds)
    run_iteration(config, "run", 1)
    other = other_order(config)
    CrawlName(open_stores(other)).note_crawldb()
    leave(other, "1-1", site.seeds)
    assert run_iteration(other, "other", 1)["taken"] == 1
    assert "no way back" in CrawlName(open_stores(config)).others()[0]


def test_the_note_of_a_fifo_crawl_is_as_before(site: Sites, tmp_path: Path) -> None:
    config = config_of(tmp_path, order="fifo")
    inject(config, site.seeds)
    for folder in ("crawl", "export"):
        note = json.loads((Path(config.dfs_primary) / folder / "_crawl").read_bytes())
        assert "order" not in note


def test_rows_name_their_list(site: Sites, tmp_path: Path) -> None:
    config = config_of(tmp_path)
    inject(config, site.seeds)
    leave(config, "1-1", site.seeds)
    run_iteration(config, "run", 1)
    [row] = Result(config).rows("pages", ["url", "metadata"])
    assert (row["url"], json.loads(row["metadata"])["list"]) == (site.seeds[0], "1-1")
