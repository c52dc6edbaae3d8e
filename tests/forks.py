"""Programs of tests, forked from a process that has made what they share, such as what Airflow takes seconds to load.

`tests.forked` is for programs that need the library only. A test about how a program starts, or what it loads, begins
it by `subprocess` instead.
"""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn, Self

from tests.pythons import ROOT


class Forked:
    """A program that runs; used as a `subprocess.Popen` is. `stdout`: what it prints, errors too."""

    def __init__(self, server: subprocess.Popen[str], output: Path) -> None:
        self._server = server
        self.stdout = output.open()
        assert server.stdout is not None
        self.pid = int(server.stdout.readline())
        self.returncode: int | None = None

    def send_signal(self, number: int) -> None:
        """Send it a signal."""
        os.kill(self.pid, number)

    def communicate(self, timeout: float) -> tuple[str, None]:
        """What it prints from now on, when it has ended; pytest's own limit of time is the only one."""
        with self.stdout:
            said = self.stdout.read()
        assert self._server.stdout is not None
        self.returncode = int(self._server.stdout.readline())
        return said, None


class Forks:
    """The process that forks, while its `with` block runs: one program at a time, which changes nothing for the others.

    `shared`: a Python program, which makes what all share; without a thread that runs on. `variables`: its environment.
    """

    def __init__(self, shared: str, variables: Mapping[str, str]) -> None:
        self._shared, self._variables = shared, variables

    def __enter__(self) -> Self:
        command = [sys.executable, "-m", "tests.forks", self._shared]
        self._server = subprocess.Popen(
            command,
            env=dict(self._variables),
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        return self

    def __exit__(self, *error: object) -> None:
        self._server.communicate()

    def start(
        self, program: str, arguments: list[str], variables: Mapping[str, str] | None = None
    ) -> Forked:
        """Begin what `python -c program arguments` does in this folder.

        `variables`: its environment; None: that of the process that forks.
        """
        assert self._server.stdin is not None
        with tempfile.TemporaryDirectory(prefix="krake-forks-") as directory:
            output = Path(directory, "output")
            os.mkfifo(output)
            asked = {
                "program": program,
                "arguments": arguments,
                "variables": dict(self._variables if variables is None else variables),
                "directory": str(Path.cwd()),
                "output": str(output),
            }
            self._server.stdin.write(json.dumps(asked) + "\n")
            self._server.stdin.flush()
            return Forked(self._server, output)


def _serve(shared: str) -> None:
    """Fork a program for each line of the input; prints its process id, then its exit code."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # for what others print
    gc.disable()  # what is loaded stays
    exec(compile(shared, "<string>", "exec"), {"__name__": "shared"})
    gc.freeze()
    gc.enable()
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            _become(**json.loads(line))
        print(pid, file=answers, flush=True)
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), file=answers, flush=True)


def _become(
    program: str, arguments: list[str], variables: dict[str, str], directory: str, output: str
) -> NoReturn:
    for path, flags, numbers in ((os.devnull, os.O_RDONLY, (0,)), (output, os.O_WRONLY, (1, 2))):
        descriptor = os.open(path, flags)
        for number in numbers:
            os.dup2(descriptor, number)
        os.close(descriptor)
    os.chdir(directory)
    os.environ.clear()
    os.environ.update(variables)
    tempfile.tempdir = None
    sys.argv = ["-c", *arguments]
    code: Any = 1
    try:
        exec(compile(program, "<string>", "exec"), {"__name__": "__main__"})
        code = 0
    except SystemExit as end:
        code = end.code
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(int(code or 0))  # to free all that was loaded may take a second


if __name__ == "__main__":
    _serve(sys.argv[1])
