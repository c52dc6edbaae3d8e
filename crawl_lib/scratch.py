"""Folders for scratch files on the local disk, each held by one process at a time."""

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from crawl_lib.config import Config
from crawl_lib.errors import LockedError, ScratchError, os_errors
from crawl_lib.stopping import Work

LOCK = "export.lock"
"""Held while a process deletes leftovers of others and makes its folder."""
LOOK_S = 0.1
"""Seconds between two looks of a waiting process."""
PREFIXES = ("export-", "read-", "repair-", "text-", "work-")


@contextmanager
def scratch_folder(config: Config, name: str) -> Iterator[Path]:
    """Give an empty folder below `scratch.directory`.

    The folder is deleted at the end. `name`: begins with a prefix in `PREFIXES`. The process holds a lock on the
    folder. A folder without a lock is left from a killed process, and the next process deletes the folder, whatever the
    name. Raises LockedError if another process of this machine has a folder of this name; ScratchError naming the path
    if the disk refuses, also for any refusal of the system below the folder.
    """
    base = Path(config.scratch.directory)
    folder = base / name
    with ExitStack() as stack:
        with os_errors(base, "scratch.directory cannot be used", ScratchError):
            base.mkdir(exist_ok=True)
            with (base / LOCK).open("wb") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                for left in (found for prefix in PREFIXES for found in base.glob(f"{prefix}*/")):
                    with suppress(OSError), held(left):  # the process that holds it is alive
                        shutil.rmtree(left, ignore_errors=True)
                if folder.exists():
                    raise LockedError(
                        f"{folder}: another process is at work there; wait for its end"
                    )
                folder.mkdir()
                stack.enter_context(held(folder))
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        with os_errors(folder, kind=ScratchError):
            yield folder


@contextmanager
def scratch_base(config: Config, name: str) -> Iterator[Path]:
    """Give a folder in `scratch.directory` to one process.

    The folder keeps the files of earlier attempts.

    `name`: begins with no prefix in `PREFIXES`. Raises LockedError if another process holds the folder, ScratchError as
    `scratch_folder`.
    """
    folder = Path(config.scratch.directory) / name
    with os_errors(folder, "scratch.directory cannot be used", ScratchError), ExitStack() as stack:
        folder.parent.mkdir(exist_ok=True)
        (lock := folder.with_name(f"{name}.lock")).touch()
        try:
            stack.enter_context(held(lock))
        except BlockingIOError as error:
            raise LockedError(
                f"{folder}: another process is at work there; wait for its end"
            ) from error
        folder.mkdir(exist_ok=True)
        yield folder


@contextmanager
def turn_of(config: Config, name: str, work: Work) -> Iterator[Path]:
    """Wait until no other process holds a folder, then hold it.

    The folder is the `scratch_base` of a name. Raises ScratchError, StoppedError.
    """
    with ExitStack() as stack:
        while True:
            work.go_on()
            with suppress(LockedError):
                folder = stack.enter_context(scratch_base(config, name))
                break
            work.stop.wait(LOOK_S)
        yield folder


@contextmanager
def held(path: Path) -> Iterator[None]:
    """Hold a path alone until the block or process ends.

    Raises BlockingIOError where another process or block holds the path, OSError.
    """
    descriptor = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(descriptor)
