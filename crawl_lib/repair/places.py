"""The room a repair works in, and the locks it holds."""

import fcntl
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path

from crawl_lib.errors import LockedError, os_errors
from crawl_lib.frontier import NodeLock, held_without_trace
from crawl_lib.stores import Stores


def node_locked(
    stores: Stores, node: str, what: str, on_wait: Callable[[str], None], *, dry_run: bool = False
) -> AbstractContextManager[object]:
    """Hold the node's lock, if its directory is on this machine. Raises LockedError naming the holder.

    `dry_run`: without waiting, and without a trace.
    """
    directory = stores.node_dir(node)
    if node not in stores.config.servers or not directory.is_dir():
        return nullcontext()
    waiting = NodeLock(directory, node, stores.config.queue.lock_timeout_s, what=what, on_wait=on_wait)
    return held_without_trace(directory, node) if dry_run else waiting


def repairs_locked(stores: Stores, *, dry_run: bool = False) -> AbstractContextManager[object]:
    """One repair of segments at a time on this machine: what is dropped while a segment is made again could be missed.

    A dry run, which leaves no trace, does not count. Raises LockedError if there is another one.
    """
    return nullcontext() if dry_run else scratch_base(stores, "repair")


@contextmanager
def scratch_base(stores: Stores, name: str) -> Iterator[Path]:
    """A folder `name` in `scratch.directory`, with what an earlier attempt left in it, held by one process at a time.

    Raises LockedError while another process of this machine is in it, StorageError naming the path, also for whatever
    the system refuses below it.
    """
    base = Path(stores.config.scratch.directory)
    room = base / name
    with os_errors(room):
        base.mkdir(exist_ok=True)
        room.mkdir(exist_ok=True)
        with (base / f"{name}.lock").open("wb") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise LockedError(f"{room}: another process is at work there; wait for it") from error
            yield room
