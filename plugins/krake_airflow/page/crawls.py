"""The crawls of the page, each with its status and with the newest reports of its tasks."""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from threading import Lock
from typing import Any

from airflow.models.task_state_store import TaskStateStoreModel
from airflow.models.taskinstance import TaskInstance
from airflow.utils.session import create_session
from sqlalchemy import select
from sqlalchemy.exc import SQLAlchemyError

from crawl_lib.config import Config
from crawl_lib.errors import ConfigError, KrakeError
from crawl_lib.rounds import CrawlReader, keys_status
from crawl_lib.rounds.elsewhere import NODE_OPERATORS, TASK_STATES, AirflowTask, entry_of
from crawl_lib.stores import Secrets
from krake_airflow.configs import BadConfig, config_files, crawl_dag_id, read_configs
from krake_airflow.connections import secrets_for
from krake_airflow.page.behind import Behind
from krake_airflow.progress import STATE_KEY
from krake_airflow.settings import config_path

SHOWN_ITERATIONS = 40
COUNTED_ITERATIONS = 10
"""The number of newest iterations with counts of status codes, types and hosts."""
STALE_S = 10.0
"""The age from which the page calls a status old."""
_WAIT_S = 1.2
"""How long the page waits for a silent file store."""
_READ_S = 0.5
"""How long iterations are read before the first answer: the newest are shown first, and the others follow."""
_KEEP_S, _KEEP_KEYS_S, _KEEP_PAGES_S = 1.0, 60.0, 60.0
"""How long a status, counts of keys, and counts of pages are shown. Servers read all keys to count the keys."""
_KEEP_CONFIGS_S = 10.0
"""How long configs are kept while their own files have not changed."""
_NEWEST_TASKS = (20, 2_000)
"""How many of the latest tasks are searched for the newest task of each node; few at first."""


class Crawl:
    """A crawl of this Airflow. `dag_id`: the DAG that crawls, whose readers may see the crawl.

    `secrets`: of the crawl's servers, or the reason for their absence.
    """

    def __init__(self, config: Config, secrets: Secrets | ConfigError) -> None:
        self.name, self.dag_id = config.crawl.name, crawl_dag_id(config)
        self.config, self.secrets = config, secrets
        given = Secrets() if isinstance(secrets, ConfigError) else secrets
        reader = CrawlReader(
            config, given, wait_s=_WAIT_S, elsewhere=told_by_nodes, ask_keys=self._known_keys
        )
        self._entries: list[CrawlReader.Iteration] = []
        self._keys = Behind(lambda: keys_status(config, given), _KEEP_KEYS_S)
        self._pages = Behind(lambda: self._count(reader), _KEEP_PAGES_S)
        self._status = Behind(
            lambda: self._read(reader), _KEEP_S, lambda status: "unread" in status
        )

    def begin(self) -> None:
        """Start a read of the status, without waiting."""
        if not isinstance(self.secrets, ConfigError):
            self._status.get(0.0)

    def look(self, wait_s: float | None = None) -> Mapping[str, Any]:
        """Return the status, see `crawl_status`, with the curves of nodes; an `error` names silent stores.

        `age_s`: seconds since the status was read. `pages`: see `count_pages`, once the pages are counted.
        `wait_s`: how long to wait for a new status; None: the patience of people before a page.
        """
        if isinstance(self.secrets, ConfigError):
            return self._without_store(str(self.secrets))
        known = self._status.get(_WAIT_S if wait_s is None else wait_s)
        if known is None:
            return self._without_store("It has not answered yet.")
        status: dict[str, Any] = {
            **known.value,
            "queues": {node: dict(queue) for node, queue in known.value["queues"].items()},
        }
        self._add_curves(status["queues"])
        self._entries = status.get("iterations", [])[-COUNTED_ITERATIONS:]
        counted = self._pages.get(0.0) if self._entries else None
        return {**status, "age_s": known.age_s, **({"pages": counted.value} if counted else {})}

    def _read(self, reader: CrawlReader) -> CrawlReader.Status:
        """Read the status; if the store cannot be opened, return what Airflow knows."""
        try:
            return reader.status(last=SHOWN_ITERATIONS, read_s=_READ_S)
        except KrakeError as error:
            return self._without_store(str(error))

    def _add_curves(self, queues: Mapping[str, dict[str, Any]]) -> None:
        """Add the curves and tries of this machine's nodes, from Airflow's database."""
        here = [node for node, queue in queues.items() if not queue.keys() & {"task", "note"}]
        for node, entry in told_by_nodes(self.config, here).items():
            queues[node]["task"] = entry.get("task", {})
            if said := entry.get("progress"):
                queues[node]["curve"] = said["curve"]
                queues[node].setdefault("progress", said)  # a resting node of this machine

    def _without_store(self, error: str) -> CrawlReader.Status:
        """Return what Airflow knows."""
        told = told_by_nodes(self.config, self.config.servers)
        return {
            "error": error,
            "queues": {node: told.get(node, {}) for node in self.config.servers},
            "keys": [],
        }

    def _known_keys(self, config: Config, secrets: Secrets) -> list[dict[str, Any]]:
        known = self._keys.get(0.3)
        servers = ", ".join(config.key_storage.servers)
        return known.value if known else [{"server": servers, "error": "has not answered yet"}]

    def _count(self, reader: CrawlReader) -> dict[str, Any]:
        """Count the newest pages; an `error` gives the reason for missing counts."""
        try:
            return reader.pages(self._entries)
        except KrakeError as error:
            return {"error": str(error)}


class Crawls:
    """The crawls of this Airflow's configs. A crawl is kept while the config stays the same."""

    def __init__(self) -> None:
        self._kept: dict[str, Crawl] = {}
        self._files = _Files()
        self._turn = Lock()

    def all(self) -> tuple[list[Crawl], list[BadConfig]]:
        """Return the crawls by name, and the configs without a crawl."""
        with self._turn:
            good, bad = self._files.read(config_path(os.environ))
            kept = self._kept
            self._kept = {
                config.crawl.name: self._of(config, kept.get(config.crawl.name)) for config in good
            }
            return sorted(self._kept.values(), key=lambda crawl: crawl.name), bad

    def named(self, name: str) -> Crawl | None:
        """Return a crawl; None: no config has this name."""
        return next((crawl for crawl in self.all()[0] if crawl.name == name), None)

    @staticmethod
    def _of(config: Config, kept: Crawl | None) -> Crawl:
        if kept and kept.config == config and isinstance(kept.secrets, Secrets):
            return kept
        try:
            return Crawl(config, secrets_for(config))
        except ConfigError as error:  # the other crawls are shown all the same
            return Crawl(config, error)


class _Files:
    """The configs of a path. Unchanged files are kept, because parsing is most of the cost of a refresh."""

    def __init__(self) -> None:
        self._stamps: list[tuple[Path, int, int, int]] = []
        self._read_at_s = 0.0
        self._found: tuple[list[Config], list[BadConfig]] = ([], [])

    def read(self, path: Path) -> tuple[list[Config], list[BadConfig]]:
        """Read the configs again if a file has changed, or after a while: configs name other files."""
        stamps = [(file, *_stamp_of(file)) for file in config_files(path)]
        if stamps != self._stamps or time.monotonic() - self._read_at_s > _KEEP_CONFIGS_S:
            self._found = read_configs(path)
            self._stamps, self._read_at_s = stamps, time.monotonic()
        return self._found


def _stamp_of(file: Path) -> tuple[int, int, int]:
    """Return values that change with a file; zeros for a missing file."""
    try:
        found = file.stat()
    except OSError:
        return 0, 0, 0
    return found.st_ino, found.st_mtime_ns, found.st_size


def look_at_all(crawls: Sequence[Crawl]) -> list[Mapping[str, Any]]:
    """Look at crawls at the same time, so that several silent file stores cost one wait."""
    for crawl in crawls:
        crawl.begin()
    until_s = time.monotonic() + _WAIT_S
    return [crawl.look(max(0, until_s - time.monotonic())) for crawl in crawls]


def told_by_nodes(config: Config, nodes: Sequence[str]) -> Mapping[str, CrawlReader.NodeQueue]:
    """Find the newest report of each node, as entries of `queues` in the status; without a task there is no entry.

    If the database does not answer, each node's entry has an `error`.
    """
    if not nodes:
        return {}
    dag_id = crawl_dag_id(config)
    try:
        with create_session() as session:
            for most in _NEWEST_TASKS:
                found = {
                    task.node: task
                    for task in reversed(_newest_tasks(session, dag_id, set(nodes), most))
                }
                if len(found) == len(set(nodes)):
                    break
            return {
                node: entry_of(task, _value(session, dag_id, task.run_id, task.task_id))
                for node, task in found.items()
            }
    except SQLAlchemyError as error:
        return {node: {"error": f"Airflow's database: {type(error).__name__}"} for node in nodes}


def _newest_tasks(
    session: Any, dag_id: str, nodes: Collection[str], most: int
) -> list[AirflowTask]:
    """Return tasks of these nodes among the `most` last tasks, the latest first."""
    columns = (
        TaskInstance.task_id,
        TaskInstance.run_id,
        TaskInstance.state,
        TaskInstance.try_number,
    )
    asked = (
        select(*columns)
        .where(TaskInstance.dag_id == dag_id, TaskInstance.operator.in_(NODE_OPERATORS))
        .where(TaskInstance.state.in_(TASK_STATES), TaskInstance.start_date.is_not(None))
        .order_by(TaskInstance.start_date.desc())
        .limit(most)
    )
    rows = session.execute(asked).all()
    tasks = [
        AirflowTask.named(
            row.task_id, run_id=row.run_id, state=str(row.state), try_number=row.try_number
        )
        for row in rows
    ]
    return [task for task in tasks if task and task.node in nodes]


def told_by(dag_id: str, run_id: str, task_id: str) -> Any:
    """Return the last report of a task of any DAG to Airflow, or None."""
    with create_session() as session:
        return _value(session, dag_id, run_id, task_id)


def _value(session: Any, dag_id: str, run_id: str, task_id: str) -> Any:
    where = {"dag_id": dag_id, "run_id": run_id, "task_id": task_id, "key": STATE_KEY}
    return session.scalar(select(TaskStateStoreModel.value).filter_by(**where).limit(1))
