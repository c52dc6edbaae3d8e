"""The first version of a crawl that was made with `frontier.order: fifo`, and what it asks of its queues."""

from collections.abc import Iterator
from datetime import datetime

from crawl_lib.crawldb.table import newest_version
from crawl_lib.crawldb.update import update
from crawl_lib.crawldir import SettledNotes
from crawl_lib.errors import InputError
from crawl_lib.stores import Stores
from crawl_lib.versions import Version


def init_crawldb(stores: Stores, *, now: datetime) -> Version:
    """Make the first version, from all seeds and segments of a crawl.

    The crawl was made with `frontier.order: fifo`. If there is a version already, the result is an update. Raises
    InputError while URLs wait in queues, naming the nodes: these lists of what to fetch would be lost; and what
    `update` does.
    """
    if newest_version(stores) is None and (waiting := list(_waiting(stores))):
        raise InputError(
            f"{stores.crawl.path}: URLs wait in queues ({', '.join(waiting)}): crawl on with frontier.order: fifo until"
            " nothing waits, then make the CrawlDb"
        )
    return update(stores, now=now)


def _waiting(stores: Stores) -> Iterator[str]:
    """Name the queues with URLs, as nodes' last notes say."""
    newest = stores.crawl.newest_iteration()
    for node in stores.config.servers if newest else ():
        settled = SettledNotes(stores.crawl, node).read()
        if settled is None or (newest and settled.newest != newest.folder and not settled.retired):
            yield f"{node}: has not settled since the last iteration"
        elif settled.queue or settled.undecided:
            yield f"{node}: {settled.queue + settled.undecided}"
