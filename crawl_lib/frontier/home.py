"""A node's home: its directory while the node's lock is held, and all that may be changed in it."""

from pathlib import Path
from typing import TYPE_CHECKING

from crawl_lib.frontier.directory import NodeDirectory
from crawl_lib.frontier.hostcounts import HostCounts
from crawl_lib.frontier.intake import Intake
from crawl_lib.frontier.lost import LostUrls
from crawl_lib.frontier.move import HeldQueue
from crawl_lib.frontier.rewrites import Rewrites
from crawl_lib.frontier.takes import Takes

if TYPE_CHECKING:
    from crawl_lib.frontier.lock import NodeLock


class NodeHome:
    """The directory of a node whose lock is held: `with NodeLock(...) as home`.

    * `queue`: changes the queue, by moves. Readers take a `Queue`, which needs no lock.
    * `rewrites`: writes the whole queue again: adopts, divides, makes due, brings requisites forward.
    * `intake`: takes in the URLs that segments and seeds hold for this node.
    * `takes`: decides what is fetched next, and moves the queue past this.
    * `counts`: the URLs that were admitted, by host. `lost`: those that a repair found gone.

    Once the lock is released, the queue and the takes refuse changes with LockedError.
    """

    def __init__(self, directory: Path, node: str, lock: "NodeLock") -> None:
        """`directory`: the node's. `lock`: the node's, held."""
        self.directory, self.node, self.lock = directory, node, lock
        self.files = NodeDirectory(directory)
        self.queue = HeldQueue(directory, node, lock)
        self.takes, self.intake, self.rewrites = (
            Takes(self.queue),
            Intake(self.queue),
            Rewrites(self.queue),
        )
        self.counts, self.lost = HostCounts(directory), LostUrls(directory)
