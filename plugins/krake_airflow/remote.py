"""A run in the Airflow of `make ui`: triggered by REST, watched until its end, and ended if the user stops.

The scheduler there carries out the run, with several tasks at a time. This process only looks, once a second, and gives
the display the same events as a run in this process. Killed, this process leaves the run to Airflow.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from threading import Thread
from typing import Any
from urllib.parse import quote

import requests

from crawl_lib.errors import KrakeError
from crawl_lib.signals import StopSignal
from krake_airflow.configs import dag_file
from krake_airflow.progress import OWN_FIELDS, STATE_KEY
from krake_airflow.settings import USER
from krake_airflow.watching import REFUSALS, REFUSED_SEEDS, Watcher

PARSED_S = 120.0
"""A newly parsed DAG is there after some seconds."""
_LOOK_S = 1.0
_PATIENT_LOOKS = 5
"""A run without obstacles is queued for a second or two."""
_LOCKED_TRIES = 4
_MEETING = "EmptyOperator"
"""The operator of tasks where other tasks meet, without work and result."""
_ENDED = frozenset({"success", "failed"})


class Airflow:
    """The REST API of an Airflow at `url`. A refusal, or silence, raises KrakeError."""

    def __init__(self, url: str, password: str) -> None:
        self.url = url
        self._login = {"username": USER, "password": password}
        self._session = requests.Session()
        self._session.trust_env = False  # the API is on this machine: no proxy
        self._log_in()

    def _log_in(self) -> None:
        self._session.headers.pop("Authorization", None)
        token = self.ask("POST", "/auth/token", self._login)["access_token"]
        self._session.headers["Authorization"] = f"Bearer {token}"

    def ask(self, method: str, path: str, body: object = None) -> Any:
        """Ask once, and again while SQLite is locked; return the JSON of the answer."""
        for _ in range(_LOCKED_TRIES):
            answer = self._answer(method, path, body)
            if not _is_locked(answer):
                break
        if (
            answer.status_code == requests.codes.unauthorized
            and "Authorization" in self._session.headers
        ):
            self._log_in()  # a token is good for a day, and a run may take longer
            return self.ask(method, path, body)
        if not answer.ok:
            raise KrakeError(
                f"Airflow at {self.url} refuses {method} {path}: {answer.status_code} {answer.text[:500]}"
            )
        return answer.json() if answer.content else None

    def _answer(self, method: str, path: str, body: object) -> requests.Response:
        try:
            return self._session.request(method, f"{self.url}{path}", json=body, timeout=60)
        except requests.RequestException as error:
            raise KrakeError(
                f"Airflow at {self.url} does not answer ({error}): `make ui` was stopped; once it is started again it"
                " goes on with the run"
            ) from error

    def parse_again(self, dag_id: str, stop: StopSignal) -> None:
        """Have the DAG's file parsed until the DAG follows the current config. Raises KrakeError after `PARSED_S`."""
        dags = self.ask("GET", "/api/v2/dags?limit=1000&exclude_stale=false")["dags"]
        tokens = [
            dag["file_token"] for dag in dags if str(dag["fileloc"]).endswith(dag_file(dag_id))
        ]
        before = {dag["dag_id"]: dag["last_parsed_time"] for dag in dags}.get(dag_id)
        for token in tokens[:1]:
            with suppress(KrakeError):  # somebody else has just asked for the same
                self.ask("PUT", f"/api/v2/parseDagFile/{token}")
        until_s = time.monotonic() + PARSED_S
        while time.monotonic() < until_s and not stop.wait(_LOOK_S):
            dags = self.ask("GET", "/api/v2/dags?limit=1000")["dags"]
            if any(dag["dag_id"] == dag_id and dag["last_parsed_time"] != before for dag in dags):
                return
        if not stop.is_set():
            raise KrakeError(
                f"Airflow at {self.url} has no DAG {dag_id} after {PARSED_S:.0f} s: see its DAG list"
            )


def _is_locked(answer: requests.Response) -> bool:
    """Tell whether Airflow gave up on its database.

    The API server can block itself on SQLite: one request waits for a lock whose holder waits for the same event loop.
    The lock's time limit ends the wait. Nothing was written then, so the request can be repeated.
    """
    return answer.status_code == requests.codes.server_error and '"Database error"' in answer.text


@dataclass
class _Task:
    """A task of the run, as the display knows it."""

    task_id: str
    run_needs_it: bool = False

    @property
    def refusals(self) -> tuple[str, ...]:
        """The fields of its result that are no success."""
        return REFUSED_SEEDS if self.task_id == "inject" else REFUSALS

    def ask_to_stop(self) -> None:
        """Do nothing: the whole run is ended."""


class RemoteRun:
    """A run of `dag_id`, triggered with `params`; the display hears of the run's tasks."""

    def __init__(
        self, airflow: Airflow, dag_id: str, params: Mapping[str, Any], display: Watcher
    ) -> None:
        self._airflow, self._display = airflow, display
        self._is_over = False
        self._seen: dict[str, tuple[str | None, int]] = {}
        body = {"logical_date": None, "conf": dict(params)}
        self.run_id = str(airflow.ask("POST", f"/api/v2/dags/{dag_id}/dagRuns", body)["dag_run_id"])
        self._path = f"/api/v2/dags/{dag_id}/dagRuns/{quote(self.run_id)}"

    def watch(self, stop: StopSignal, say: Callable[[str], None]) -> str:
        """Look until the run has ended; return its state, or "" if the user stopped and so ended the run."""
        ender = Thread(target=self._end, args=(stop, say), name="end", daemon=True)
        ender.start()
        state = self._until_ended(stop, say)
        self._is_over = bool(state)
        if not self._is_over:
            ender.join()
        return state

    def _end(self, stop: StopSignal, say: Callable[[str], None]) -> None:
        """End the run once the user stops: in a thread, because Airflow may answer an earlier request slowly."""
        stop.wait()
        if not self._is_over:
            say("Stopping ...")
            with suppress(KrakeError):  # the sentence at the end is true all the same
                self._airflow.ask("PATCH", self._path, {"state": "failed"})

    def _until_ended(self, stop: StopSignal, say: Callable[[str], None]) -> str:
        looks = 0
        while (state := str(self._airflow.ask("GET", self._path)["state"])) not in _ENDED:
            looks += state == "queued"
            if state == "queued" and looks == _PATIENT_LOOKS:
                say("Waiting: another run of this crawl is not finished.")
            self._look()
            if stop.wait(_LOOK_S):
                return ""
        self._look()
        return state

    def _look(self) -> None:
        found: list[dict[str, Any]] = []
        while page := self._ask(f"/taskInstances?limit=100&offset={len(found)}")["task_instances"]:
            found += page
            if len(page) < 100:
                break
        for entry in found:
            if entry["operator"] == _MEETING:
                continue
            task, now = _Task(entry["task_id"]), (entry["state"], entry["try_number"])
            if self._seen.get(task.task_id, (None, 0)) != now:
                self._changed(task, *now)
                self._seen[task.task_id] = now
            if now[0] == "running":
                self._progress(task)

    def _ask(self, path: str) -> Any:
        return self._airflow.ask("GET", self._path + path)

    def _changed(self, task: _Task, state: str | None, tried: int) -> None:
        if state == "running" or (
            state == "success" and self._seen.get(task.task_id, (None, 0))[0] != "running"
        ):
            self._display.started(task)
        if state == "success":
            result = self._ask(f"/taskInstances/{task.task_id}/xcomEntries/return_value")["value"]
            self._display.finished(task, result)
        elif state in ("failed", "up_for_retry"):
            self._display.failed(task, self._message(task.task_id, tried), final=state == "failed")

    def _progress(self, task: _Task) -> None:
        with suppress(KrakeError):  # the task has said nothing yet
            value = self._ask(f"/taskInstances/{task.task_id}/state-store/{STATE_KEY}")["value"]
            value = json.loads(value) if isinstance(value, str) else value
            reported = {name: fact for name, fact in value.items() if name not in OWN_FIELDS}
            self._display.progressed(task, reported)

    def _message(self, task_id: str, tried: int) -> str:
        """Return the last error in the log of a try."""
        with suppress(KrakeError, TypeError, KeyError, IndexError):
            entries = self._ask(f"/taskInstances/{task_id}/logs/{tried}?full_content=true")[
                "content"
            ]
            raised = [
                entry["error_detail"][0]["exc_value"]
                for entry in entries
                if entry.get("error_detail")
            ]
            return " ".join(str(raised[-1]).split())
        return f"see its log at {self._airflow.url}"
