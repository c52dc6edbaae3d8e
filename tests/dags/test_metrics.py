"""Every metric of every task arrives: at a socket by StatsD, and at a collector by OpenTelemetry."""

from __future__ import annotations

import http.server
import json
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, ClassVar

import pytest
from airflow.sdk.exceptions import AirflowException
from airflow.sdk.observability import stats
from airflow.sdk.observability.metrics.stats_utils import get_stats_factory
from krake_airflow import operators
from krake_airflow.metrics import DURATION, FAILURES, METRICS, tell_result
from krake_airflow.outputs import OutputOperator
from krake_airflow.realtime import CollectOperator, StatisticsOperator
from krake_airflow.scores import DuplicatesOperator, InvertLinksOperator, ScoreOperator
from krake_airflow.settings import PROJECT
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

from crawl_lib import errors, stages
from crawl_lib.config.model import OUTPUT_TASKS
from crawl_lib.fetch import HostStore, make_hosts_folder
from crawl_lib.fetch.hoststore import BackOff
from crawl_lib.push import push_index
from crawl_lib.realtime.metrics import METRICS as SERVICE_METRICS
from crawl_lib.stores import node_dir, open_stores
from demo import Serving
from tests.dags.crawls import WEB, small_config
from tests.dags.test_operators import context, run
from tests.push.fake import fake_opensearch
from tests.serving import Answering, running

PREFIX = "airflow"
RESULTS: dict[str, dict[str, Any]] = {
    stage: {
        metric.result: {"one": 10 + place, "two": 20 + place} if metric.by_key else 10 + place
        for place, metric in enumerate(metrics)
    }
    for stage, metrics in METRICS.items()
}
"""Of each stage a result with a number of its own for each metric."""


def expected(stage: str) -> dict[str, str]:
    """What `RESULTS` becomes, by name as StatsD has it: number and kind."""
    found = {}
    for metric in METRICS[stage]:
        value = RESULTS[stage][metric.result]
        numbers = (
            {f".{key}": number for key, number in value.items()} if metric.by_key else {"": value}
        )
        for key, number in numbers.items():
            found[f"{PREFIX}.krake.{stage}.{metric.result}{key}"] = (
                f"{number}|{'g' if metric.is_gauge else 'c'}"
            )
    return found


class Received:
    """What came to a UDP socket, by name without tags."""

    def __init__(self, opened: socket.socket) -> None:
        self._socket = opened
        self.tags: dict[str, dict[str, str]] = {}

    def until(self, name: str) -> dict[str, str]:
        """What came up to the metric of this name."""
        found: dict[str, str] = {}
        while name not in found:
            head, _, value = self._socket.recv(65536).decode().partition(":")
            came, *tags = head.split(",")
            found[came] = value
            self.tags[came] = dict(tag.split("=", 1) for tag in tags)
        return found


@pytest.fixture
def received(monkeypatch: pytest.MonkeyPatch) -> Iterator[Received]:
    """Airflow's StatsD client, and the socket that it sends to."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as opened:
        opened.bind(("127.0.0.1", 0))
        opened.settimeout(20)
        settings = {
            "ON": "True",
            "HOST": "127.0.0.1",
            "PORT": str(opened.getsockname()[1]),
            "PREFIX": PREFIX,
        }
        for name, value in {**settings, "INFLUXDB_ENABLED": "True"}.items():
            monkeypatch.setenv(f"AIRFLOW__METRICS__STATSD_{name}", value)
        loggers: list[Any] = []

        def made() -> Any:
            loggers.append(get_stats_factory()())
            return loggers[-1]

        stats.initialize(factory=made, export_legacy_names=True)
        yield Received(opened)
        monkeypatch.undo()
        for logger in loggers:
            logger.statsd.close()
        stats.initialize(factory=get_stats_factory(), export_legacy_names=True)


@pytest.fixture
def tasks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """An operator of each stage, whose stage answers what `RESULTS` says."""
    _, path = small_config(tmp_path)
    monkeypatch.setenv("KRAKE_CONFIG_PATH", str(path))
    found = {
        "inject": operators.InjectOperator(task_id="inject", later={}),
        "generate": operators.GenerateOperator(task_id="generate", iteration=1, later={}),
        "update_crawldb": operators.UpdateOperator(task_id="update", iteration=1, later={}),
        "crawl": operators.CrawlOperator(task_id="crawl", iteration=1, node="node-0"),
        "commit": operators.CommitOperator(task_id="commit", iteration=1, later={}),
        "collect": CollectOperator(task_id="collect", node="node-0"),
        "statistics": StatisticsOperator(task_id="statistics"),
        "settle": operators.SettleOperator(task_id="settle", node="node-1"),
        "maintain_keys": operators.MaintainKeysOperator(task_id="maintain_keys", server="server_1"),
        "export": operators.ExportOperator(task_id="export", of_run=True),
        "linker": operators.LinkOperator(task_id="linker"),
        "finalizer": operators.FinalizeOperator(task_id="finalizer"),
        "invert_links": InvertLinksOperator(task_id="invert_links", of_run=True),
        "duplicates": DuplicatesOperator(task_id="duplicates", of_run=True),
        "score": ScoreOperator(task_id="score", of_run=True),
        **{name: OutputOperator(output=name, task_id=name) for name in OUTPUT_TASKS},
    }
    for task in found.values():
        monkeypatch.setattr(type(task), "stage", lambda self, *_: dict(RESULTS[self.stage_name]))
    return found


def test_every_operator_has_metrics_and_every_metric_has_a_text(tasks: dict[str, Any]) -> None:
    assert {stage: task.stage_name for stage, task in tasks.items()} == {
        stage: stage for stage in METRICS
    }
    assert all(metric.text for metrics in METRICS.values() for metric in metrics)


@pytest.mark.parametrize("stage", METRICS)
def test_a_socket_receives_each_metric_of_a_task(
    stage: str, tasks: dict[str, Any], received: Received
) -> None:
    run(tasks[stage], context())
    stats.incr("the_end")
    found = received.until(f"{PREFIX}.the_end")
    duration = found.pop(f"{PREFIX}.{DURATION.format(stage=stage)}")
    assert re.fullmatch(r"\d+\.\d+\|ms", duration)
    assert expected(stage).items() <= found.items()
    tags = received.tags[f"{PREFIX}.{DURATION.format(stage=stage)}"]
    nodes = {"crawl": "node-0", "collect": "node-0", "settle": "node-1"}
    where = {
        **{name: {"node": node} for name, node in nodes.items()},
        "maintain_keys": {"server": "server_1"},
    }
    assert tags == {"crawl": "krake", **where.get(stage, {})}


@pytest.mark.parametrize("stage", METRICS)
def test_a_socket_receives_each_failure(
    stage: str, tasks: dict[str, Any], received: Received, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: Any) -> None:
        raise errors.KeyServerDownError("keys.example does not answer")

    monkeypatch.setattr(type(tasks[stage]), "stage", fails)
    with pytest.raises(AirflowException):
        run(tasks[stage], context())
    name = f"{PREFIX}.{FAILURES.format(stage=stage)}"
    found = received.until(name)
    assert found[name] == "1|c"
    assert received.tags[name]["error"] == "KeyServerDownError"
    assert f"{PREFIX}.{DURATION.format(stage=stage)}" in found


def test_the_results_of_the_stages_have_these_fields(tmp_path: Path, received: Received) -> None:
    """A metric of a field that no stage returns would be 0 for ever."""
    config, _ = small_config(tmp_path, frontier={"order": "crawldb"})
    one: dict[str, Any] = {"run_id": "run-1"}
    with Serving(WEB) as web:
        results = {"inject": stages.inject(open_stores(config), seeds="\n".join(web.seeds), **one)}
        results["generate"] = stages.generate(open_stores(config), iteration=1, **one)
        for node in config.servers:
            results["crawl"] = stages.crawl_node(open_stores(config), iteration=1, node=node, **one)
        results["commit"] = stages.commit_iteration(open_stores(config), iteration=1, **one)
        results["settle"] = stages.settle_node(open_stores(config), node="node-0", **one)
    results["collect"] = stages.collect_realtime(open_stores(config))
    results["statistics"] = stages.make_statistics(open_stores(config))
    results["update_crawldb"] = stages.update_crawldb(open_stores(config))
    results["maintain_keys"] = stages.maintain_keys(open_stores(config))
    results["export"] = stages.export_pages(open_stores(config), **one)
    results["linker"] = stages.link_export(open_stores(config), export=results["export"]["export"])
    results["finalizer"] = stages.finalize_export(
        open_stores(config), export=results["export"]["export"]
    )
    results["invert_links"] = stages.invert_links(open_stores(config))
    results["duplicates"] = stages.mark_duplicates(open_stores(config))
    results["score"] = stages.update_score(open_stores(config), export=results["export"]["export"])
    for name in set(OUTPUT_TASKS) - {"push"}:
        results[name] = stages.make_output(open_stores(config), output=name)
    with fake_opensearch() as server:
        pushed = push_index(open_stores(replace(config, push=replace(config.push, url=server.url))))
    results["push"] = asdict(pushed)
    for stage, metrics in METRICS.items():
        assert {metric.result for metric in metrics} <= results[stage].keys()
        assert all(
            isinstance(results[stage][metric.result], dict) or not metric.by_key
            for metric in metrics
        )
        tell_result(stage, 1.5, results[stage], {"crawl": "krake"})
    found = received.until(f"{PREFIX}.krake.finalizer.arcs")
    assert found[f"{PREFIX}.krake.crawl.outcomes.ok"] == f"{results['crawl']['outcomes']['ok']}|c"
    assert found[f"{PREFIX}.{DURATION.format(stage='export')}"].startswith("1500.0")


SENDING = """
import json, sys
from airflow.sdk.observability import stats
from airflow.sdk.observability.metrics.stats_utils import get_stats_factory
from krake_airflow.metrics import tell_result
stats.initialize(factory=get_stats_factory(), export_legacy_names=True)
for stage, result in json.loads(sys.argv[1]).items():
    tell_result(stage, 1.5, result, {"crawl": "krake"})
"""


class Collector(Answering):
    """As much of an OpenTelemetry collector as there has to be."""

    names: ClassVar[set[str]]

    def do_POST(self) -> None:
        """Note the names."""
        request = ExportMetricsServiceRequest()
        request.ParseFromString(self.rfile.read(int(self.headers["Content-Length"])))
        for scope in (scope for one in request.resource_metrics for scope in one.scope_metrics):
            self.names.update(metric.name for metric in scope.metrics)
        self.answer(200)


def test_a_collector_receives_each_metric_by_opentelemetry(tmp_path: Path) -> None:
    """In a process of its own, as each task is: at its end it sends what it has."""

    class Handler(Collector):
        names: ClassVar[set[str]] = set()

    with running(http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)) as server:
        environment = {
            "PATH": "/usr/bin:/bin",
            "HOME": str(tmp_path),
            "AIRFLOW_HOME": str(tmp_path),
            "PYTHONPATH": f"{PROJECT / 'plugins'}:{PROJECT}",
            "AIRFLOW__METRICS__OTEL_ON": "True",
            "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{server.server_port}",
            "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
        }
        command = [sys.executable, "-c", SENDING, json.dumps(RESULTS)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    names = {name for stage in METRICS for name in expected(stage)}
    names |= {f"{PREFIX}.{DURATION.format(stage=stage)}" for stage in METRICS}
    assert names - Handler.names == set()


def in_prometheus(name: str) -> str:
    """A metric's name as statsd_exporter writes it."""
    return f"{PREFIX}.{name}".replace(".", "_")


def sent() -> Iterator[str]:
    """The names of all metrics; of one with keys a pattern."""
    for stage, metrics in METRICS.items():
        yield from (in_prometheus(one.format(stage=stage)) for one in (DURATION, FAILURES))
        for metric in metrics:
            yield in_prometheus(f"krake.{stage}.{metric.result}") + ("_.+" if metric.by_key else "")


def names_in(query: str) -> Iterator[str]:
    """The metrics that a query of Prometheus names; `(a|b)` in a pattern are two."""
    yield from re.findall(r"airflow_krake_\w+", re.sub(r'"[^"]*"', "", query))
    for pattern in re.findall(r'__name__=~"([^"]+)"', query):
        before, words, after = re.fullmatch(r"([^(]*)(?:\((.*)\))?(.*)", pattern).groups()  # type: ignore[union-attr]
        yield from (f"{before}{word}{after}" for word in (words or "").split("|"))


def test_the_dashboard_for_grafana_shows_each_metric_and_no_other() -> None:
    board = json.loads((PROJECT / "docs" / "grafana.json").read_text())
    panels = [panel for panel in board["panels"] if panel["type"] != "row"]
    queries = [target["expr"] for panel in panels for target in panel["targets"]]
    of_service = [query for query in queries if PREFIX not in query]
    found = {name for query in queries if query not in of_service for name in names_in(query)}
    assert found == set(sent())
    assert all('crawl=~"$crawl"' in query for query in queries if query not in of_service)
    asked = {name for query in of_service for name in re.findall(r"krake_realtime_\w+", query)}
    assert {name.removesuffix("_bucket") for name in asked} == {
        f"krake_realtime_{one.name}" for one in SERVICE_METRICS
    }
    assert {variable["name"] for variable in board["templating"]["list"]} == {"source", "crawl"}
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])


def test_bytes_and_hosts_in_back_off_are_what_a_node_s_task_says(tmp_path: Path) -> None:
    """Both come from the disk: the WARC files of the segment, and the hosts that failed."""
    config, _ = small_config(tmp_path)
    one: dict[str, Any] = {"run_id": "run-1"}
    with Serving(WEB) as web:
        stages.inject(open_stores(config), seeds="\n".join(web.seeds), **one)
        made = [
            stages.crawl_node(open_stores(config), iteration=1, node=node, **one)
            for node in config.servers
        ]
    warcs = Path(config.dfs_primary, config.crawl.directory).rglob("*.warc.gz")
    assert sum(result["bytes"] for result in made) == sum(path.stat().st_size for path in warcs) > 0
    assert made[0]["hosts_in_back_off"] == 0
    with HostStore(make_hosts_folder(node_dir(config, config.servers[0]))) as hosts:
        hosts.save_back_off("down.example", BackOff(time.time() + 60, 1))
    again = stages.crawl_node(open_stores(config), iteration=1, node=config.servers[0], **one)
    assert again == {**made[0], "hosts_in_back_off": 1}
