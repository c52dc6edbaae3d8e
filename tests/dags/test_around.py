"""The examples of `docs/airflow.md` do what the page says: the list of metrics, alerts by mail, a DAG that waits."""

from __future__ import annotations

import json
import os
import re
import socketserver
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
from krake_airflow import operators
from krake_airflow.metrics import DURATION, FAILURES, METRICS
from krake_airflow.settings import PROJECT

from tests.dags.conftest import Reference
from tests.dags.crawls import small_config
from tests.dags.test_operators import TaskInstance, run
from tests.test_readme import fences

TEXT = (PROJECT / "docs" / "airflow.md").read_text()
ALERT, *_, WAITING = fences(TEXT, "python")
PARSED = """
import json, sys
from airflow.dag_processing.dagbag import DagBag
bag = DagBag(dag_folder=sys.argv[1])
tasks = [task for dag in bag.dags.values() for task in dag.tasks]
print("RESULT" + json.dumps({
    "errors": bag.import_errors,
    "alerts": {
        f"{task.dag_id}.{task.task_id}": [type(one).__name__ for one in task.on_failure_callback] for task in tasks
    },
    "schedules": {dag.dag_id: repr(dag.schedule) for dag in bag.dags.values()},
}))
"""


def test_the_page_names_every_metric_with_its_kind_and_no_other() -> None:
    code = {
        f"krake.{stage}.{metric.result}{'.<key>' if metric.by_key else ''}": (
            "gauge" if metric.is_gauge else "counter",
            metric.text,
        )
        for stage, metrics in METRICS.items()
        for metric in metrics
    }
    rows = re.findall(r"^\| `(krake\.[^`]+)` \| (\w+) \| (.*) \|$", TEXT, re.MULTILINE)
    text = {name: (kind, what) for name, kind, what in rows}
    assert text.pop(DURATION.format(stage="<stage>"))[0] == "timer"
    assert text.pop(FAILURES.format(stage="<stage>"))[0] == "counter"
    assert text == code
    assert all(f"`{stage}`" in TEXT for stage in METRICS)


def parsed(home: Path, config: Path, folder: Path) -> dict[str, Any]:
    """The DAGs of a folder, parsed by an Airflow with this home."""
    environment = {
        **os.environ,
        "AIRFLOW_HOME": str(home),
        "KRAKE_CONFIG_PATH": str(config),
        "PYTHONPATH": f"{PROJECT / 'plugins'}:{PROJECT}",
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
    }
    command = [sys.executable, "-c", PARSED, str(folder)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads(done.stdout.split("RESULT")[1])
    assert result["errors"] == {}
    return result


def test_the_policy_gives_every_task_of_krake_an_alert(tmp_path: Path) -> None:
    _, config = small_config(tmp_path)
    (tmp_path / "home" / "config").mkdir(parents=True)
    (tmp_path / "home" / "config" / "airflow_local_settings.py").write_text(ALERT)
    alerts = parsed(tmp_path / "home", config, PROJECT / "dags")["alerts"]
    assert {task.split(".")[0] for task in alerts} == {"krake_crawl", "krake_process"}
    for task, names in alerts.items():
        own = (
            [] if task.endswith(".committed") else ["function"]
        )  # it does nothing, so it has nothing to say
        assert names == ["SmtpNotifier", *own], task


class MailServer(socketserver.StreamRequestHandler):
    """As much of SMTP as a notifier needs."""

    mails: ClassVar[list[str]]

    def handle(self) -> None:
        """One session."""
        self.wfile.write(b"220 here\r\n")
        while line := self.rfile.readline():
            if line.upper().startswith(b"DATA"):
                self.wfile.write(b"354 go on\r\n")
                self.mails.append(b"".join(iter(self.rfile.readline, b".\r\n")).decode())
            self.wfile.write(
                b"221 bye\r\n" if line.upper().startswith(b"QUIT") else b"250 good\r\n"
            )


def test_the_alert_is_a_mail_with_the_task_and_its_message(monkeypatch: pytest.MonkeyPatch) -> None:
    class Handler(MailServer):
        mails: ClassVar[list[str]] = []

    names: dict[str, Any] = {}
    exec(ALERT, names)
    ti = SimpleNamespace(
        dag_id="krake_crawl", task_id="iteration_1.commit", log_url="http://airflow.example/log"
    )
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        extra = {"disable_ssl": True, "disable_tls": True, "timeout": 10, "retry_limit": 1}
        connection = {
            "conn_type": "smtp",
            "host": "127.0.0.1",
            "port": server.server_address[1],
            "extra": extra,
        }
        monkeypatch.setenv("AIRFLOW_CONN_SMTP_DEFAULT", json.dumps(connection))
        names["ALERT"]({"ti": ti, "exception": "only 3 of 500 URLs were answered"})
        server.shutdown()
    [mail] = Handler.mails
    assert "Subject: krake_crawl: iteration_1.commit failed" in mail
    assert "To: crawl-team@example.org" in mail


def test_a_dag_waits_for_exports_and_reads_them(
    tmp_path: Path,
    reference: Reference,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    config, path = small_config(tmp_path)
    (tmp_path / "dags").mkdir()
    (tmp_path / "dags" / "waiting.py").write_text(WAITING)
    asset = operators.asset_of("krake", "exports")
    [schedule] = parsed(tmp_path / "home", path, tmp_path / "dags")["schedules"].values()
    assert asset.name in schedule
    assert asset.uri in schedule

    # What the finalizer says is enough to find the tables.
    events: dict[Any, Any] = {asset: SimpleNamespace(extra=None)}
    finalizer = operators.FinalizeOperator(task_id="finalizer")
    assert finalizer.outlets == [asset]
    name = reference.export_folder.name
    (Path(config.dfs_primary) / "export").mkdir(parents=True)
    (Path(config.dfs_primary) / "export" / name).symlink_to(reference.export_folder)
    monkeypatch.setattr(
        "crawl_lib.stages.finalize_export", lambda *_, **__: {"complete_already": True}
    )
    monkeypatch.setenv("KRAKE_CONFIG_PATH", str(path))
    ti = TaskInstance({"export": name})
    run(finalizer, {"run_id": "run-1", "ti": ti, "outlet_events": events})
    assert events[asset].extra == {"export": name, "path": f"export/{name}", "run_id": "run-1"}
    names: dict[str, Any] = {}
    exec(WAITING, names)
    task = names["pages_per_host"]().get_task("count")
    task.python_callable(
        triggering_asset_events={asset: [SimpleNamespace(extra=events[asset].extra)] * 2}
    )
    assert capfd.readouterr().out.count("count_star()") == 2
