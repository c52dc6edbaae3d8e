"""The state that the steps of a node's task share under the node's lock."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from crawl_lib.crawldir import NodeProgress, SettledNotes
from crawl_lib.dataclass import dataclass
from crawl_lib.errors import ConfigError, KrakeError, QueueError, StoppedError, os_error
from crawl_lib.frontier import HeldQueue, NodeDirectory, NodeHome, NodeLock
from crawl_lib.node.guards import require_newest
from crawl_lib.rounds import CrawlName
from crawl_lib.stores import Stores


@dataclass
class NodeTask:
    """The state that the steps of a node's task share under the node's lock."""

    stores: Stores
    node: str
    queue: HeldQueue
    directory: Path
    spool: Path
    home: NodeHome
    progress: NodeProgress


@contextmanager
def locked_node(stores: Stores, node: str, *, what: str) -> Iterator[NodeTask]:
    """Hold a node's directory; make a missing directory.

    See `locked_directory`. Raises ConfigError for an unknown node, or a directory of another crawl; QueueError if the
    node had a queue, and the directory has none, or an older copy (`guards`): the waiting URLs would be lost without a
    word, since their keys are known.
    """
    require_known(stores, node)
    directory = NodeDirectory.make(Path(stores.config.queue.local_dir), node)
    with locked_directory(stores, node, directory, what=what) as task:
        CrawlName(stores).note_on_node(directory)
        if (
            not task.queue.exists()
            and SettledNotes(stores.crawl, node).urls_of_lost_queue() is not None
        ):
            raise QueueError(
                f"{directory}: holds no queue, and node {node} had one in this crawl: put the directory, or"
                f" queue.local_dir, back as it was; if it is lost, run `krake nodes restart {node}`"
            )
        require_newest(stores, task.queue)
        yield task


def require_known(stores: Stores, node: str) -> None:
    """Raise ConfigError for a node outside of the config."""
    if node not in stores.config.servers:
        raise ConfigError(f"node {node!r} is not in servers: {', '.join(stores.config.servers)}")


@contextmanager
def locked_directory(
    stores: Stores, node: str, directory: Path, *, what: str
) -> Iterator[NodeTask]:
    """Hold a directory for a node.

    The node may have left the config. Raises LockedError naming the holder, and StoppedError on a stop during the wait.
    Any refusal of the system under the lock (a full disk, a directory of somebody else) is a StorageError naming the
    path.
    """
    progress = NodeProgress(node, directory, stores.on_progress)

    def on_wait(holder: str) -> None:
        if stores.stop.is_set():
            raise StoppedError(f"stopped while waiting for {holder}; run the task again")
        progress.waiting(holder)

    timeout_s = stores.config.queue.lock_timeout_s
    with NodeLock(
        directory, node, timeout_s, what=what, on_wait=on_wait, report_interval_s=0.5
    ) as home:
        try:
            yield NodeTask(stores, node, home.queue, directory, home.files.spool, home, progress)
        except OSError as error:
            ours = os_error(error, directory)
            progress.enter("failed", str(ours))
            raise ours from error
        except KrakeError as error:
            progress.enter("failed", str(error))
            raise
