"""A changed list of nodes: when an iteration may begin with it.

Segments and seeds divide URLs among the nodes there were when they were written. If the next iteration has other nodes
(or another routing), all that was divided among the old ones has to be in their queues, and nothing of theirs may be
open: then the new owners get what is theirs from the queues themselves (`frontier.rehome`, `retire`). `start` runs
where no queue is, so it asks what the nodes had settled (`crawldir.settled`).
"""

from collections.abc import Sequence
from contextlib import suppress
from itertools import islice
from typing import Any

from crawl_lib.crawldir import Iteration, Settled, read_settled
from crawl_lib.errors import ConfigError, DamagedFileError, PathNotFoundError
from crawl_lib.stores import Stores

SEEDS_NODE = "seeds"
_SHOWN = 5


def require_layout(stores: Stores) -> None:
    """Raise ConfigError, which says what to do, if an iteration must not begin with the nodes of the config.

    Asked by `start`, and before seeds are divided among them.

    While the nodes and the routing are those of the newest iteration, only seeds that came since are looked at.
    """
    before = stores.crawl.newest_iteration()
    _require_owners_of_seeds(stores, before)
    same_routing = before is not None and before.routing == stores.config.frontier.routing
    if before is None or (same_routing and set(before.nodes) == set(stores.config.servers)):
        return
    problems = unsettled(stores, before)
    removed = [node for node in before.nodes if node not in stores.config.servers]
    for node in removed:
        if not is_retired(stores, node):
            problems.append(f"{node} is not retired: run `krake nodes retire {node}` on its machine")
    added = [node for node in stores.config.servers if node not in before.nodes]
    notes = [settled for node in added if (settled := read_settled(stores.crawl, node))]
    problems += [settled.refusal for settled in notes if settled.refusal]
    if problems:
        more = f" ... and {len(problems) - _SHOWN} more" if len(problems) > _SHOWN else ""
        raise ConfigError(
            f"servers: iteration {before.folder} had the nodes {', '.join(before.nodes)} with {before.routing} routing,"
            f" and the config now has {', '.join(stores.config.servers)} with {stores.config.frontier.routing};"
            f" that may change once all of them are settled: {'; '.join(problems[:_SHOWN])}{more}"
        )


def _require_owners_of_seeds(stores: Stores, before: Iteration | None) -> None:
    """Raise ConfigError if seeds that came since the newest iteration wait for a node that is not in the config.

    They were injected with another list, which was changed back: no one would ever take them in.
    """
    for digest in stores.crawl.seeds():
        if before is not None and digest in before.seeds:
            continue
        for node in _seeds(stores, digest).get("outlinks", {}):
            if node not in stores.config.servers and _wait(stores, digest, node, read_settled(stores.crawl, node)):
                raise ConfigError(
                    f"servers: {stores.crawl.seeds_path(digest)} has seeds for {node}, which is not in servers: put it"
                    f" back, or run `krake nodes retire {node}` on its machine (with --lost if its disk is gone)"
                )


def is_retired(stores: Stores, node: str) -> bool:
    """Whether a node was retired, has had no part in an iteration since, and was sent no seeds since."""
    settled, crawl = read_settled(stores.crawl, node), stores.crawl
    if settled is None or not settled.retired:
        return False
    since = [name for name in crawl.folders() if int(name) > int(settled.newest or 0)]
    if any(node in crawl.folder(name).iteration().nodes for name in since):
        return False
    return not any(_wait(stores, digest, node, settled) for digest in crawl.seeds())


def _wait(stores: Stores, digest: str, node: str, settled: Settled | None) -> bool:
    """Whether seeds wait for a node that has not taken them in."""
    taken_in = settled is not None and (digest, SEEDS_NODE) in settled.taken_in
    return not taken_in and _holds_lines_for(stores, node, digest, SEEDS_NODE)


def unsettled(stores: Stores, before: Iteration) -> list[str]:
    """Which nodes of the newest iteration have not settled all there is, in words: each with what to do."""
    crawl, servers = stores.crawl, set(stores.config.servers)
    sources = [(segment.folder, segment.node) for segment in crawl.segments()]
    sources += [(d, SEEDS_NODE) for d in crawl.seeds() if set(_seeds(stores, d).get("nodes", ())) != servers]
    problems = []
    for node in before.nodes:
        settled = read_settled(crawl, node)
        problems.append(_problem(node, settled, before) or _untaken(stores, node, settled, sources))
    return [problem for problem in problems if problem]


def at_work(stores: Stores, before: Iteration) -> list[str]:
    """Which nodes of the newest iteration may have something open, in words: each with what to do."""
    problems = [_problem(node, read_settled(stores.crawl, node), before) for node in before.nodes]
    return [problem for problem in problems if problem]


def nodes_changed(stores: Stores, own: Iteration) -> bool:
    """Whether one of the two iterations before had other nodes: then hosts have come from others just now."""
    older = [folder for folder in stores.crawl.folders() if int(folder) < int(own.folder)]
    found = (stores.crawl.folder(folder).iteration() for folder in reversed(older))
    before = islice((one for one in found if not one.is_import), 2)
    return any(set(one.nodes) != set(own.nodes) for one in before)


def _problem(node: str, settled: Settled | None, before: Iteration) -> str | None:
    run = f"run `krake settle --node {node}` there (with either list)"
    gone = f"; if its disk is lost, `krake nodes retire {node} --lost`"
    if settled is None:
        return f"{node} has no mark that it settled: {run}{gone}"
    if int(settled.newest or 0) < int(before.folder):
        return f"{node} settled before iteration {before.folder}: {run}{gone}"
    return None


def _untaken(stores: Stores, node: str, settled: Settled | None, sources: Sequence[tuple[str, str]]) -> str | None:
    if settled is None or settled.retired:
        return None
    waiting = [pair for pair in sources if pair not in settled.taken_in and _holds_lines_for(stores, node, *pair)]
    if not waiting:
        return None
    missing = ", ".join(f"{folder}/{by}" for folder, by in waiting[:_SHOWN])
    return f"{node} has not taken in {missing}: run `krake settle --node {node}` there (with either list)"


def _holds_lines_for(stores: Stores, node: str, folder: str, found_by: str) -> bool:
    """Whether a segment, or injected seeds, have URLs for a node; the segment of a node that had no work has none."""
    is_seeds = found_by == SEEDS_NODE
    manifest = _seeds(stores, folder) if is_seeds else stores.crawl.segment(folder, found_by).manifest()
    return bool(manifest.get("outlinks", {}).get(node, {}).get("count", 0))


def _seeds(stores: Stores, digest: str) -> dict[str, Any]:
    """The manifest of seeds; of damaged ones nothing: the same are injected again, for the nodes of the config.

    Until then `start` and each intake refuse them.
    """
    with suppress(DamagedFileError, PathNotFoundError):
        return stores.crawl.seeds_manifest(digest)
    return {}
