"""Queues on two machines: a URL that one machine lost comes back by `krake settle --all-again` on that machine alone.

No machine knows the queue of the other machine. A URL is lost if its key is queued, the URL was sent to the node, and
no file of the node holds the URL.
"""

from __future__ import annotations

import shutil
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from crawl_lib import stages
from crawl_lib.config import load_config
from crawl_lib.frontier import NodeDirectory, Queue
from crawl_lib.keys import open_key_store
from crawl_lib.rounds import start_iteration
from crawl_lib.stores import open_stores
from crawl_lib.urls import key_of
from demo import Serving
from tests.cli.conftest import Krake, run_in_process
from tests.contracts.mariadb import PASSWORD, MariaDb, mariadb
from tests.e2e.crawl import Result, run_crawl, settle
from tests.repair.checked import REPAIR, all_keys, lose_a_url
from tests.repair.killed import run_killed

__all__ = ["mariadb"]
AGAIN = ("settle", "--all-again", "--node")


@dataclass(frozen=True)
class Machines:
    """`a` has the queue of node-a, `b` that of node-b; one DFS, one key server."""

    a: Krake
    b: Krake

    def everything(self) -> Counter[str]:
        """Count the URLs that wait in both queues."""
        return waits(self.a, "node-a") + waits(self.b, "node-b")

    def crawl_on(self) -> Counter[str]:
        """Crawl on, on one machine with both queues; count how often each URL was fetched or waits."""
        shutil.move(self.b.directory / "queue/node-b", self.a.directory / "queue/node-b")
        waited = waits(self.a, "node-a") + waits(self.a, "node-b")
        self.a.ok("settle")
        self.a.ok("crawl", "--iterations", "8", "--batch-size", "100")
        assert report(self.a)["findings"] == []
        waiting = waits(self.a, "node-a") + waits(self.a, "node-b")
        assert waiting.total() < waited.total() / 2
        return waiting + Result(load_config(str(self.a.file))).visited()


@pytest.fixture(scope="session")
def two_nodes(web: Serving, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a crawl of two nodes on one machine, settled; both have URLs that wait."""
    directory = tmp_path_factory.mktemp("two")
    krake = Krake(directory, lambda words: run_killed(words, None))
    krake.configure(urls={"scope": "hosts"}, batch={"size": 4}, retry={"max": 0})
    config = load_config(str(krake.file))
    run_crawl(config, web.seeds, 2, run_id="one", process=False)
    stages.inject(open_stores(config), run_id="two", seeds="\n".join(strangers("old")))
    settle(config)
    return directory


def strangers(name: str) -> list[str]:
    """Seeds that no server answers; each node owns some."""
    return [f"http://{name}-{number}.example/" for number in range(40)]


@pytest.fixture
def machines(
    two_nodes: Path,
    mariadb: MariaDb,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Machines:
    """A copy of it, with a key server, on two machines."""
    monkeypatch.setenv("KRAKE_KEY_STORAGE_PASSWORD", PASSWORD)
    a, b = (Krake(tmp_path / name, lambda words: run_in_process(capsys, words)) for name in "ab")
    shutil.copytree(two_nodes, a.directory)
    key_storage = {"servers": [mariadb.server], "database": mariadb.new_database(), "user": "krake"}
    a.change(key_storage=key_storage, dfs_primary=str(a.directory / "dfs"))
    a.ok(*REPAIR)
    (b.directory / "queue").mkdir(parents=True)
    shutil.copyfile(a.file, b.file)
    shutil.move(a.directory / "queue" / "node-b", b.directory / "queue" / "node-b")
    return Machines(a, b)


def report(krake: Krake, *words: str) -> dict[str, Any]:
    return dict(krake("fsck", "--json", *words).json)


def waits(krake: Krake, node: str) -> Counter[str]:
    return Counter(one.url for one in Queue(krake.directory / "queue" / node, node))


def lost_file(krake: Krake, node: str) -> Path:
    return NodeDirectory(krake.directory / "queue" / node).lost


def known(krake: Krake) -> set[bytes]:
    with open_key_store(load_config(str(krake.file)).key_storage, PASSWORD) as store:
        return set(all_keys(store.servers))


def lose_lines(krake: Krake, node: str) -> set[str]:
    """Overwrite the second half of each data file of a queue; returns the URLs that waited there."""
    before, after = waits(krake, node), Counter[str]()
    for path in (krake.directory / "queue" / node).glob("[0-9]*"):
        data = path.read_bytes()
        half = data.find(b"\n", len(data) // 2) + 1
        path.write_bytes(data[:half] + b"\xff" * (len(data) - half - 1) + b"\n")
        after.update(data[:half].decode().split())
    gone = {*before} - {*after}
    assert len(gone) > 5
    return gone


def test_every_url_is_fetched_once_after_one_machine_lost_lines(machines: Machines) -> None:
    a, b = machines.a, machines.b
    before = machines.everything()
    captured = Result(load_config(str(a.file))).visited()
    gone = lose_lines(b, "node-b")
    done = b(*REPAIR)
    assert done.code == 1, "URLs are lost until they are found again"
    assert done.out.count("next: run `krake settle --all-again --node node-b`") == 1
    b.ok("settle", "--node", "node-b")
    assert not gone & {*waits(b, "node-b")}, "their keys are known"
    assert {one["name"] for one in report(b)["findings"]} == {"urls_lost"}

    for krake, node in ((a, "node-a"), (b, "node-b")):
        krake.ok(*AGAIN, node)
    assert machines.everything() == before, "the other machine has no URL twice"
    assert report(b)["findings"] == report(a)["findings"] == []
    visited = machines.crawl_on()
    assert {*visited} >= {*before, *captured}
    assert set(visited.values()) == {1}


@pytest.mark.parametrize(
    "step",
    ["repair.again.unread", "repair.again.dropped", "intake.chunk.inserted", "queue.move.written"],
)
def test_killed_at_any_step_it_is_run_again(step: str, machines: Machines) -> None:
    b = machines.b
    before = machines.everything()
    lose_lines(b, "node-b")
    b(*REPAIR)
    words = ["--config", str(b.file), *AGAIN, "node-b"]
    assert run_killed(words, step).code == -9
    b.ok(*AGAIN, "node-b")
    assert machines.everything() == before
    assert not lost_file(b, "node-b").exists()
    assert report(b)["findings"] == []


def test_a_plain_settle_between_the_kill_and_the_next_run_loses_nothing(machines: Machines) -> None:
    b = machines.b
    before = machines.everything()
    lose_lines(b, "node-b")
    b(*REPAIR)
    words = ["--config", str(b.file), *AGAIN, "node-b"]
    assert run_killed(words, "repair.again.unread").code == -9
    b.ok("settle", "--node", "node-b")
    assert {one["name"] for one in report(b)["findings"]} == {"urls_lost"}
    b.ok(*AGAIN, "node-b")
    assert machines.everything() == before


def test_a_url_lost_without_a_word_comes_back_too(machines: Machines) -> None:
    a, b = machines.a, machines.b
    before = machines.everything()
    url = lose_a_url(b, "node-b")
    skipped = report(b)["skipped"][-1]
    assert "were not compared" in skipped
    assert "node node-a has its queue on another machine" in skipped
    assert "`krake settle --all-again`" in skipped
    keys = known(a)
    b.ok(*REPAIR)
    assert known(a) == keys, "without sight of all queues no key is dropped"
    b.ok(*AGAIN, "node-b")
    assert waits(b, "node-b")[url] == 1
    assert machines.everything() == before


def test_a_queue_that_is_lost_with_its_disk_comes_back(machines: Machines) -> None:
    """Seeds come back too: half of the waiting URLs are seeds."""
    b = machines.b
    before = machines.everything()
    assert {*strangers("old")} & {*waits(b, "node-b")}
    shutil.rmtree(b.directory / "queue" / "node-b")
    assert "`krake nodes restart node-b`" in b(*AGAIN, "node-b").error()
    assert "`krake settle --all-again`" in b.ok("nodes", "restart", "node-b").out
    b.ok(*AGAIN, "node-b")
    assert machines.everything() == before
    assert report(b)["findings"] == []


def test_urls_that_another_node_handed_on_come_back(machines: Machines) -> None:
    """A node was retired with its queue, and the new owner loses the URLs."""
    a, b = machines.a, machines.b
    before = machines.everything()
    for krake in (a, b):
        krake.change(servers=["node-b"])
    a.ok("nodes", "retire", "node-a")
    b.ok("settle", "--node", "node-b")
    assert waits(b, "node-b") == before
    shutil.rmtree(b.directory / "queue" / "node-b")
    b.ok("nodes", "restart", "node-b")
    b.ok(*AGAIN, "node-b")
    assert waits(b, "node-b") == before


@pytest.mark.parametrize("step", ["intake.chunk.inserted", "node.advanced"])
def test_nothing_that_a_node_at_work_holds_is_fetched_twice(step: str, machines: Machines) -> None:
    a, b = machines.a, machines.b
    a.ok("inject", "\n".join(strangers("new")), "--run-id", "three")
    start_iteration(open_stores(load_config(str(a.file))), run_id="two", iteration=1, batch_size=3)
    words = ["crawl", "--run-id", "two", "--node", "node-b"]
    assert run_killed(["--config", str(b.file), *words], step).code == -9
    url = lose_a_url(b, "node-b")
    b.ok(*AGAIN, "node-b")
    a.ok("crawl", "--run-id", "two", "--node", "node-a")
    visited = machines.crawl_on()
    assert {*visited} >= {url, *strangers("new"), *strangers("old")}
    assert set(visited.values()) == {1}


def test_a_node_whose_urls_went_to_another_node_fetches_them_twice_at_most(
    machines: Machines,
) -> None:
    """This is the price: the node's sources have the URLs, and the node does not see the queue of the other node."""
    a, b = machines.a, machines.b
    captured = {*Result(load_config(str(a.file))).visited()}
    for krake in (a, b):
        krake.change(servers=["node-b"])
    a.ok("nodes", "retire", "node-a")
    b.ok("settle", "--node", "node-b")
    before = waits(b, "node-b")
    for krake in (a, b):
        krake.change(servers=["node-a", "node-b"])
    start_iteration(open_stores(load_config(str(a.file))), run_id="two", iteration=1, batch_size=3)
    for krake, node in ((a, "node-a"), (b, "node-b")):
        krake.ok("crawl", "--run-id", "two", "--node", node)
    lose_a_url(b, "node-b")
    for krake, node in ((a, "node-a"), (b, "node-b")):
        krake.ok(*AGAIN, node)
    visited = machines.crawl_on()
    assert {*visited} >= {*before, *captured}
    assert max(visited.values()) <= 2


def test_the_option_that_noted_keys_names_the_command_that_finds_lost_urls(
    machines: Machines,
) -> None:
    error = machines.b("fsck", "--node", "node-b").error()
    assert "krake settle --all-again --node node-b" in error


def test_where_all_queues_are_on_one_machine_keys_are_compared(machines: Machines) -> None:
    a, b = machines.a, machines.b
    shutil.move(b.directory / "queue" / "node-b", a.directory / "queue" / "node-b")
    url = lose_a_url(a, "node-b")
    [one] = report(a)["findings"]
    assert one["name"] == "key_without_url"
    assert key_of(url).hex() in one["problem"]
    assert a.ok(*REPAIR, "--json").json["keys"]["dropped"] == 1
    a.ok("settle")
    assert waits(a, "node-b")[url] == 1
    assert report(a)["findings"] == []
