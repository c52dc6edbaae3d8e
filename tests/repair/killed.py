"""`krake` in a process of its own, which a durable step may kill."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from crawl_lib.durable import KILL_VARIABLE
from tests.cli.conftest import Done

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = "import sys; from crawl_lib.cli import main; sys.exit(main())"


def run_killed(words: list[str], kill_at: str | None) -> Done:
    """Run a command; `kill_at`: the step at which it dies by SIGKILL (exit code -9)."""
    environment = {name: value for name, value in os.environ.items() if name != KILL_VARIABLE}
    if kill_at is not None:
        environment[KILL_VARIABLE] = kill_at
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *words], capture_output=True, text=True, env=environment, cwd=ROOT
    )
    return Done(done.returncode, done.stdout, done.stderr)
