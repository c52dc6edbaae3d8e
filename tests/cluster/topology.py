"""Krake on many machines, as processes of this one: what `docker-compose.yml` has as containers.

HDFS (a namenode and a datanode) or an object store (versitygw), a MariaDB for each node, and Airflow: API server,
scheduler and DAG processor with a PostgreSQL, an edge worker for each node, and one for the tasks that belong to none.
Every "machine" has a folder with its own AIRFLOW_HOME, config file, queue and scratch; edge workers know one URL of
Airflow, and no database.

Everything listens on loopback, on free ports, which are kept with the data: a topology that is started again goes on
where it was. Servers end with the thread that started them, so none is left behind whatever happens to it.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Self

import yaml
from krake_airflow.database import DatabaseMark
from krake_airflow.server import PASSWORDS_FILE
from krake_airflow.settings import PROJECT, USER, centre_environment, worker_environment

from crawl_lib.config import Config, from_mapping
from crawl_lib.keys import open_key_store
from crawl_lib.stores import PASSWORD_VARIABLE
from tests.cluster import hdfs as hadoop
from tests.cluster import postgres, reaper, versitygw
from tests.cluster.processes import Ports, end_all, kill_family, spawn, wait_until
from tests.cluster.versitygw import VersityGw
from tests.contracts import mariadb
from tests.dags.api import Api
from tests.s3 import credential_variables

BATCH = "batch"
"""The machine of the tasks that belong to no node; they are in Airflow's queue `default`."""
START_S = 480.0
DEAD_AFTER_S = "40"
"""Less than `settings.RECOVERY` gives: tests wait for it, and no API server starts again on a busy machine here."""
CENTRE = ("api-server", "scheduler", "dag-processor")


def why_not(*, on_s3: bool = False) -> str:
    """Why the topology cannot run here, "" if it can. `on_s3`: see `Topology`."""
    missing = [
        versitygw.why_not() if on_s3 else hadoop.why_not(),
        postgres.why_not(),
        mariadb.why_not(),
    ]
    return "; ".join(text for text in missing if text)


class Topology:
    """The cluster, while its `with` block runs.

    `directory`: where all its data lie, made if missing; the path must be short enough for a Unix socket. `nodes`: how
    many, each with a key server. `fast`: servers that need not survive a power loss. `running`: another process has
    started it, and this one only asks. `say`: told what is being done. `on_s3`: an object store in place
    of HDFS.
    """

    def __init__(
        self,
        directory: Path,
        *,
        nodes: int = 3,
        key_servers: int = 3,
        fast: bool = False,
        running: bool = False,
        say: Callable[[str], None] = lambda text: None,
        on_s3: bool = False,
    ) -> None:
        self.directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        self.ports = Ports(directory / "ports.json", running=running)
        self.nodes = [f"node-{chr(ord('a') + number)}" for number in range(nodes)]
        self.hdfs = hadoop.Hdfs(directory / "hdfs", port=self.ports.series("hdfs"))
        self.gateway = VersityGw(directory / "s3", self.ports.take("s3")) if on_s3 else None
        self.keys = [self._key_server(number, fast=fast) for number in range(1, key_servers + 1)]
        self.postgres = postgres.Postgres(
            directory / "postgres", self.ports.take("postgres"), postgres.FAST if fast else ()
        )
        self.port = self.ports.take("airflow")
        self.api = Api(f"http://127.0.0.1:{self.port}")
        self.centre: dict[str, subprocess.Popen[bytes]] = {}
        self.workers: dict[str, subprocess.Popen[bytes]] = {}
        self._environment: dict[str, str] = {}
        self._reaper: subprocess.Popen[bytes] | None = None
        self._say = say

    # -- what it is

    def home(self, machine: str) -> Path:
        """The folder of a machine: "centre", "batch" or a node."""
        return self.directory / machine

    def config_path(self, machine: str) -> Path:
        """The config file of a machine."""
        return self.home(machine) / "krake-config.yml"

    def log(self, machine: str, part: str) -> Path:
        """What a process printed."""
        return self.home(machine) / "logs" / f"{part}.log"

    @property
    def machines(self) -> list[str]:
        """All that have a config."""
        return ["centre", BATCH, *self.nodes]

    @property
    def url(self) -> str:
        """Where Airflow's UI and API answer."""
        return self.api.url

    @property
    def password(self) -> str:
        """The password of the user `settings.USER`."""
        return str(json.loads((self.home("centre") / PASSWORDS_FILE).read_text())[USER])

    def configure(self, name: str, sections: Mapping[str, Any]) -> Config:
        """Give all machines the config of the crawl `name`, which begins now or goes on; no run may be active.

        `sections`: the options that are no matter of the topology. Returns the config of the machine `batch`. The key
        servers, which run, get their tables.
        """
        found: dict[str, Config] = {}
        for machine in self.machines:
            own = self.home(machine) / name
            own.mkdir(parents=True, exist_ok=True)
            found[machine] = from_mapping(self._mapping(name, sections, own), base=self.directory)
            path = self.config_path(machine)
            path.with_suffix(".new").write_text(yaml.safe_dump(found[machine].to_mapping()))
            path.with_suffix(".new").replace(path)
        return found[BATCH]

    def make_tables(self, config: Config) -> None:
        """The key tables of a crawl, where they are missing."""
        with open_key_store(config.key_storage, mariadb.PASSWORD) as store:
            store.create()

    # -- start and stop

    def __enter__(self) -> Self:
        try:
            self._start_all()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    def stop(self) -> None:
        """End everything: first the workers, whose tasks write what they have; nothing is left when this returns."""
        end_all(self.workers.values(), signal.SIGTERM, 20)
        end_all(self.centre.values(), signal.SIGINT, 20)
        self.workers, self.centre = {}, {}
        self.postgres.stop()
        for server in self.keys:
            server.stop()
        self.hdfs.stop()
        if self.gateway is not None:
            self.gateway.stop()
        if self._reaper is not None:
            self._reaper.communicate()
            self._reaper = None

    def _start_all(self) -> None:
        self._reaper = subprocess.Popen(
            [sys.executable, "-m", reaper.__name__],
            stdin=subprocess.PIPE,
            cwd=PROJECT,
            start_new_session=True,
        )
        self._say("PostgreSQL ...")
        self.postgres.start()
        self._environment = self._centre_environment()
        migrating = self._migrate()
        self._say(f"{len(self.keys)} key servers (MariaDB) ...")
        for server in self.keys:
            _start_key_server(server)
        self._start_store()
        if migrating is not None:
            self._say("Airflow's tables ...")
            assert migrating.wait(START_S) == 0, self.log("centre", "migrate").read_text()[-3000:]
            self._database.set()
        if not self.config_path(BATCH).exists():
            self.configure("crawl", {})
        self._say("Airflow: API server, scheduler, DAG processor ...")
        for part in CENTRE:
            self.centre[part] = self._watched(
                _airflow(part), self.log("centre", part), self._environment
            )
        wait_until("Airflow's API answers", lambda: self._health() is not None, START_S)
        self._say(f"Edge workers: {', '.join([BATCH, *self.nodes])} ...")
        for machine in [BATCH, *self.nodes]:
            self._spawn_worker(machine)
        for machine in [BATCH, *self.nodes]:
            self.wait_worker(machine)
        wait_until("Airflow is healthy", self._healthy, START_S)
        self.api.sign_in(USER, self.password)

    def _start_store(self) -> None:
        if self.gateway is not None:
            self._say(
                "An object store: versitygw, which Go builds in some minutes the first time ..."
            )
            self.gateway.__enter__()
            return
        self._say("HDFS: a namenode and a datanode ...")
        hadoop.resolve_jars()
        self.hdfs.__enter__()

    def start_worker(self, machine: str) -> None:
        """Start an edge worker, and again until Airflow takes it, as any service manager does.

        Airflow refuses a worker as long as it has not noticed that an earlier one of that name is dead.
        """
        self._spawn_worker(machine)
        self.wait_worker(machine)

    def wait_worker(self, machine: str) -> None:
        """Until Airflow has taken the edge worker."""
        wait_until(f"the worker {machine} is registered", lambda: self.look_after(machine), START_S)

    def look_after(self, machine: str) -> bool:
        """Start an edge worker again if it ended; whether it is registered."""
        if self.workers[machine].poll() is not None:
            self._spawn_worker(machine)
        return self._pid_file(machine).exists()

    def look_after_all(self) -> None:
        """The same for every edge worker: what a service manager does on each machine."""
        for machine in self.workers:
            self.look_after(machine)

    def kill_worker(self, machine: str) -> int:
        """SIGKILL to an edge worker and all its children at once; returns how many processes died."""
        process = self.workers[machine]
        killed = kill_family(process.pid)
        process.wait()
        return killed

    def still_runs(self) -> None:
        """Raise AssertionError naming a part of the centre that ended by itself."""
        for part, process in self.centre.items():
            code = process.poll()
            assert code is None, (
                f"Airflow's {part} ended with {code}; see {self.log('centre', part)}"
            )

    # -- how

    def _key_server(self, number: int, *, fast: bool) -> mariadb.MariaDb:
        directory = self.directory / f"keys-{number}"
        directory.mkdir(exist_ok=True)
        options = (
            "--innodb-buffer-pool-size=64M",
            "--innodb-log-file-size=16M",
            *(mariadb.FAST if fast else ()),
        )
        return mariadb.MariaDb(directory, options, port=self.ports.take(f"keys-{number}"))

    def _mapping(self, name: str, sections: Mapping[str, Any], folder: Path) -> dict[str, Any]:
        """The config of a machine whose own directories are below `folder`."""
        own: dict[str, dict[str, Any]] = {
            "key_storage": {
                "servers": [server.server for server in self.keys],
                "database": f"krake_{name}",
                "user": "krake",
                "replication": min(2, len(self.keys)),
            },
            "queue": {"local_dir": str(folder / "queue")},
            "scratch": {"directory": str(folder / "scratch")},
            "inject": {"directory": str(folder / "seeds")},
        }
        mapping: dict[str, Any] = dict(sections)
        for section, options in own.items():
            mapping[section] = {**sections.get(section, {}), **options}
        if self.gateway is None:
            return {
                **mapping,
                "servers": self.nodes,
                "dfs_primary": f"{self.hdfs.address}/krake/{name}",
            }
        far = self.gateway.config(name)
        return {
            **mapping,
            "servers": self.nodes,
            "dfs_primary": far.dfs_primary,
            "s3": asdict(far.s3),
        }

    def _migrate(self) -> subprocess.Popen[bytes] | None:
        if self._database.is_set():
            return None
        return spawn(
            _airflow("db", "migrate"), self.log("centre", "migrate"), env=self._environment
        )

    @property
    def _database(self) -> DatabaseMark:
        return DatabaseMark(self.home("centre"), self.postgres.directory / "data" / "PG_VERSION")

    def _centre_environment(self) -> dict[str, str]:
        home = self.home("centre")
        home.mkdir(exist_ok=True)
        log_port = self.ports.take("task-logs")
        return (
            _clean_environment()
            | centre_environment(
                home,
                self.config_path("centre"),
                port=self.port,
                database=self.postgres.url,
                log_port=log_port,
            )
            | {"AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT": DEAD_AFTER_S}
        )

    def _worker_environment(self, machine: str) -> dict[str, str]:
        return (
            _clean_environment()
            | worker_environment(
                self.home(machine),
                self.config_path(machine),
                url=self.url,
                secret=self._environment["AIRFLOW__API_AUTH__JWT_SECRET"],
                node=machine if machine in self.nodes else None,
            )
            | {PASSWORD_VARIABLE: mariadb.PASSWORD}
            | (credential_variables() if self.gateway is not None else {})
        )

    def _spawn_worker(self, machine: str) -> None:
        pid_file = self._pid_file(machine)
        pid_file.unlink(missing_ok=True)
        queue, tasks = ("default", "2") if machine == BATCH else (machine, "1")
        command = _airflow(
            "edge", "worker", "-q", queue, "-H", machine, "-c", tasks, "--pid", str(pid_file)
        )
        self.workers[machine] = self._watched(
            command, self.log(machine, "worker"), self._worker_environment(machine)
        )

    def _watched(
        self, command: list[str], log: Path, environment: dict[str, str]
    ) -> subprocess.Popen[bytes]:
        """Start a part of Airflow, whose whole session ends with us."""
        process = spawn(command, log, env=environment)
        assert self._reaper is not None
        assert self._reaper.stdin is not None
        self._reaper.stdin.write(b"%d\n" % process.pid)
        self._reaper.stdin.flush()
        return process

    def _pid_file(self, machine: str) -> Path:
        return self.home(machine) / "worker.pid"

    def _health(self) -> dict[str, Any] | None:
        self.still_runs()
        try:
            with urllib.request.urlopen(f"{self.url}/api/v2/monitor/health", timeout=10) as answer:
                found: dict[str, Any] = json.load(answer)
        except (OSError, urllib.error.URLError, ValueError):
            return None
        return found

    def _healthy(self) -> bool:
        health = self._health() or {}
        parts = ("metadatabase", "scheduler", "dag_processor")
        return all((health.get(part) or {}).get("status") == "healthy" for part in parts)


def _airflow(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "airflow", *arguments]


def _clean_environment() -> dict[str, str]:
    """Ours without what tests and users set for an Airflow of their own."""
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("AIRFLOW", "KRAKE"))
    } | {"PYTHONPATH": f"{PROJECT / 'plugins'}{os.pathsep}{PROJECT}"}


def _start_key_server(server: mariadb.MariaDb) -> None:
    new = not (server.directory / "data" / "mysql").exists()
    if new:
        server.install()
    server.start()
    if new:
        server.prepare()
