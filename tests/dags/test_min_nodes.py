"""A node that is dead does not stop the round: the DAG itself, as `make crawl` runs it, with `crawl.min_nodes`."""

import json
from pathlib import Path

import pytest

from demo import Serving
from tests.dags.conftest import Reference
from tests.dags.crawls import ITERATIONS, MOST_ITERATIONS, exported_bytes, exports, small_config
from tests.dags.test_make_crawl import finish, start
from tests.e2e.crawl import Result

pytestmark = pytest.mark.timeout(900)


def test_a_run_succeeds_without_a_node_and_the_next_one_finds_the_rest(
    tmp_path: Path, serving: Serving, reference: Reference
) -> None:
    """node-1's lock cannot be opened in the first run; skipped iterations stay skipped though commits run on."""
    config, path = small_config(tmp_path, crawl={"min_nodes": 0.5})
    blocked = Path(config.queue.local_dir) / "node-1" / "lock"
    blocked.mkdir(parents=True)
    arguments = ["--seeds", " ".join(serving.seeds), "--iterations", str(ITERATIONS)]
    code, output = finish(start(tmp_path / "home", path, *arguments))
    assert code == 0, output
    folders = sorted(Result(config).crawl_dir.glob("[0-9]*"), key=lambda folder: int(folder.name))
    assert len(folders) == ITERATIONS
    assert [json.loads((folder / "index.json").read_text())["missing"] for folder in folders] == [["node-1"]] * 2
    assert len(exports(config)) == 1

    blocked.rmdir()
    code, output = finish(start(tmp_path / "home", path, "--iterations", str(MOST_ITERATIONS)))
    assert code == 0, output
    assert all((folder / "node-1" / "manifest.json").exists() for folder in folders), "it left an empty segment in each"
    visited = Result(config).visited()
    assert set(visited) == set(serving.truth().visits)
    assert set(visited.values()) == {1}
    assert exported_bytes(config, exports(config)[-1]) == reference.exported
