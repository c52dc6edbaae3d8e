"""What Airflow adds to a crawl of almost nothing: from the trigger to the success, against the same stages by library.

On one machine (LocalExecutor, SQLite) and on the cluster of `make cluster` (edge workers, PostgreSQL, HDFS, MariaDB).
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from krake_airflow.server import AirflowServer
from krake_airflow.settings import USER

from benchmarks.report import Row
from crawl_lib import Config
from crawl_lib.stores import PASSWORD_VARIABLE
from demo import Serving, SynthWeb
from tests.cluster.topology import Topology, why_not
from tests.contracts.mariadb import PASSWORD
from tests.dags.api import Api
from tests.e2e.crawl import make_config, run_crawl, write_config

WEB = SynthWeb(seed=8, sites=2, pages_per_site=4, specials=False)
NODES = 2
ITERATIONS = 3
SECTIONS: dict[str, Any] = {
    "crawl": {"max_iterations": ITERATIONS},
    "urls": {"scope": "hosts"},
    "fetch": {"host_delay_s": 0.0, "ip_delay_s": 0.0, "processes": 1, "allow_networks": ["127.0.0.0/8"]},
}


def run(directory: Path) -> list[Row]:
    """Both."""
    with Serving(WEB) as serving:
        rows = on_one_machine(directory, serving)
        if missing := why_not():
            return [*rows, Row("airflow: on the cluster", f"not measured: {missing}")]
        return rows + on_the_cluster(serving)


def on_one_machine(directory: Path, serving: Serving) -> list[Row]:
    """LocalExecutor."""
    folders = [directory / name for name in ("library", "airflow")]
    for folder in folders:
        folder.mkdir()
    by_library, config = (make_config(folder, nodes=NODES, **SECTIONS) for folder in folders)
    library_s = by_the_library(by_library, serving)
    with AirflowServer(directory / "home", write_config(config, folders[1])) as server:
        server.start()
        api = Api(server.url)
        api.sign_in(USER, server.password)
        return compared("one machine", api, serving, library_s)


def on_the_cluster(serving: Serving) -> list[Row]:
    """Edge workers. Not in the benchmark's own directory: PostgreSQL may run as another user, who must reach it."""
    directory = Path(tempfile.mkdtemp(prefix="krake-cluster-"))
    directory.chmod(0o711)
    topology = Topology(directory, nodes=NODES)
    topology.configure("first", SECTIONS)
    try:
        with topology, _password():
            config = topology.configure("library", SECTIONS)
            topology.make_tables(config)
            library_s = by_the_library(config, serving)
            topology.make_tables(topology.configure("airflow", SECTIONS))
            return compared("edge workers", topology.api, serving, library_s)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def by_the_library(config: Config, serving: Serving) -> float:
    """Seconds of all stages in this process; of the second of two runs."""
    took_s = 0.0
    for number in (1, 2):
        began_s = time.monotonic()
        run_crawl(config, serving.seeds, ITERATIONS, run_id=f"run-{number}")
        took_s = time.monotonic() - began_s
    return took_s


def compared(where: str, api: Api, serving: Serving, library_s: float) -> list[Row]:
    """Rows of the second of two runs, which finds nothing new."""
    for _ in range(2):
        began_s = time.monotonic()
        found = api.trigger(seeds="\n".join(serving.seeds), iterations=ITERATIONS)
        state = api.wait_end(found)
        wall_s = time.monotonic() - began_s
        if state != "success":
            return [Row(f"airflow, {where}", f"not measured: the run ended as {state}")]
    tasks = [state for state, _ in api.tasks(found).values() if state == "success"]
    levels = 1 + 3 * ITERATIONS + 6  # inject, the iterations, settle to finalizer
    over_s = wall_s - library_s
    return [
        Row(f"airflow, {where}: trigger to success", f"{wall_s:.1f} s, {library_s:.1f} s by the library"),
        Row(f"airflow, {where}: overhead", f"{over_s / len(tasks):.2f} s a task, {over_s / levels:.2f} s a level"),
    ]


@contextmanager
def _password() -> Iterator[None]:
    os.environ[PASSWORD_VARIABLE] = PASSWORD
    try:
        yield
    finally:
        del os.environ[PASSWORD_VARIABLE]
