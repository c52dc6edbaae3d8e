"""A node for which nothing waits: its task commits an empty segment, and does little else."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from crawl_lib import stages
from crawl_lib.config import Config
from crawl_lib.durable import KILL_VARIABLE
from crawl_lib.frontier.check import check_queue
from crawl_lib.frontier.intake import Intake
from crawl_lib.node import sources
from crawl_lib.stores import open_stores
from crawl_lib.urls import Owners, host_of
from crawl_lib.worker import prepare_workers, workers
from demo import Serving, SynthWeb
from tests.forked import run_forked

WEB = SynthWeb(seed=1, sites=1, pages_per_site=1, specials=False)
MOST_SYNCS = 60
"""Of the first task of a crawl, which makes its folders and copies of `iteration.json` and the scope. A sync takes 1 to
3 ms, and a task made 76."""


@pytest.fixture
def nodes(config: Config, serving: Serving) -> list[str]:
    """Return the node that owns the seed, then the other one."""
    [seed] = serving.seeds
    stages.inject(open_stores(config), run_id="r", seeds=seed)
    owner = Owners(config.servers).owner(host_of(seed))
    return sorted(config.servers, key=lambda node: node != owner)


def crawl(config: Config, node: str, kill_at: str | None = None) -> int:
    """Crawl a node's batch, and return how many URLs it took; with `kill_at` in a process of its own alone."""
    if kill_at is not None:
        os.environ[KILL_VARIABLE] = kill_at
    taken: int = stages.crawl_node(open_stores(config), run_id="r", iteration=1, node=node)["taken"]
    return taken


def test_a_task_without_urls_syncs_little(
    config: Config, nodes: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", synced.append)
    assert crawl(config, nodes[1]) == 0
    assert len(synced) <= MOST_SYNCS


def test_modules_of_fetching_processes_load_during_an_intake_that_may_find_urls(
    config: Config, nodes: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []
    intake = Intake.run
    monkeypatch.setattr(sources, "prepare_workers", lambda: seen.append("prepared"))
    monkeypatch.setattr(
        Intake, "run", lambda *given, **more: (seen.append("intake"), intake(*given, **more))
    )
    assert crawl(config, nodes[1]) == 0
    assert seen == ["intake"]
    assert crawl(config, nodes[0]) == 1
    assert seen == ["intake", "prepared", "intake"]


@pytest.mark.parametrize("step", ["intake.empty", "rehome.empty"])
def test_a_task_that_is_killed_once_its_intake_is_noted_goes_on(
    step: str, config: Config, nodes: list[str]
) -> None:
    assert run_forked(crawl, config, nodes[1], step) == -signal.SIGKILL
    assert crawl(config, nodes[1]) == 0
    assert check_queue(Path(config.queue.local_dir) / nodes[1], nodes[1]) == []


def test_what_keeps_a_process_from_its_start_is_told_by_the_take(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse() -> None:
        raise BlockingIOError("no room for another process")

    monkeypatch.setattr(workers, "fork_server", refuse)
    prepare_workers()
