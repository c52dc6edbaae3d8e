"""`krake queue repair`."""

from __future__ import annotations

import argparse
import sys

from crawl_lib.cli.common import config_of, one_node
from crawl_lib.errors import PathNotFoundError
from crawl_lib.frontier import NodeLock, Queue, repair_queue
from crawl_lib.stores import node_dir


def repair(arguments: argparse.Namespace) -> int:
    """Make the queue of a node of this machine usable again, holding the node's lock."""
    config = config_of(arguments)
    node = one_node(arguments.node, config)
    directory = node_dir(config, node)
    if not directory.is_dir():
        raise PathNotFoundError(f"{directory}: node {node} has no queue on this machine; run this where it has one")
    with NodeLock(directory, node, config.queue.lock_timeout_s, what="krake queue repair", on_wait=_tell):
        report = repair_queue(Queue(directory, node))
    for line in report.done:
        print(line)
    return 0


def _tell(holder: str) -> None:
    print(f"waiting for {holder}", file=sys.stderr)
