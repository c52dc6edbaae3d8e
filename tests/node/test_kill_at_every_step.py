"""Killed right after any durable step, and run again: the same output, and no page fetched twice (I1, I2, I4)."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from crawl_lib import stages
from crawl_lib.config import Config
from crawl_lib.durable import KILL_VARIABLE
from crawl_lib.stores import open_stores
from demo import Serving, SynthWeb, TruthOptions
from tests.e2e.crawl import Result, make_config
from tests.forked import run_forked

ROOT = Path(__file__).resolve().parents[2]
STEPS = sorted(
    {
        step
        for path in (ROOT / "crawl_lib").rglob("*.py")
        for step in re.findall(r'reached\("([a-z._]+)"\)', path.read_text(encoding="utf-8"))
    }
)
ELSEWHERE = {
    "admit": "only when a lost node returns: tests/node/test_nodes_return.py",
    "adopt": "only with a queue made by hand: tests/frontier",
    "intake.record_begun": "only where a queue has lost its record: tests/repair/test_queues.py",
    "intake.empty": "only on a node that finds nothing: tests/node/test_idle_node.py",
    "intake.claim": "only with local routing: tests/frontier",
    "start.agreed": "only where the config changed within a run: tests/rounds/test_agreement.py",
    "commit.late_scope": "only where a node's segment came late: tests/rounds/test_min_nodes.py",
    "forward.": "only with requisites: tests/frontier",
    "retry_now.": "only after `krake retry --now`: tests/curate/test_retry_now.py",
    "rehome": "only with other nodes than before: tests/frontier",
    "retire": "only when a node is retired: tests/rounds/test_nodes_change.py",
    "commit.scope": "only where a seed's redirect widened the scope: tests/rounds/test_start.py",
    "segment.part.recovered": "only in a second attempt: the test below",
    "segment.part.closed_without_rows": "only of fetchers in real time: tests/realtime",
    "realtime.": "only of what was fetched in real time: tests/realtime",
    "statistics.": "only of what was fetched in real time: tests/statistics",
    "repair.": "only in repairs by hand: tests/repair",
    "rounds.index": "only in repairs by hand: tests/repair",
    "queue.lost": "only in repairs by hand: tests/repair",
    "crawldir.": "only in commands by hand: tests/repair, tests/curate",
    "curate.": "only in commands by hand: tests/curate",
    "keys.": "only in commands by hand: tests/repair, tests/contracts/keymoves.py",
    "page.noted": "only on large pages: tests/worker/test_large_pages.py",
    "crawldb.": "only with a CrawlDb: tests/crawldb",
    "versions.": "only of tables that are derived: tests/crawldb, tests/linkdb, tests/duplicates",
    "text.": "only where a CrawlDb compares the text of pages: tests/text",
    "index.": "only of an index: tests/index",
    "push.": "only with an OpenSearch: tests/push",
    "commoncrawl.": "only of graphs and of files as Common Crawl has them: tests/commoncrawl",
    "export.buckets": "reached by name built at run time: tests/export",
}
WEB = SynthWeb(seed=5, sites=1, pages_per_site=8, specials=False)
ITERATIONS = (1, 2)


def is_elsewhere(step: str) -> bool:
    return any(step.startswith(start) for start in ELSEWHERE)


def one_pass(config: Config, seeds: str, kill_at: str | None) -> None:
    """Every stage once, in a process that `kill_at` may end. Its fork server is forked: what it forks has no walls."""
    from tests.torture.nursery import begin_fork_server  # noqa: PLC0415 - a process that has it loads no pandas

    if kill_at is not None:
        os.environ[KILL_VARIABLE] = kill_at
    begin_fork_server()
    stages.inject(open_stores(config), run_id="run", seeds=seeds)
    for iteration in ITERATIONS:
        stages.crawl_node(open_stores(config), run_id="run", iteration=iteration, node="node-0")
        stages.commit_iteration(open_stores(config), run_id="run", iteration=iteration)
    stages.settle_node(open_stores(config), node="node-0")
    stages.maintain_keys(open_stores(config))
    export = stages.export_pages(open_stores(config), run_id="run", label="out")["export"]
    stages.link_export(open_stores(config), export=export)
    stages.finalize_export(open_stores(config), export=export)


def run_pass(config: Config, seeds: str, kill_at: str | None = None) -> int:
    """One pass in a process of its own; returns its exit code."""
    return run_forked(one_pass, config, seeds, kill_at)


@pytest.fixture(scope="module")
def unbroken(serving: Serving, tmp_path_factory: pytest.TempPathFactory) -> Result:
    config = make_config(tmp_path_factory.mktemp("unbroken"), nodes=1, fetch={"host_delay_s": 0.0})
    assert run_pass(config, serving.seeds[0]) == 0
    result = Result(config, export="out")
    assert set(result.visited()) == set(
        serving.truth(options=TruthOptions(rounds=len(ITERATIONS))).visits
    )
    return result


def exported(result: Result) -> dict[str, bytes]:
    folder = Path(result.config.dfs_primary) / "export" / "out"
    return {
        name: (folder / name).read_bytes()
        for name in ("urlmapping", "content", "offsets", "webgraph")
    }


def rows(result: Result) -> list[tuple[object, ...]]:
    """Rows of both tables, without times, durations and file positions."""
    pages = result.rows(
        "pages", ["url", "outcome", "status", "digest", "via_key", "depth", "attempts", "title"]
    )
    links = result.rows(
        "links", ["source", "target", "target_url", "anchor", "rel", "element", "followed", "rule"]
    )
    return sorted(tuple(map(str, row.values())) for row in [*pages, *links])


@pytest.mark.parametrize("step", [step for step in STEPS if not is_elsewhere(step)])
def test_killed_after_a_step_and_run_again(
    step: str, serving: Serving, unbroken: Result, tmp_path: Path
) -> None:
    config = make_config(tmp_path, nodes=1, fetch={"host_delay_s": 0.0})
    before = serving.log().counts()
    assert run_pass(config, serving.seeds[0], kill_at=step), (
        f"{step} was not reached, so nothing was tested"
    )
    assert run_pass(config, serving.seeds[0]) == 0
    result = Result(config, export="out")
    assert exported(result) == exported(unbroken)
    assert rows(result) == rows(unbroken)
    asked = serving.log().counts() - before
    assert set(asked) == set(result.visited())
    assert set(asked.values()) == {1}, "a page was fetched again"
    assert not (Path(config.queue.local_dir) / "node-0" / "spool").exists()


def test_killed_while_taking_back_a_spool(
    serving: Serving, unbroken: Result, tmp_path: Path
) -> None:
    """The second attempt dies too, in the middle of reading the first one's records."""
    config = make_config(tmp_path, nodes=1, fetch={"host_delay_s": 0.0})
    assert run_pass(config, serving.seeds[0], kill_at="segment.part.log_synced")
    assert run_pass(config, serving.seeds[0], kill_at="segment.part.recovered")
    assert run_pass(config, serving.seeds[0]) == 0
    assert exported(Result(config, export="out")) == exported(unbroken)


def test_the_steps_were_found() -> None:
    assert len(STEPS) > 30
