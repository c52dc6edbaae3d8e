"""The first hour: five pages in two iterations, by hand and in Airflow, by this checkout and by another commit in turn.

Both sides get the same config, which is that of `krake init` without a delay of hosts, and a site of their own.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import psutil
import yaml

from benchmarks.pairs import PROJECT, checkout_of
from benchmarks.report import Row, ahead
from demo import Serving, SynthWeb

LATER = 4
"""Runs after the first one of an Airflow."""
WEB = SynthWeb(seed=8, sites=1 + LATER, pages_per_site=5, specials=False)
"""A site for each run. All answer until the last run ends, since two iterations leave some pages to the next run."""
ITERATIONS = 2
BUDGET, BEFORE = 0.6, "9d8e0c7"
"""At most this part of what the first hour cost at that commit."""
TURNS = 7
AIRFLOW_TURNS = 3
CONFIG = {
    "servers": ["node-a", "node-b"],
    "dfs_primary": "data/dfs",
    "crawl": {"name": "krake"},
    "fetch": {"contact": "bench@localhost", "host_delay_s": 0.0, "allow_networks": ["127.0.0.0/8"]},
    "urls": {"scope": "domains"},
    "key_storage": {"servers": ["data/keys/0.sqlite"]},
    "queue": {"local_dir": "data/queue"},
    "scratch": {"directory": "data/scratch"},
}
BY_HAND = (
    *("inject SEEDS --run-id first", f"crawl --run-id first --iterations {ITERATIONS}", "settle"),
    *("export --label first", "graph link --export first", "graph finalize --export first"),
)
QUIET: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
_SUBREAPER = 36
"""PR_SET_CHILD_SUBREAPER: a process that outlives its parent becomes a child of this one, which waits for it."""
_AIRFLOW = """
import json, sys
from pathlib import Path

import psutil
from krake_airflow.server import AirflowServer
from krake_airflow.settings import USER

from benchmarks.report import ahead
from tests.dags.api import Api

def cpu_s():
    times = [part.cpu_times() for part in psutil.Process().children(recursive=True)]
    return sum(sum(one[:4]) for one in times)

with AirflowServer(Path(sys.argv[1]) / "home", Path(sys.argv[1]) / "krake.yml") as server:
    server.start()
    api = Api(server.url)
    api.sign_in(USER, server.password)
    parts = [part.pid for part in psutil.Process().children(recursive=True)]  # each has a session of its own
    with ahead(*parts):
        print("ready", flush=True)
        for line in sys.stdin:
            before_s = cpu_s()
            run = api.trigger(**json.loads(line))
            state = api.wait_end(run)
            began_s, ended_s = api.times(run)[""]
            print(json.dumps([state, ended_s - began_s, cpu_s() - before_s]), flush=True)
"""


@dataclass(frozen=True)
class Cost:
    """Seconds of the clock, and of CPU of all processes."""

    wall_s: float
    cpu_s: float


def by_hand(checkout: Path, directory: Path) -> list[Cost]:
    """Return the cost of all commands of one crawl by the code of a checkout, whose data are in a new directory."""
    config = _configure(directory)
    with Serving(WEB) as serving:
        servers, before_s, began_s = (
            psutil.Process().children(),
            _children_cpu_s(),
            time.monotonic(),
        )
        for command in BY_HAND:
            words = [serving.seeds[0] if word == "SEEDS" else word for word in command.split()]
            run = [checkout / ".venv/bin/krake", "--config", config, *words]
            subprocess.run(run, check=True, cwd=checkout, env=_environment(), **QUIET)
        wall_s = time.monotonic() - began_s
        for child in psutil.Process().children():  # what a command began, and did not wait for
            if child not in servers:
                os.waitpid(child.pid, 0)
        return [Cost(wall_s, _children_cpu_s() - before_s)]


def _configure(directory: Path) -> Path:
    (directory / "data").mkdir(parents=True)
    path = directory / "krake.yml"
    path.write_text(yaml.safe_dump(CONFIG))
    return path


def _environment() -> dict[str, str]:
    """Return the variables of a user, whose Python keeps the bytecode that it has compiled."""
    return {
        name: value
        for name, value in os.environ.items()
        if name not in ("PYTHONDONTWRITEBYTECODE", "PYTHONPATH")
    }


def _children_cpu_s() -> float:
    """CPU of all children that this process has waited for, and of theirs."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def in_airflow(checkout: Path, directory: Path) -> list[Cost]:
    """Return the cost of the first run of a new Airflow, and of each later one."""
    _configure(directory)
    with Serving(WEB) as serving, _airflow(checkout, directory) as run:
        return list(map(run, serving.seeds))


@contextmanager
def _airflow(checkout: Path, directory: Path) -> Iterator[Callable[[str], Cost]]:
    """An Airflow with the code of a checkout, while the `with` block runs; yields what runs a seed to the end."""
    command = [checkout / ".venv/bin/python", "-c", _AIRFLOW, directory]
    variables = {**_environment(), "PYTHONPATH": str(checkout / "plugins")}
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, cwd=checkout, env=variables, text=True, **pipes) as server:
        assert server.stdin
        assert server.stdout
        lines = iter(server.stdout.readline, "")
        next(line for line in lines if line == "ready\n")

        def run(seed: str) -> Cost:
            print(
                json.dumps({"seeds": seed, "iterations": ITERATIONS}), file=server.stdin, flush=True
            )
            state, wall_s, cpu_s = json.loads(next(lines))
            if state != "success":
                raise RuntimeError(
                    f"{checkout}: the run ended as {state}; {directory}/home/logs says why"
                )
            return Cost(wall_s, cpu_s)

        yield run
        server.stdin.close()


Pair = tuple[Sequence[Cost], Sequence[Cost]]


def in_turns(
    cost: Callable[[Path, Path], Sequence[Cost]], other: Path, directory: Path, turns: int
) -> list[Pair]:
    """Return what this checkout and the other one cost in each turn; who begins changes each time.

    `cost`: returns the costs of a side in a new directory, one for each kind of figure.
    """
    found = []
    for number in range(turns):
        costs = {}
        for side in (PROJECT, other) if number % 2 else (other, PROJECT):
            name = f"{cost.__name__}-{number}-{'this' if side == PROJECT else 'other'}"
            costs[side] = cost(side, directory / name)
            told = ", ".join(f"{one.wall_s:.2f} ({one.cpu_s:.2f})" for one in costs[side])
            print(f"  {name}: {told} s (of CPU)", file=sys.stderr, flush=True)
        found.append((costs[PROJECT], costs[other]))
    return found


def rows_of(what: str, pairs: Sequence[Pair], runs: slice, commit: str) -> list[Row]:
    """Return a row for CPU and one for the clock. `runs`: which runs of a turn count, by their median."""
    budget = f"at most {BUDGET}" if commit.startswith(BEFORE) else ""
    rows = []
    for name, field in (("CPU", "cpu_s"), ("clock", "wall_s")):
        values = [
            [median(getattr(one, field) for one in side[runs]) for side in pair] for pair in pairs
        ]
        ratios = sorted(this / other for this, other in values)
        this_s, other_s = (median(side) for side in zip(*values, strict=True))
        value = f"{median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f}); medians {this_s:.2f}, {other_s:.2f} s"
        met = median(ratios) <= BUDGET if budget else None
        rows.append(Row(f"first hour against {commit}, {what}: {name}", value, budget, met))
    return rows


def run(directory: Path, commit: str) -> list[Row]:
    """Crawl in turn, by the code of this checkout and by that of a commit."""
    ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0)
    with checkout_of(commit, directory) as other, ahead():
        hand = in_turns(by_hand, other, directory, TURNS)
        airflow = in_turns(in_airflow, other, directory, AIRFLOW_TURNS)
    return [
        *rows_of("by hand", hand, slice(None), commit),
        *rows_of("in Airflow, the first run after its start", airflow, slice(1), commit),
        *rows_of("in Airflow, later runs", airflow, slice(1, None), commit),
    ]
