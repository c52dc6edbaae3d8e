"""The locks of a repair."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext

from crawl_lib.errors import LockedError
from crawl_lib.frontier import NodeDirectory, NodeHome, NodeLock, Queue
from crawl_lib.repair.folders.identity import nodes_left
from crawl_lib.scratch import scratch_base
from crawl_lib.stores import Stores


def repairs_locked(stores: Stores, *, dry_run: bool = False) -> AbstractContextManager[object]:
    """Allow one repair of segments at a time on this machine.

    A second repair could miss pages that are dropped while a segment is made again. A dry run leaves no trace and needs
    no lock. Raises LockedError during another repair.
    """
    return nullcontext() if dry_run else scratch_base(stores.config, "repair")


@contextmanager
def nodes_held(
    stores: Stores, what: str, *, make: bool = False, dry_run: bool = False
) -> Iterator[tuple[dict[str, NodeHome], dict[str, str]]]:
    """Hold the nodes of this machine, without waiting.

    Yields the homes in the config's order, and the holders of other nodes. Nodes that left the config without being
    retired come last: their waiting URLs are not lost yet.

    `make`: makes a missing lock of a node; a check leaves the lock out, since a node without a lock is at rest.
    `dry_run`: without a trace.
    """
    homes, at_work = {}, {}
    with ExitStack() as locks:
        for node in [*stores.config.servers, *nodes_left(stores)]:
            directory = stores.node_dir(node)
            if directory.is_dir() and Queue(directory, node).exists():
                trace = not dry_run and (make or NodeDirectory(directory).lock.exists())
                try:
                    homes[node] = locks.enter_context(
                        NodeLock(directory, node, 0.0, what=what, leaves_trace=trace)
                    )
                except LockedError as error:
                    at_work[node] = str(error)
        yield homes, at_work
