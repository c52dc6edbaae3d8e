"""How long Airflow takes to parse the DAG of a large crawl; each start of a task pays it again."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import yaml
from krake_airflow.settings import PROJECT, environment

from benchmarks.report import Row, ahead

NODES = 100
ITERATIONS = 50
TIMES = 3


def run(directory: Path) -> list[Row]:
    """The shortest of some parses in one process, so that imports are not counted."""
    config = directory / "krake-config.yml"
    servers = [f"node-{number}" for number in range(NODES)]
    crawl = {"max_iterations": ITERATIONS}
    config.write_text(yaml.safe_dump({"servers": servers, "dfs_primary": "dfs", "crawl": crawl}))
    variables = {**os.environ, **environment(directory / "home", config)}
    command = [sys.executable, "-m", "tests.dags.parse", str(PROJECT / "dags"), *[str(config)] * TIMES]
    with ahead():
        done = subprocess.run(command, env=variables, cwd=PROJECT, capture_output=True, text=True, check=True)
    found = [json.loads(line[6:]) for line in done.stdout.splitlines() if line.startswith("RESULT")]
    tasks = len(found[0]["dags"]["krake_crawl"]["tasks"])
    least_s = min(one["parse_s"] for one in found)
    return [
        Row(
            f"parsing {NODES} nodes x {ITERATIONS} iterations ({tasks:,} tasks)",
            f"{least_s:.2f} s CPU",
            "under 3 s",
            least_s < 3,
        )
    ]
