"""Nodes on other machines, as their tasks report to Airflow, for a `krake status` without their queues.

Each task leaves its progress in Airflow's task state store (plugins/krake_airflow/progress.py). The REST API of the
Airflow at `KRAKE_AIRFLOW_URL` gives that value to a user whose token is in `KRAKE_AIRFLOW_TOKEN`.
"""

import json
import os
import re
import time
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote, urlsplit

import requests

from crawl_lib.config import Config
from crawl_lib.errors import ConfigError, KrakeError, StorageError, printable
from crawl_lib.records import JsonValue
from crawl_lib.rounds.shown import QueueStatus, ToldProgress

URL_VARIABLE = "KRAKE_AIRFLOW_URL"
TOKEN_VARIABLE = "KRAKE_AIRFLOW_TOKEN"
WAIT_S = 10.0
"""How long all requests of one look may take together."""
SILENT_S = 60.0
"""A task that runs reports every few seconds; after so long without a report something is wrong."""
ENDED = frozenset({"done", "failed", "stopped", "skipped"})
_PAGE, _PAGES, _AT_ONCE = 100, 10, 8
_POINTS, _COLUMNS = 60, 5
"""Of a curve: seconds, fetched, bytes, errors and queue."""
_TASK = re.compile(r"(?:iteration_([0-9]{1,9})\.)?(crawl|settle)\.(.+)")
NODE_OPERATORS = ("CrawlOperator", "SettleOperator")
TASK_STATES = ("running", "success", "failed", "up_for_retry")
"""States of tasks whose try has begun: a task that waits for its next try has said nothing of this try yet."""


@dataclass(frozen=True)
class Airflow:
    """The REST API of an Airflow. `until_s`: when no more requests are sent, by the monotonic clock."""

    url: str
    token: str = field(repr=False)
    until_s: float

    @classmethod
    def from_environment(cls) -> "Airflow | None":
        """Return the Airflow that the environment names, or None.

        Raises ConfigError for a value that is no URL.
        """
        url = os.environ.get(URL_VARIABLE, "").rstrip("/")
        if not url:
            return None
        parts = None
        with suppress(ValueError):
            parts = urlsplit(url)
        if (
            not parts
            or parts.scheme not in {"http", "https"}
            or not parts.hostname
            or "@" in parts.netloc
        ):
            raise ConfigError(
                f"{URL_VARIABLE}: give a URL such as https://airflow.example, without user and password"
            )
        return cls(url, os.environ.get(TOKEN_VARIABLE, ""), time.monotonic() + WAIT_S)

    def get(self, path: str, params: Iterable[tuple[str, str]] = ()) -> Any:
        """Return the JSON of an answer, or None.

        None: there is nothing of that name. Raises StorageError where Airflow refuses, or does not answer in time.
        """
        left_s = self.until_s - time.monotonic()
        if left_s <= 0:
            raise StorageError(f"Airflow at {self.url} took more than {WAIT_S:.0f} s")
        try:
            answer = requests.get(
                f"{self.url}{path}",
                params=list(params),
                auth=self._sign,
                timeout=left_s,
                allow_redirects=False,
            )
            if answer.status_code == requests.codes.not_found:
                return None
            if answer.status_code in {requests.codes.unauthorized, requests.codes.forbidden}:
                raise StorageError(
                    f"Airflow at {self.url} refuses the token of {TOKEN_VARIABLE} ({answer.status_code}): ask"
                    " POST /auth/token for another one"
                )
            if answer.status_code != requests.codes.ok:
                raise StorageError(
                    f"Airflow at {self.url} answers {answer.status_code}: is {URL_VARIABLE} correct?"
                )
            return answer.json()
        except (requests.RequestException, ValueError, RecursionError) as error:
            raise StorageError(
                f"Airflow at {self.url} does not answer: {type(error).__name__}"
            ) from error

    def _sign(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        """Add the token.

        As `auth` the token also comes before what a `.netrc` has for the host.
        """
        request.headers["Authorization"] = f"Bearer {self.token}"
        return request


@dataclass(frozen=True)
class AirflowTask:
    """A task of a node in Airflow: `crawl`, or `settle` with iteration 0. `state`: of the task instance."""

    node: str
    iteration: int
    task_id: str
    run_id: str
    state: str
    try_number: int

    @classmethod
    def named(
        cls, task_id: str, *, run_id: str, state: str, try_number: int
    ) -> "AirflowTask | None":
        """Return the task with this id, or None.

        None: the id is of a task that belongs to no node.
        """
        match = _TASK.fullmatch(task_id)
        if match is None:
            return None
        return cls(match[3], int(match[1] or 0), task_id, run_id, state, try_number)


def queues_elsewhere(config: Config, nodes: Iterable[str]) -> dict[str, QueueStatus]:
    """Ask Airflow for the newest task of each of these nodes.

    Returns entries as in `queues` of `crawl_status`: `length`, `open_take` and `progress` as the task told them last,
    and `task` (`run_id`, `state`, `try`). `silent_since`: the time of the last report (or "" if there is no report of
    this try), where the task was killed or says nothing. A node without an entry had no task yet, or no Airflow is
    named. An entry with an `error` could not be read.
    """
    wanted = set(nodes)
    try:
        airflow = Airflow.from_environment()
        if airflow is None or not wanted:
            return {}
        tasks = _newest_tasks(airflow, config, wanted)
    except KrakeError as error:
        return {node: {"error": str(error)} for node in wanted}
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        found = pool.map(lambda task: _asked(airflow, config, task), tasks.values())
        return dict(zip(tasks, found, strict=True))


def _runs_path(config: Config) -> str:
    """Return the path of a crawl's runs in the REST API."""
    dag_id = f"{config.crawl.name}_{'recrawl' if config.order.makes_lists else 'crawl'}"
    return f"/api/v2/dags/{quote(dag_id, safe='')}/dagRuns"


def _newest_tasks(airflow: Airflow, config: Config, nodes: set[str]) -> dict[str, AirflowTask]:
    """Find the task of each node that began last. Raises StorageError."""
    names = [("operator", name) for name in NODE_OPERATORS]
    query = [
        *names,
        *(("state", state) for state in TASK_STATES),
        ("order_by", "-start_date"),
        ("limit", str(_PAGE)),
    ]
    found: dict[str, AirflowTask] = {}
    for page in range(_PAGES):
        answer = airflow.get(
            f"{_runs_path(config)}/~/taskInstances", [*query, ("offset", str(page * _PAGE))]
        )
        try:
            instances = answer["task_instances"] if answer else []
            tasks = list(_tasks_of(instances))
        except (KeyError, TypeError, ValueError) as error:
            raise StorageError(
                f"{airflow.url} does not answer as Airflow: is {URL_VARIABLE} correct?"
            ) from error
        for task in tasks:
            if task.node in nodes:
                found.setdefault(task.node, task)
        if len(found) == len(nodes) or len(instances) < _PAGE:
            break
    return found


def _tasks_of(instances: Iterable[Mapping[str, Any]]) -> Iterator[AirflowTask]:
    """Yield the task instances of an answer that are tasks of nodes."""
    for one in instances:
        run_id, state, tried = str(one["dag_run_id"]), str(one["state"]), int(one["try_number"])
        if task := AirflowTask.named(
            str(one["task_id"]), run_id=run_id, state=state, try_number=tried
        ):
            yield task


def _asked(airflow: Airflow, config: Config, task: AirflowTask) -> QueueStatus:
    """Ask for a task's value; return its node's entry."""
    place = f"{quote(task.run_id, safe='')}/taskInstances/{quote(task.task_id, safe='')}"
    try:
        answer = airflow.get(f"{_runs_path(config)}/{place}/state-store/progress")
    except StorageError as error:
        return {"error": str(error)}
    return entry_of(task, mapping_of(answer).get("value"))


def entry_of(task: AirflowTask, value: Any) -> QueueStatus:
    """Return the entry of a node, see `queues_elsewhere`.

    `value`: what the store has under `progress`, or None.
    """
    is_of_try = mapping_of(value).get("try") == task.try_number
    said = progress_of(value if is_of_try else None)
    entry: QueueStatus = {"length": said["queue"], "progress": said}
    run_id = printable(task.run_id)
    entry["task"] = {"run_id": run_id, "state": task.state, "try": task.try_number}
    if said["phase"] in ENDED:
        return entry
    if task.state != "running" or time.time() - said["time"] > SILENT_S:
        at = datetime.fromtimestamp(said["time"], UTC)
        entry["silent_since"] = f"{at:%Y-%m-%dT%H:%M:%SZ}" if said["time"] else ""
    elif task.iteration:
        entry["open_take"] = {"run_id": run_id, "iteration": task.iteration, "count": said["taken"]}
    return entry


def mapping_of(value: Any) -> dict[str, JsonValue]:
    """Return a JSON object, which may be in a text.

    Empty if the value is no object.
    """
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return {}
    return value if isinstance(value, dict) else {}


def progress_of(value: Any) -> ToldProgress:
    """Return the valid, known fields of a value of the store.

    Each has its type, whatever the store has.
    """
    value = mapping_of(value)
    curve = value.get("curve")
    points = (
        [point for point in curve if isinstance(point, list)] if isinstance(curve, list) else []
    )
    told: ToldProgress = {
        "phase": printable(str(value.get("phase", ""))),
        "taken": int(_number(value.get("taken"))),
        "fetched": int(_number(value.get("fetched"))),
        "errors": int(_number(value.get("errors"))),
        "bytes": int(_number(value.get("bytes"))),
        "queue": int(_number(value.get("queue"))),
        "pages_per_s": _number(value.get("pages_per_s")),
        "time": min(_number(value.get("time")), time.time()),
        "curve": [
            [int(_number(number)) for number in point[:_COLUMNS]] for point in points[:_POINTS]
        ],
    }
    if value.get("reason"):
        told["reason"] = printable(str(value["reason"]))
    if value.get("error"):
        told["error"] = printable(str(value["error"]))
    return told


def _number(value: Any) -> float:
    """Return a number that a task told; 0 for anything else."""
    return value if isinstance(value, int | float) and 0 <= value < 1 << 53 else 0
