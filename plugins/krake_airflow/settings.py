"""Every setting of Airflow that Krake changes, in one place, and where an Airflow of one machine keeps its files."""

from __future__ import annotations

import os
import secrets
import sys
from collections.abc import Mapping
from contextlib import AbstractContextManager, suppress
from pathlib import Path

from crawl_lib.config import CONFIG_PATH_VARIABLE, find_config_path
from crawl_lib.durable import fsync_file
from crawl_lib.errors import ConfigError, os_errors

PROJECT = Path(__file__).resolve().parents[2]
"""The project's root: `dags/`, `plugins/` and `config/` lie in it."""

HOME_VARIABLE = "KRAKE_AIRFLOW_HOME"
NODE_VARIABLE = "KRAKE_NODE"
"""On many machines, the node whose tasks a worker runs; what came by a wrong queue is refused."""
TASK_TAB = "krake-task"
"""The last part of the path of the tab "Krake" of a task, in Airflow's UI."""
USER = "admin"
DATABASE_FILE = "airflow.db"
"""Airflow's database of one machine, in its home."""
LOCK_FILE = "lock"
"""In the home: `make ui` holds it, or several `make crawl` share it."""
URL_FILE = "url"
"""In the home: where the Airflow of `make ui` answers, while it does."""


def config_path(environ: Mapping[str, str]) -> Path:
    """Find the config of the DAGs, or the folder of configs, as `krake` does; after the working directory in PROJECT.

    Raises ConfigError where there is none.
    """
    return find_config_path(environ, PROJECT)


def home_errors(home: Path) -> AbstractContextManager[None]:
    """Within, an OSError becomes a ConfigError that says where else Airflow's files may lie."""
    return os_errors(
        home,
        f"Airflow's database and logs cannot be written: name another folder by {HOME_VARIABLE}",
        ConfigError,
    )


def airflow_home(environ: Mapping[str, str]) -> Path:
    """Where Airflow keeps its database and logs: a folder of `.airflow/`, or of what `KRAKE_AIRFLOW_HOME` names.

    `make crawl` and `make ui` share it, but never carry out runs at the same time (`run`): a scheduler takes up every
    unfinished run that it finds in its database, also one that another process is just carrying out.
    """
    named = environ.get(HOME_VARIABLE)
    return (Path(named).resolve() if named else PROJECT / ".airflow") / "ui"


def environment(home: Path, config: Path) -> dict[str, str]:
    """The variables that make Airflow ours: home, folders, one machine, quick recovery, nothing that is not needed.

    `home`: see `airflow_home`. `config`: Krake's config file.
    """
    core = {
        "AIRFLOW_HOME": str(home),
        "AIRFLOW__CORE__DAGS_FOLDER": str(PROJECT / "dags"),
        "AIRFLOW__CORE__PLUGINS_FOLDER": str(PROJECT / "plugins"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__CORE__EXECUTOR": "krake_airflow.executor.PromptExecutor",
        # Each slot is a process of its own; 32 of them are made otherwise.
        "AIRFLOW__CORE__PARALLELISM": "8",
        # A paused DAG would let a run that someone triggers wait without a word. Without `crawl.schedule` an active
        # DAG does nothing by itself; with it, running by itself is what was asked for.
        "AIRFLOW__CORE__DAGS_ARE_PAUSED_AT_CREATION": "False",
        # SQLite's own 5 s are too short for a busy machine: `backfill create` was seen to die of a locked database.
        **database_environment(home, timeout_s=60),
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS": f"{USER}:admin",
        # A config that was changed twice in half a minute would leave a schedule behind that was never asked for.
        "AIRFLOW__CORE__MIN_SERIALIZED_DAG_UPDATE_INTERVAL": "1",
        # The executor waits in the scheduler's place until a task has ended.
        "AIRFLOW__SCHEDULER__SCHEDULER_IDLE_SLEEP_TIME": "0",
        # After a kill of everything a task begins again in 20 s, not in 300 s.
        "AIRFLOW__SCHEDULER__ORPHANED_TASKS_CHECK_INTERVAL": "20",
        # Krake has numpy do no linear algebra, and the threads for it would spin, and a fork would leave them behind.
        "OPENBLAS_NUM_THREADS": "1",
        CONFIG_PATH_VARIABLE: str(config.resolve()),
        "PYTHONPATH": os.pathsep.join([str(PROJECT / "plugins"), str(PROJECT)]),
    }
    # Airflow starts some of its own parts as `airflow`, found by PATH.
    core["PATH"] = os.pathsep.join(
        [str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)]
    )
    return core


def database_environment(home: Path, *, timeout_s: int) -> dict[str, str]:
    """Return the variable that names Airflow's SQLite database, and how long a process waits for its lock."""
    return {
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{home / DATABASE_FILE}?timeout={timeout_s}"
    }


def host_name() -> str:
    """Return what Airflow calls a machine whose parts all are on loopback (`core.hostname_callable`)."""
    return "127.0.0.1"


def server_environment(
    home: Path, *, port: int, worker_log_port: int, trigger_log_port: int
) -> dict[str, str]:
    """The variables of a server whose UI and API answer on loopback only.

    `port`: of the UI and the API; `worker_log_port`, `trigger_log_port`: of the log servers (8793 and 8794 unless
    told otherwise, which a second Airflow on the machine would find taken).
    """
    url = f"http://127.0.0.1:{port}"
    return {
        "AIRFLOW__API__HOST": "127.0.0.1",
        "AIRFLOW__API__PORT": str(port),
        "AIRFLOW__API__BASE_URL": url,
        "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"{url}/execution/",
        "AIRFLOW__API_AUTH__JWT_SECRET": _kept_secret(home / "jwt-secret"),
        "AIRFLOW__API__SECRET_KEY": _kept_secret(home / "api-secret"),
        "AIRFLOW__LOGGING__WORKER_LOG_SERVER_PORT": str(worker_log_port),
        "AIRFLOW__LOGGING__TRIGGER_LOG_SERVER_PORT": str(trigger_log_port),
        # Airflow sets these rights whatever the umask is.
        "AIRFLOW__LOGGING__FILE_TASK_HANDLER_NEW_FOLDER_PERMISSIONS": "0o700",
        "AIRFLOW__LOGGING__FILE_TASK_HANDLER_NEW_FILE_PERMISSIONS": "0o600",
    }


RECOVERY = {
    # A worker that died: its task begins again after this, not after 300 s. A task says every 5 s that it lives, but
    # not while the API server starts again: that was seen to take 42 s on a busy machine, and no task may die of it.
    "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT": "180",
    # Until then the supervisor of a task asks again, every few seconds: it would end the task after three failures.
    "AIRFLOW__WORKERS__MAX_FAILED_HEARTBEATS": "36",
    "AIRFLOW__WORKERS__EXECUTION_API_RETRY_WAIT_MAX": "5",
    # The same for an edge worker, whose pauses would grow to 90 s.
    "AIRFLOW__EDGE__API_RETRIES": "120",
    "AIRFLOW__EDGE__API_RETRY_WAIT_MAX": "5",
    # An edge worker is taken for dead after five times this (else 150 s); before, one of its name may not begin again.
    "AIRFLOW__EDGE__HEARTBEAT_INTERVAL": "5",
    # How long an edge worker's token is good, twice over (else 10 s). A worker that is refused, since the API server
    # hung for longer, ends.
    "AIRFLOW__API_AUTH__JWT_LEEWAY": "120",
    # A scheduler that died.
    "AIRFLOW__SCHEDULER__ORPHANED_TASKS_CHECK_INTERVAL": "20",
}
"""On many machines: what lets a run go on within four minutes after a machine was lost. The same on all of them."""


def worker_environment(
    home: Path, config: Path, *, url: str, secret: str, node: str | None
) -> dict[str, str]:
    """The variables of an edge worker: it knows where the API server answers, and no database.

    `home`: its AIRFLOW_HOME. `config`: Krake's config file on its machine. `url`: of the API server. `secret`: the
    `jwt_secret` that all machines share. `node`: whose tasks run here, None for those that belong to no node; a node's
    task that lands there is refused.
    """
    return {
        **environment(home, config),
        **RECOVERY,
        NODE_VARIABLE: node or "default",
        "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"{url}/execution/",
        "AIRFLOW__EDGE__API_URL": f"{url}/edge_worker/v1/rpcapi",
        "AIRFLOW__EDGE__JOB_POLL_INTERVAL": "1",
        "AIRFLOW__API_AUTH__JWT_SECRET": secret,
    }


def centre_environment(
    home: Path, config: Path, *, port: int, database: str, log_port: int
) -> dict[str, str]:
    """The variables of API server, scheduler and DAG processor, whose tasks run on edge workers.

    `home`: their AIRFLOW_HOME. `port`: of UI and API, on loopback. `database`: the metadata database's URL, password
    included. `log_port`: see `server_environment`.
    """
    return {
        **environment(home, config),
        **server_environment(home, port=port, worker_log_port=log_port, trigger_log_port=log_port),
        **RECOVERY,
        "AIRFLOW__CORE__EXECUTOR": "airflow.providers.edge3.executors.EdgeExecutor",
        # This executor does not wait. The scheduler looks this often at what ended, not every second: each level of a
        # run waits for one look. The price is a twelfth of a core while nothing runs.
        "AIRFLOW__SCHEDULER__SCHEDULER_IDLE_SLEEP_TIME": "0.2",
        "AIRFLOW__CORE__PARALLELISM": "32",
        "AIRFLOW__EDGE__API_ENABLED": "True",
        "AIRFLOW__EDGE__API_URL": f"http://127.0.0.1:{port}/edge_worker/v1/rpcapi",
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": database,
    }


def _kept_secret(path: Path) -> str:
    """A random secret, made once, readable by the owner alone. The file appears with its whole content."""
    if not path.exists():
        unfinished = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
        descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(secrets.token_hex(32).encode("ascii"))
                fsync_file(file)
            with suppress(FileExistsError):  # another process was faster
                os.link(unfinished, path)
        finally:
            unfinished.unlink()
    return path.read_text()
