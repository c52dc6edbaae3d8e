"""`krake settle --all-again`: a node reads every source again, and finds the URLs that no file holds any more.

A URL is lost if its key is queued, and no file has the URL: links to the URL are dropped as known. Seeds, lists and
segments still have every URL that was ever sent to the node. So the keys of these URLs are dropped, except the keys of
URLs in the node's files and of crawled pages; then the next intake counts the lost URLs as new.

The queues of other nodes are not read. If a URL was sent to this node, and has moved to another node since (the nodes
have changed, or `frontier.routing: local`), the URL is fetched twice: that is the price.

Each step may be repeated. After a kill anywhere, run the command again.
"""

import numpy as np

from crawl_lib.crawldir import SettledNotes
from crawl_lib.durable import delete_durable, reached
from crawl_lib.frontier import NodeHome
from crawl_lib.keyarrays import is_among, key_array
from crawl_lib.keys import KEY_BYTES
from crawl_lib.node import waiting_sources
from crawl_lib.repair.keys.held import held_keys
from crawl_lib.states import KeyState
from crawl_lib.stores import Stores
from crawl_lib.urlfiles import HANDED_ON_MARK, TakenIn, key_of_line, some_lines

_ASKED = 50_000


def take_all_in_again(stores: Stores, home: NodeHome) -> None:
    """Make a node's next intake read every source.

    A crawl with a CrawlDb needs nothing: no queue is filled from segments.
    """
    if stores.config.order.keeps_keys:
        SettledNotes(stores.crawl, home.node).unsettle()
        home.intake.take_in_again()
        reached("repair.again.unread")


def find_lost_again(stores: Stores, home: NodeHome) -> None:
    """Make a node's next intake read every source, and find all lost URLs of the node.

    With a CrawlDb nothing is done. The caller holds the node's lock. Raises KeyStoreError, DamagedFileError of an
    unreadable source, StoppedError.
    """
    if not stores.config.order.keeps_keys:
        return
    take_all_in_again(stores, home)  # first: the key of a dropped URL has to be found by an intake
    # As much memory as the intake takes for the same keys: 20 bytes for each URL.
    held = key_array(b"".join(key for keys in held_keys(stores, home.node) for key in keys))
    sources, _ = waiting_sources(stores, home.node, TakenIn(), before=None, planned=[])
    with stores.keys(home.node) as store:
        for source in stores.until_stopped(sources):
            for lines in some_lines(source.open(), _ASKED):
                # Lines that were handed on pass the key check, unless their pages were crawled.
                asked = [key_of_line(line) for line in lines if HANDED_ON_MARK not in line]
                states = store.states(asked).items()
                queued = [key for key, state in states if state is KeyState.QUEUED]
                is_held = is_among(np.array(queued, f"S{KEY_BYTES}"), held).tolist()
                store.forget(
                    [key for key, is_here in zip(queued, is_held, strict=True) if not is_here]
                )
                reached("repair.again.dropped")
    delete_durable(home.files.lost)
    reached("repair.again.done")
