"""What checkpoints cost a crawl: the time and CPU spent in them, measured where they are made.

A checkpoint of a fetching process forces its records to the disk, by a thread of its own (`segment.spool`), and writes
down when each host was asked last (`fetch`). The difference of two whole crawls, with and without, is less than
their noise. So every Python process of a measured crawl loads a `sitecustomize.py`, which calls `install`: as soon as a
module of `WRAPPED` has been imported, its functions are wrapped, and each call adds a line to a file. That is opened at
once: fetching processes get no variables but a few, and may open no files later.
"""

from __future__ import annotations

import functools
import importlib.util
import os
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

VARIABLE = "PYTHONPATH"
PROJECT = Path(__file__).resolve().parents[1]
HOOK = "from benchmarks.checkpoints import install\ninstall({!r})\n"
SYNC_THREAD = "warc-sync"
WRAPPED = {
    "crawl_lib.segment.spool": ["_Log._start_sync"],
    "crawl_lib.fetch.hoststore": ["HostStore.save_hosts", "HostStore.save_robots"],
}
"""What the crawl's own thread does for a checkpoint, by module."""


@dataclass(frozen=True)
class Spent:
    """Over a crawl. `waited_s`: how long the crawl's threads waited; `cpu_s`: of them and of `SYNC_THREAD`.

    `checkpoints`: how often records were forced to the disk.
    """

    checkpoints: int
    waited_s: float
    cpu_s: float


@contextmanager
def watched(log: Path) -> Iterator[None]:
    """Processes that are started in the block write their checkpoints down in `log`."""
    before, hook = os.environ.get(VARIABLE), log.with_name(f"{log.name}-hook")
    hook.mkdir(exist_ok=True)
    (hook / "sitecustomize.py").write_text(HOOK.format(str(log.absolute())))
    os.environ[VARIABLE] = os.pathsep.join([str(hook), str(PROJECT), *([before] if before else [])])
    log.touch()
    try:
        yield
    finally:
        if before is None:
            del os.environ[VARIABLE]
        else:
            os.environ[VARIABLE] = before


def spent(log: Path) -> Spent:
    """What the processes wrote down."""
    counts: dict[str, int] = defaultdict(int)
    waited_s = cpu_s = 0.0
    for line in log.read_text().splitlines():
        name, wall, cpu = line.split()
        counts[name] += 1
        cpu_s += float(cpu)
        waited_s += float(wall) if name != "fsync" else 0.0  # that one is its thread's
    return Spent(counts["_Log._start_sync"], waited_s, cpu_s)


def install(path: str) -> None:
    """Have the functions of `WRAPPED` wrapped once their modules are imported; they write to the file `path`."""
    log = os.open(path, os.O_WRONLY | os.O_APPEND)
    sys.meta_path.insert(0, _Finder(log))
    os.fsync = _noted(os.fsync, "fsync", log, only=SYNC_THREAD)


class _Finder(MetaPathFinder):
    """Finds what the others find, and wraps the functions of `WRAPPED` after the import."""

    def __init__(self, log: int) -> None:
        self.log = log

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname not in WRAPPED:
            return None
        sys.meta_path.remove(self)
        try:
            spec = importlib.util.find_spec(fullname)
        finally:
            sys.meta_path.insert(0, self)
        assert spec is not None
        assert spec.loader is not None
        execute = spec.loader.exec_module

        def execute_and_wrap(module: ModuleType) -> None:
            execute(module)
            for name in WRAPPED[fullname]:
                owner, _, method = name.rpartition(".")
                holder = getattr(module, owner)
                setattr(holder, method, _noted(getattr(holder, method), name, self.log))

        spec.loader.exec_module = execute_and_wrap
        return spec


def _noted(function: Callable[..., Any], name: str, log: int, only: str = "") -> Callable[..., Any]:
    """The function, which adds `name`, wall and CPU seconds to the log; `only`: in threads of such a name."""

    @functools.wraps(function)
    def noted(*arguments: Any) -> Any:
        if not threading.current_thread().name.startswith(only):
            return function(*arguments)
        wall_s, cpu_s = time.perf_counter(), time.thread_time()
        try:
            return function(*arguments)
        finally:
            took = f"{name} {time.perf_counter() - wall_s:.6f} {time.thread_time() - cpu_s:.6f}\n"
            os.write(log, took.encode())  # to the end: processes do not mix their lines

    return noted
