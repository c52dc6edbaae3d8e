"""URLs of a queue that changed rules end, in a task that is killed and run again: the same rows, and nothing lost."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from crawl_lib import stages
from crawl_lib.config import ChainsConfig, Config, StepConfig
from crawl_lib.durable import KILL_VARIABLE
from crawl_lib.repair import fsck, repair_crawl
from crawl_lib.stores import open_stores
from demo import Serving, SynthWeb
from tests.e2e.crawl import Result, check_counts, make_config
from tests.forked import run_forked

WEB = SynthWeb(seed=5, sites=1, pages_per_site=20, specials=False)
XML = (
    "<regex-normalize><regex><pattern>/p(\\d)[.]html$</pattern>"
    "<substitution>/p$1.html?x</substitution></regex></regex-normalize>"
)
NODE = "node-0"


def with_rules(config: Config) -> Config:
    normalizers = ChainsConfig(fetch=(StepConfig("regex", None, XML),))
    filters = ChainsConfig(fetch=(StepConfig("regex", "/rules/of.txt", "-/er/\n-/p1[0-9]\n+."),))
    return replace(config, urls=replace(config.urls, normalizers=normalizers, filters=filters))


def crawl(config: Config, run_id: str, kill_at: str | None = None) -> None:
    if kill_at is not None:
        os.environ[KILL_VARIABLE] = kill_at
    for number in (1, 2, 3) if run_id == "second" else (1,):
        stages.crawl_node(open_stores(config), run_id=run_id, iteration=number, node=NODE)
        stages.commit_iteration(open_stores(config), run_id=run_id, iteration=number)
    stages.settle_node(open_stores(config), node=NODE)


def crawled(directory: Path, seed: str, *kill_at: str) -> Result:
    config = make_config(directory, nodes=1, fetch={"host_delay_s": 0.0})
    stages.inject(open_stores(config), run_id="first", seeds=seed)
    assert run_forked(crawl, config, "first") == 0
    changed = with_rules(config)
    for step in kill_at:
        assert run_forked(crawl, changed, "second", step), (
            f"{step} was not reached, so nothing was tested"
        )
    assert run_forked(crawl, changed, "second") == 0
    result = Result(changed)
    check_counts(result)
    return result


def rows(result: Result) -> list[tuple[str, ...]]:
    pages = result.rows("pages", ["url", "outcome", "error", "redirect_url", "digest", "depth"])
    links = result.rows("links", ["source", "target_url", "followed", "rule"])
    return sorted(tuple(map(str, row.values())) for row in [*pages, *links])


@pytest.fixture(scope="module")
def unbroken(serving: Serving, tmp_path_factory: pytest.TempPathFactory) -> Result:
    return crawled(tmp_path_factory.mktemp("unbroken"), serving.seeds[0])


def test_what_ends_is_told_and_what_it_became_is_fetched(unbroken: Result) -> None:
    found = unbroken.rows(
        "pages", ["url", "outcome", "error", "redirect_url", "status", "attempts"]
    )
    ended = [row for row in found if row["outcome"] == "filtered"]
    assert {row["status"] for row in ended} == {None}
    assert {row["attempts"] for row in ended} == {0}
    moved = {row["url"]: row["redirect_url"] for row in ended if row["redirect_url"]}
    assert moved
    assert all(target == f"{url}?x" for url, target in moved.items())
    assert set(moved.values()) <= set(unbroken.visited())
    rules = {"filters: of.txt:1 -/er/", "filters: of.txt:2 -/p1[0-9]"}
    assert {row["error"] for row in ended if not row["redirect_url"]} == rules
    assert fsck(open_stores(unbroken.config)).clean


def test_a_segment_whose_tables_are_lost_is_made_again_with_them(
    serving: Serving, tmp_path: Path
) -> None:
    result = crawled(tmp_path, serving.seeds[0])
    before = rows(result)
    [segment, *_] = [
        path for path in result.segments() if "filtered" in (path / "manifest.json").read_text()
    ]
    (segment / "pages.parquet").unlink()
    (segment / "links.parquet").unlink()
    repair_crawl(open_stores(result.config))
    assert rows(result) == before
    assert fsck(open_stores(result.config)).clean


@pytest.mark.parametrize(
    "steps",
    [
        ["segment.part.log_synced"],
        ["segment.part.rows_written"],
        ["segment.part.log_synced", "segment.part.recovered"],
        ["segment.part.closed"],
        ["segment.build.outlinks"],
        ["node.advanced"],
    ],
    ids="-".join,
)
def test_killed_and_run_again_the_rows_are_the_same(
    steps: list[str], serving: Serving, unbroken: Result, tmp_path: Path
) -> None:
    before = serving.log().counts()
    result = crawled(tmp_path, serving.seeds[0], *steps)
    assert rows(result) == rows(unbroken)
    assert set((serving.log().counts() - before).values()) == {1}, "a page was fetched again"
