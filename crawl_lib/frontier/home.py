"""A node's home: its directory under the node's lock, and all means to change the directory."""

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

    * `queue`: changes the queue, by moves. Readers use a `Queue`, which needs no lock.
    * `rewrites`: writes the whole queue again: adopts, divides, makes due, brings requisites forward.
    * `intake`: takes in the URLs for this node from segments and seeds.
    * `takes`: chooses the next URLs to fetch, and moves the queue past these URLs.
    * `counts`: admitted URLs, by host. `lost`: URLs that a repair found gone.

    After the release of the lock, queue and takes refuse changes with LockedError.
    """

    def __init__(self, directory: Path, node: str, lock: "NodeLock") -> None:
        """Prepare the home. `directory`: the node's. `lock`: the node's, held."""
        self.directory, self.node, self.lock = directory, node, lock
        self.files = NodeDirectory(directory)
        self.queue = HeldQueue(directory, node, lock)
        self.takes, self.intake, self.rewrites = (
            Takes(self.queue),
            Intake(self.queue),
            Rewrites(self.queue),
        )
        self.counts, self.lost = HostCounts(directory), LostUrls(directory)
