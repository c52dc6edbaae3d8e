"""The harness as tests call it: a process of its own, since it forks."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Self

from tests.forks import Forks

ROOT = Path(__file__).resolve().parents[2]
LONGEST_S = 1500
KEEP = "from pathlib import Path; from tests.torture.__main__ import keep; "
RUN = "import sys; from tests.torture.__main__ import main; sys.exit(main())"
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
        variables = _variables(directory)
        return subprocess.run(
            command, cwd=ROOT, env=variables, capture_output=True, text=True, timeout=LONGEST_S
        )


class Harness:
    """Runs of `python -m tests.torture` that share the unbroken crawls of some `flavours`, while its `with` runs."""

    def __init__(self, *flavours: str) -> None:
        self._flavours = flavours

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            prefix, disk = "krake-torture-", memory_disk()
            self._directory = stack.enter_context(
                tempfile.TemporaryDirectory(prefix=prefix, dir=disk)
            )
            shared = f"{KEEP}keep(Path({self._directory!r}), {self._flavours!r})"
            self._forks = stack.enter_context(Forks(shared, _variables(self._directory)))
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def torture(self, *arguments: object) -> tuple[int | None, str]:
        """One run with these arguments; returns its exit code and what it printed."""
        run = self._forks.start(RUN, ["--directory", self._directory, *map(str, arguments)])
        output, _ = run.communicate(timeout=LONGEST_S)
        return run.returncode, output


def _variables(directory: str) -> dict[str, str]:
    return {"PATH": os.environ["PATH"], "TMPDIR": directory, "PYTHONPATH": str(ROOT)}
