"""`krake queue repair`."""

from __future__ import annotations

import argparse

from crawl_lib.cli.common import Waiting, config_of, one_node, print_dry_run, stores_of


def repair(arguments: argparse.Namespace) -> int:
    """Make the queue of a node of this machine usable again, holding the node's lock."""
    from crawl_lib.repair import repair_node  # noqa: PLC0415

    node = one_node(arguments.node, config_of(arguments))
    stores = stores_of(arguments, stop=arguments.stop)
    report = repair_node(stores, node, lost=arguments.lost, dry_run=arguments.dry_run, on_wait=Waiting(arguments))
    for line in report.done:
        print(line)
    for line in report.advice():
        print(f"next: {line}")
    print_dry_run(arguments)
    return 0
