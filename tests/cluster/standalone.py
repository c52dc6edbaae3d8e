"""A Spark cluster of its own on this machine: the master and a worker of the jars that PySpark brings (`spark://`)."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psutil
import pyspark

from tests.cluster.processes import end_all, spawn, wait_until
from tests.ports import free_port

HOME = Path(pyspark.__file__).parent
START_S = 240.0
CORES, MEMORY = 2, "1g"
JAVA = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
DEFAULTS = f"""spark.executor.memory 512m
spark.executor.defaultJavaOptions {JAVA}
"""
"""For spark-defaults.conf: executors that have room in the worker, and start fast."""


class Standalone:
    """A master and a worker, which has a disk of its own in `directory`. Use as a context manager."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._port = free_port()
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    @property
    def url(self) -> str:
        """What `spark.master` names."""
        return f"spark://127.0.0.1:{self._port}"

    def __enter__(self) -> Standalone:
        try:
            self._start("master", "--port", str(self._port))
            self._wait_for("master", "is alive", lambda said: "New state: ALIVE" in said)
            room = (
                "--cores",
                str(CORES),
                "--memory",
                MEMORY,
                "--work-dir",
                str(self.directory / "work"),
            )
            self._start("worker", *room, self.url)
            self._wait_for(
                "worker", "is registered", lambda said: "Successfully registered" in said
            )
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Kill both, and executors that are left."""
        end_all(self._running.values(), signal.SIGKILL, 20)
        self._running = {}

    def executors(self) -> list[psutil.Process]:
        """The processes that do the work of stages.

        Not all children of the worker: the shell that started it may have left it one of its own, dead, and unburied.
        """
        found = []
        for process in psutil.Process(self._running["worker"].pid).children(recursive=True):
            with suppress(psutil.NoSuchProcess, psutil.ZombieProcess):
                if "org.apache.spark.executor.CoarseGrainedExecutorBackend" in process.cmdline():
                    found.append(process)
        return found

    def spilled(self) -> list[Path]:
        """Files that executors have on the worker's disk."""
        return [path for path in (self.directory / "worker-disk").rglob("*") if path.is_file()]

    def _start(self, name: str, *arguments: str) -> None:
        local = self.directory / f"{name}-disk"
        local.mkdir(parents=True)
        own = {
            "SPARK_HOME": str(HOME),
            "SPARK_CONF_DIR": str(local),  # there is none
            "SPARK_LOCAL_DIRS": str(local),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": JAVA,
        }
        main = f"org.apache.spark.deploy.{name}.{name.title()}"
        listen = ("--host", "127.0.0.1", "--webui-port", "0")
        command = [str(HOME / "bin" / "spark-class"), main, *listen, *arguments]
        self._running[name] = spawn(
            command, self._log(name), env=os.environ | own, death=signal.SIGKILL
        )

    def _log(self, name: str) -> Path:
        return self.directory / f"{name}.log"

    def _wait_for(self, name: str, what: str, ready: Callable[[str], bool]) -> None:
        def is_ready() -> bool:
            said = self._log(name).read_text()
            assert self._running[name].poll() is None, f"no {name} of Spark: {said[-3000:]}"
            return ready(said)

        wait_until(f"Spark's {name} {what}", is_ready, START_S)
