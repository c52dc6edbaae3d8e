"""One program at a time, where two would disturb each other: a lock on a file, which says who holds it.

Programs that disturb only a third one share the lock.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from crawl_lib.errors import LockedError

PATIENCE_S = 3.0
"""A program that was just killed may need a moment to be gone."""


@contextmanager
def alone(
    path: Path, what: str, *, patience_s: float = PATIENCE_S, shared: bool = False
) -> Iterator[None]:
    """Hold the lock of the file `path`, which is made if missing, while the block runs.

    `what`: the program, and what it works on, for the message to a second one. `shared`: others may hold it so too. It
    is free once its holders are dead. Raises LockedError that names the holder, if it holds the lock for `patience_s`
    more.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    until_s = time.monotonic() + patience_s
    with path.open("a+", encoding="utf-8") as file:
        while not _taken(file.fileno(), fcntl.LOCK_SH if shared else fcntl.LOCK_EX):
            if time.monotonic() > until_s:
                file.seek(0)
                raise LockedError(
                    f"{file.read().strip() or what} runs already: wait for its end, or stop it"
                )
            time.sleep(0.05)
        file.truncate(0)
        file.write(f"{what} (process {os.getpid()})\n")
        file.flush()
        yield


def _taken(descriptor: int, kind: int) -> bool:
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
