"""The whole DAG on many machines: two edge workers, three key servers, HDFS; triggered by REST, with servers that die.

A crawl finds what it finds on embedded stores, byte for byte, also when a server dies in the middle of it; no one helps
but by starting the server again.
"""

from __future__ import annotations

import dataclasses
import json
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from crawl_lib.config import Config
from crawl_lib.keys import check, open_key_store
from crawl_lib.repair.sweep import sweep
from crawl_lib.storage import LocalStorage, open_storage
from crawl_lib.stores import open_stores
from demo import Serving, SynthWeb, Truth, TruthOptions
from tests.cluster.processes import wait_until
from tests.cluster.test_crawl import copy_of
from tests.cluster.topology import Topology, why_not
from tests.contracts.mariadb import PASSWORD
from tests.dags.crawls import exported_bytes
from tests.e2e.crawl import Result, check_cdxj, check_counts, check_warcs, make_config, run_crawl

pytestmark = pytest.mark.timeout(3600)

WEB = SynthWeb(seed=20, sites=7, pages_per_site=20)
WEB_ITERATIONS = 5
MAX_REDIRECTS = 4
CHAINS = ("/x/chain-1", "/x/long-1")
"""Where the longest chains of redirects begin."""
SMALL_WEB = SynthWeb(seed=130, sites=6, pages_per_site=8, specials=False)
SMALL_ITERATIONS = 3
DELAY_S = 0.8
"""So long that the second and third iteration of the small web take some seconds, in which servers can die."""
MOST_ITERATIONS = 5
RUN_S = 1200.0
ASK_S = 10.0
NODES = 2


def sections(delay_s: float) -> dict[str, Any]:
    """The options of the crawls here, which `make_config` has for embedded stores."""
    return {
        "crawl": {"max_iterations": MOST_ITERATIONS},
        "dfs": {"connect_timeout_s": 5.0, "timeout_s": 20.0, "wait_s": 90.0},
        "batch": {"size": 100_000, "time_limit_s": 600},
        "retry": {"max": 0},
        "urls": {"scope": "hosts"},
        "segment": {"sync_interval_s": 0.5},
        "watermarks": {"min_free_local_bytes": 0, "min_free_dfs_bytes": 0},
        "fetch": {
            "host_delay_s": delay_s,
            "ip_delay_s": 0.0,
            "processes": 1,
            "time_limit_s": 10,
            "max_redirects": MAX_REDIRECTS,
            "allow_networks": ["127.0.0.0/8"],
        },
    }


@dataclass
class Web:
    """A web, the seeds of its crawls, its truth, and what its export is on embedded stores."""

    serving: Serving
    seeds: list[str]
    truth: Truth
    exported: dict[str, bytes]


def crawled_on_embedded_stores(serving: Serving, seeds: list[str], directory: Path) -> Web:
    config = make_config(
        directory, nodes=NODES, fetch={"host_delay_s": 0.0, "max_redirects": MAX_REDIRECTS}
    )
    done = run_crawl(config, seeds)
    truth = serving.truth(seeds, TruthOptions(max_redirects=MAX_REDIRECTS))
    assert set(done.visited()) == set(truth.visits)
    return Web(serving, seeds, truth, exported_bytes(config, done.export))


@pytest.fixture(scope="module")
def web(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Web]:
    """All that is odd, in few rounds: a round is three tasks, and each of them takes seconds of CPU."""
    with Serving(WEB) as serving:
        whole = serving.truth(options=TruthOptions(max_redirects=MAX_REDIRECTS))
        seeds = [
            url for url, visit in whole.visits.items() if visit.round <= 2 or url.endswith(CHAINS)
        ]
        made = crawled_on_embedded_stores(serving, seeds, tmp_path_factory.mktemp("embedded"))
        assert made.truth.outcomes() == whole.outcomes()
        assert max(visit.round for visit in made.truth.visits.values()) == WEB_ITERATIONS
        yield made


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Web]:
    with Serving(SMALL_WEB) as serving:
        yield crawled_on_embedded_stores(
            serving, serving.seeds, tmp_path_factory.mktemp("embedded-small")
        )


@pytest.fixture(scope="module")
def topology(jars: None) -> Iterator[Topology]:
    """Two nodes; the crawls follow each other, each with directories and tables of its own."""
    if missing := why_not():
        pytest.fail(f"the cluster cannot run: {missing}")
    # Not below tmp_path: PostgreSQL runs as another user where we are root, and a socket's path must be short.
    directory = Path(tempfile.mkdtemp(prefix="krake-cluster-"))
    directory.chmod(0o711)
    made = Topology(directory, nodes=NODES, fast=True)
    made.configure("first", sections(DELAY_S))
    with made:
        yield made
    shutil.rmtree(directory)


@dataclass
class Crawl:
    """One crawl on the topology."""

    topology: Topology
    name: str
    config: Config
    serving: Serving
    run: str
    answered_before: int

    @classmethod
    def begin(
        cls, topology: Topology, name: str, web: Web, *, iterations: int, delay_s: float
    ) -> Crawl:
        config = topology.configure(name, sections(delay_s))
        topology.make_tables(config)
        before = answers(web.serving)
        run = topology.api.trigger(seeds="\n".join(web.seeds), iterations=iterations)
        return cls(topology, name, config, web.serving, run, before)

    def wait(self, what: str, true: Callable[[], bool]) -> None:
        """Until something holds; the run must not have ended before."""

        asked_s = time.monotonic()

        def holds() -> bool:
            nonlocal asked_s
            self.topology.look_after_all()
            if true():
                return True
            if (
                time.monotonic() - asked_s > ASK_S
            ):  # an answer takes longer than what is waited for may last
                asked_s = time.monotonic()
                state = self.topology.api.runs()[self.run]
                assert state not in ("failed", "success") or true(), (
                    f"the run is {state} before: {what}"
                )
            return False

        wait_until(what, holds, RUN_S)

    def answered(self) -> int:
        """Requests that the web has answered in this crawl."""
        return answers(self.serving) - self.answered_before

    def progress(self, node: str) -> dict[str, Any]:
        """What a node's task said last of itself."""
        path = self.topology.home(node) / self.name / "queue" / node / "progress.json"
        return json.loads(path.read_text()) if path.exists() else {"phase": "", "fetched": 0}

    def fetching(self) -> list[str]:
        """Nodes that are in the middle of fetching."""
        found = {node: self.progress(node) for node in self.topology.nodes}
        return [
            node
            for node, now in found.items()
            if now["phase"] == "fetch" and now["fetched"] < now["taken"]
        ]

    def phases(self) -> set[str]:
        return {self.progress(node)["phase"] for node in self.topology.nodes}

    def succeed(self) -> dict[str, tuple[str, int]]:
        """Wait for the end, which must be a success; returns state and tries of each task."""

        def is_over() -> bool:
            self.topology.look_after_all()
            return self.topology.api.runs()[self.run] in ("success", "failed")

        self.topology.api.wait(is_over, "the end of the run", RUN_S)
        tasks = self.topology.api.tasks(self.run)
        assert self.topology.api.runs()[self.run] == "success", {
            task: state for task, state in tasks.items() if state[0] not in ("success", "skipped")
        }
        return tasks

    def result(self, directory: Path) -> Result:
        """What the crawl left on HDFS, copied to the disk."""
        remote, local = open_storage(self.config), LocalStorage.open(directory / "copied")
        for folder in (self.config.crawl.directory, self.config.export.directory):
            copy_of(remote, folder, local)
        export = self.topology.api.result(self.run, "export")["export"]
        return Result(
            dataclasses.replace(self.config, dfs_primary=str(directory / "copied")), export=export
        )

    def check(self, web: Web, directory: Path) -> Result:
        """The truth, each URL once, and the bytes of the export on embedded stores; and nothing is left hidden."""
        if not self._all_began_once():
            sweep(open_stores(self.config))
        result = self.result(directory)
        visited = result.visited()
        assert set(visited) == set(web.truth.visits)
        assert set(visited.values()) == {1}
        assert result.outcomes() == {
            url: str(outcome) for url, outcome in web.truth.outcomes().items()
        }
        assert result.arcs() == web.truth.arcs
        assert result.contents() == web.truth.contents()
        check_counts(result)
        assert check_warcs(result)["response"] > 0
        assert check_cdxj(result) > 0
        assert exported_bytes(result.config, result.export) == web.exported
        assert list((directory / "copied").rglob(".*")) == []
        return result

    def _all_began_once(self) -> bool:
        """Whether no task but those of nodes, which take their hidden folders up again, was begun again.

        On a machine that does much else Airflow takes workers for dead, and ends their tasks: what such an attempt
        leaves hidden is for `krake sweep`.
        """
        tasks = self.topology.api.tasks(self.run)
        return all(tried <= 1 for task, (_, tried) in tasks.items() if ".crawl." not in task)


def answers(serving: Serving) -> int:
    return sum(serving.log().counts().values())


def tries(tasks: dict[str, tuple[str, int]], part: str) -> int:
    """The most tries of a task whose id has `part` in it."""
    return max(tried for task, (_, tried) in tasks.items() if part in task)


def test_a_crawl_triggered_by_rest_finds_the_truth_and_each_task_ran_on_its_node(
    topology: Topology, web: Web, tmp_path: Path
) -> None:
    crawl = Crawl.begin(topology, "whole", web, iterations=WEB_ITERATIONS, delay_s=0.02)
    tasks = crawl.succeed()
    assert tries(tasks, "") <= 2, "one try, but where this machine did not answer for long"
    result = crawl.check(web, tmp_path)
    nodes = {manifest["node"] for manifest in result.manifests() if manifest["counts"]["pages"]}
    assert nodes == set(topology.nodes)
    # A node's queue is on its own disk alone, and so are its task's logs.
    for node in topology.nodes:
        assert [path.name for path in (topology.home(node) / "whole" / "queue").iterdir()] == [node]
        logs = {path.name for path in (topology.home(node) / "logs").rglob("task_id=*")}
        assert {name.rpartition(".")[2] for name in logs} == {node}


WATCHED_DELAY_S = 5.0
"""So long that a task of a node reports several times while it fetches."""
MOVES = 3
MOST_STILL_S = 10
"""The numbers of a node that fetches move at least so often."""
NOTE_MOVES = """() => {
    window.moves = {};
    const note = row => (moves[row.cells[0].innerText] ||= []).push(row.cells[4].innerText);
    new MutationObserver(() => document.querySelectorAll('.nodes > tbody > tr').forEach(note)).observe(
        live, {subtree: true, childList: true, characterData: true, attributes: true});
}"""
"""Notes what the fifth cell of each node's row says, the number of URLs that the node fetched."""


def test_the_page_follows_nodes_that_share_no_disk_with_the_api_server(
    topology: Topology, small: Web, tmp_path: Path
) -> None:
    """By the times of the nodes' own curves: this machine may give the API server no time for long."""
    from tests.cluster.search.browser import chromium  # noqa: PLC0415  # without Chromium the other tests run

    crawl = Crawl.begin(
        topology, "watched", small, iterations=SMALL_ITERATIONS, delay_s=WATCHED_DELAY_S
    )
    with chromium() as browser:
        context = browser.new_context()
        context.add_cookies([{"name": "_token", "value": topology.api.token, "url": topology.url}])
        tab = context.new_page()
        tab.set_default_timeout(1000 * RUN_S)
        tab.goto(f"{topology.url}/krake/crawl/krake")
        tab.evaluate(NOTE_MOVES)
        crawl.succeed()
        tab.get_by_text(f"rests after {SMALL_ITERATIONS} iterations").wait_for()
        moves = {node: set(tab.evaluate("window.moves")[node]) for node in topology.nodes}
        assert min(map(len, moves.values())) > MOVES, moves
        tab.screenshot(path=tmp_path / "shots" / "elsewhere.png", full_page=True)
        manifests = crawl.result(tmp_path).manifests()
        sums = {name: sum(one["counts"][name] for one in manifests) for name in ("pages", "links")}
        assert tiles(tab) >= {("tries", f"{sums['pages']:,}"), ("links", f"{sums['links']:,}")}
        for manifest in manifests:
            task = f"iteration_{manifest['iteration']}.crawl.{manifest['node']}"
            tab.goto(
                f"{topology.url}/krake/tab?dag_id=krake_crawl&run_id={quote(crawl.run)}&task_id={task}"
            )
            counts = manifest["counts"]
            assert tiles(tab) >= {
                ("tries", f"{counts['pages']:,}"),
                ("URLs taken", f"{counts['taken']:,}"),
            }, task
        context.close()
    for manifest in manifests:
        times = [point[0] for point in curve_of(crawl, manifest)]
        assert (
            max((after - before for before, after in pairwise(times)), default=0) <= MOST_STILL_S
        ), (manifest, times)


def tiles(tab: Any) -> set[tuple[str, str]]:
    """Return names and values of the large numbers of a page."""
    names, values = (tab.locator(f".tiles {tag}").all_inner_texts() for tag in ("dt", "dd"))
    return set(zip(names, values, strict=True))


def curve_of(crawl: Crawl, manifest: dict[str, Any]) -> list[list[int]]:
    """Return the curve that the task of a segment left in Airflow."""
    task = f"iteration_{manifest['iteration']}.crawl.{manifest['node']}"
    path = f"/api/v2/dags/krake_crawl/dagRuns/{quote(crawl.run)}/taskInstances/{task}/state-store/progress"
    value = crawl.topology.api.ask("GET", path)["value"]
    found: list[list[int]] = (json.loads(value) if isinstance(value, str) else value)["curve"]
    return found


# -- faults, one at a time


@dataclass
class Troubled:
    """A crawl of the small web, in the middle of its second iteration."""

    crawl: Crawl
    node: str
    """A node that is fetching."""


@pytest.fixture
def troubled(topology: Topology, small: Web, request: pytest.FixtureRequest) -> Troubled:
    name = request.node.name.removeprefix("test_")[:20]
    crawl = Crawl.begin(topology, name, small, iterations=SMALL_ITERATIONS, delay_s=DELAY_S)
    middle = len(small.serving.seeds) + 6
    found: list[str] = []

    def in_the_middle() -> bool:
        if crawl.answered() >= middle:
            found.extend(crawl.fetching())
        return bool(found)

    crawl.wait("the second iteration is fetching", in_the_middle)
    return Troubled(crawl, found[0])


def fetched_all_there_is(crawl: Crawl) -> bool:
    """Whether a node has nothing left to fetch, and wants to commit."""
    return bool(crawl.phases() & {"commit", "failed", "paused"})


def test_hdfs_restarts(troubled: Troubled, topology: Topology, small: Web, tmp_path: Path) -> None:
    """Namenode and datanode are away when a node wants to upload its segment, and commit."""
    for server in ("nn1", "dn"):
        topology.hdfs.kill(server)
    troubled.crawl.wait("a node wants to commit", lambda: fetched_all_there_is(troubled.crawl))
    for server in ("nn1", "dn"):
        topology.hdfs.start(server)
    troubled.crawl.succeed()
    troubled.crawl.check(small, tmp_path)


def test_key_server_dies_and_returns(
    troubled: Troubled, topology: Topology, small: Web, tmp_path: Path
) -> None:
    """It is away for the intake of the next iteration; maintenance fills what it missed."""
    server = topology.keys[1]
    server.kill()
    before = sum(visit.round <= 2 for visit in small.truth.visits.values())
    troubled.crawl.wait(
        "the third iteration is fetching", lambda: troubled.crawl.answered() > before
    )
    server.start()
    troubled.crawl.succeed()
    troubled.crawl.check(small, tmp_path)
    with open_key_store(troubled.crawl.config.key_storage, PASSWORD) as keys:
        assert check(keys).ok


def test_edge_worker_is_killed(
    troubled: Troubled, topology: Topology, small: Web, tmp_path: Path
) -> None:
    """With all its children, at once; it is started again, and Airflow gives it the task once more."""
    assert topology.kill_worker(troubled.node) >= 3, "the worker, its task, and what fetches"
    topology.start_worker(troubled.node)
    tasks = troubled.crawl.succeed()
    assert tries(tasks, f".crawl.{troubled.node}") >= 2
    troubled.crawl.check(small, tmp_path)
