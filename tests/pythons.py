"""Programs of Python that run a line of ours before all else: fetching processes are begun by `sys.executable`."""

from __future__ import annotations

import os
import sys
import sysconfig
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PYTHON_VARIABLE = "KRAKE_TEST_PYTHON"
"""What `tests.forked` calls `sys.executable`."""


def python_of(directory: Path, line: str) -> str:
    """The program of a new environment in `directory` that runs a line first; all else is that of this Python."""
    site = (
        directory / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}" / "site-packages"
    )
    site.mkdir(parents=True)
    (directory / "bin").mkdir()
    program = directory / "bin" / "python"
    program.symlink_to(Path(sys.executable).resolve())
    home = Path(sys.base_prefix) / "bin"
    (directory / "pyvenv.cfg").write_text(f"home = {home}\ninclude-system-site-packages = false\n")
    lines = [
        f"import site; site.addsitedir({sysconfig.get_paths()['purelib']!r})",
        str(ROOT),
        f"import sys; {line}",
    ]
    (site / "first.pth").write_text("\n".join(lines) + "\n")
    return str(program)


def wait_for_nothing() -> None:
    """Have this process try again at once what failed, within an iteration; how often stays as it is."""
    from crawl_lib.fetch import RETRIES  # noqa: PLC0415 - a program's first line imports this module

    for failure, row in RETRIES.items():
        RETRIES[failure] = replace(row, wait_s=0.0)


def leave_no_host_alone() -> None:
    """Have this process go on with the pages of a host that says that it is busy."""
    from crawl_lib.fetch import dispatch  # noqa: PLC0415 - as above

    dispatch._BUSY = ()


@contextmanager
def impatient(directory: Path) -> Iterator[None]:
    """Fetching processes that are begun within, also by `tests.forked`, try again at once, and back off from no host.

    `directory`: a new one, or one of an earlier call.
    """
    before, set_before = sys.executable, os.environ.get(PYTHON_VARIABLE)
    program = directory / "bin/python"
    line = "import tests.pythons as p; p.wait_for_nothing(); p.leave_no_host_alone()"
    sys.executable = str(program) if program.exists() else python_of(directory, line)
    os.environ[PYTHON_VARIABLE] = sys.executable
    try:
        yield
    finally:
        sys.executable = before
        del os.environ[PYTHON_VARIABLE]
        if set_before is not None:
            os.environ[PYTHON_VARIABLE] = set_before


def be_late(seconds: float) -> None:
    """Have this process's clock be ahead; what it waits for by itself takes as long as ever."""
    now = time.time
    time.time = lambda: now() + seconds
