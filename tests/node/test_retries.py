"""A failure that passes is tried again in a later iteration, when it is due, until it is final."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from crawl_lib import stages
from crawl_lib.config import Config
from crawl_lib.durable import KILL_VARIABLE
from crawl_lib.frontier import Queue
from crawl_lib.frontier.hostcounts import HostCounts, names_of_domain
from crawl_lib.keys import open_key_store
from crawl_lib.node import shares
from crawl_lib.node.retire import retire_node
from crawl_lib.records import QueuedUrl
from crawl_lib.repair import fsck, repair_crawl
from crawl_lib.rounds import start_iteration
from crawl_lib.states import KeyState
from crawl_lib.stores import open_stores
from crawl_lib.urls import key_of
from tests.e2e.crawl import Result, make_config, run_iteration, write_config
from tests.forked import run_forked

NODE = "node-0"


class Answering(BaseHTTPRequestHandler):
    status = 200

    def do_GET(self) -> None:
        self.send_response(self.status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *args: object) -> None:
        pass


@contextmanager
def answering(port: int, status: int = 200) -> Iterator[None]:
    server = HTTPServer(("127.0.0.1", port), type("WithStatus", (Answering,), {"status": status}))
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class Down:
    """A crawl of one URL whose host does not listen."""

    def __init__(self, directory: Path, **sections: Any) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}/"
        self.config: Config = make_config(
            directory,
            nodes=1,
            fetch={"host_delay_s": 0.0, "robots": "ignore"},
            **({"retry": {"max": 4}} | sections),
        )
        self.iteration = 0
        stages.inject(open_stores(self.config), run_id="r", seeds=self.url)

    def go_on(self) -> dict[str, Any]:
        """One more iteration; returns its counts."""
        self.iteration += 1
        return run_iteration(self.config, "r", self.iteration)

    def queued(self) -> list[QueuedUrl]:
        return [*Queue(Path(self.config.queue.local_dir) / NODE, NODE)]

    def key_state(self) -> KeyState | None:
        with open_key_store(self.config.key_storage, "") as keys:
            return keys.states([key_of(self.url)])[key_of(self.url)]

    def rows(self) -> list[tuple[str, bool]]:
        """Outcome, and whether it is final, of each try, the oldest first."""
        rows = Result(self.config).rows("pages", ["outcome", "retry_at", "time"])
        return [
            (row["outcome"], row["retry_at"] is None)
            for row in sorted(rows, key=lambda row: row["time"])
        ]


def test_it_waits_in_the_queue_until_it_is_due_and_is_fetched_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    crawl = Down(tmp_path)
    counts = crawl.go_on()
    assert (counts["pages"], counts["retried"], counts["outcomes"]) == (
        1,
        *[{"connect_failed": 1}] * 2,
    )
    [waiting] = crawl.queued()
    assert (waiting.url, waiting.retries, crawl.key_state()) == (crawl.url, 1, KeyState.QUEUED)
    counts = crawl.go_on()
    assert (counts["taken"], counts["passed_over"]) == (0, 1)
    assert crawl.queued() == [waiting]
    assert fsck(open_stores(crawl.config)).findings == []
    monkeypatch.setattr(shares, "time", lambda: float(waiting.due))
    with answering(crawl.port):
        assert crawl.go_on()["outcomes"] == {"ok": 1}
    assert crawl.queued() == []
    assert crawl.key_state() is KeyState.CRAWLED
    assert crawl.rows() == [("connect_failed", False), ("ok", True)]
    assert fsck(open_stores(crawl.config)).findings == []


def iterate(config: Config, kill_at: str) -> None:
    """The crawl task of the first iteration, killed at a step."""
    os.environ[KILL_VARIABLE] = kill_at
    stages.crawl_node(open_stores(config), run_id="r", iteration=1, node=NODE)


def test_killed_at_each_step_from_the_segment_on_it_waits_once(tmp_path: Path) -> None:
    crawl = Down(tmp_path)
    start_iteration(open_stores(crawl.config), run_id="r", iteration=1)
    moves = [f"queue.move.{name}" for name in ("written", "step", "state", "record", "done")]
    ends = ["node.advanced", "node.marked", "take.deleted", "take.leftover_deleted"]
    for step in ["segment.publish.renamed", "take.put_back", *moves, *ends]:
        assert run_forked(iterate, crawl.config, step) == -signal.SIGKILL, step
    counts = crawl.go_on()
    assert (counts["taken"], counts["retried"]) == (1, {"connect_failed": 1})
    assert [(one.url, one.retries) for one in crawl.queued()] == [(crawl.url, 1)]
    assert crawl.key_state() is KeyState.QUEUED
    assert crawl.rows() == [("connect_failed", False)]


def test_counts_of_hosts_that_are_made_again_count_its_tries_once(tmp_path: Path) -> None:
    crawl = Down(tmp_path, retry={"max": 4, "max_wait_s": 0.0})
    crawl.go_on()
    crawl.go_on()
    directory = Path(crawl.config.queue.local_dir) / NODE
    before, names = HostCounts(directory).all(), names_of_domain(b"127.0.0.1")
    of_domain = HostCounts(directory).get(names)
    (directory / "hostcounts.sqlite").write_bytes(b"no data base" * 100)
    repair_crawl(open_stores(crawl.config))
    assert HostCounts(directory).all() == before == {"127.0.0.1": 1}
    assert HostCounts(directory).get(names) == of_domain == dict.fromkeys(names, 1)


def test_after_its_retries_it_is_final_and_all_its_tries_count_as_one_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    crawl = Down(tmp_path, retry={"max": 1}, crawl={"max_pages": 1})
    crawl.go_on()
    monkeypatch.setattr(shares, "time", lambda: float(crawl.queued()[0].due))
    counts = crawl.go_on()
    assert (counts["taken"], counts["retried"]) == (1, {})
    assert (crawl.queued(), crawl.key_state()) == ([], KeyState.CRAWLED)
    assert crawl.rows() == [("connect_failed", False), ("connect_failed", True)]


def test_a_damaged_take_is_not_made_again_of_a_segment_whose_failures_wait(tmp_path: Path) -> None:
    """All that the segment has is in the queue, and yet the queue has moved on past it: it would count twice."""
    crawl = Down(tmp_path)
    crawl.go_on()
    [before] = crawl.queued()
    stages.inject(open_stores(crawl.config), run_id="r", seeds=f"{crawl.url}more")
    stages.settle_node(open_stores(crawl.config), node=NODE)
    (Path(crawl.config.queue.local_dir) / NODE / "take").write_bytes(b"nothing")
    repair_crawl(open_stores(crawl.config))
    crawl.go_on()
    assert [(one.url, one.retries) for one in crawl.queued()] == [
        (before.url, 1),
        (f"{before.url}more", 1),
    ]
    assert fsck(open_stores(crawl.config)).findings == []


def test_a_failure_that_waits_is_not_lost_with_its_record(tmp_path: Path) -> None:
    """Its URL is in the queue: queued again as a lost page it would be fetched twice."""
    crawl = Down(tmp_path)
    crawl.go_on()
    waiting = crawl.queued()
    [warc] = Result(crawl.config).warcs()
    warc.write_bytes(b"nothing")
    repair_crawl(open_stores(crawl.config))
    assert fsck(open_stores(crawl.config)).findings == []
    [manifest] = Result(crawl.config).manifests()
    assert (
        manifest["counts"]["taken"],
        manifest["counts"]["deferred"],
        manifest["counts"].get("lost"),
    ) == (1, 1, None)
    crawl.go_on()
    assert crawl.queued() == waiting


def test_a_node_that_leaves_hands_over_how_often_its_urls_failed_and_when_they_are_due(
    tmp_path: Path,
) -> None:
    crawl = Down(tmp_path)
    crawl.go_on()
    waiting = crawl.queued()
    stages.settle_node(open_stores(crawl.config), node=NODE)
    crawl.config = replace(crawl.config, servers=("other",))
    assert retire_node(open_stores(crawl.config), node=NODE)["handed_over"] == 1
    crawl.go_on()
    assert [*Queue(Path(crawl.config.queue.local_dir) / "other", "other")] == waiting


LOADED = """
import sys
from pathlib import Path
from crawl_lib import stages
from crawl_lib.config import load_config
from crawl_lib.rounds import start_iteration
from crawl_lib.stores import open_stores

stores = open_stores(load_config(Path(sys.argv[1])))
stages.inject(stores, run_id="run", seeds=sys.argv[2])
start_iteration(stores, run_id="run", iteration=1)
counts = stages.crawl_node(stores, run_id="run", iteration=1, node="node-0")
print(counts["outcomes"], "pandas" in sys.modules)
"""


def test_a_task_with_a_failure_that_passes_loads_no_pandas(tmp_path: Path) -> None:
    """It is there with Airflow, and takes a third of a second of each process that loads it."""
    config = write_config(make_config(tmp_path, nodes=1, retry={"max": 1}), tmp_path)
    with socket.socket() as taken:  # and nothing listens there
        taken.bind(("127.0.0.1", 0))
        seed = f"http://127.0.0.1:{taken.getsockname()[1]}/"
        command = [sys.executable, "-c", LOADED, str(config), seed]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout == "{'connect_failed': 1} False\n", done.stderr
