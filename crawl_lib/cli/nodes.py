"""`krake nodes list|retire|admit|restart`."""

import argparse
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

from crawl_lib.cli.common import (
    ProgressLine,
    Waiting,
    console,
    one_node,
    print_counts,
    print_dry_run,
    print_json,
    require_yes,
    stores_of,
)
from crawl_lib.cli.looking import nodes_table
from crawl_lib.crawldir import SCOPE_FILE, read_lines
from crawl_lib.errors import ConfigError
from crawl_lib.node import admit_node, retire_lost, retire_node
from crawl_lib.rounds import crawl_status
from crawl_lib.stores import Stores
from crawl_lib.urls import Owners


def list_nodes(arguments: argparse.Namespace) -> int:
    """The nodes of the config and those that were retired: share of hosts, queue, what they had settled."""
    stores = stores_of(arguments)
    nodes = crawl_status(stores, only_nodes=True)["nodes"]
    shares = _shares(stores)
    if arguments.json:
        for node, share in shares.items():
            nodes[node]["hosts"] = share
        print_json(nodes)
        return 0
    total = max(1, sum(shares.values()))
    console().print(nodes_table(nodes, {node: f"{share:,} ({share / total:.0%})" for node, share in shares.items()}))
    return 0


def _shares(stores: Stores) -> dict[str, int]:
    """Hosts of the newest iteration's scope by owner, among the nodes of the config."""
    newest = stores.crawl.newest()
    hosts = read_lines(stores.storage, stores.crawl.at(newest, SCOPE_FILE)) if newest else []
    owners = Owners(stores.config.servers)
    counts = Counter(owners.owner(host) for host in hosts)
    return {node: counts[node] for node in stores.config.servers}


def retire(arguments: argparse.Namespace) -> int:
    """Hand the queue of a node that is out of the config to the nodes that are left.

    Raises ConfigError where the node is in the config, the others have not settled, or `--lost` comes with `--dir`.
    """
    if arguments.lost and arguments.dir is not None:
        raise ConfigError("--lost is for a node whose directory is gone; with --dir its directory is used")
    if arguments.lost:
        require_yes(arguments, f"what only the disk of {arguments.node} held is given up: URLs put there by hand")
    stores = stores_of(arguments, make=not arguments.dry_run, stop=arguments.stop)
    directory = Path(arguments.dir).resolve() if arguments.dir is not None else None
    print_counts(f"retire {arguments.node}", _retire(arguments, stores, directory))
    print_dry_run(arguments)
    return 0


def admit(arguments: argparse.Namespace) -> int:
    """Let a node that was retired as lost take part again."""
    node, stores = arguments.node, stores_of(arguments, make=not arguments.dry_run, stop=arguments.stop)
    admitted = admit_node(stores, node=node, dry_run=arguments.dry_run)["admitted"]
    takes = "would take" if arguments.dry_run else "takes"
    print(f"{node} {takes} part again" if admitted else f"{node} was not retired as lost: it may work")
    print_dry_run(arguments)
    return 0


def restart(arguments: argparse.Namespace) -> int:
    """Begin an empty queue for a node whose own is gone with its disk."""
    from crawl_lib.repair import restart_node  # noqa: PLC0415 - numpy and Arrow, for this command only

    stores = stores_of(arguments, make=not arguments.dry_run, stop=arguments.stop)
    node = one_node(arguments.node, stores.config)
    report = restart_node(stores, node, dry_run=arguments.dry_run, on_wait=Waiting(arguments))
    for line in report.done:
        print(line)
    for line in report.advice():
        print(f"next: {line}")
    print_dry_run(arguments)
    return 0


def _retire(arguments: argparse.Namespace, stores: Stores, directory: Path | None) -> dict[str, Any]:
    node = arguments.node
    if arguments.lost:
        return retire_lost(stores, node=node, dry_run=arguments.dry_run)
    progress = ProgressLine()
    stores = replace(stores, on_progress=progress)
    result = retire_node(stores, node=node, directory=directory, dry_run=arguments.dry_run)
    progress.close()
    return result
