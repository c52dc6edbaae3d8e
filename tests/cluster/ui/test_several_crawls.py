"""Three crawls at once in one Airflow, from a folder of configs, one of which fails: each gives what it gives alone.

They crawl the same web, so that a key, a URL or a page of another one would be missed at once; they share workers and
scratch room. A fourth one has a CrawlDb: its DAGs do in a running Airflow what all others do. A fifth config cannot
be used, and disturbs none of them.
"""

import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import quote

import pytest
from krake_airflow.scores import TASKS

from crawl_lib import stages
from crawl_lib.config import Config
from crawl_lib.crawldb import newest_version
from crawl_lib.linkdb import LINKDB
from crawl_lib.stores import open_stores
from crawl_lib.versions import Versions
from demo import Serving
from tests.dags.api import Ui
from tests.dags.conftest import Reference
from tests.dags.crawls import (
    ITERATIONS,
    MOST_ITERATIONS,
    exported_bytes,
    exports,
    reschedule,
    rows,
    small_config,
)
from tests.e2e.crawl import Result

pytestmark = pytest.mark.timeout(1200)
NAMES = ("krake", "shops", "the.third-one")
FAILS = "shops"
AGAIN = "again"
"""It has a CrawlDb; its scores wait for segments."""
KINDS = {**dict.fromkeys(NAMES, ("crawl", "process")), AGAIN: ("recrawl", "process", "scores")}
FIRST_CRAWL = "iteration_1.crawl.node-1"
LAST = f"iteration_{MOST_ITERATIONS}"
NOT_DUE = "nothing is due before 20"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of all configs."""
    return tmp_path_factory.mktemp("crawls")


@pytest.fixture(scope="module")
def configs(folder: Path) -> dict[str, Config]:
    scratch = {"directory": str(folder / "scratch")}
    found = {
        name: small_config(folder / name, crawl={"name": name}, scratch=scratch)[0]
        for name in NAMES
    }
    (folder / "broken.yml").write_text("servres: [node-a]\nbatch: {size: 0}\n")
    return found


@pytest.fixture(scope="module")
def again(folder: Path) -> tuple[Config, Path]:
    scores = {"tasks": list(TASKS), "when": "segments"}
    return small_config(
        folder / AGAIN, crawl={"name": AGAIN}, frontier={"order": "crawldb"}, scores=scores
    )


@pytest.fixture(scope="module")
def ui(
    configs: dict[str, Config],
    again: tuple[Config, Path],
    folder: Path,
    airflow_database: Callable[[Path], Path],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Ui]:
    with Ui(airflow_database(tmp_path_factory.mktemp("home")), folder) as running:
        yield running


def assert_each_once(config: Config, serving: Serving) -> None:
    assert Result(config).visited() == Counter(dict.fromkeys(serving.truth().visits, 1))


def assert_as_alone(config: Config, serving: Serving, reference: Reference) -> None:
    assert_each_once(config, serving)
    [export] = exports(config)
    assert exported_bytes(config, export) == reference.exported
    assert rows(config, "pages") == reference.pages
    assert rows(config, "links") == reference.links


def test_three_crawls_at_once_one_failing_give_what_each_gives_alone(
    ui: Ui, configs: dict[str, Config], serving: Serving, reference: Reference
) -> None:
    lying = Path(configs[FAILS].queue.local_dir) / "node-1"
    lying.mkdir(parents=True)
    (lying / "0").write_text("")
    (lying / "state").write_text("0\n7\n")

    apis = {name: ui.of(f"{name}_crawl") for name in NAMES}
    params = {"seeds": "\n".join(serving.seeds), "iterations": ITERATIONS}
    begun = {name: api.trigger(**params) for name, api in apis.items()}
    ends = {name: api.wait_end(begun[name]) for name, api in apis.items()}
    assert ends == {name: "failed" if name == FAILS else "success" for name in NAMES}
    for name in set(NAMES) - {FAILS}:
        assert_as_alone(configs[name], serving, reference)
    assert exports(configs[FAILS]) == []

    shutil.rmtree(lying)
    apis[FAILS].clear(begun[FAILS], "iteration_1.crawl.node-1", only_failed=True)
    assert apis[FAILS].wait_end(begun[FAILS]) == "success"
    for config in configs.values():
        assert_as_alone(config, serving, reference)


def test_a_recrawl_is_retried_and_cleared_and_its_rounds_end_when_nothing_is_due(
    ui: Ui, again: tuple[Config, Path], serving: Serving
) -> None:
    """node-1's lock cannot be opened at first."""
    config, api = again[0], ui.of(f"{AGAIN}_recrawl")
    blocked = Path(config.queue.local_dir) / "node-1" / "lock"
    blocked.mkdir(parents=True)
    run = api.trigger(seeds="\n".join(serving.seeds), iterations=MOST_ITERATIONS)
    api.wait(
        lambda: api.tasks(run)[FIRST_CRAWL][0] in ("up_for_retry", "failed"),
        f"the first failure of {FIRST_CRAWL}",
    )
    blocked.rmdir()
    assert api.wait_end(run) == "success"
    assert api.tasks(run)[FIRST_CRAWL] == ("success", 2)
    asked = len(serving.log().requests)

    def assert_ended() -> None:
        assert api.result(run, f"{LAST}.generate")["ended"].startswith(NOT_DUE)
        left = {state for task, (state, _) in api.tasks(run).items() if task.startswith(LAST)}
        assert left == {"success", "skipped"}, "generate, and what it skips"
        assert_each_once(config, serving)
        assert len(serving.log().requests) == asked
        assert len(exports(config)) == 1

    assert_ended()
    for task, alone in (
        ("iteration_1.generate", False),
        (f"{LAST}.generate", True),
        (f"{LAST}.crawl.node-0", True),
    ):
        api.clear(run, task, only_failed=False, alone=alone)
        assert api.wait_end(run) == "success", task
        assert_ended()


def test_scheduled_and_backfilled_recrawls_find_nothing_due(
    ui: Ui, again: tuple[Config, Path]
) -> None:
    api = ui.of(f"{AGAIN}_recrawl")
    before = set(api.runs())
    reschedule(api, again[1], "0 0 1 1 *")
    api.backfill("2021-01-01", "2022-01-01", {"iterations": 1})

    def begun(kind: str) -> list[str]:
        return [run for run in api.runs() if run not in before and run.startswith(f"{kind}__")]

    api.wait(lambda: len(begun("scheduled")) == 1 and len(begun("backfill")) == 2, "three runs")
    reschedule(api, again[1], None)
    for run in [*begun("scheduled"), *begun("backfill")]:
        assert api.wait_end(run) == "success", run
        assert api.result(run, "iteration_1.generate")["ended"].startswith(NOT_DUE), run
    assert len(exports(again[0])) == 1


def test_commits_have_scores_made(ui: Ui, again: tuple[Config, Path]) -> None:
    """Each run of `scores` was begun by the asset of segments, and what they leave has all that was crawled."""
    stores, api = open_stores(again[0]), ui.of(f"{AGAIN}_scores")
    api.wait(lambda: not {"queued", "running"} & set(api.runs().values()), "the end of all runs")
    paths = (
        f"/api/v2/dags/{api.dag}/dagRuns/{quote(run)}/upstreamAssetEvents" for run in api.runs()
    )
    events = [event for path in paths for event in ui.ask("GET", path)["asset_events"]]
    assert set(api.runs().values()) == {"success"}
    assert {event["source_task_id"].partition(".")[2] for event in events} == {"commit"}
    assert {event["extra"]["folder"] for event in events} == set(stores.crawl.folders())
    links, crawldb = Versions(stores, LINKDB).newest(), newest_version(stores)
    assert links is not None
    assert crawldb is not None
    assert links.manifest["rows"] > 0
    assert crawldb.manifest["revised"]["score"].startswith("pagerank ")
    assert stages.update_score(stores)["version"] == crawldb.number, "nothing was left to do"
    assert stages.invert_links(stores)["version"] == links.number
    marked = stages.mark_duplicates(stores)[
        "version"
    ]  # new where the last run made the first scores: they choose
    assert [stages.mark_duplicates(stores)["version"], stages.update_score(stores)["version"]] == [
        marked,
        marked,
    ]


def test_a_config_that_cannot_be_used_is_shown_paused_with_its_mistakes(ui: Ui) -> None:
    dags = {dag["dag_id"]: dag for dag in ui.ask("GET", "/api/v2/dags")["dags"]}
    assert set(dags) == {f"{name}_{kind}" for name in KINDS for kind in KINDS[name]} | {
        "broken_config_error"
    }
    assert [dag_id for dag_id, dag in dags.items() if dag["is_paused"]] == ["broken_config_error"]
    text = ui.ask("GET", "/api/v2/dags/broken_config_error/details")["doc_md"]
    assert "servres: unknown option" in text
    assert "batch.size: must be at least 1" in " ".join(text.split())
    [error] = ui.ask("GET", "/api/v2/importErrors")["import_errors"]
    assert "servres: unknown option" in error["stack_trace"]
