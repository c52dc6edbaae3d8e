"""Airflow's home for everything in this process, and the crawl that a troubled one has to equal."""

import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from demo import Serving
from tests.dags.crawls import ITERATIONS, WEB, exported_bytes, rows, small_config
from tests.dags.loaded import AirflowForks
from tests.e2e.crawl import run_crawl

# Airflow reads it when it is imported, and would make a folder in the user's home.
os.environ.setdefault("AIRFLOW_HOME", tempfile.mkdtemp(prefix="krake-airflow-"))


@dataclass
class Reference:
    """An untroubled run: its exported files, the folder that they lie in, and its rows."""

    exported: dict[str, bytes]
    export_folder: Path
    pages: list[Any]
    links: list[Any]


@pytest.fixture(scope="session")
def serving() -> Iterator[Serving]:
    """The small web."""
    with Serving(WEB) as found:
        yield found


@pytest.fixture(scope="session")
def reference(serving: Serving, tmp_path_factory: pytest.TempPathFactory) -> Reference:
    """The small web, crawled through `crawl_lib.stages` without Airflow."""
    config, _ = small_config(tmp_path_factory.mktemp("reference"))
    result = run_crawl(config, serving.seeds, ITERATIONS)
    assert set(result.visited()) == set(serving.truth().visits)
    folder = Path(config.dfs_primary) / config.export.directory / result.export
    return Reference(
        exported_bytes(config, result.export), folder, rows(config, "pages"), rows(config, "links")
    )


@pytest.fixture(scope="session")
def airflow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AirflowForks]:
    """What forks programs that use Airflow: one at a time, each of a config of its own."""
    with AirflowForks(tmp_path_factory.mktemp("home")) as found:
        yield found
