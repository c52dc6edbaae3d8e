"""Fetching processes that are forked instead of started: they cost milliseconds, and run the same code.

A task has threads and open databases when it starts them, and must not be forked then. So it has a nursery: a process
forked from it before it began, which does nothing but fork when it is told to. What it forks is made a child of the
task (clone(2), CLONE_PARENT), since a fetching process looks who its parent is and dies with it.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
import signal
import socket
import subprocess
import sys
import traceback
import types
from importlib.abc import MetaPathFinder
from typing import Any

from crawl_lib import durable
from crawl_lib.crawl import worker, workers


class _NoPandas(MetaPathFinder):
    """Arrow loads pandas at its first array, which costs a process more than all else; fetching processes bar it."""

    def find_spec(self, fullname: str, path: object, target: object = None) -> None:
        if fullname == "pandas":
            raise ModuleNotFoundError("pandas is not for attempts", name=fullname)


sys.meta_path.insert(0, _NoPandas())
_CLONE_PARENT = 0x8000
_CLONE = {"x86_64": 56, "aarch64": 220}
_MOST_DESCRIPTORS = 16


def workers_from_a_nursery() -> None:
    """Have `crawl.workers` get its processes from a nursery, which is forked here. Without threads only."""
    if platform.machine() not in _CLONE:
        return
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    if os.fork() == 0:
        ours.close()
        _nurse(theirs)
    theirs.close()

    class Popen(_NursedWorker):
        nursery = ours

    workers.subprocess = types.SimpleNamespace(  # type: ignore[assignment]
        Popen=Popen, PIPE=subprocess.PIPE, TimeoutExpired=subprocess.TimeoutExpired
    )


class _NursedWorker(subprocess.Popen):  # type: ignore[type-arg]
    """Looks like a started process to `crawl.workers`."""

    nursery: socket.socket

    def _execute_child(self, args: Any, executable: Any, preexec: Any, close: Any, pass_fds: Any, *rest: Any) -> None:
        stdin, _, _, stdout, _, stderr = rest[5:11]
        socket.send_fds(self.nursery, [b"w"], [stdin, stdout, stderr, *pass_fds])
        self.pid = int(self.nursery.recv(32))
        self._child_created = True
        os.close(stdin)
        os.close(stdout)


def _nurse(told: socket.socket) -> None:
    """Fork a worker for each message, until the task is gone."""
    code = 1
    try:
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)
        while True:
            message, descriptors, _, _ = socket.recv_fds(told, 8, _MOST_DESCRIPTORS)
            if not message:
                code = 0
                break
            pid = _clone()
            if pid == 0:
                told.close()
                _work(descriptors)
            for descriptor in descriptors:
                os.close(descriptor)
            told.send(str(pid).encode())
    finally:
        os._exit(code)


def _clone() -> int:
    """fork(2), but the child's parent is ours."""
    ctypes.pythonapi.PyOS_BeforeFork()
    pid = ctypes.PyDLL(None).syscall(_CLONE[platform.machine()], _CLONE_PARENT | signal.SIGCHLD, 0, 0, 0, 0)
    if pid == 0:
        ctypes.pythonapi.PyOS_AfterFork_Child()
    else:
        ctypes.pythonapi.PyOS_AfterFork_Parent()
    return int(pid)


def _work(descriptors: list[int]) -> None:
    """Be a fetching process: what it inherits beside standard streams stays open, as the node's lock must."""
    code = 1
    try:
        for number, descriptor in enumerate(descriptors[:3]):
            os.dup2(descriptor, number)
            os.close(descriptor)
        durable._times.clear()
        sys.stdin = os.fdopen(0, closefd=False)
        code = worker.main()
    except BaseException:
        with contextlib.suppress(OSError):
            os.write(2, traceback.format_exc().encode())
    finally:
        os._exit(code)
