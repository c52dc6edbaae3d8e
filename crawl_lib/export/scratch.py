"""Local room for one stage of one export: a folder of its own, held by one process at a time."""

import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from crawl_lib.config import Config
from crawl_lib.errors import LockedError, os_errors
from crawl_lib.export.folder import ExportFolder

PATIENCE_S = 2.0
"""Another process that deletes a stale folder holds its lock for a moment."""
STAGE, READER = "export-", "read-"


@contextmanager
def scratch_folder(config: Config, name: str) -> Iterator[Path]:
    """An empty folder below `scratch.directory`, deleted at the end; what killed processes left is deleted first.

    `name`: the export. Nothing in it is ever read by a later run. Raises LockedError if another process of this
    machine works on the same export, StorageError naming the path if the disk refuses.
    """
    base = _base(config)
    folder = base / f"{STAGE}{name}"
    with os_errors(base, "scratch.directory cannot be used"):
        lock = _lock_of(folder).open("wb")
    with lock:
        if not _taken(lock.fileno(), PATIENCE_S):
            raise LockedError(f"{folder}: another process is at work on the export {name!r}; wait for it")
        clean_scratch(base)
        shutil.rmtree(folder, ignore_errors=True)
        with os_errors(folder, "scratch.directory cannot be used"):
            folder.mkdir()
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def clean_scratch(base: Path) -> None:
    """Delete what killed stages and readers of any export left in `base`. What a process holds is not touched."""
    for folder in [*base.glob(f"{STAGE}*/"), *base.glob(f"{READER}*/")]:
        with suppress(OSError):  # another process was faster
            held = os.open(folder if folder.name.startswith(READER) else _lock_of(folder), os.O_RDONLY)
            try:
                if _taken(held, 0.0):
                    shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(held)


def local_files(folder: ExportFolder, stack: ExitStack) -> Callable[[str], Path]:
    """A function from the name of an export's file to its place on the local disk, good until `stack` is closed.

    Files of a remote store are copied to a folder `read-...` of the scratch directory, deleted with `stack`; what a
    killed reader leaves there is deleted by the next one.
    """
    local = folder.storage.local_path(folder.path)
    if local is not None:
        return local.joinpath
    base = _base(folder.stores.config)
    clean_scratch(base)
    scratch = stack.enter_context(_reader_folder(base, folder.name))

    def copied(file: str) -> Path:
        folder.storage.download(folder.file(file), scratch / file)
        return scratch / file

    return copied


@contextmanager
def _reader_folder(base: Path, name: str) -> Iterator[Path]:
    """A folder of this reader alone, which holds a lock on it: a folder without one is stale."""
    with os_errors(base, "scratch.directory cannot be used"):
        folder = Path(tempfile.mkdtemp(dir=base, prefix=f"{READER}{name}-"))
        held = os.open(folder, os.O_RDONLY)
    try:
        _taken(held, PATIENCE_S)
        with os_errors(folder, "scratch.directory cannot be used"):
            folder.mkdir(exist_ok=True)  # one that cleaned up between the two lines took it for stale
        yield folder
    finally:
        os.close(held)
        shutil.rmtree(folder, ignore_errors=True)


def _lock_of(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}.lock")


def _taken(descriptor: int, patience_s: float) -> bool:
    """Whether a lock is ours now, after at most `patience_s`; it ends when the file is closed."""
    end = time.monotonic() + patience_s
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= end:
                return False
            time.sleep(0.02)
        else:
            return True


def _base(config: Config) -> Path:
    base = Path(config.scratch.directory)
    with os_errors(base, "scratch.directory cannot be used"):
        base.mkdir(exist_ok=True)
    return base
