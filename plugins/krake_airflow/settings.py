"""Every setting of Airflow that Krake changes, in one place, and the files of an Airflow of one machine."""

from __future__ import annotations

import os
import secrets
import sys
from collections.abc import Mapping
from contextlib import AbstractContextManager, suppress
from pathlib import Path

from crawl_lib.config import ConfigPlace
from crawl_lib.durable import fsync_file
from crawl_lib.errors import ConfigError, os_errors

PROJECT = Path(__file__).resolve().parents[2]
"""The project's root, with `dags/`, `plugins/` and `config/`."""

HOME_VARIABLE = "KRAKE_AIRFLOW_HOME"
NODE_VARIABLE = "KRAKE_NODE"
"""On many machines, the node of a worker's tasks; a task from a wrong queue is refused."""
TASK_TAB = "krake-task"
"""The last part of the path of the tab "Krake" of a task, in Airflow's UI."""
USER = "admin"
DATABASE_FILE = "airflow.db"
"""Airflow's database of one machine, in its home."""
LOCK_FILE = "lock"
"""In the home: held by one `make ui`, or shared by several `make crawl`."""
URL_FILE = "url"
"""In the home: the address of `make ui`'s Airflow, while Airflow answers."""


def config_path(environ: Mapping[str, str]) -> Path:
    """Find the config of the DAGs, or the folder of configs, as `krake` does; after the working directory in PROJECT.

    Raises ConfigError without a config.
    """
    return ConfigPlace.find(environ, PROJECT)


def home_errors(home: Path) -> AbstractContextManager[None]:
    """Turn an OSError in the block into a ConfigError that says how to choose another folder."""
    return os_errors(
        home,
        f"Airflow's database and logs cannot be written: name another folder by {HOME_VARIABLE}",
        ConfigError,
    )


def airflow_home(environ: Mapping[str, str]) -> Path:
    """Return the folder of Airflow's database and logs, in `.airflow/` or in the folder of `KRAKE_AIRFLOW_HOME`.

    `make crawl` and `make ui` share the folder, but never carry out runs at the same time (`run`): a scheduler takes up
    every unfinished run of its database, also a run that another process is carrying out.
    """
    named = environ.get(HOME_VARIABLE)
    return (Path(named).resolve() if named else PROJECT / ".airflow") / "ui"


def environment(home: Path, config: Path) -> dict[str, str]:
    """Return the variables that make Airflow ours: home, folders, one machine, quick recovery, nothing unneeded.

    `home`: see `airflow_home`. `config`: Krake's config file.
    """
    core = {
        "AIRFLOW_HOME": str(home),
        "AIRFLOW__CORE__DAGS_FOLDER": str(PROJECT / "dags"),
        "AIRFLOW__CORE__PLUGINS_FOLDER": str(PROJECT / "plugins"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__CORE__EXECUTOR": "krake_airflow.executor.PromptExecutor",
        # Each slot is a process of its own; the default is 32 slots.
        "AIRFLOW__CORE__PARALLELISM": "8",
        # On a paused DAG, a triggered run would wait without a word. Without `crawl.schedule` an active DAG does
        # nothing by itself; with `crawl.schedule` the user wants runs.
        "AIRFLOW__CORE__DAGS_ARE_PAUSED_AT_CREATION": "False",
        # SQLite's own 5 s are too short for a busy machine: `backfill create` was seen to die of a locked database.
        **database_environment(home, timeout_s=60),
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS": f"{USER}:admin",
        # Without this, two changes of a config in half a minute would leave an unwanted schedule behind.
        "AIRFLOW__CORE__MIN_SERIALIZED_DAG_UPDATE_INTERVAL": "1",
        # The executor waits in the scheduler's place until a task has ended.
        "AIRFLOW__SCHEDULER__SCHEDULER_IDLE_SLEEP_TIME": "0",
        # After a kill of everything, a task begins again in 20 s, not in 300 s.
        "AIRFLOW__SCHEDULER__ORPHANED_TASKS_CHECK_INTERVAL": "20",
        # Krake does no linear algebra with numpy: its threads would spin, and a fork would leave them behind.
        "OPENBLAS_NUM_THREADS": "1",
        ConfigPlace.VARIABLE: str(config.resolve()),
        "PYTHONPATH": os.pathsep.join([str(PROJECT / "plugins"), str(PROJECT)]),
    }
    # Airflow starts some of its own parts as `airflow`, found by PATH.
    core["PATH"] = os.pathsep.join(
        [str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)]
    )
    return core


def database_environment(home: Path, *, timeout_s: int) -> dict[str, str]:
    """Return the variable with Airflow's SQLite database, and with a process's patience for the database's lock."""
    return {
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{home / DATABASE_FILE}?timeout={timeout_s}"
    }


def host_name() -> str:
    """Return Airflow's name of a machine with all parts on loopback (`core.hostname_callable`)."""
    return "127.0.0.1"


def server_environment(
    home: Path, *, port: int, worker_log_port: int, trigger_log_port: int
) -> dict[str, str]:
    """Return the variables of a server with UI and API on loopback only.

    `port`: of the UI and the API; `worker_log_port`, `trigger_log_port`: of the log servers (by default 8793 and 8794,
    which a second Airflow on the machine would find taken).
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
    # A worker died: its task begins again after this time, not after 300 s. A task reports every 5 s, but not during a
    # restart of the API server: such a restart took 42 s on a busy machine, and no task may die of a restart.
    "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT": "180",
    # Until then the supervisor of a task asks again, every few seconds: by default three failures would end the task.
    "AIRFLOW__WORKERS__MAX_FAILED_HEARTBEATS": "36",
    "AIRFLOW__WORKERS__EXECUTION_API_RETRY_WAIT_MAX": "5",
    # The same for an edge worker, whose pauses would grow to 90 s.
    "AIRFLOW__EDGE__API_RETRIES": "120",
    "AIRFLOW__EDGE__API_RETRY_WAIT_MAX": "5",
    # An edge worker counts as dead after five intervals (else 150 s); before, no worker of its name may begin again.
    "AIRFLOW__EDGE__HEARTBEAT_INTERVAL": "5",
    # Twice this time an edge worker's token is valid (else 10 s). A refused worker ends, for example after the API
    # server hung for longer.
    "AIRFLOW__API_AUTH__JWT_LEEWAY": "120",
    # A scheduler died.
    "AIRFLOW__SCHEDULER__ORPHANED_TASKS_CHECK_INTERVAL": "20",
}
"""On many machines: settings for a run to go on within four minutes after a lost machine. Equal on all machines."""


def worker_environment(
    home: Path, config: Path, *, url: str, secret: str, node: str | None
) -> dict[str, str]:
    """Return the variables of an edge worker, with the address of the API server, and without a database.

    `home`: its AIRFLOW_HOME. `config`: Krake's config file on its machine. `url`: of the API server. `secret`: the
    `jwt_secret` of all machines. `node`: the node of the worker's tasks, None for tasks without a node; a node's task
    on such a worker is refused.
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
    """Return the variables of API server, scheduler and DAG processor, with tasks on edge workers.

    `home`: their AIRFLOW_HOME. `port`: of UI and API, on loopback. `database`: the metadata database's URL, password
    included. `log_port`: see `server_environment`.
    """
    return {
        **environment(home, config),
        **server_environment(home, port=port, worker_log_port=log_port, trigger_log_port=log_port),
        **RECOVERY,
        "AIRFLOW__CORE__EXECUTOR": "airflow.providers.edge3.executors.EdgeExecutor",
        # This executor does not wait. The scheduler looks for ends of tasks at this interval, not every second: each
        # level of a run waits for one look. The price is a twelfth of a core in an idle Airflow.
        "AIRFLOW__SCHEDULER__SCHEDULER_IDLE_SLEEP_TIME": "0.2",
        "AIRFLOW__CORE__PARALLELISM": "32",
        "AIRFLOW__EDGE__API_ENABLED": "True",
        "AIRFLOW__EDGE__API_URL": f"http://127.0.0.1:{port}/edge_worker/v1/rpcapi",
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": database,
    }


def _kept_secret(path: Path) -> str:
    """Return a random secret, made once, readable by the owner alone. The file appears with its whole content."""
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
