"""The harness as tests call it: a process of its own, since it forks."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LONGEST_S = 900


def torture(*arguments: object, directory: Path) -> subprocess.CompletedProcess[str]:
    """Run `python -m tests.torture` with these arguments; crawls lie in `directory`, or in memory if there is room."""
    command = [sys.executable, "-m", "tests.torture", *map(str, arguments)]
    return subprocess.run(
        command, cwd=ROOT, env=environment(directory), capture_output=True, text=True, timeout=LONGEST_S
    )


def environment(directory: Path) -> dict[str, str]:
    """Nothing of the caller's that a crawl heeds, and a place for temporary files."""
    return {"PATH": "/usr/bin:/bin", "TMPDIR": str(directory), "PYTHONPATH": str(ROOT)}
