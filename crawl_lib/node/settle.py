"""The stage `settle`: the intake after the last iteration, so that queues are complete between crawls.

At its end the node leaves a mark on the DFS (`marks`), which lets `start` know that the list of nodes may change.
"""

from __future__ import annotations

from typing import Any

from crawl_lib.crawldir import Mark, newest_folder, write_mark
from crawl_lib.frontier import read_undecided
from crawl_lib.node.admission import require_admitted
from crawl_lib.node.crawl import fill_missed, finish_what_is_open
from crawl_lib.node.handover import drop_decision
from crawl_lib.node.sources import take_in
from crawl_lib.node.task import locked_node
from crawl_lib.rounds import require_agreement
from crawl_lib.stores import Stores


def settle_node(stores: Stores, *, node: str, run_id: str | None = None) -> dict[str, Any]:
    """Take in everything that waits for a node; what an earlier task left open is finished first.

    `run_id`: of a run whose last iterations are settled; this machine must agree with them. Returns the intake's
    counts, and the length of the queue. Run again, it finds nothing left to take in.
    """
    if (last := newest_folder(stores.crawl)) and run_id is not None:
        own = stores.crawl.folder(last).iteration()
        if own.run_id == run_id:
            require_agreement(stores, own)
    with locked_node(stores, node, what="settle") as task:
        require_admitted(task)
        drop_decision(task)
        finish_what_is_open(task)
        fill_missed(task, None)
        newest = newest_folder(stores.crawl)
        report = take_in(task, None)
        length = task.queue.length()
        undecided = sum(1 for _ in read_undecided(task.queue))
        write_mark(stores.crawl, Mark(node, newest, length, undecided, task.queue.taken_in()))
        task.progress.enter("done", queue=length)
    return {"node": node, "queue": length, **report.to_mapping()}
