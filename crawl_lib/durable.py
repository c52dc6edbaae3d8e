"""Durable steps on a local disk: fsync the file, rename, fsync the directory.

`reached` names the steps. A call costs a dictionary look-up, and lets a test kill the process right after a step:
`KRAKE_KILL_AT=queue.move.written:2` sends SIGKILL to the process itself when this step is reached for the second time.
"""

import os
import signal
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import IO

from crawl_lib.errors import os_error

KILL_VARIABLE = "KRAKE_KILL_AT"
_times: Counter[str] = Counter()


def reached(step: str) -> None:
    """Note that the durable step of this name is done.

    Kills the process where `KRAKE_KILL_AT` asks for it.
    """
    wanted = os.environ.get(KILL_VARIABLE)
    if wanted is None:
        return
    name, _, count = wanted.partition(":")
    if name == step:
        _times[step] += 1
        if _times[step] == int(count or 1):
            os.kill(os.getpid(), signal.SIGKILL)


def fsync_file(file: IO[bytes]) -> None:
    """Flush a file's buffer and its pages to the disk."""
    file.flush()
    os.fsync(file.fileno())


def fsync_dir(directory: Path) -> None:
    """Make the names in a directory durable."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def rename_durable(source: Path, target: Path) -> None:
    """Rename durably, replacing the target.

    Both lie on one file system.
    """
    source.replace(target)
    fsync_dir(target.parent)
    if source.parent != target.parent:
        fsync_dir(source.parent)


def write_durable(path: Path, data: bytes | Iterable[bytes], *, sync_folder: bool = True) -> None:
    """Replace a file's content, completely or not at all.

    `data`: bytes, or pieces of bytes. A reader sees the old or the new content, as does a restart after a crash.

    `sync_folder`: False for a caller that calls `fsync_dir` after more files: until then a crash may undo the rename.
    Raises StorageError naming the path; the operator looks at the disk.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as file:
            file.writelines([data] if isinstance(data, bytes) else data)
            fsync_file(file)
        temporary.replace(path)
        if sync_folder:
            fsync_dir(path.parent)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise os_error(error, path, "cannot be written") from error


def delete_durable(path: Path) -> None:
    """Delete a file if it exists, and make the deletion durable."""
    path.unlink(missing_ok=True)
    fsync_dir(path.parent)
