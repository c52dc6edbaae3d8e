"""Before an iteration gets its folder, where all its nodes are on one machine: can they work at all?

`start` knows nothing of the nodes' disks. An iteration whose tasks are all refused leaves a folder that nothing comes
into, and that keeps its share of `crawl.max_pages`; whoever runs start and tasks one after the other can ask first.
"""

from __future__ import annotations

from crawl_lib.errors import KrakeError, StoppedError
from crawl_lib.node.admission import require_admitted
from crawl_lib.node.task import locked_node
from crawl_lib.rounds import needed_segments, require_layout
from crawl_lib.stores import Stores


def require_ready(stores: Stores, *, run_id: str, iteration: int) -> None:
    """Raise what the crawl task of a node would be refused with, if so many are refused that commit would fail.

    Nothing is asked where the iteration has its folder already. Raises StoppedError, and ConfigError as `start` does.
    """
    if stores.crawl.find(run_id, iteration, stores.stop) is not None:
        return
    require_layout(stores)
    nodes = stores.config.servers
    refused: list[KrakeError] = []
    for node in nodes:
        try:
            _require_node(stores, node)
        except StoppedError:
            raise
        except KrakeError as error:
            refused.append(error)
        if len(nodes) - len(refused) < needed_segments(len(nodes), stores.config.crawl.min_nodes):
            raise refused[0]


def _require_node(stores: Stores, node: str) -> None:
    """The first steps of a node's task: its directory, its lock, its queue, its mark, and the key tables."""
    with locked_node(stores, node, what="crawl") as task:
        require_admitted(task)
        with stores.keys(node):
            pass
