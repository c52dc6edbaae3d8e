"""A fork server that is forked instead of started: it costs milliseconds, and runs the same code.

A task has threads and open databases when it needs one, and must not be forked then. So it is forked before the task
begins. What it forks has no walls (`walls.sandbox`): the harness notes steps, and keeps what is deleted, elsewhere. The
attempts whose server is started as always have them.
"""

from __future__ import annotations

import os
import subprocess
import sys
import traceback
import types
from importlib.abc import MetaPathFinder
from typing import Any

from crawl_lib import durable
from crawl_lib.walls import forkserver
from crawl_lib.worker import worker


class _NoPandas(MetaPathFinder):
    """Arrow loads pandas at its first array, which costs a process more than all else; fetching processes bar it."""

    def find_spec(self, fullname: str, path: object, target: object = None) -> None:
        if fullname == "pandas":
            raise ModuleNotFoundError("pandas is not for attempts", name=fullname)


sys.meta_path.insert(0, _NoPandas())


def begin_fork_server() -> None:
    """Fork the server that this thread's takes will use. Without other threads only."""
    forkserver.subprocess = types.SimpleNamespace(  # type: ignore[assignment]
        Popen=_ForkedServer, PIPE=subprocess.PIPE, DEVNULL=subprocess.DEVNULL
    )
    forkserver.fork_server()
    forkserver.subprocess = subprocess  # type: ignore[assignment]


class _ForkedServer(subprocess.Popen):  # type: ignore[type-arg]
    """Looks like a started process to `walls.forkserver`."""

    def _execute_child(
        self, args: Any, executable: Any, preexec: Any, close: Any, pass_fds: Any, *rest: Any
    ) -> None:
        errors = rest[10]
        parent = os.getpid()
        self.pid = os.fork()
        if self.pid == 0:
            _serve(parent, pass_fds[0], errors)
        self._child_created = True
        os.close(errors)


def _serve(parent: int, descriptor: int, errors: int) -> None:
    code = 1
    try:
        os.dup2(errors, 2)
        durable._times.clear()
        worker.shut_in = lambda **_: ""
        sys.stdin = os.fdopen(0, closefd=False)
        forkserver.serve(parent, descriptor, worker.main)
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)
