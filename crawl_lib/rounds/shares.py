"""How many URLs a node may take in an iteration, so that `crawl.max_pages` is never passed.

`start` divides what the limit leaves, and writes each node's share into `iteration.json`; of starts that overlap, each
knows the shares of those before it (`naming`). A share counts as used until
the node's segment exists, which says what it came to: the node may take it late. That ends once the node has gone on,
when a younger iteration has a segment of it. Then no take of the older one is open, since a task finishes what is open
before it begins again, and none will be: a task of an iteration that is *limited* takes nothing where a younger segment
of its node exists. So what an iteration of a failed run had put by is free again, and the URLs are still in the queue.

URLs that `krake retry` listed count already: while there are lists a node fills up its batch with them. With a CrawlDb
each visit counts.
"""

from collections.abc import Iterable

from crawl_lib.crawldir import Iteration, SettledNotes
from crawl_lib.stores import Stores


def share_out(
    batch_size: int, nodes: tuple[str, ...], remaining: int | None, round_number: int = 0
) -> dict[str, int]:
    """Return how many URLs each node may take.

    `batch_size`, or an even share of what `crawl.max_pages` leaves. The shares sum to at most `remaining` and differ by
    at most one. Which nodes get one more changes with `round_number`: else a node with an empty queue would be given
    the last pages for ever.
    """
    if remaining is None:
        return dict.fromkeys(nodes, batch_size)
    share, more = divmod(max(0, remaining), len(nodes))
    shares = {}
    for index, node in enumerate(nodes):
        has_one_more = (index - round_number) % len(nodes) < more
        shares[node] = min(batch_size, share + has_one_more)
    return shares


def share_of_node(stores: Stores, current: Iteration, node: str) -> tuple[int, int]:
    """Return a node's share of an iteration, and its unlisted part.

    How many URLs the node may take now, and how many of these may be such that no list asked for. With `fifo`, what a
    list asked for counts for `crawl.max_pages` already. The caller holds the node's lock, and has no take open.
    """
    if current.limited and _has_gone_on(stores, current, node):
        return 0, 0
    share = current.batch_sizes.get(node, 0)
    fills_up = (
        current.limited and not stores.config.order.makes_lists and stores.crawl.inbox.lists()
    )
    return (max(share, stores.config.batch.size) if fills_up else share), share


def put_by(stores: Stores, current: Iteration, missing: Iterable[str]) -> int:
    """Return how many URLs nodes without a segment may take."""
    notes = [(node, SettledNotes(stores.crawl, node).read()) for node in missing]
    takers = [node for node, settled in notes if settled is None or not settled.retired]
    return sum(
        current.batch_sizes[node]
        for node in takers
        if not (current.limited and _has_gone_on(stores, current, node))
    )


def _has_gone_on(stores: Stores, current: Iteration, node: str) -> bool:
    younger = [folder for folder in stores.crawl.folders() if int(folder) > int(current.folder)]
    return any(stores.crawl.segment(folder, node).exists() for folder in younger)
