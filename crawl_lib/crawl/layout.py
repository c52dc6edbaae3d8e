"""A changed list of nodes: when an iteration may begin with it.

Segments and seeds divide URLs among the nodes there were when they were written. If the next iteration has other nodes
(or another routing), all that was divided among the old ones has to be in their queues, and nothing of theirs may be
open: then the new owners get what is theirs from the queues themselves (`frontier.rehome`, `retire`). `start` runs
where no queue is, so it asks the nodes' marks (`marks`).
"""

from __future__ import annotations

from collections.abc import Sequence

from crawl_lib.crawl.marks import Mark, read_mark, seeds_of_other_nodes
from crawl_lib.crawl.places import Iteration, list_folders, read_iteration, segments_of
from crawl_lib.errors import ConfigError
from crawl_lib.stores import Stores

SEEDS_NODE = "seeds"
_SHOWN = 5


def require_layout(stores: Stores) -> None:
    """Raise ConfigError, which says what to do, if an iteration must not begin with the nodes of the config.

    Nothing is asked while the nodes and the routing are those of the newest iteration.
    """
    before = newest_iteration(stores)
    if before is None or _same(stores, before):
        return
    problems = unsettled(stores, before)
    removed = [node for node in before.nodes if node not in stores.config.servers]
    for node in removed:
        mark = read_mark(stores, node)
        if mark is None or not mark.retired:
            problems.append(f"{node} is not retired: run `krake nodes retire {node}` on its machine")
    if problems:
        more = f" ... and {len(problems) - _SHOWN} more" if len(problems) > _SHOWN else ""
        raise ConfigError(
            f"servers: iteration {before.folder} had the nodes {', '.join(before.nodes)} with {before.routing} routing,"
            f" and the config now has {', '.join(stores.config.servers)} with {stores.config.frontier.routing};"
            f" that may change once all of them are settled: {'; '.join(problems[:_SHOWN])}{more}"
        )


def newest_iteration(stores: Stores) -> Iteration | None:
    """The youngest iteration of the crawl, None before the first."""
    folders = list_folders(stores.storage, stores.crawl_dir)
    return read_iteration(stores.storage, stores.crawl_dir, folders[-1]) if folders else None


def _same(stores: Stores, before: Iteration) -> bool:
    return set(before.nodes) == set(stores.config.servers) and before.routing == stores.config.frontier.routing


def unsettled(stores: Stores, before: Iteration) -> list[str]:
    """Which nodes of the newest iteration have not settled, in words: each with what to do."""
    segments = [
        (folder, node)
        for folder in list_folders(stores.storage, stores.crawl_dir)
        for node in segments_of(stores.storage, stores.crawl_dir, folder)
    ]
    sources = [*segments, *((digest, SEEDS_NODE) for digest in seeds_of_other_nodes(stores, stores.config.servers))]
    found = []
    for node in before.nodes:
        problem = _problem(node, read_mark(stores, node), before, sources)
        if problem:
            found.append(problem)
    return found


def _problem(node: str, mark: Mark | None, before: Iteration, sources: Sequence[tuple[str, str]]) -> str | None:
    if mark is not None and mark.retired:
        return None
    run = f"run `krake settle --node {node}` there (with either list)"
    gone = f"; if its disk is lost, `krake nodes retire {node} --lost`"
    if mark is None:
        return f"{node} has no mark that it settled: {run}{gone}"
    if mark.newest != before.folder:
        return f"{node} settled before iteration {before.folder}: {run}{gone}"
    missing = [f"{folder}/{by}" for folder, by in sources if (folder, by) not in mark.taken_in]
    if missing:
        return f"{node} has not taken in {', '.join(missing[:_SHOWN])}: {run}"
    return None
