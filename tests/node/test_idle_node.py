"""A node for which nothing waits: its task commits an empty segment, and does little else."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from crawl_lib import stages
from crawl_lib.config import Config
from crawl_lib.node import sources
from crawl_lib.stores import open_stores
from crawl_lib.urls import Owners, host_of
from crawl_lib.worker import prepare_workers, workers
from demo import Serving, SynthWeb

WEB = SynthWeb(seed=1, sites=1, pages_per_site=1, specials=False)
MOST_SYNCS = 58
"""Of the first task of a crawl, which makes its folders. A sync takes 1 to 3 ms, and a task made 76."""


@pytest.fixture
def nodes(config: Config, serving: Serving) -> list[str]:
    """Return the node that owns the seed, then the other one."""
    [seed] = serving.seeds
    stages.inject(open_stores(config), run_id="r", seeds=seed)
    owner = Owners(config.servers).owner(host_of(seed))
    return sorted(config.servers, key=lambda node: node != owner)


@pytest.fixture
def crawl(config: Config) -> Callable[[str], int]:
    def run(node: str) -> int:
        taken: int = stages.crawl_node(open_stores(config), run_id="r", iteration=1, node=node)["taken"]
        return taken

    return run


def test_a_task_without_urls_syncs_little(
    nodes: list[str], crawl: Callable[[str], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", synced.append)
    assert crawl(nodes[1]) == 0
    assert len(synced) <= MOST_SYNCS


def test_modules_of_fetching_processes_load_during_an_intake_that_may_find_urls(
    nodes: list[str], crawl: Callable[[str], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []
    intake = sources.intake
    monkeypatch.setattr(sources, "prepare_workers", lambda: seen.append("prepared"))
    monkeypatch.setattr(sources, "intake", lambda *given, **more: (seen.append("intake"), intake(*given, **more)))
    assert crawl(nodes[1]) == 0
    assert seen == ["intake"]
    assert crawl(nodes[0]) == 1
    assert seen == ["intake", "prepared", "intake"]


def test_what_keeps_a_process_from_its_start_is_told_by_the_take(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> None:
        raise BlockingIOError("no room for another process")

    monkeypatch.setattr(workers, "fork_server", refuse)
    prepare_workers()
