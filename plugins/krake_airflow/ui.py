"""The program of `make ui`: Airflow with Krake's DAGs on this machine, until Ctrl-C.

The pages show the crawls of the given config or folder, and all crawls of `make crawl`, with their runs. The port is
8080 if free, else any; `AIRFLOW_PORT` names another.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from crawl_lib.durable import write_durable
from crawl_lib.errors import ConfigError, KrakeError
from krake_airflow.alone import alone
from krake_airflow.configs import link_configs, read_configs
from krake_airflow.database import end_dead_runs
from krake_airflow.server import AirflowServer, free_ports
from krake_airflow.settings import (
    DATABASE_FILE,
    LOCK_FILE,
    URL_FILE,
    USER,
    airflow_home,
    config_path,
    home_errors,
)

PORT_VARIABLE = "AIRFLOW_PORT"
DEFAULT_PORT = 8080


def main(arguments: list[str] | None = None) -> int:
    """Run Airflow until a signal; return the exit code."""
    parser = argparse.ArgumentParser(prog="make ui", description=__doc__)
    parser.add_argument(
        "--config", type=Path, help="config file, or a folder of them; default: as krake finds it"
    )
    given = parser.parse_args(arguments)
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: stop.set())
    try:
        path = Path(given.config or config_path(os.environ)).resolve()
        _require_one(path)
        home = airflow_home(os.environ)
        with ExitStack() as stack:
            with home_errors(home):
                stack.enter_context(alone(home / LOCK_FILE, f"make ui of {path}"))
                (home / URL_FILE).unlink(
                    missing_ok=True
                )  # left by a killed `make ui`: nothing answers there
                (home / "logs").mkdir(exist_ok=True)
                configs = link_configs(home, path)
            end_dead_runs(home / DATABASE_FILE)
            return _serve(AirflowServer(home, configs, port=_port()), stop)
    except KrakeError as error:
        _say(f"make ui: {error}")
        return 1


def _require_one(path: Path) -> None:
    """Name the faults of configs; raise ConfigError if no config is usable."""
    good, bad = read_configs(path)
    lines = [line for one in bad for line in one.lines]
    if not good:
        raise ConfigError(*lines)
    for line in lines:
        _say(f"warning: {line}")


def _port() -> int:
    named = os.environ.get(PORT_VARIABLE)
    if named is not None:
        if not named.isdecimal() or not 0 <= int(named) <= 65535:
            raise KrakeError(f"{PORT_VARIABLE} is {named!r}, which is not a port")
        return int(named)
    try:
        return free_ports([DEFAULT_PORT])[0]
    except KrakeError:
        return 0


def _serve(server: AirflowServer, stop: threading.Event) -> int:
    with ExitStack() as stack:
        stack.enter_context(server)
        _say(f"Starting Airflow, which takes about half a minute (its logs: {server.logs}) ...")
        if server.start(stopped=stop.is_set):
            stack.enter_context(_told(server))
            _say(
                f"Airflow is at {server.url}\n  user      {USER}\n  password  {server.password}\nCtrl-C stops it."
            )
        while not stop.wait(1.0):
            for sentence in server.tend():
                _say(sentence)
        _say("Stopping Airflow ...")
    _say("Stopped.")
    return 0


@contextmanager
def _told(server: AirflowServer) -> Iterator[None]:
    """Give the address to `make crawl`, which triggers its runs here."""
    file = server.home / URL_FILE
    write_durable(file, f"{server.url}\n".encode())
    try:
        yield
    finally:
        file.unlink(missing_ok=True)


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()
