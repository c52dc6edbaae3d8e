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
from statistics import median
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
MANY = 20
RUNS = 5
SECTIONS: dict[str, Any] = {
    "crawl": {"max_iterations": 5},
    "urls": {"scope": "hosts"},
    "fetch": {
        "host_delay_s": 0.0,
        "ip_delay_s": 0.0,
        "processes": 1,
        "allow_networks": ["127.0.0.0/8"],
    },
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
    (directory / "library").mkdir()
    library_s = by_the_library(make_config(directory / "library", nodes=NODES, **SECTIONS), serving)
    with running(directory / "airflow", SECTIONS) as api:
        rows = compared("one machine", api, library_s)
    with running(directory / "many", {**SECTIONS, "crawl": {"max_iterations": MANY}}) as api:
        took_s = median(seconds_of_failed_run(api, MANY) for _ in range(RUNS))
        return [
            *rows,
            Row(
                f"airflow, one machine: a failed run of {MANY} iterations is over after",
                f"{took_s:.1f} s",
            ),
        ]


@contextmanager
def running(directory: Path, sections: dict[str, Any]) -> Iterator[Api]:
    """An Airflow of this directory's own."""
    directory.mkdir()
    config = write_config(make_config(directory, nodes=NODES, **sections), directory)
    with AirflowServer(directory / "home", config) as server:
        server.start()
        api = Api(server.url)
        api.sign_in(USER, server.password)
        yield api


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
            return compared("edge workers", topology.api, library_s)
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


def compared(where: str, api: Api, library_s: float) -> list[Row]:
    """Medians of some runs after a first one, each of a web whose port is new; of runs that have nothing to do, and of
    those that fail at once."""
    found: list[dict[str, tuple[float, float]]] = []
    for _ in range(1 + RUNS):
        with Serving(WEB) as serving:
            run = api.trigger(seeds="\n".join(serving.seeds), iterations=ITERATIONS)
            if (state := api.wait_end(run)) != "success":
                return [Row(f"airflow, {where}", f"not measured: the run ended as {state}")]
            found.append(api.times(run))
    wall_s = median(times[""][1] - times[""][0] for times in found[1:])
    levels = (
        1 + 2 * ITERATIONS + 4
    )  # inject, the iterations, settle next to maintain_keys, export to finalizer
    rounds_s, failed_s = [], []
    for _ in range(RUNS):
        run = api.trigger(seeds="", iterations=ITERATIONS)
        api.wait_end(run)
        empty = api.times(run)
        rounds_s.append(empty["iteration_1.commit"][1] - empty["inject"][1])
        failed_s.append(seconds_of_failed_run(api, ITERATIONS))
    return [
        Row(
            f"airflow, {where}: trigger to success",
            f"{wall_s:.1f} s, {library_s:.1f} s by the library",
        ),
        Row(f"airflow, {where}: overhead", f"{(wall_s - library_s) / levels:.2f} s a level"),
        Row(f"airflow, {where}: a round with nothing to take", f"{median(rounds_s):.1f} s"),
        Row(f"airflow, {where}: a failed run is over after", f"{median(failed_s):.1f} s"),
    ]


def seconds_of_failed_run(api: Api, iterations: int) -> float:
    """From the end of its only task that failed to its own end."""
    run = api.trigger(seeds="nowhere", iterations=iterations)
    api.wait_end(run)
    failed = api.times(run)
    return failed[""][1] - failed["inject"][1]


@contextmanager
def _password() -> Iterator[None]:
    os.environ[PASSWORD_VARIABLE] = PASSWORD
    try:
        yield
    finally:
        del os.environ[PASSWORD_VARIABLE]
