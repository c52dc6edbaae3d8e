"""`krake status` of nodes on other machines: what their tasks told Airflow, and since when they say nothing."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import pytest

from crawl_lib.cli import main
from crawl_lib.config import Config
from crawl_lib.rounds import elsewhere, status_of
from crawl_lib.rounds.elsewhere import queues_elsewhere
from tests.e2e.crawl import make_config, write_config
from tests.serving import Answering, running

TOKEN = "let me in"
RUN = "manual__2026-11-27T10:00:00+00:00/a"


class FakeAirflow(ThreadingHTTPServer):
    """As much of Airflow's REST API as is asked for: `tasks`, the newest first, and `values` by task id."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Answers)
        self.tasks: list[dict[str, Any]] = []
        self.values: dict[str, Any] = {}
        self.asked: list[str] = []
        self.status = 200

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def add(
        self,
        task_id: str,
        value: Any,
        *,
        state: str = "running",
        try_number: int = 1,
        run: str = RUN,
    ) -> None:
        self.tasks.append(
            {"task_id": task_id, "dag_run_id": run, "state": state, "try_number": try_number}
        )
        self.values[task_id] = value


class _Answers(Answering):
    server: FakeAirflow

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        self.server.asked.append(parts.path)
        status, body = self.server.status, b"{}"
        if self.headers["Authorization"] != f"Bearer {TOKEN}":
            status = 401
        elif parts.path.endswith("/dagRuns/~/taskInstances"):
            query = parse_qs(parts.query)
            assert query["order_by"] == ["-start_date"]
            first = int(query["offset"][0])
            body = json.dumps(
                {"task_instances": self.server.tasks[first : first + int(query["limit"][0])]}
            ).encode()
        else:
            assert unquote(parts.path.split("/")[6]) in {RUN, "old"}
            value = self.server.values.get(unquote(parts.path.split("/")[8]))
            status = status if value is not None else 404
            body = json.dumps({"key": "progress", "value": value}).encode()
        self.answer(status, body, {"Location": "http://127.0.0.1:9/"})


@pytest.fixture
def airflow(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeAirflow]:
    with running(FakeAirflow()) as server:
        monkeypatch.setenv("KRAKE_AIRFLOW_URL", f"{server.url}/")
        monkeypatch.setenv("KRAKE_AIRFLOW_TOKEN", TOKEN)
        yield server


@pytest.fixture
def config(tmp_path: Path) -> Config:
    """A crawl with two nodes, neither of them on this machine."""
    return make_config(tmp_path, nodes=2)


def value(phase: str, **more: Any) -> dict[str, Any]:
    facts = {
        "phase": phase,
        "taken": 20,
        "fetched": 5,
        "errors": 1,
        "bytes": 900,
        "queue": 50,
        "pages_per_s": 2.5,
    }
    return {
        **facts,
        "try": 1,
        "time": time.time(),
        "curve": [[0, 0, 0, 0, 50], [6, 5, 900, 1, 50]],
        **more,
    }


def test_a_node_elsewhere_is_at_work_as_on_this_machine(
    airflow: FakeAirflow, config: Config
) -> None:
    """Finding 1: `krake status` knew only the nodes of its own machine."""
    first, second = config.servers
    airflow.add(f"iteration_2.crawl.{first}", value("fetch"))
    airflow.add(f"settle.{second}", value("done"), state="success")
    airflow.add(f"iteration_1.crawl.{first}", value("done"), state="success", run="old")
    queues = status_of(config)["queues"]
    assert queues[first]["open_take"] == {"run_id": RUN, "iteration": 2, "count": 20}
    assert (queues[first]["length"], queues[first]["progress"]["fetched"]) == (50, 5)
    assert (queues[first]["progress"]["eta_s"], queues[first]["progress"]["queue_eta_s"]) == (6, 18)
    assert queues[first]["progress"]["curve"] == value("")["curve"]
    assert queues[second]["progress"]["phase"] == "done"
    assert "open_take" not in queues[second]
    assert len(airflow.asked) == 3, "one request for the tasks, and one for each node"


@pytest.mark.parametrize(
    ("state", "said", "since"),
    [
        ("failed", {"time": 1e9}, "2001-09-09T01:46:40Z"),
        ("running", {"time": 1e9}, "2001-09-09T01:46:40Z"),
        ("up_for_retry", {"try": 2, "time": 1e9}, ""),
        ("running", None, ""),
        ("running", "no JSON", ""),
        pytest.param("running", "[" * 200_000, "", id="deep"),
        ("running", [1], ""),
        ("running", {"try": 1, "time": "x", "curve": {}, "queue": {}, "phase": []}, ""),
        ("failed", {"phase": "failed"}, None),
    ],
)
def test_a_killed_task_has_said_nothing_since(
    airflow: FakeAirflow, config: Config, state: str, said: Any, since: str | None
) -> None:
    node = config.servers[0]
    told = {**value("fetch"), **said} if isinstance(said, dict) else said
    airflow.add(f"iteration_1.crawl.{node}", told, state=state)
    entry = status_of(config)["queues"][node]
    assert entry.get("silent_since") == since
    assert "open_take" not in entry


def test_a_node_that_had_no_task_is_only_not_on_this_machine(
    airflow: FakeAirflow, config: Config
) -> None:
    airflow.add("iteration_1.crawl.stranger", value("fetch"))
    airflow.add("inject", value("done"))
    assert all(
        "not on this machine" in entry["note"] for entry in status_of(config)["queues"].values()
    )


def test_the_newest_task_is_found_behind_many_of_others(
    airflow: FakeAirflow, config: Config
) -> None:
    first, second = config.servers
    for number in range(150, 0, -1):
        airflow.add(f"iteration_{number}.crawl.{first}", value("done"), state="success")
    airflow.add(f"settle.{second}", value("done"), state="success")
    assert all(
        entry["progress"]["phase"] == "done" for entry in status_of(config)["queues"].values()
    )
    assert len(airflow.asked) == 4


@pytest.mark.parametrize(
    ("status", "token", "words"),
    [
        (200, "wrong", "refuses the token of KRAKE_AIRFLOW_TOKEN"),
        (403, TOKEN, "refuses the token"),
        (500, TOKEN, "answers 500: is KRAKE_AIRFLOW_URL correct?"),
        (302, TOKEN, "answers 302"),
    ],
)
def test_an_airflow_that_refuses_is_named_and_the_rest_is_shown(
    airflow: FakeAirflow,
    config: Config,
    monkeypatch: pytest.MonkeyPatch,
    status: int,
    token: str,
    words: str,
) -> None:
    airflow.status = status
    monkeypatch.setenv("KRAKE_AIRFLOW_TOKEN", token)
    found = status_of(config)
    assert all(
        words in entry["error"] and token not in entry["error"]
        for entry in found["queues"].values()
    )
    assert found["keys"]


@pytest.mark.parametrize(
    "answer", [[1], {"tasks": []}, {"task_instances": 3}, {"task_instances": ["x"]}, "text", 7]
)
def test_json_of_something_else_is_said(
    airflow: FakeAirflow, config: Config, monkeypatch: pytest.MonkeyPatch, answer: Any
) -> None:
    """Another service may answer at the URL: `krake status` ended with a KeyError."""
    monkeypatch.setattr(elsewhere.Airflow, "get", lambda *_, **__: answer)
    found = status_of(config)
    assert all("does not answer as Airflow" in entry["error"] for entry in found["queues"].values())
    assert found["keys"]


@pytest.mark.parametrize(
    "url", ["ftp://a", "airflow.example", "http://user:secret@a", "http://", "http://[a"]
)
def test_a_value_that_is_no_url_is_said(
    config: Config, monkeypatch: pytest.MonkeyPatch, url: str
) -> None:
    monkeypatch.setenv("KRAKE_AIRFLOW_URL", url)
    for entry in status_of(config)["queues"].values():
        assert "KRAKE_AIRFLOW_URL: give a URL such as" in entry["error"]
        assert "secret" not in entry["error"]


def test_all_requests_together_end_in_time(
    airflow: FakeAirflow, config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(elsewhere, "WAIT_S", 0.0)
    assert "took more than" in queues_elsewhere(config, config.servers)[config.servers[0]]["error"]
    assert airflow.asked == []


def test_people_are_told_the_same(
    airflow: FakeAirflow, config: Config, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = config.servers
    airflow.add(
        f"iteration_2.crawl.{first}",
        value("paused", reason="the disk [of\x1b] node-0 is full"),
        run="old",
    )
    airflow.add(f"iteration_2.crawl.{second}", value("fetch", time=1e9), state="failed", run="old")
    assert main(["--config", str(write_config(config, tmp_path)), "status"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "old / 2" in shown
    assert (
        "5 fetched); paused: the disk [of\\x1b] node-0 is full; paused, as Airflow knows from old"
        in shown
    )
    assert "50; no report since 2001-09-09T01:46:40Z, and Airflow says: failed" in shown
