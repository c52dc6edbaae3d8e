"""An Airflow of one machine as a child process: starts `airflow standalone` on loopback, and leaves nothing behind.

SIGTERM to standalone kills only the parent, and its parts live on; SIGINT ends it cleanly. So it runs in a session of
its own (a Ctrl-C at the terminal does not reach it by itself), gets SIGINT, and what is left after that is killed.
Airflow's two log servers, which ask for a token, listen on all addresses; 3.3.2 has no option for that.
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
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import psutil  # type: ignore[import-untyped]  # a dependency of Airflow

from crawl_lib.errors import KrakeError
from krake_airflow.settings import USER, environment, server_environment

PASSWORDS_FILE = "simple_auth_manager_passwords.json.generated"
_STOP_S = 20.0
"""A task that runs while its API server ends would hold the scheduler for minutes; Krake's files bear its death."""
_PR_SET_PDEATHSIG = 1


def free_ports(wanted: Sequence[int]) -> list[int]:
    """Ports on loopback that nobody listens on; 0 chooses any, another number is kept if it is free.

    All are held until the last is found, so that none is given twice. Raises KrakeError naming a port that is taken.
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
                raise KrakeError(f"port {port} is taken by another program") from error
        return [found.getsockname()[1] for found in sockets]
    finally:
        for found in sockets:
            found.close()


class AirflowServer:
    """Runs Airflow standalone while its `with` block runs.

    `home`: its AIRFLOW_HOME, made if missing. `config`: Krake's config file. `port`: of UI and API, 0: any.
    `extra`: more environment variables. `log`: the file of all that its parts print.
    """

    def __init__(self, home: Path, config: Path, *, port: int = 0, extra: dict[str, str] | None = None) -> None:
        self.home = home
        self.log = home / "logs" / "standalone.log"
        self._config = config
        self._port = port
        self._extra = extra or {}
        self._process: subprocess.Popen[bytes] | None = None
        self.environment: dict[str, str] = {}

    def __enter__(self) -> Self:
        self.log.parent.mkdir(parents=True, exist_ok=True)
        self._port, worker_log, trigger_log = free_ports([self._port, 0, 0])
        self.environment = {
            **os.environ,
            **environment(self.home, self._config),
            **server_environment(self.home, port=self._port, worker_log_port=worker_log, trigger_log_port=trigger_log),
            **self._extra,
        }
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "airflow", "standalone"],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=self.environment,
                cwd=self.home,
                start_new_session=True,
                preexec_fn=_ready_to_be_stopped,  # noqa: PLW1509 - it only sets signals; no thread runs yet
            )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def url(self) -> str:
        """Where the UI and the API answer."""
        return f"http://127.0.0.1:{self._port}"

    @property
    def password(self) -> str:
        """The password of the user `settings.USER`, once Airflow is ready."""
        return str(json.loads((self.home / PASSWORDS_FILE).read_text())[USER])

    @property
    def running(self) -> bool:
        """Whether the process lives."""
        return self._process is not None and self._process.poll() is None

    def wait_ready(self, timeout_s: float = 180.0, stopped: Callable[[], bool] = lambda: False) -> bool:
        """Wait until the API answers and scheduler and DAG processor are healthy; False if `stopped` says so first.

        standalone's own "is ready" comes earlier than that. Raises KrakeError naming the log.
        """
        until_s = time.monotonic() + timeout_s
        while not stopped():
            if not self.running:
                raise KrakeError(f"Airflow ended while it started; see {self.log}")
            if self._healthy():
                return True
            if time.monotonic() > until_s:
                raise KrakeError(f"Airflow is not ready after {timeout_s:.0f} s; see {self.log}")
            time.sleep(0.3)
        return False

    def _healthy(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/api/v2/monitor/health", timeout=5) as answer:  # noqa: S310
                health: dict[str, Any] = json.load(answer)
        except (OSError, urllib.error.URLError, ValueError):
            return False
        parts = ("metadatabase", "scheduler", "dag_processor")
        return all((health.get(part) or {}).get("status") == "healthy" for part in parts)

    def stop(self) -> None:
        """End Airflow and every process that it started; returns when none is left."""
        process = self._process
        if process is None:
            return
        started = _with_children(process.pid)
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
            try:
                process.wait(_STOP_S)
            except subprocess.TimeoutExpired:
                started = _with_children(process.pid)
        _end_all(started)
        process.wait()
        self._process = None


def _ready_to_be_stopped() -> None:
    """In the child: SIGINT has its effect (a shell's `&` turns it off), and comes too if our process dies."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGINT)


def _with_children(pid: int) -> list[psutil.Process]:
    try:
        root = psutil.Process(pid)
        return [root, *root.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def _end_all(processes: list[psutil.Process]) -> None:
    """End those of these processes that still live; first politely, so that a crawl's spool is flushed."""
    alive = [process for process in processes if process.is_running()]
    for process in alive:
        _signal(process, signal.SIGTERM)
    _, alive = psutil.wait_procs(alive, timeout=8)
    for process in alive:
        _signal(process, signal.SIGKILL)
    psutil.wait_procs(alive, timeout=8)


def _signal(process: psutil.Process, number: signal.Signals) -> None:
    try:
        process.send_signal(number)
    except psutil.NoSuchProcess:
        return
