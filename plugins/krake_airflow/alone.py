"""One program at a time, if two would disturb each other: a lock on a file that names its holder.

Programs that disturb only a third program share the lock.
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
"""A killed program may need a moment to be gone."""


@contextmanager
def alone(
    path: Path, what: str, *, patience_s: float = PATIENCE_S, shared: bool = False
) -> Iterator[None]:
    """Hold the lock of the file `path` while the block runs; make a missing file.

    `what`: the program and its object, for the message to a second program. `shared`: other holders with `shared` are
    allowed. The death of a holder frees the lock. Raises LockedError naming the holder, if the lock is not free within
    `patience_s`.
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
