"""Tasks of `scores.tasks`: where they are, behind what, what they score; without them the DAGs are as they were."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowSkipException
from krake_airflow.scores import TASKS, DuplicatesOperator, InvertLinksOperator, ScoreOperator

from crawl_lib import stages
from crawl_lib.config import Config, from_mapping
from crawl_lib.crawldb import newest_version
from crawl_lib.errors import ConfigError, PathNotFoundError
from crawl_lib.export import export_pages
from crawl_lib.graph import link_export
from crawl_lib.ranks import rank_export
from crawl_lib.stores import open_stores
from tests.crawldb.tables import leave_version, row_of
from tests.dags.crawls import small_config
from tests.dags.test_operators import TaskInstance, context, run
from tests.dags.test_parsing import ancestors, parse, write
from tests.export.crawls import Capture, CrawlMaker

CRAWLDB = {"order": "crawldb"}
A, B = "http://a.example/", "http://b.example/"


@pytest.fixture(scope="module")
def bags(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """The DAGs of configs by their `scores`, and those that a task of `krake_scores` finds."""
    directory = tmp_path_factory.mktemp("scores")
    every = ["score", "duplicates", "invert_links"]
    scores = {
        "none": {},
        "run": {"tasks": every},
        "segments": {"tasks": ["score"], "when": "segments"},
    }
    for name, section in scores.items():
        write(directory / f"{name}.yml", {"frontier": CRAWLDB, "scores": section})
    files = [directory / f"{name}.yml" for name in scores]
    found = parse(directory, [*files, f"krake_scores@{files[1]}"])
    assert all(one["errors"] == {} for one in found)
    return dict(zip([*scores, "task"], (one["dags"] for one in found), strict=True))


def test_without_tasks_nothing_is_added(bags: dict[str, dict[str, Any]]) -> None:
    assert set(bags["none"]) == {"krake_recrawl", "krake_process"}
    assert "score" not in bags["none"]["krake_recrawl"]["tasks"]


def test_at_the_end_of_a_run_they_follow_all_else(bags: dict[str, dict[str, Any]]) -> None:
    tasks = bags["run"]["krake_recrawl"]["tasks"]
    assert set(tasks) - set(bags["none"]["krake_recrawl"]["tasks"]) == set(TASKS)
    assert [tasks[name]["upstream"] for name in TASKS] == [
        ["finalizer"],
        ["invert_links"],
        ["duplicates"],
    ]
    assert ancestors(tasks, "score") == set(tasks) - {"score"}
    alone = bags["run"]["krake_scores"]
    assert (alone["tasks"]["score"]["upstream"], alone["waits_for"]) == (["duplicates"], [])
    assert all(f"**{name}**" in alone["doc"] for name in TASKS)


def test_in_a_dag_of_their_own_they_wait_for_segments(bags: dict[str, dict[str, Any]]) -> None:
    assert "score" not in bags["segments"]["krake_recrawl"]["tasks"]
    dag = bags["segments"]["krake_scores"]
    assert (list(dag["tasks"]), dag["waits_for"]) == (["score"], ["krake_segments"])
    assert (dag["max_active_runs"], dag["catchup"], dag["tags"]) == (1, False, ["krake"])
    assert dag["tasks"]["score"]["retries"] >= 1
    assert dag["tasks"]["score"]["timeout_s"]
    assert "When it failed" in dag["doc"]
    assert "**score**" in dag["doc"]
    assert list(bags["task"]) == ["krake_scores"]


@pytest.mark.parametrize("task", ["duplicates", "score"])
def test_what_changes_a_crawldb_needs_one(task: str) -> None:
    with pytest.raises(ConfigError, match=rf"scores\.tasks: {task} needs frontier\.order: crawldb"):
        from_mapping(
            {"servers": ["node-a"], "dfs_primary": "dfs", "scores": {"tasks": [task]}},
            base=Path("/"),
        )


@pytest.fixture
def crawled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Config:
    """Exports 1 and 2 with arcs, 3 without, and a CrawlDb of two pages."""
    config, file = small_config(tmp_path, frontier=CRAWLDB, scores={"tasks": ["score"]})
    monkeypatch.setenv("KRAKE_CONFIG_PATH", str(file))
    stores, crawl = open_stores(config), CrawlMaker(Path(config.dfs_primary))
    crawl.segment("1", "node-0", [Capture(A, b"page", links=[B]), Capture(B, b"page")])
    for name in ("1", "2", "3"):
        export_pages(stores, name=name, segments=crawl.segments)
    for name in ("1", "2"):
        link_export(stores, name=name)
    leave_version(stores, 1, [row_of(A), row_of(B)])
    return config


@pytest.mark.parametrize(("of_run", "export"), [(True, "1"), (False, "2")])
def test_the_task_scores_the_export_of_its_run_or_the_newest_with_arcs(
    crawled: Config, of_run: bool, export: str
) -> None:
    result = run(
        ScoreOperator(task_id="score", of_run=of_run), context(ti=TaskInstance({"export": "1"}))
    )
    assert (result["export"], result["version"], result["rows"]) == (export, 2, 2)
    assert rank_export(open_stores(crawled), name=export).complete_already
    again = run(
        ScoreOperator(task_id="score", of_run=of_run), context(ti=TaskInstance({"export": "1"}))
    )
    assert again == result
    version = newest_version(open_stores(crawled))
    assert version is not None
    assert version.manifest["revised"]["score"].startswith("pagerank ")


def test_without_an_export_that_has_arcs_it_is_named(tmp_path: Path) -> None:
    config, _ = small_config(tmp_path, frontier=CRAWLDB)
    with pytest.raises(
        PathNotFoundError, match=r"no export with arcs-out\.parquet.*run `krake export` and"
    ):
        stages.update_score(open_stores(config))


def test_before_the_first_export_it_is_skipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Commits of a new crawl begin runs before it is exported."""
    _, file = small_config(tmp_path, frontier=CRAWLDB)
    monkeypatch.setenv("KRAKE_CONFIG_PATH", str(file))
    with pytest.raises(AirflowSkipException, match=r"no export with arcs-out\.parquet"):
        run(ScoreOperator(task_id="score", of_run=False), context())


def test_the_linkdb_takes_in_segments(crawled: Config) -> None:
    result = run(InvertLinksOperator(task_id="invert_links", of_run=True), context())
    assert (result["version"], result["rows"]) == (1, 1)
    assert run(InvertLinksOperator(task_id="invert_links", of_run=True), context()) == result


def test_of_equal_pages_one_stays(crawled: Config) -> None:
    same = {"status": "fetched", "fetch_status": "fetched", "signature": b"x"}
    leave_version(open_stores(crawled), 2, [row_of(A, **same), row_of(B, **same)])
    result = run(DuplicatesOperator(task_id="duplicates", of_run=True), context())
    assert (result["version"], result["statuses"]) == (3, {"duplicate": 1, "fetched": 1})
