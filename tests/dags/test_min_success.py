"""A run without a network: `commit` fails once, when all is saved; the same run goes on, and so does a new one."""

import json
from collections import Counter
from pathlib import Path

import pytest

from crawl_lib.config import Config
from crawl_lib.frontier import Queue
from crawl_lib.keys import open_key_store
from crawl_lib.states import KeyState
from crawl_lib.urls import key_of
from tests.dags.crawls import exports, small_config
from tests.dags.loaded import AirflowForks
from tests.dags.test_make_crawl import finish, start
from tests.e2e.crawl import Result
from tests.node.test_retries import answering
from tests.ports import free_port

pytestmark = pytest.mark.timeout(900)
ASKED = 60


def of_one_host(directory: Path) -> tuple[Config, Path, int, list[str]]:
    """A crawl whose seeds are pages of a host that does not listen; what fails is due at once.

    Without robots.txt, whose failure is remembered for ten minutes.
    """
    at_once = {"retry": {"max": 9, "max_wait_s": 0.0}, "fetch": {"robots": "ignore"}}
    config, path = small_config(directory, crawl={"min_success": 0.2}, **at_once)
    port = free_port()
    return config, path, port, [f"http://127.0.0.1:{port}/{number}" for number in range(ASKED)]


def queued(config: Config) -> list[str]:
    queues = [Queue(Path(config.queue.local_dir) / node, node) for node in config.servers]
    return [one.url for queue in queues for one in queue]


def test_it_is_seen_once_and_nothing_is_lost(airflow: AirflowForks, tmp_path: Path) -> None:
    config, path, port, urls = of_one_host(tmp_path)
    again = ["--seeds", " ".join(urls), "--iterations", "2"]
    code, output = finish(start(airflow, path, *again))
    assert code == 1, output
    warning = f"only 0 of {ASKED} URLs were answered at all"
    assert f"{warning}, and crawl.min_success is 0.2" in output
    assert "Nothing is lost" in output
    assert output.count("FAILED iteration_1.commit") == 1, "it was not tried again"
    assert "iteration_2" not in output
    [folder] = Result(config).crawl_dir.glob("[0-9]*")
    assert json.loads((folder / "index.json").read_text())["counts"]["pages"] == ASKED
    assert sorted(queued(config)) == sorted(urls)

    with answering(port):
        code, output = finish(start(airflow, path, *again))
    assert code == 0, output
    assert f"iteration {folder.name}: {warning}" in " ".join(output.split()), (
        "the summary says so too"
    )
    assert Result(config).visited() == Counter(urls)
    assert set(Result(config).outcomes().values()) == {"ok"}
    assert queued(config) == []
    with open_key_store(config.key_storage) as keys:
        assert set(keys.states([key_of(url) for url in urls]).values()) == {KeyState.CRAWLED}
    assert len(exports(config)) == 1


def test_a_new_run_goes_on(airflow: AirflowForks, tmp_path: Path) -> None:
    config, path, port, urls = of_one_host(tmp_path)
    code, output = finish(start(airflow, path, "--seeds", " ".join(urls), "--iterations", "1"))
    assert code == 1, output
    with answering(port):
        code, output = finish(start(airflow, path, "--iterations", "1", "--label", "new"))
    assert code == 0, output
    assert Result(config).visited() == Counter(urls)
    assert len(Result(config).segments()) == 4, "two nodes, a folder of each run"
