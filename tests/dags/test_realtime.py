"""Airflow around a real-time service: which DAGs there are, the task that collects, the operator that asks."""

from __future__ import annotations

import http.server
import json
import os
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowException, AirflowFailException, AirflowSkipException
from krake_airflow import operators, realtime
from krake_airflow.connections import service_access
from krake_airflow.realtime import CollectOperator, FetchNowOperator, StatisticsOperator
from krake_airflow.settings import PROJECT

from crawl_lib import stages
from crawl_lib.config import Config
from crawl_lib.errors import ConfigError
from crawl_lib.frontier import NodeDirectory, NodeLock
from crawl_lib.realtime import FETCHER, TokenFile
from crawl_lib.segment import PartWriter, WarcInfo
from crawl_lib.stores import Stores, open_stores
from tests.dags.crawls import small_config
from tests.dags.test_operators import TaskInstance, context, run
from tests.dags.test_parsing import NODES, parse, write
from tests.realtime.fake import Web, redirect
from tests.realtime.test_service import running, stores_of
from tests.segment.helpers import robots

VARIABLE = "AIRFLOW_CONN_KRAKE_SERVICE"
A, B = "http://a.example/", "http://b.example/"
LIVE: dict[str, Any] = {"realtime": {}, "frontier": {"order": "crawldb"}, "urls": {"scope": "any"}}
CONFIGS: dict[str, dict[str, Any]] = {
    "live": {**LIVE, "crawl": {"name": "live", "schedule": "0 3 * * *"}},
    "scored": {
        **LIVE,
        "crawl": {"name": "scored"},
        "scores": {"tasks": ["invert_links"], "when": "segments"},
        "outputs": {"tasks": ["text"]},
    },
    "crawl": {**LIVE, "realtime": None, "crawl": {"name": "crawl"}},
}


@pytest.fixture(scope="module")
def bags(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """The DAGs of each config."""
    directory = tmp_path_factory.mktemp("realtime")
    for name, sections in CONFIGS.items():
        write(directory / f"{name}.yml", sections)
    found = parse(directory, [directory / f"{name}.yml" for name in CONFIGS])
    assert all(one["errors"] == {} for one in found)
    return dict(zip(CONFIGS, (one["dags"] for one in found), strict=True))


def test_a_service_has_a_dag_that_collects_and_none_that_crawls(
    bags: dict[str, dict[str, Any]],
) -> None:
    assert set(bags["live"]) == {"live_collect", "live_statistics"}
    assert set(bags["scored"]) == {
        "scored_collect",
        "scored_statistics",
        "scored_scores",
        "scored_outputs",
    }
    assert set(bags["crawl"]) == {"crawl_recrawl", "crawl_process"}
    dag = bags["live"]["live_collect"]
    assert (dag["schedule"], dag["max_active_runs"], dag["catchup"]) == ("0 * * * *", 1, False)
    assert "When it failed" in dag["doc"]
    [task] = dag["tasks"].values()
    assert (task["operator"], task["queue"], dag["assets"]) == (
        "CollectOperator",
        NODES[0],
        ["live_segments"],
    )
    assert bags["scored"]["scored_scores"]["waits_for"] == ["scored_segments"]


def test_a_service_has_a_dag_that_counts_each_hour(bags: dict[str, dict[str, Any]]) -> None:
    dag = bags["live"]["live_statistics"]
    assert (dag["schedule"], dag["max_active_runs"], dag["catchup"]) == ("0 * * * *", 1, False)
    assert "When it failed" in dag["doc"]
    [task] = dag["tasks"].values()
    assert (task["operator"], dag["assets"]) == ("StatisticsOperator", ["live_statistics"])


@pytest.mark.parametrize(
    ("params", "begins", "hour"),
    [
        ({"hour": "2026-11-28T07"}, "2026-11-28T09", "2026-11-28/07"),
        ({"hour": None}, "2026-11-28T09", "2026-11-28/09"),
        ({"hour": ""}, "2026-11-27T23", "2026-11-27/23"),
    ],
)
def test_a_run_counts_its_hour(
    params: dict[str, Any], begins: str, hour: str, config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = datetime(2026, 12, 1, tzinfo=UTC)
    monkeypatch.setattr(stages, "datetime", type("Clock", (datetime,), {"now": lambda _: now}))
    events, interval = Events(), datetime.strptime(begins, "%Y-%m-%dT%H").replace(tzinfo=UTC)
    given = {
        **context(),
        "params": params,
        "data_interval_start": interval,
        "outlet_events": events,
    }
    result = run(StatisticsOperator(task_id="statistics"), given)
    [event] = events.values()
    assert (result["hour"], event.extra["hour"], event.extra["made"]) == (
        hour,
        hour,
        result["made"],
    )


def test_an_hour_that_is_none_is_refused(config: Config) -> None:
    with pytest.raises(AirflowFailException, match="hour: must be an hour in UTC such as"):
        run(
            StatisticsOperator(task_id="statistics"),
            {**context(), "params": {"hour": "2026-11-28T25"}},
        )


# -- collect


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Config:
    """A config of a service, as a task finds it."""
    found, file = small_config(
        tmp_path, frontier={"order": "crawldb"}, realtime={}, queue={"lock_timeout_s": 0}
    )
    monkeypatch.setenv("KRAKE_CONFIG_PATH", str(file))
    return found


def collect() -> CollectOperator:
    return CollectOperator(task_id="collect", node="node-0")


class Events(dict[Any, Any]):
    """The events of a task's assets."""

    def __missing__(self, key: Any) -> Any:
        self[key] = type("Event", (), {"extra": {}})()
        return self[key]


def test_a_closed_part_becomes_a_segment_and_an_event_of_the_asset(config: Config) -> None:
    spool = NodeDirectory(open_stores(config).node_dir("node-0")).live / FETCHER / "spool"
    prefix = "krake-1000-live-0-0"
    with PartWriter(
        spool, prefix, WarcInfo("", "", "", "", "live/live-0"), config.segment, has_rows=False
    ) as writer:
        writer.append(None, robots())
    events = Events()
    result = run(collect(), {**context(), "outlet_events": events})
    assert (result["name"], result["parts"], result["pages"]) == (FETCHER, 1, 0)
    [event] = events.values()
    assert event.extra == {"folder": result["folder"], "urls": 0, "run_id": "run-1"}
    with pytest.raises(AirflowSkipException, match="nothing to collect"):
        run(collect(), {**context(), "outlet_events": events})


def test_only_the_machine_of_the_service_collects(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KRAKE_NODE", "node-1")
    with pytest.raises(AirflowException, match="this is the worker of node-1"):
        run(collect(), context())


def test_a_task_of_the_node_refuses_while_the_service_runs(config: Config) -> None:
    directory = open_stores(config).node_dir("node-0")
    directory.mkdir(parents=True)
    settle = operators.SettleOperator(task_id="settle", node="node-0")
    with NodeLock(directory, "node-0", 0, what="krake serve realtime"):
        with pytest.raises(AirflowException, match="krake serve realtime"):
            run(settle, context())
        with pytest.raises(AirflowSkipException, match="nothing to collect"):
            run(collect(), context())


def test_a_collection_that_was_stopped_is_tried_again(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = collect()

    def stopped(stores: Stores) -> None:
        task.ask_to_stop()
        stores.go_on()

    monkeypatch.setattr(stages, "collect_realtime", stopped)
    with pytest.raises(AirflowException, match="the next try goes on") as caught:
        run(task, context())
    assert not isinstance(caught.value, AirflowFailException)


# -- FetchNowOperator


def connect(monkeypatch: pytest.MonkeyPatch, **fields: Any) -> None:
    """Write the connection as an operator does."""
    monkeypatch.setenv(VARIABLE, json.dumps({"conn_type": "http", **fields}))


@contextmanager
def served(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, web: Web | None = None, **options: Any
) -> Iterator[Callable[..., Any]]:
    """Run a service with a connection to it; give a function that runs the operator."""
    stores = stores_of(tmp_path, realtime=options)
    token = TokenFile(stores.config.realtime.tokens).add("airflow", ("submit", "read"))  # type: ignore[union-attr]
    with running(stores, web or Web()) as url:
        host, port = url.removeprefix("http://").rstrip("/").split(":")
        connect(monkeypatch, host=host, port=int(port), schema="http", password=token)
        yield fetched


def fetched(*urls: str, **options: Any) -> Any:
    task = FetchNowOperator(task_id="fetch_now", urls=list(urls), **{"wait_s": 30, **options})
    return run(task, context(ti=TaskInstance()))


def test_metadata_are_the_result_and_a_refused_url_has_its_rule(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    web = Web()
    web.answers[B] = lambda wanted: redirect(wanted, A)
    with served(tmp_path, monkeypatch, web) as fetch:
        found = fetch(B, "http://forbidden.example/", "nothing", A, B)
    assert [one["state"] for one in found] == ["known", "refused", "refused", "known"]
    assert (found[0]["final_url"], found[0]["outcome"], found[0]["facts"]) == (
        A,
        "ok",
        {"title": A},
    )
    assert [one.get("rule") for one in found] == [None, "rule", "invalid", None]
    assert json.loads(json.dumps(found)) == found, "Airflow keeps results as JSON"
    assert sorted(web.urls) == [A, B]


def test_no_rows_ask_nobody() -> None:
    assert fetched() == []


def test_what_is_still_under_way_is_told_as_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    web = Web()
    web.hold(A)
    with served(tmp_path, monkeypatch, web) as fetch:
        assert [one["state"] for one in fetch(A, B, wait_s=0.5)] == ["waiting", "known"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"urls": [A] * 2 + [f"{A}{number}" for number in range(300)]}, "301 URLs"),
        ({"urls": A}, "list of texts, not str"),
        ({"urls": [A, 7]}, "list of texts"),
        ({"urls": [A], "policy": "none"}, "no policy"),
    ],
)
def test_a_request_that_no_retry_helps_fails_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], said: str
) -> None:
    with served(tmp_path, monkeypatch), pytest.raises(AirflowFailException, match=said):
        run(FetchNowOperator(task_id="fetch_now", **options), context())


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"conn_type": "mysql", "host": "a", "password": "x"}, "type: is 'mysql'"),
        ({"host": "", "password": "x"}, "host: must be"),
        ({"host": "a/b", "password": "x"}, "host: must be"),
        ({"host": "user:secret@a", "password": "x"}, "host: must be"),
        ({"host": "a", "schema": "ftp", "password": "x"}, "schema: is 'ftp'"),
        ({"host": "a"}, "password: must be a token"),
        ({"host": "a", "password": "se\ncret"}, "password: must be a token"),
        ({"host": "a", "password": "sécret"}, "password: must be a token"),
    ],
)
def test_a_connection_that_cannot_be_used_names_its_field(
    monkeypatch: pytest.MonkeyPatch, fields: dict[str, Any], said: str
) -> None:
    connect(monkeypatch, **fields)
    with pytest.raises(AirflowFailException, match=f"krake_service: {said}") as caught:
        fetched(A)
    assert not re.search("secret|cret$|sécret", str(caught.value))


def test_without_a_connection_the_message_says_how_to_make_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    with pytest.raises(
        AirflowFailException, match=r"no Airflow connection krake_service: make one .* tokens --add"
    ):
        fetched(A)


@pytest.mark.parametrize(
    ("fields", "url"),
    [
        ({"host": "a"}, "http://a:8095"),
        ({"host": "a", "port": 80, "schema": "https"}, "https://a:80"),
        ({"host": "https://a.example/"}, "https://a.example:443"),
        ({"host": "[::1]", "port": 7}, "http://[::1]:7"),
        ({"host": "a:81", "port": 7}, "http://a:81"),
    ],
)
def test_the_address_is_that_of_the_connection(
    monkeypatch: pytest.MonkeyPatch, fields: dict[str, Any], url: str
) -> None:
    connect(monkeypatch, password="x", **fields)
    assert service_access().url == url
    connect(monkeypatch, password=None, **fields)
    with pytest.raises(ConfigError):
        service_access()


def test_an_unknown_token_fails_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with served(tmp_path, monkeypatch) as fetch:
        fields = json.loads(os.environ[VARIABLE])
        connect(monkeypatch, **{**fields, "password": "wrong"})
        with pytest.raises(AirflowFailException, match="401") as caught:
            fetch(A)
    assert "wrong" not in str(caught.value)


class Scripted(http.server.BaseHTTPRequestHandler):
    """A service that answers submissions from a script: status, headers and body of each."""

    answers: list[tuple[int, dict[str, str], Any]]
    keys: list[str]

    def do_POST(self) -> None:
        """Answer with the next entry."""
        self.rfile.read(int(self.headers["Content-Length"]))
        self.keys.append(self.headers["Idempotency-Key"])
        status, headers, body = self.answers.pop(0)
        data = json.dumps(body).encode()
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(data))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        """Nothing."""


@contextmanager
def scripted(
    monkeypatch: pytest.MonkeyPatch, *answers: tuple[int, dict[str, str], Any]
) -> Iterator[type[Scripted]]:
    """Run a service of a script, and note the operator's pauses in place of waiting."""

    class Handler(Scripted):
        pass

    Handler.answers, Handler.keys = list(answers), []
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        connect(monkeypatch, host="127.0.0.1", port=server.server_port, password="x")
        yield Handler
        server.shutdown()
        thread.join()


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses of the operator, which are not waited for."""
    found: list[float] = []
    monkeypatch.setattr(realtime._Asked, "_pause", lambda self, seconds: found.append(seconds))
    return found


REFUSED = {"decisions": [{"url": A, "decision": "refused", "rule": "rule"}]}
BUSY = {"decisions": [{"url": A, "decision": "busy", "key": "00", "retry_after_s": 3}]}


def test_429_is_waited_for_as_the_service_says(
    monkeypatch: pytest.MonkeyPatch, pauses: list[float]
) -> None:
    late = (429, {"Retry-After": "7"}, {"error": "later"})
    with scripted(monkeypatch, late, late, (202, {}, REFUSED)) as service:
        assert fetched(A)[0]["rule"] == "rule"
    assert pauses == [7, 7, 0]
    assert len(set(service.keys)) == 1, "a repeated request counts once"


def test_429_beyond_the_time_fails_so_that_airflow_tries_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with (
        scripted(monkeypatch, (429, {"Retry-After": "70"}, {"error": "later"})),
        pytest.raises(AirflowException, match="429") as caught,
    ):
        fetched(A)
    assert not isinstance(caught.value, AirflowFailException)


def test_a_busy_host_is_asked_for_again_by_a_new_key(
    monkeypatch: pytest.MonkeyPatch, pauses: list[float]
) -> None:
    with scripted(monkeypatch, (202, {}, BUSY), (202, {}, REFUSED)) as service:
        assert fetched(A)[0]["state"] == "refused"
    assert (pauses, len(set(service.keys))) == ([3, 0], 2)
    with scripted(monkeypatch, (202, {}, BUSY)):
        assert fetched(A, wait_s=1)[0]["state"] == "busy"


def test_a_service_that_is_away_is_asked_until_the_time_is_over(
    monkeypatch: pytest.MonkeyPatch, pauses: list[float]
) -> None:
    with scripted(monkeypatch, (502, {}, {}), (500, {}, {}), (202, {}, REFUSED)):
        assert fetched(A)[0]["state"] == "refused"
    assert pauses == [1, 2, 0]
    connect(monkeypatch, host="127.0.0.1", port=1, password="x")
    with pytest.raises(AirflowException, match="does not answer") as caught:
        fetched(A, wait_s=0.5)
    assert not isinstance(caught.value, AirflowFailException)


def test_a_killed_task_stops_waiting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    connect(monkeypatch, host="127.0.0.1", port=1, password="x")
    task = FetchNowOperator(task_id="fetch_now", urls=[A], wait_s=600)
    task.on_kill()
    with pytest.raises(AirflowException, match="asked to stop"):
        run(task, context())


def test_the_example_of_the_docs_is_a_dag(tmp_path: Path) -> None:
    text = (PROJECT / "docs" / "airflow.md").read_text()
    [example] = re.findall(
        r"<!-- example:begin -->\n```python\n(.*?)```\n<!-- example:end -->", text, re.DOTALL
    )
    names: dict[str, Any] = {}
    exec(compile(example, "docs/airflow.md", "exec"), names)
    dag = names["links_with_titles"]()
    assert [task.task_id for task in dag.topological_sort()] == ["new_rows", "fetch_now", "note"]
