"""What a command loads: a person waits for it, and each command of a crawl by hand is a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys

from demo import Serving
from tests.cli.conftest import Krake
from tests.pythons import ROOT

RUN = """
import sys
from crawl_lib.cli import main
code = main(sys.argv[1:])
names = {name.partition(".")[0] for name, module in sys.modules.items() if module is not None}
print("LOADED", *names & {"duckdb", "numpy", "pandas", "pyarrow", "pycares"})
raise SystemExit(code)
"""


def loaded(krake: Krake, *words: str) -> set[str]:
    """Run a command in a process of its own; returns what it loaded that takes long."""
    command = [sys.executable, "-c", RUN, "--config", str(krake.file), *words]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return set(done.stdout.splitlines()[-1].split()[1:])


def test_a_crawl_by_hand_loads_what_each_command_needs(krake: Krake, serving: Serving) -> None:
    """pandas is there with Airflow, and takes 0.2 s of CPU of each process that loads it."""
    assert loaded(krake, "inject", "\n".join(serving.seeds)) == set()
    assert loaded(krake, "crawl", "--iterations", "2") <= {"numpy", "pyarrow", "pycares"}
    assert "duckdb" not in loaded(krake, "settle")
    for words in (("export",), ("graph", "link"), ("graph", "finalize")):
        assert "pandas" not in loaded(krake, *words)
