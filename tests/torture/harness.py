"""The harness as tests call it: a process of its own, since it forks."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LONGEST_S = 1500
ROOM_BYTES = 2 << 30
"""What a crawl is to find free, and what rounds leave: a container's memory disk often has 64 MB."""


def memory_disk() -> str | None:
    """A file system in memory, if there is one: fsync costs nothing there, and losses of power are simulated."""
    there = os.access("/dev/shm", os.W_OK) and shutil.disk_usage("/dev/shm").free > ROOM_BYTES
    return "/dev/shm" if there else None


def torture(*arguments: object, program: str = "tests.torture") -> subprocess.CompletedProcess[str]:
    """Run `python -m tests.torture` with these arguments, or another `program`; nothing of it is left on the disk."""
    with tempfile.TemporaryDirectory(prefix="krake-torture-", dir=memory_disk()) as directory:
        command = [sys.executable, "-m", program, "--directory", directory, *map(str, arguments)]
        variables = {"PATH": os.environ["PATH"], "TMPDIR": directory, "PYTHONPATH": str(ROOT)}
        return subprocess.run(command, cwd=ROOT, env=variables, capture_output=True, text=True, timeout=LONGEST_S)
