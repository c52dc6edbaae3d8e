"""Tasks of `outputs.tasks`: where they are, behind what; without them the DAGs are as they were."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowSkipException
from krake_airflow.outputs import OutputOperator

from crawl_lib.config import from_mapping
from crawl_lib.config.model import OUTPUT_TASKS
from crawl_lib.errors import ConfigError
from tests.dags.crawls import small_config
from tests.dags.test_operators import context, run
from tests.dags.test_parsing import ancestors, parse, write

LINKS = {"tasks": ["invert_links"]}
EVERY = {"tasks": list(reversed(OUTPUT_TASKS))}
SEGMENTS = {"when": "segments"}
CONFIGS: dict[str, dict[str, Any]] = {
    "none": {},
    "run": {"scores": LINKS, "outputs": EVERY},
    "alone": {"scores": LINKS, "outputs": EVERY | SEGMENTS},
    "both": {"scores": LINKS | SEGMENTS, "outputs": EVERY | SEGMENTS},
}


@pytest.fixture(scope="module")
def bags(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """The DAGs of configs by name."""
    directory = tmp_path_factory.mktemp("outputs")
    for name, sections in CONFIGS.items():
        write(directory / f"{name}.yml", sections)
    found = parse(directory, [directory / f"{name}.yml" for name in CONFIGS])
    assert all(one["errors"] == {} for one in found)
    return dict(zip(CONFIGS, (one["dags"] for one in found), strict=True))


def test_without_tasks_nothing_is_added(bags: dict[str, dict[str, Any]]) -> None:
    assert set(bags["none"]) == {"krake_crawl", "krake_process"}
    assert not set(bags["none"]["krake_crawl"]["tasks"]) & set(OUTPUT_TASKS)


def test_at_the_end_of_a_run_they_follow_the_scores_in_their_own_order(
    bags: dict[str, dict[str, Any]],
) -> None:
    tasks = bags["run"]["krake_crawl"]["tasks"]
    befores = [tasks[name]["upstream"] for name in OUTPUT_TASKS]
    assert befores == [["invert_links"], *([name] for name in OUTPUT_TASKS[:-1])]
    assert ancestors(tasks, OUTPUT_TASKS[-1]) == set(tasks) - {OUTPUT_TASKS[-1]}
    alone = bags["run"]["krake_outputs"]
    assert (list(alone["tasks"]), alone["waits_for"]) == (list(OUTPUT_TASKS), [])
    assert all(f"**{name}**" in alone["doc"] for name in OUTPUT_TASKS)


def test_in_a_dag_of_their_own_they_wait_for_segments(bags: dict[str, dict[str, Any]]) -> None:
    dags = bags["alone"]
    assert not set(dags["krake_crawl"]["tasks"]) & set(OUTPUT_TASKS)
    assert (list(dags["krake_outputs"]["tasks"]), dags["krake_outputs"]["waits_for"]) == (
        list(OUTPUT_TASKS),
        ["krake_segments"],
    )


def test_where_segments_begin_both_the_scores_come_first(bags: dict[str, dict[str, Any]]) -> None:
    dags = bags["both"]
    assert list(dags["krake_outputs"]["tasks"]) == ["invert_links", *OUTPUT_TASKS]
    assert dags["krake_outputs"]["tasks"][OUTPUT_TASKS[0]]["upstream"] == ["invert_links"]
    assert (dags["krake_outputs"]["waits_for"], dags["krake_scores"]["waits_for"]) == (
        ["krake_segments"],
        [],
    )


@pytest.mark.parametrize(
    "section", [{"tasks": ["texts"]}, {"tasks": ["text", "text"]}, {"when": "daily"}]
)
def test_what_is_unknown_or_twice_is_refused(section: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=r"outputs\."):
        from_mapping(
            {"servers": ["node-a"], "dfs_primary": "dfs", "outputs": section}, base=Path("/")
        )


def test_graphs_are_skipped_before_the_first_export(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, file = small_config(tmp_path, outputs={"tasks": ["graphs"]})
    monkeypatch.setenv("KRAKE_CONFIG_PATH", str(file))
    with pytest.raises(AirflowSkipException, match=r"no export with arcs-out\.parquet"):
        run(OutputOperator(output="graphs", task_id="graphs"), context())


def test_a_task_makes_its_output(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, file = small_config(tmp_path, outputs={"tasks": ["text"]})
    monkeypatch.setenv("KRAKE_CONFIG_PATH", str(file))
    text = OutputOperator(output="text", task_id="text")
    assert run(text, context()).keys() >= {"segments", "kept", "pages", "killed"}
