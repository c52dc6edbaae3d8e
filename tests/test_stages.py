"""`crawl_lib.stages`: what it loads, since Airflow's processes have it before they fork tasks."""

import json
import subprocess
import sys

import pytest

LOADED = """
import json, os, sys
import crawl_lib.stages as stages
if sys.argv[1:]:
    getattr(stages, sys.argv[1])
heavy = [name for name in ("numpy", "pyarrow", "duckdb", "airflow") if name in sys.modules]
print(json.dumps([len(os.listdir("/proc/self/task")), heavy]))
"""


def loaded(*words: str) -> list[object]:
    """How many threads a process has that imported it, and asked it for a name; what it loaded that is heavy."""
    done = subprocess.run(
        [sys.executable, "-c", LOADED, *words], capture_output=True, text=True, check=True
    )
    found: list[object] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize(
    "name",
    ["inject", "commit_iteration", "maintain_keys", "require_usable", "crawl_node", "settle_node"],
)
def test_a_process_that_is_forked_for_each_task_has_one_thread_and_nothing_heavy(name: str) -> None:
    """A fork takes along one thread only, with whatever locks the others hold."""
    assert loaded(name) == [1, []]
