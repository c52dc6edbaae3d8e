"""The stage `settle`: the intake after the last iteration, so that queues are complete between crawls."""

from __future__ import annotations

from threading import Event
from typing import Any

from crawl_lib.crawl.node import finish_what_is_open
from crawl_lib.crawl.progress import OnProgress
from crawl_lib.crawl.sources import take_in
from crawl_lib.crawl.task import locked_node
from crawl_lib.stores import Stores


def settle_node(stores: Stores, *, node: str, stop: Event, on_progress: OnProgress | None) -> dict[str, Any]:
    """Take in everything that waits for a node; what an earlier task left open is finished first.

    Returns the intake's counts, and the length of the queue. Run again, it finds nothing left to take in.
    """
    with locked_node(stores, node, what="settle", stop=stop, on_progress=on_progress) as task:
        finish_what_is_open(task)
        report = take_in(task, None)
        length = task.queue.length()
        task.progress.enter("done", queue=length)
    return {"node": node, "queue": length, **report.to_mapping()}
