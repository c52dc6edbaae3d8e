"""How long Airflow takes to parse the DAGs of a large crawl, and of many crawls: each start of a task pays it again."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml
from krake_airflow.settings import PROJECT, environment

from benchmarks.report import Row, ahead

NODES = 100
ITERATIONS = 50
TIMES = 3
CONFIGS = 20
TASKS = 7


def run(directory: Path) -> list[Row]:
    """The shortest of some parses in one process, so that imports are not counted."""
    config = directory / "krake-config.yml"
    servers = [f"node-{number}" for number in range(NODES)]
    crawl = {"max_iterations": ITERATIONS}
    config.write_text(yaml.safe_dump({"servers": servers, "dfs_primary": "dfs", "crawl": crawl}))
    with ahead():
        found = _parse(directory, [str(config)] * TIMES)
    tasks = len(found[0]["dags"]["krake_crawl"]["tasks"])
    least_s = min(one["parse_s"] for one in found)
    return [
        Row(
            f"parsing {NODES} nodes x {ITERATIONS} iterations ({tasks:,} tasks)",
            f"{least_s:.2f} s CPU",
            "under 3 s",
            least_s < 3,
        ),
        _among_many(directory),
    ]


def _among_many(directory: Path) -> Row:
    """What a task's parse costs more with twenty configs than with one, by medians of both in turn."""
    default = (PROJECT / "config" / "krake-config.yml").read_text()
    for count in (1, CONFIGS):
        (directory / str(count)).mkdir()
        for number in range(count):
            text = default.replace("  name: krake ", f"  name: crawl-{number} ")
            (directory / str(count) / f"{number}.yml").write_text(text)
    with ahead():
        found = _parse(
            directory, [f"crawl-0_crawl@{directory / str(count)}" for count in (1, CONFIGS)] * TASKS
        )
    one, many = (
        statistics.median(entry["parse_s"] for entry in found[first::2]) for first in (0, 1)
    )
    return Row(
        f"a task's parse with {CONFIGS} configs, against one ({1000 * one:.0f} ms CPU)",
        f"{1000 * (many - one):+.0f} ms",
        "at most 20 ms",
        many - one <= 0.02,
    )


def _parse(directory: Path, configs: list[str]) -> list[dict[str, Any]]:
    """All in one process, each as the DAG processor does, or as a task; see `tests.dags.parse`."""
    variables = {
        **os.environ,
        **environment(directory / "home", Path(configs[0].rpartition("@")[2])),
    }
    command = [sys.executable, "-m", "tests.dags.parse", str(PROJECT / "dags"), *configs]
    done = subprocess.run(
        command, env=variables, cwd=PROJECT, capture_output=True, text=True, check=True
    )
    return [json.loads(line[6:]) for line in done.stdout.splitlines() if line.startswith("RESULT")]
