"""Programs of tests, forked from a process that has loaded the library: to load it costs each a second of CPU.

The program runs as the main thread of a process of its own, with an environment, standard files and a folder of its
own. Where a test is about how a program starts, it starts it by `subprocess` instead.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from tests.pythons import PYTHON_VARIABLE, ROOT

CONTEXT = get_context("forkserver")
"""The one process of this kind that a process of tests has, for all who need more than an exit code."""
CONTEXT.set_forkserver_preload(["tests.loaded"])


def run_forked(function: Callable[..., None], *arguments: Any) -> int:
    """Run a function of a module in a process of its own; returns its exit code, -9 if SIGKILL ended it."""
    process = CONTEXT.Process(target=function, args=arguments)
    process.start()
    process.join()
    code = process.exitcode
    process.close()
    assert code is not None
    return code


def run_python(
    program: str, arguments: Sequence[str], environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """What `python -c program arguments` does in the project's folder; `environment`: None is that of this process."""
    variables = dict(os.environ if environment is None else environment)
    with tempfile.TemporaryDirectory(prefix="krake-forked-") as directory:
        out, err = Path(directory, "out"), Path(directory, "err")
        code = run_forked(_run_python, program, [*map(str, arguments)], variables, out, err)
        return subprocess.CompletedProcess(
            [program, *arguments], code, out.read_text(), err.read_text()
        )


def _run_python(
    program: str, arguments: list[str], variables: dict[str, str], out: Path, err: Path
) -> None:
    os.chdir(ROOT)
    os.environ.clear()
    os.environ.update(variables)
    tempfile.tempdir = None
    sys.executable = variables.get(PYTHON_VARIABLE, sys.executable)
    sys.argv = ["-c", *arguments]
    for path, number in ((out, 1), (err, 2)):
        with path.open("wb") as file:
            os.dup2(file.fileno(), number)
    exec(compile(program, "<string>", "exec"), {"__name__": "__main__"})
