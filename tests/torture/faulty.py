"""A task in a process of its own whose system calls, storage or processes fail."""

from __future__ import annotations

import builtins
import errno
import os
import resource
import threading
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from crawl_lib.config import Config
from crawl_lib.errors import KrakeError, StorageError
from crawl_lib.storage.local import LocalStorage
from crawl_lib.worker import worker
from tests.forked import CONTEXT
from tests.torture.nursery import begin_fork_server
from tests.torture.tasks import Task

LONGEST_S = 300.0


def attempt(
    task: Task, config: Config, fault: Callable[..., None], *arguments: Any
) -> tuple[str, str]:
    """Do a task with a fault; returns ("done", "") or the kind of its KrakeError and its text.

    Anything else that it ends with is an AssertionError here. Fetching processes have the fault, too.
    """
    here, there = CONTEXT.Pipe(duplex=False)
    process = CONTEXT.Process(target=_attempt, args=(there, task, config, fault, arguments))
    process.start()
    there.close()
    assert here.poll(LONGEST_S), "the task hangs"
    kind, text = here.recv()
    process.join(LONGEST_S)
    assert kind != "", text
    return kind, text


def _attempt(
    answer: Connection, task: Task, config: Config, fault: Callable[..., None], arguments: Any
) -> None:
    try:
        fault(*arguments)
        begin_fork_server()
        task.call(config)
        answer.send(("done", ""))
    except KrakeError as error:
        answer.send((type(error).__name__, str(error)))
    except BaseException:
        answer.send(("", traceback.format_exc()))


def no_fault() -> None:
    """Nothing fails."""


def _is_warc(descriptor: int) -> bool:
    return os.readlink(f"/proc/self/fd/{descriptor}").endswith(".warc.gz")  # noqa: PTH115 - no path of ours


def failing_write(code: int, number: int, half: bool) -> None:
    """The `number`th write to a WARC file fails with this errno; `half`: after a half of it was written."""
    write, seen = os.write, [0]

    def fail(descriptor: int, data: Any) -> int:
        if _is_warc(descriptor):
            seen[0] += 1
            if seen[0] == number:
                if half:
                    return write(descriptor, bytes(data)[: len(data) // 2])
                raise OSError(code, os.strerror(code))
        return write(descriptor, data)

    os.write = fail


def failing_fsync(number: int) -> None:
    """From the `number`th on, each fsync of a WARC file fails with EIO."""
    fsync, seen = os.fsync, [0]

    def fail(descriptor: int) -> None:
        seen[0] += _is_warc(descriptor)
        if seen[0] >= number and _is_warc(descriptor):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        fsync(descriptor)

    os.fsync = fail


def dying_sync(name: str) -> None:
    """The thread that makes a WARC file durable ends with this error of Python, which no one foresaw."""
    fsync, error = os.fsync, getattr(builtins, name)

    def die(descriptor: int) -> None:
        if threading.current_thread().name.startswith("warc-sync"):
            raise error
        fsync(descriptor)

    os.fsync = die


def small_files(size_bytes: int) -> None:
    """No file may become larger: the system refuses it to all: Python, Arrow and SQLite."""
    resource.setrlimit(
        resource.RLIMIT_FSIZE, (size_bytes, resource.getrlimit(resource.RLIMIT_FSIZE)[1])
    )


def failing_storage(method: str, number: int, half: bool) -> None:
    """The `number`th call of a method of the storage fails; `half`: what it writes is there to a half."""
    real, seen = getattr(LocalStorage, method), [0]

    def fail(self: LocalStorage, *arguments: Any) -> Any:
        seen[0] += 1
        if seen[0] != number:
            return real(self, *arguments)
        if half:
            local, path = arguments
            place = self.local_path(path)
            place.parent.mkdir(exist_ok=True)
            place.write_bytes(Path(local).read_bytes()[:-5])
        raise StorageError(f"{method}: the storage fails")

    setattr(LocalStorage, method, fail)


def dying_worker(number: int, code: int) -> None:
    """A fetching process ends at its `number`th page, as one does that the system kills."""
    seen, on_fetched = [0], worker._Worker.on_fetched

    def die(self: Any, *arguments: Any) -> None:
        seen[0] += 1
        if seen[0] == number:
            os._exit(code)
        on_fetched(self, *arguments)

    worker._Worker.on_fetched = die


def worker_without_memory(number: int) -> None:
    """A fetching process has no memory at its `number`th page."""
    seen, on_fetched = [0], worker._Worker.on_fetched

    def fail(self: Any, *arguments: Any) -> None:
        seen[0] += 1
        if seen[0] == number:
            raise MemoryError
        on_fetched(self, *arguments)

    worker._Worker.on_fetched = fail
