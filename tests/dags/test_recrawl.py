"""Crawls with a CrawlDb in Airflow: the DAG `recrawl`, what it visits again, how its rounds end, and cleared tasks."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowSkipException, DownstreamTasksSkipped
from krake_airflow import operators

from crawl_lib.config import Config
from crawl_lib.crawldb import newest_version
from crawl_lib.stores import open_stores
from crawl_lib.urls import Owners
from tests.dags.crawls import exports, small_config
from tests.dags.loaded import AirflowForks
from tests.dags.test_make_crawl import finish, start
from tests.dags.test_operators import TaskInstance, context, run
from tests.dags.test_parsing import (
    AFTER_COMMITS,
    CONFIGS,
    MAINTAINS,
    MOST,
    NODES,
    ancestors,
    parse,
    write,
)
from tests.e2e.crawl import Result
from tests.serving import Answering, running


@pytest.fixture(scope="module")
def dags(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The DAGs of a config with a CrawlDb, and what tasks of two DAGs find there."""
    directory = tmp_path_factory.mktemp("recrawl")
    file = directory / "again.yml"
    write(file, CONFIGS["again"])
    tasks = ["krake_recrawl", "krake_process", "krake_crawl"]
    return dict(
        zip(
            ["all", *tasks],
            parse(directory, [file, *(f"{task}@{file}" for task in tasks)]),
            strict=True,
        )
    )


@pytest.fixture(scope="module")
def recrawl(dags: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = dags["all"]["dags"]["krake_recrawl"]
    return found


def test_a_config_with_a_crawldb_has_this_dag_and_no_crawl(dags: dict[str, Any]) -> None:
    assert dags["all"]["errors"] == {}
    assert set(dags["all"]["dags"]) == {"krake_recrawl", "krake_process"}
    assert [
        set(dags[name]["dags"]) for name in ("krake_recrawl", "krake_process", "krake_crawl")
    ] == [
        {"krake_recrawl"},
        {"krake_process"},
        set(),
    ]


def test_every_task_of_a_round_runs_in_order(recrawl: dict[str, Any]) -> None:
    tasks, before = recrawl["tasks"], set[str]()
    chain = [["inject"]]
    for i in range(1, MOST + 1):
        parts = (["generate"], [f"crawl.{node}" for node in NODES], ["commit"], ["update"])
        chain += [[f"iteration_{i}.{part}" for part in level] for level in parts]
    chain += [
        ["committed"],
        [*(f"settle.{node}" for node in NODES), *MAINTAINS],
        ["export"],
        ["linker"],
        ["finalizer"],
    ]
    for level in chain:
        for task_id in level:
            assert ancestors(tasks, task_id) == before
        before |= set(level)
    assert set(tasks) == before
    assert tasks["committed"]["upstream"] == [f"iteration_{i}.update" for i in range(1, MOST + 1)]
    for task_id in AFTER_COMMITS - {"committed"}:
        assert tasks[task_id]["upstream"] == ["committed"]
    for task_id in AFTER_COMMITS:
        assert tasks[task_id]["trigger_rule"] == "none_failed"


def test_generate_can_skip_what_is_left_of_its_iteration_and_update_all_later_ones(
    recrawl: dict[str, Any],
) -> None:
    def skips(task_id: str) -> set[str]:
        return {task for ids in recrawl["tasks"][task_id]["later"].values() for task in ids}

    def of(first: int) -> set[str]:
        return {
            task
            for task in recrawl["tasks"]
            for i in range(first, MOST + 1)
            if task.startswith(f"iteration_{i}.")
        }

    assert skips("inject") == of(1)
    for i in range(1, MOST + 1):
        assert skips(f"iteration_{i}.generate") == of(i) - {f"iteration_{i}.generate"}
        assert skips(f"iteration_{i}.update") == of(i + 1)


def test_it_is_scheduled_retried_and_limited_as_the_others(recrawl: dict[str, Any]) -> None:
    assert (recrawl["schedule"], recrawl["catchup"], recrawl["max_active_runs"]) == (
        "17 3 * * *",
        False,
        1,
    )
    assert recrawl["params"].keys() == {"seeds", "iterations", "batch_size", "retry_now", "label"}
    for task_id, task in recrawl["tasks"].items():
        assert task["retries"] >= (5 if ".crawl." in task_id else 1), task_id
        assert task["timeout_s"], task_id
    assert all(
        f"**{name}" in recrawl["doc"]
        for name in ("inject", "iteration_N", "settle", "maintain_keys")
    )
    assert all(f"*{name}" in recrawl["doc"] for name in ("generate", "crawl", "commit", "update"))


PAGES = ("/", "/changes", "/same", "/gone")


class _Page(Answering):
    """A page that changes, one that does not, and one that is gone when it is asked for again; `/` links to them."""

    def do_GET(self) -> None:
        server: Any = self.server
        server.asked[self.path] += 1
        time = server.asked[self.path]
        if server.asked.keys() >= set(PAGES):
            server.all_asked.set()
        links = b"".join(b'<a href="%s">x</a>' % path for path in (b"/changes", b"/same", b"/gone"))
        body = {"/": links, "/changes": b"%d" % time}.get(self.path, b"as ever")
        there = self.path in {"/", "/changes", "/same"} or (self.path == "/gone" and time == 1)
        self.answer(200 if there else 404, body, {"Content-Type": "text/html"})


class _LastPage(_Page):
    """`/last` is answered, as gone, a second after all of the changing site were asked for: so these are due again."""

    def do_GET(self) -> None:
        if self.path == "/last":
            self.server.site.all_asked.wait(60)
            threading.Event().wait(1)
        super().do_GET()


def served(page: type[_Page], address: str) -> AbstractContextManager[Any]:
    server: Any = ThreadingHTTPServer((address, 0), page)
    server.asked, server.all_asked = Counter[str](), threading.Event()
    server.url = f"http://{address}:{server.server_port}"
    return running(server)


@contextmanager
def changing_site() -> Iterator[tuple[str, Counter[str]]]:
    """A site by its address, and how often each path was asked for."""
    with served(_Page, "127.0.0.1") as server:
        yield server.url, server.asked


def config_of(directory: Path, **sections: Any) -> tuple[Config, Path]:
    return small_config(directory, frontier={"order": "crawldb"}, **sections)


def test_a_page_is_visited_again_and_what_is_gone_leaves_the_export(
    airflow: AirflowForks, tmp_path: Path
) -> None:
    """All is due a second after it was seen: the first round sees the seeds, the second sees them once more."""
    config, path = config_of(tmp_path, schedule={"interval_s": 1})
    owner = Owners(config.servers).owner  # tasks run one after the other: the pages are of one node
    address = next(
        name for n in range(2, 255) if owner(name := f"127.0.0.{n}") == owner("127.0.0.1")
    )
    with served(_Page, "127.0.0.1") as server, served(_LastPage, address) as last:
        last.site, site = server, server.url
        seeds = " ".join([f"{last.url}/last", *(f"{site}{place}" for place in PAGES)])
        code, output = finish(start(airflow, path, "--seeds", seeds, "--iterations", "2"))
        assert code == 0, output
        assert {place: server.asked[place] for place in PAGES} == dict.fromkeys(PAGES, 2)
    result = Result(config, export=exports(config)[-1])
    rows = [
        row
        for row in result.rows("pages", ["url", "outcome", "refers_to"])
        if row["url"].startswith(site)
    ]
    seen = Counter(
        (row["url"].removeprefix(site), row["outcome"], row["refers_to"] is None) for row in rows
    )
    assert seen == {
        ("/", "ok", True): 1,
        ("/", "ok", False): 1,
        ("/changes", "ok", True): 2,
        ("/same", "ok", True): 1,
        ("/same", "ok", False): 1,
        ("/gone", "ok", True): 1,
        ("/gone", "gone", True): 1,
    }
    assert set(result.node_urls()) == {f"{site}{place}" for place in ("/", "/changes", "/same")}
    version = newest_version(open_stores(config))
    assert version is not None
    statuses = {name: count for name, count in version.manifest["statuses"].items() if count}
    assert statuses == {"not_modified": 2, "fetched": 1, "gone": 2}


def test_a_run_with_nothing_due_ends_its_rounds_says_when_and_exports(
    airflow: AirflowForks, tmp_path: Path
) -> None:
    config, path = config_of(tmp_path)
    with changing_site() as (site, asked):
        arguments = ("--iterations", "3")
        code, output = finish(start(airflow, path, "--seeds", f"{site}/", *arguments))
        assert code == 0, output
        assert set(asked.values()) == {1}
        assert "then nothing is due before 20" in output
        code, output = finish(start(airflow, path, *arguments, "--label", "again"))
        assert code == 0, output
        assert set(asked.values()) == {1}
    assert "none: nothing is due before 20" in output
    assert "iteration_1.crawl" not in output
    assert folders(config) == 2
    assert exports(config)[-1] == "again"


def generate(iteration: int) -> Any:
    later = {
        number: [f"{number}.crawl", f"{number}.update"] for number in range(iteration, MOST + 1)
    }
    return operators.GenerateOperator(task_id="generate", iteration=iteration, later=later)


@pytest.fixture
def crawled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Config]:
    """Two rounds of a run, task after task; a third one has nothing to do."""
    config, path = config_of(tmp_path)
    monkeypatch.setenv("KRAKE_CONFIG_PATH", str(path))
    with changing_site() as (site, _):
        run(operators.InjectOperator(task_id="inject", later={}), context(MOST, seeds=f"{site}/"))
        for i in (1, 2):
            run(generate(i), context(MOST))
            run_rest(config, i)
        yield config


def run_rest(config: Config, iteration: int) -> dict[str, Any]:
    for node in config.servers:
        run(operators.CrawlOperator(task_id=node, iteration=iteration, node=node), context(MOST))
    run(operators.CommitOperator(task_id="commit", iteration=iteration, later={}), context(MOST))
    done: dict[str, Any] = run(
        operators.UpdateOperator(task_id="update", iteration=iteration, later={}), context(MOST)
    )
    return done


def folders(config: Config) -> int:
    return len(open_stores(config).crawl.folders())


def test_generate_ends_the_rounds_and_says_so_again_when_it_is_cleared(crawled: Config) -> None:
    for _ in range(2):
        ti = TaskInstance()
        with pytest.raises(DownstreamTasksSkipped) as skipped:
            run(generate(3), context(MOST, ti))
        assert list(skipped.value.tasks) == ["3.crawl", "3.update", "4.crawl", "4.update"]
        assert ti.pushed["return_value"]["ended"].startswith("nothing is due before 20")
        assert ti.pushed["return_value"]["folder"] == ""
    assert folders(crawled) == 2
    with pytest.raises(AirflowSkipException, match="ended before number 3: nothing is due before"):
        run(generate(4), context(MOST))
    with pytest.raises(AirflowSkipException, match="ended before number 3: nothing is due"):
        run_rest(crawled, 3)
    assert folders(crawled) == 2


def test_tasks_of_a_round_that_are_cleared_find_their_work_done(crawled: Config) -> None:
    before = newest_version(open_stores(crawled))
    for i in (2, 1):
        again = run(generate(i), context(MOST))
        assert again["folder"] == open_stores(crawled).crawl.find("run-1", i).folder  # type: ignore[union-attr]
        assert run_rest(crawled, i)["version"] == before.number  # type: ignore[union-attr]
    assert newest_version(open_stores(crawled)) == before
    assert folders(crawled) == 2


def test_the_tasks_refuse_what_the_run_does_not_ask_for_and_a_crawl_without_a_crawldb(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, path = small_config(tmp_path)
    monkeypatch.setenv("KRAKE_CONFIG_PATH", str(path))
    for task in (generate(2), operators.UpdateOperator(task_id="update", iteration=2, later={})):
        with pytest.raises(AirflowSkipException, match="asks for 1 iterations"):
            run(task, context(1))
        with pytest.raises(Exception, match=r"frontier\.order: is fifo"):
            run(task, context(2))
