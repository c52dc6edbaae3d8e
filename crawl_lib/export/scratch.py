"""Local room for one stage of one export: a folder of its own, held by one process at a time."""

from __future__ import annotations

import fcntl
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from crawl_lib.config import Config
from crawl_lib.errors import LockedError, StorageError
from crawl_lib.export.places import ExportFolder
from crawl_lib.storage import Storage


@contextmanager
def scratch_folder(config: Config, name: str) -> Iterator[Path]:
    """An empty folder below `scratch.directory`, deleted at the end; what a killed run left is deleted first.

    `name`: the export. Nothing in it is ever read by a later run. Raises LockedError if another process of this
    machine works on the same export, StorageError naming the path if the disk refuses.
    """
    base = Path(config.scratch.directory)
    folder = base / f"export-{name}"
    try:
        base.mkdir(exist_ok=True)
        lock = (base / f"export-{name}.lock").open("wb")
    except OSError as error:
        raise StorageError(f"{base}: scratch.directory cannot be used: {error.strerror}") from error
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise LockedError(f"{folder}: another process is at work on the export {name!r}; wait for it") from error
        shutil.rmtree(folder, ignore_errors=True)
        try:
            folder.mkdir()
        except OSError as error:
            raise StorageError(f"{folder}: cannot be made: {error.strerror}") from error
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def local_copy(storage: Storage, path: str, folder: Path, name: str) -> Path:
    """A file of the DFS on the local disk: itself where the store is local, else a copy `name` in `folder`."""
    local = storage.local_path(path)
    if local is not None:
        return local
    copy = folder / name
    storage.download(path, copy)
    return copy


def local_files(storage: Storage, config: Config, folder: ExportFolder, stack: ExitStack) -> Callable[[str], Path]:
    """A function from the name of an export's file to its place on the local disk, good until `stack` is closed.

    Files of a remote store are copied to a folder `read-...` of the scratch directory; a killed reader leaves it there.
    """
    if storage.local_path(folder.path) is not None:
        return lambda file: local_copy(storage, folder.file(file), Path(), file)
    base = Path(config.scratch.directory)
    try:
        base.mkdir(exist_ok=True)
        scratch = Path(stack.enter_context(TemporaryDirectory(dir=base, prefix=f"read-{folder.name}-")))
    except OSError as error:
        raise StorageError(f"{base}: scratch.directory cannot be used: {error.strerror}") from error
    return lambda file: local_copy(storage, folder.file(file), scratch, file)
