"""Three crawls at once in one Airflow, from a folder of configs, one of which fails: each gives what it gives alone.

They crawl the same web, so that a key, a URL or a page of another one would be missed at once; they share workers and
scratch room. A fourth config cannot be used, and disturbs none of them.
"""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from crawl_lib.config import Config
from demo import Serving
from tests.dags.api import Api, Ui
from tests.dags.conftest import Reference
from tests.dags.crawls import ITERATIONS, exported_bytes, exports, rows, small_config
from tests.e2e.crawl import Result

pytestmark = pytest.mark.timeout(1200)
NAMES = ("krake", "shops", "the.third-one")
FAILS = "shops"


@pytest.fixture(scope="module")
def configs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Config]:
    folder = tmp_path_factory.mktemp("crawls")
    scratch = {"directory": str(folder / "scratch")}
    found = {name: small_config(folder / name, crawl={"name": name}, scratch=scratch)[0] for name in NAMES}
    (folder / "broken.yml").write_text("servres: [node-a]\nbatch: {size: 0}\n")
    return found


@pytest.fixture(scope="module")
def ui(configs: dict[str, Config], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ui]:
    folder = Path(configs[NAMES[0]].dfs_primary).parents[1]
    with Ui(tmp_path_factory.mktemp("home"), folder) as running:
        yield running


def assert_as_alone(config: Config, serving: Serving, reference: Reference) -> None:
    visited = Result(config).visited()
    assert set(visited) == set(serving.truth().visits)
    assert set(visited.values()) == {1}
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

    apis: dict[str, Api] = {name: ui.of(f"{name}_crawl") for name in NAMES}
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


def test_a_config_that_cannot_be_used_is_shown_paused_with_its_mistakes(ui: Ui) -> None:
    dags = {dag["dag_id"]: dag for dag in ui.ask("GET", "/api/v2/dags")["dags"]}
    assert set(dags) == {f"{name}_{kind}" for name in NAMES for kind in ("crawl", "process")} | {"broken_config_error"}
    assert [dag_id for dag_id, dag in dags.items() if dag["is_paused"]] == ["broken_config_error"]
    text = ui.ask("GET", "/api/v2/dags/broken_config_error/details")["doc_md"]
    assert "servres: unknown option" in text
    assert "batch.size: must be at least 1" in text
    assert ui.ask("GET", "/api/v2/importErrors")["import_errors"] == []
