"""An Airflow of one machine as child processes on loopback: starts and tends its parts, and leaves nothing behind.

`airflow standalone` would start the parts too, but does not notice the end of a part: a scheduler that died of a locked
SQLite database would leave a user before runs without progress. Each part has its own session (a Ctrl-C at the terminal
does not reach the part), ends with us, and is started again after an end by itself.
Airflow's log servers listen on loopback too (`loopback`), and ask for a token. The home, with the passwords, is for the
user alone.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import psutil  # type: ignore[import-untyped]  # a dependency of Airflow

from crawl_lib.errors import KrakeError, os_errors
from krake_airflow.database import DatabaseMark
from krake_airflow.settings import (
    DATABASE_FILE,
    USER,
    database_environment,
    environment,
    host_name,
    server_environment,
)

PASSWORDS_FILE = "simple_auth_manager_passwords.json.generated"
PARTS = ("api-server", "scheduler", "dag-processor")
"""No triggerer: no task of Krake defers."""
_STOP_S = 4.0
"""Processes still alive so long after `stop` are killed; Krake's files and Airflow's database bear a kill."""
_TOLD_S = 0.3
"""The time until the API server has heard of a task's end."""
_KILLED_S = 8.0
"""A killed process is gone at once, unless the system is at work for the process."""
_STEADY_S = 120.0
"""A part of this age counts as sound: earlier ends of the part are forgotten."""
_MOST_DEATHS = 6
_API_LOCK_S = 10
_PR_SET_PDEATHSIG = 1


def password_of(home: Path) -> str:
    """Return the password of the user `settings.USER` of a home's Airflow, once Airflow is ready."""
    return str(json.loads((home / PASSWORDS_FILE).read_text())[USER])


def keep_private(home: Path) -> None:
    """Take the rights of others from the files of an Airflow's home, also files of an earlier version.

    The home has passwords, keys, the database and the output of the parts (Airflow prints the password that it makes).
    Raises KrakeError naming a file of another user.
    """
    for path in (home, home / "logs", *home.iterdir(), *(home / "logs").iterdir()):
        if not path.is_symlink():
            with os_errors(path, "cannot be made private"):
                path.chmod(0o700 if path.is_dir() else 0o600)


def free_ports(wanted: Sequence[int]) -> list[int]:
    """Return free ports on loopback; 0 chooses any port, another number is kept if the port is free.

    All ports are held until the last is found, so that no port is given twice. Raises KrakeError naming a taken port.
    """
    sockets: list[socket.socket] = []
    try:
        for port in wanted:
            found = socket.socket()
            sockets.append(found)
            found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                found.bind(("127.0.0.1", port))
            except OSError as error:
                raise KrakeError(
                    f"port {port} is taken by another program: leave AIRFLOW_PORT out for a free port"
                ) from error
        return [found.getsockname()[1] for found in sockets]
    finally:
        for found in sockets:
            found.close()


class AirflowServer:
    """Runs Airflow during its `with` block; use it from one thread, since the parts end with this thread.

    `home`: the AIRFLOW_HOME, made if missing. `config`: Krake's config file. `port`: of UI and API, 0: any. `extra`:
    more environment variables. `logs`: the folder for the output of the parts, a file each.
    """

    def __init__(
        self, home: Path, config: Path, *, port: int = 0, extra: dict[str, str] | None = None
    ) -> None:
        self.home = home
        self.logs = home / "logs"
        self._config = config
        self._port = port
        self._extra = extra or {}
        self._parts: list[_Part] = []
        self._database = DatabaseMark(home, home / DATABASE_FILE)
        self.environment: dict[str, str] = {}

    def __enter__(self) -> Self:
        self.logs.mkdir(parents=True, exist_ok=True)
        keep_private(self.home)
        self._port, worker_log, trigger_log = free_ports([self._port, 0, 0])
        self.environment = {
            **os.environ,
            **environment(self.home, self._config),
            **server_environment(
                self.home, port=self._port, worker_log_port=worker_log, trigger_log_port=trigger_log
            ),
            "AIRFLOW__CORE__HOSTNAME_CALLABLE": f"{host_name.__module__}.{host_name.__name__}",
            **self._extra,
        }
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    @property
    def url(self) -> str:
        """The address of the UI and the API."""
        return f"http://127.0.0.1:{self._port}"

    @property
    def password(self) -> str:
        """The password of the user `settings.USER`, once Airflow is ready."""
        return password_of(self.home)

    def start(self, timeout_s: float = 600.0, stopped: Callable[[], bool] = lambda: False) -> bool:
        """Make a missing database, start the parts, and wait until API, scheduler and DAG processor are healthy.

        Returns False if `stopped` comes first. Raises KrakeError naming the log of a part that does not start.
        """
        until_s = time.monotonic() + timeout_s
        if not self._migrate(until_s, stopped):
            return False
        # The API server can wait for itself on SQLite, and answers no request until this time is over.
        short = {
            **self.environment,
            **database_environment(self.home, timeout_s=_API_LOCK_S),
            **self._extra,
        }
        variables = {name: short if name == "api-server" else self.environment for name in PARTS}
        self._parts = [_Part(name, self.logs, self.home, variables[name]) for name in PARTS]
        while not self._healthy():
            if stopped():
                return False
            if time.monotonic() > until_s:
                raise KrakeError(f"Airflow is not ready after {timeout_s:.0f} s; see {self.logs}")
            self.tend()
            time.sleep(0.3)
        return True

    def tend(self) -> list[str]:
        """Restart parts that ended by themselves; return a sentence for each. To be called about every second.

        Raises KrakeError naming a part that ends again and again, and its log.
        """
        return [said for part in self._parts if (said := part.tend())]

    def stop(self) -> None:
        """End Airflow and all its processes within 5 s; return when no process is left.

        The scheduler is killed first: on a polite request it would wait for its tasks, and may begin others. Running
        tasks are told to stop, while the API server is still there to note their ends. All other processes are then
        killed: these have nothing to lose, and the API server would take 7 s to end by itself.
        """
        until_s = time.monotonic() + _STOP_S
        started = [process for part in self._parts for process in part.processes()]
        tasks = [
            task
            for part in self._parts
            if part.name == "scheduler"
            for task in part.end_with_tasks()
        ]
        if tasks:
            _alive_after(tasks, until_s - time.monotonic() - _TOLD_S)
            time.sleep(_TOLD_S)
        _end_all(
            {*started, *(process for part in self._parts for process in part.processes())},
            patience_s=0.0,
        )
        for part in self._parts:
            part.process.wait()
        self._parts = []

    def _migrate(self, until_s: float, stopped: Callable[[], bool]) -> bool:
        if self._database.is_set():
            return True
        log = self.logs / "migrate.log"
        process = _spawn(["db", "migrate"], log, self.home, self.environment)
        try:
            while process.poll() is None:
                if stopped():
                    return False
                if time.monotonic() > until_s:
                    raise KrakeError(
                        f"Airflow's database {self._database.database} is not made in time; see {log}"
                    )
                time.sleep(0.1)
        finally:
            process.kill()
            process.wait()
        if process.returncode != 0:
            raise KrakeError(
                f"Airflow's database {self._database.database} cannot be made; see {log}"
            )
        self._database.set()
        return True

    def _healthy(self) -> bool:
        # The first request to this path makes the API server build the interface for tasks: 2 s of CPU. Here the other
        # parts start meanwhile; otherwise the first run would wait.
        if self._asked("/execution/health") is None:
            return False
        health = self._asked("/api/v2/monitor/health") or {}
        parts = ("metadatabase", "scheduler", "dag_processor")
        return all((health.get(part) or {}).get("status") == "healthy" for part in parts)

    def _asked(self, path: str) -> dict[str, Any] | None:
        """Ask the API server; return the JSON of its answer, or None without an answer within a second."""
        try:
            with urllib.request.urlopen(f"{self.url}{path}", timeout=1) as answer:  # noqa: S310
                found: dict[str, Any] = json.load(answer)
        except (OSError, urllib.error.URLError, ValueError):
            return None
        return found


class _Part:
    """A part of Airflow, running."""

    def __init__(self, name: str, logs: Path, home: Path, variables: dict[str, str]) -> None:
        self.name = name
        self._log = logs / f"{name}.log"
        self._home = home
        self._variables = variables
        self._deaths = 0
        self._again_s: float | None = None
        self._start()

    def _start(self) -> None:
        self._again_s = None
        self._began_s = time.monotonic()
        self.process = _spawn([self.name], self._log, self._home, self._variables)

    def has_ended(self) -> bool:
        """Return whether the part is dead, without a wait: a wait would free its process id for other programs."""
        if self.process.returncode is not None:
            return True
        with suppress(ChildProcessError):
            return (
                os.waitid(os.P_PID, self.process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
                is not None
            )
        return True

    def processes(self) -> list[psutil.Process]:
        """Return the part and its descendants, also those left behind by a sudden end of the part.
        After a wait for the part the list is empty: the process id may then be another program's.
        """
        if self.process.returncode is not None:
            return []
        return list({*_with_children(self.process.pid), *_of_session(self.process.pid)})

    def end_with_tasks(self) -> list[psutil.Process]:
        """Kill the scheduler and its idle workers, and tell the tasks of the other workers to stop.

        Returns these tasks. Each has its own worker, which tells the API server about the end of the task.
        """
        if self.process.returncode is not None:
            return []
        self.process.send_signal(signal.SIGSTOP)  # the workers get no more tasks
        tasks: list[psutil.Process] = []
        for worker in _with_children(self.process.pid, recursive=False)[1:]:
            begun = _with_children(worker.pid, recursive=False)[1:]
            tasks += begun
            if not begun:
                _signal(worker, signal.SIGKILL)
        self.process.kill()
        for task in tasks:
            _signal(task, signal.SIGTERM)
        return tasks

    def tend(self) -> str | None:
        """Restart an ended part after a growing while; return a sentence for the user, or None."""
        if self._again_s is not None:
            if time.monotonic() >= self._again_s:
                self._start()
            return None
        if not self.has_ended():
            return None
        _end_all(process for process in self.processes() if process.pid != self.process.pid)
        code = self.process.wait()
        self._deaths = self._deaths + 1 if time.monotonic() - self._began_s < _STEADY_S else 1
        if self._deaths > _MOST_DEATHS:
            raise KrakeError(
                f"Airflow's {self.name} ends again and again (last with {code}); see {self._log}"
            )
        wait_s = min(30.0, 2.0 ** (self._deaths - 1))
        self._again_s = time.monotonic() + wait_s
        return (
            f"Airflow's {self.name} ended by itself ({code}); it "
            f"starts again in {wait_s:.0f} s. Its log: {self._log}"
        )


def _spawn(
    command: list[str], log: Path, home: Path, variables: dict[str, str]
) -> subprocess.Popen[bytes]:
    with log.open("ab") as file:
        return subprocess.Popen(
            [sys.executable, "-m", "krake_airflow.loopback", "airflow", *command],
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            env=variables,
            cwd=home,
            start_new_session=True,
            preexec_fn=_ends_with_us,  # noqa: PLW1509 - it only sets a flag and a signal; no thread runs yet
        )


def _ends_with_us() -> None:
    """Prepare a child: SIGTERM comes if our process dies; SIGINT works, which a shell's `&` turns off."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def _with_children(pid: int, *, recursive: bool = True) -> list[psutil.Process]:
    try:
        root = psutil.Process(pid)
        return [root, *root.children(recursive=recursive)]
    except psutil.NoSuchProcess:
        return []


def _of_session(session: int) -> list[psutil.Process]:
    """Return the processes of a session, whose leader may be dead."""
    found = []
    for process in psutil.process_iter():
        with suppress(OSError):
            if os.getsid(process.pid) == session:
                found.append(process)
    return found


def _alive_after(processes: Iterable[psutil.Process], most_s: float) -> list[psutil.Process]:
    """Return the processes that still live after so many seconds; return early if none does.

    A process has also ended before its parent asks for its end: parents may be slow, or stopped.
    """
    until_s = time.monotonic() + most_s
    while (
        alive := [process for process in processes if _lives(process)]
    ) and time.monotonic() < until_s:
        time.sleep(0.02)
    return alive


def _lives(process: psutil.Process) -> bool:
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def _end_all(processes: Iterable[psutil.Process], patience_s: float = 8.0) -> None:
    """End the processes that still live; politely first, so that a crawl's spool is flushed, if there is
    the patience."""
    alive = _alive_after(processes, 0.0)
    for number in (signal.SIGTERM, signal.SIGKILL) if patience_s else (signal.SIGKILL,):
        for process in alive:
            _signal(process, number)
        alive = _alive_after(alive, patience_s or _KILLED_S)


def _signal(process: psutil.Process, number: signal.Signals) -> None:
    try:
        process.send_signal(number)
    except psutil.NoSuchProcess:
        return
