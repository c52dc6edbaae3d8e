"""Airflow's REST API, as much of it as the tests use, and `make ui` as a fixture would run it."""

import copy
import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, Self

import psutil
from krake_airflow.settings import PROJECT, environment

READY_S = 180.0
RUN_S = 900.0
"""Five runs at once on two slow cores took more than 240 s; nothing waits so long unless it hangs."""


class Api:
    """The REST API of an Airflow at `url`; `dag`: the DAG that is meant."""

    def __init__(self, url: str, dag: str = "krake_crawl") -> None:
        self.url, self.dag = url, dag
        self.token = ""

    def of(self, dag: str) -> Self:
        """The same for another DAG."""
        other = copy.copy(self)
        other.dag = dag
        return other

    def sign_in(self, user: str, password: str) -> None:
        """Get the token that all other calls need."""
        self.token = self.ask("POST", "/auth/token", {"username": user, "password": password})[
            "access_token"
        ]

    def ask(self, method: str, path: str, body: object = None) -> Any:
        """One request; returns the JSON of the answer. One that Airflow's SQLite could not answer is made again."""
        until_s = time.monotonic() + READY_S
        while True:
            try:
                return self._asked(method, path, body)
            except AssertionError as error:
                if "Database error" not in str(error) or time.monotonic() > until_s:
                    raise
                time.sleep(1)

    def _asked(self, method: str, path: str, body: object) -> Any:
        data = json.dumps(body).encode() if body is not None else None
        request = urllib.request.Request(f"{self.url}{path}", data=data, method=method)
        request.add_header("Content-Type", "application/json")
        request.add_header("Accept", "application/json")
        if self.token:
            request.add_header("Authorization", f"Bearer {self.token}")
        try:
            with urllib.request.urlopen(request, timeout=180) as answer:
                text = answer.read()
        except urllib.error.HTTPError as error:
            raise AssertionError(
                f"{method} {path}: {error.code} {error.read().decode()[:500]}"
            ) from error
        return json.loads(text) if text else None

    def trigger(self, **params: Any) -> str:
        """Trigger the DAG; returns the run's id."""
        body = {"logical_date": None, "conf": params}
        return str(self.ask("POST", f"/api/v2/dags/{self.dag}/dagRuns", body)["dag_run_id"])

    def runs(self) -> dict[str, str]:
        """State by run id, oldest first."""
        found = self.ask("GET", f"/api/v2/dags/{self.dag}/dagRuns?limit=100&order_by=id")[
            "dag_runs"
        ]
        return {run["dag_run_id"]: run["state"] for run in found}

    def tasks(self, run: str) -> dict[str, tuple[str, int]]:
        """State and number of tries by task id."""
        path = (
            f"/api/v2/dags/{self.dag}/dagRuns/{urllib.request.quote(run)}/taskInstances?limit=100"
        )
        found: list[dict[str, Any]] = []
        while page := self.ask("GET", f"{path}&offset={len(found)}")["task_instances"]:
            found += page
            if len(page) < 100:
                break
        return {task["task_id"]: (task["state"], task["try_number"]) for task in found}

    def times(self, run: str) -> dict[str, tuple[float, float]]:
        """When the run was triggered and ended (""), and when each task that ran began and ended, in POSIX seconds."""
        path = f"/api/v2/dags/{self.dag}/dagRuns/{urllib.request.quote(run)}"
        found = self.ask("GET", path)
        whole = (found["queued_at"], found["end_date"])
        tasks = self.ask("GET", f"{path}/taskInstances?limit=100")["task_instances"]
        rows = {
            "": whole,
            **{task["task_id"]: (task["start_date"], task["end_date"]) for task in tasks},
        }
        return {
            name: (
                datetime.fromisoformat(first).timestamp(),
                datetime.fromisoformat(last).timestamp(),
            )
            for name, (first, last) in rows.items()
            if first and last
        }

    def result(self, run: str, task: str) -> Any:
        """What a task returned."""
        instance = f"{urllib.request.quote(run)}/taskInstances/{task}"
        path = f"/api/v2/dags/{self.dag}/dagRuns/{instance}/xcomEntries/return_value"
        return self.ask("GET", path)["value"]

    def log(self, run: str, task: str, attempt: int = 1) -> list[str]:
        """The lines of a task's log as the page of Airflow shows them, unfolded ones only: level and text."""
        path = f"/api/v2/dags/{self.dag}/dagRuns/{urllib.request.quote(run)}/taskInstances/{task}/logs/{attempt}"
        shown: list[str] = []
        groups = 0
        for entry in self.ask("GET", f"{path}?full_content=true")["content"]:
            if "::endgroup::" in entry["event"]:
                groups = max(0, groups - 1)
            elif "::group::" in entry["event"]:
                groups += 1
            elif not groups:
                shown.append(f"{entry.get('level')} {entry['event']}")
        return shown

    def wait(self, true: Callable[[], bool], what: str, timeout_s: float = RUN_S) -> None:
        """Until something holds."""
        until_s = time.monotonic() + timeout_s
        while not true():
            assert time.monotonic() < until_s, (
                f"not within {timeout_s} s: {what}; runs: {self.runs()}"
            )
            time.sleep(1)

    def wait_end(self, run: str) -> str:
        """The state that a run ends in."""
        self.wait(lambda: self.runs()[run] in ("success", "failed"), f"the end of {run}")
        return self.runs()[run]

    def clear(self, run: str, task: str, *, only_failed: bool, alone: bool = False) -> None:
        """Clear a task, with its downstream unless `alone`, as the button of the UI does."""
        body = {
            "dry_run": False,
            "dag_run_id": run,
            "task_ids": [task],
            "include_downstream": not alone,
            "only_failed": only_failed,
            "reset_dag_runs": True,
        }
        self.ask("POST", f"/api/v2/dags/{self.dag}/clearTaskInstances", body)

    def parse_again(self, true: Callable[[dict[str, Any]], bool]) -> None:
        """Have the DAG's file parsed, until the DAG is as wanted."""
        found = self.ask("GET", f"/api/v2/dags/{self.dag}")
        self.ask("PUT", f"/api/v2/parseDagFile/{found['file_token']}")
        self.wait(
            lambda: true(self.ask("GET", f"/api/v2/dags/{self.dag}")),
            "the DAG as its new config says",
            300,
        )


class Ui(Api):
    """`make ui`, while the `with` block runs; signs in with what it prints. `settings`: more variables of Airflow."""

    def __init__(self, home: Path, config: Path, settings: Mapping[str, str] | None = None) -> None:
        super().__init__("")
        self.home, self.config, self.settings = home, config, dict(settings or {})
        self.output = ""

    def __enter__(self) -> Self:
        variables = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("AIRFLOW", "KRAKE"))
        }
        variables |= {
            "KRAKE_AIRFLOW_HOME": str(self.home),
            "AIRFLOW_PORT": "0",
            "PYTHONPATH": f"{PROJECT / 'plugins'}{os.pathsep}{PROJECT}",
            **self.settings,
        }
        command = [sys.executable, "-m", "krake_airflow", "ui", "--config", str(self.config)]
        self.process = subprocess.Popen(
            command, env=variables, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        said = {}
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.output += line
            words = line.split()
            said[words[0]] = words[-1]
            if "password" in said:
                break
        assert "password" in said, self.output
        self.url = self.output.split("Airflow is at ")[1].split()[0]
        self.sign_in(said["user"], said["password"])
        return self

    def __exit__(self, *error: object) -> None:
        self.stop(signal.SIGTERM)

    def stop(self, number: signal.Signals) -> list[psutil.Process]:
        """End it by a signal; returns the processes that outlived it (and kills them)."""
        if self.process.poll() is not None:
            return []
        children = psutil.Process(self.process.pid).children(recursive=True)
        self.process.send_signal(number)
        rest, _ = self.process.communicate(timeout=300)
        self.output += rest
        alive = [
            child
            for child in children
            if child.is_running() and child.status() != psutil.STATUS_ZOMBIE
        ]
        for child in alive:
            child.kill()
        return alive

    def part(self, name: str) -> psutil.Process:
        """The process of a part of Airflow."""
        for child in psutil.Process(self.process.pid).children():
            if child.cmdline()[-2:] == ["airflow", name]:
                return child
        raise AssertionError(f"no {name} runs")

    def airflow(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """A command of Airflow's command line on the same database."""
        variables = {**os.environ, **environment(self.home / "ui", self.config)}
        command = [sys.executable, "-m", "airflow", *arguments]
        return subprocess.run(command, env=variables, capture_output=True, text=True, timeout=300)

    def backfill(self, first: str, last: str, conf: dict[str, Any]) -> None:
        """`airflow backfill create` while the DAG is paused, as docs/operating.md says; again, where SQLite let it die
        of a locked database. Runs that such a try had made fail with its cancelling, and the next try has to take them.
        """
        self.ask("PATCH", f"/api/v2/dags/{self.dag}", {"is_paused": True})
        dates = ["--from-date", first, "--to-date", last, "--dag-run-conf", json.dumps(conf)]
        dates += ["--reprocess-behavior", "failed"]
        for _ in range(10):
            done = self.airflow("backfill", "create", "--dag-id", self.dag, *dates)
            if done.returncode == 0:
                self.ask("PATCH", f"/api/v2/dags/{self.dag}", {"is_paused": False})
                return
            assert "database is locked" in done.stderr, done.stderr[-3000:]
            for backfill in self.ask("GET", f"/api/v2/backfills?dag_id={self.dag}")["backfills"]:
                if backfill["completed_at"] is None:
                    self.ask("PUT", f"/api/v2/backfills/{backfill['id']}/cancel")
        raise AssertionError("the database stayed locked")
