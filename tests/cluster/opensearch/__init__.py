"""A real OpenSearch on this machine: two nodes in a directory, on free ports.

The jars come by Maven (`pom.xml` in this folder) into `target/opensearch` of the folder above, once. Java 17 runs them.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import requests

from tests.cluster.hdfs import FAST_START, START_LIMIT_S
from tests.cluster.processes import spawn, wait_until
from tests.ports import free_port

HERE = Path(__file__).resolve().parent
JARS = HERE.parent / "target" / "opensearch"
MANAGER, OTHER = "n1", "n2"
ANSWER_LIMIT_S = 60.0
LOG4J = """status = error
appender.console.type = Console
appender.console.name = console
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{ISO8601} %p %c{1}: %m%n
rootLogger.level = info
rootLogger.appenderRef.console.ref = console
"""


def resolve_opensearch() -> None:
    """Fetch the jars if they are not there; processes that need them at once wait. About a minute, once."""
    with (HERE / "pom.xml").open("rb") as one_at_a_time:
        fcntl.flock(one_at_a_time, fcntl.LOCK_EX)
        if not JARS.exists():
            part = JARS.with_name("opensearch-part")
            shutil.rmtree(part, ignore_errors=True)
            command = [
                "mvn",
                "-q",
                "-B",
                "-ntp",
                "dependency:copy-dependencies",
                f"-DoutputDirectory={part}",
            ]
            done = subprocess.run(command, cwd=HERE, capture_output=True, text=True, timeout=600)
            assert done.returncode == 0, (
                f"Maven cannot resolve OpenSearch:\n{done.stdout[-2000:]}{done.stderr[-2000:]}"
            )
            part.rename(JARS)


class OpenSearch:
    """Two nodes, of which `MANAGER` manages the cluster. Use as a context manager."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.http = {name: free_port() for name in (MANAGER, OTHER)}
        self.transport = {name: free_port() for name in (MANAGER, OTHER)}
        self.running: dict[str, subprocess.Popen[bytes]] = {}
        self.session = requests.Session()
        self.session.trust_env = False

    def __enter__(self) -> OpenSearch:
        try:
            for name in self.http:
                self.start(name)
            self.wait_for_nodes(2)
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    @property
    def url(self) -> str:
        """The address of the node that manages the cluster."""
        return f"http://127.0.0.1:{self.http[MANAGER]}"

    def start(self, name: str) -> None:
        """Start a node."""
        folder = self.directory / name
        (folder / "config").mkdir(parents=True, exist_ok=True)
        log4j = folder / "config" / "log4j2.properties"
        log4j.write_text(LOG4J)
        settings = {
            "node.name": name,
            "cluster.name": "krake",
            "http.port": self.http[name],
            "transport.port": self.transport[name],
            "network.host": "127.0.0.1",
            "discovery.seed_hosts": ",".join(
                f"127.0.0.1:{port}" for port in self.transport.values()
            ),
            "cluster.initial_cluster_manager_nodes": MANAGER,
            "cluster.routing.allocation.disk.threshold_enabled": "false",
            "node.roles": "cluster_manager,data" if name == MANAGER else "data",
        }
        options = [word for word in FAST_START if not word.startswith("-Xmx")]
        java = [
            "java",
            "-Xmx512m",
            *options,
            f"-Dlog4j2.configurationFile={log4j}",
            "-cp",
            f"{JARS}/*",
        ]
        command = [
            *java,
            str(HERE / "OpenSearchNode.java"),
            str(folder),
            *(f"{k}={v}" for k, v in settings.items()),
        ]
        self.running[name] = spawn(command, self.directory / f"{name}.log", death=signal.SIGKILL)

    def kill(self, name: str) -> None:
        """End a node at once."""
        process = self.running.pop(name)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()

    def stop(self) -> None:
        """End all nodes."""
        for name in list(self.running):
            self.kill(name)
        self.session.close()

    def wait_for_nodes(self, count: int) -> None:
        """Wait until so many nodes are together, and no shard is on its way."""
        wanted = f"wait_for_nodes={count}&wait_for_no_relocating_shards=true&timeout=1s"

        def ready() -> bool:
            assert all(process.poll() is None for process in self.running.values()), self.logs()
            try:
                return self.ask("GET", f"/_cluster/health?{wanted}").get("timed_out") is False
            except requests.ConnectionError:
                return False

        wait_until(f"OpenSearch with {count} nodes", ready, START_LIMIT_S)

    def logs(self) -> str:
        """The last lines of all nodes."""
        return "\n".join(file.read_text()[-2000:] for file in sorted(self.directory.glob("*.log")))

    def ask(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """The answer to a request, whatever its status."""
        answer = self.session.request(method, self.url + path, json=body, timeout=ANSWER_LIMIT_S)
        found: dict[str, Any] = answer.json()
        return found

    def count(self, alias: str) -> int:
        """The pages behind an alias."""
        return int(self.ask("GET", f"/{alias}/_count")["count"])
