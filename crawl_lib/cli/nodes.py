"""`krake nodes list|retire|admit`."""

import argparse
from collections import Counter
from pathlib import Path

from crawl_lib.cli.common import (
    looked_first,
    print_counted,
    print_result,
    say,
    stage_stores,
    tool_stores,
)
from crawl_lib.cli.looking import nodes_table
from crawl_lib.cli.tables import console
from crawl_lib.errors import ConfigError
from crawl_lib.node import RetireReport, admit_node, retire_lost, retire_node
from crawl_lib.rounds import crawl_status
from crawl_lib.urls import Owners


def list_nodes(arguments: argparse.Namespace) -> int:
    """List the nodes of the config and retired ones.

    Shows share of hosts, queue, and last settled iteration. Shares are of the newest iteration's scope, among the nodes
    of the config.
    """
    with tool_stores(arguments) as stores:
        nodes = crawl_status(stores, only_nodes=True)["nodes"]
        newest, servers = stores.crawl.newest(), stores.config.servers
        hosts = (
            stores.crawl.scopes.read(stores.crawl.folder(newest).iteration()) if newest else set()
        )
    shares = Counter(map(Owners(servers).owner, hosts))
    total = max(1, len(hosts))
    texts = {node: f"{shares[node]:,} ({shares[node] / total:.0%})" for node in servers}
    for node in servers if arguments.json else ():
        nodes[node]["hosts"] = shares[node]
    print_result(arguments, nodes, lambda: console().print(nodes_table(nodes, texts)))
    return 0


def retire(arguments: argparse.Namespace) -> int:
    """Hand a retired node's queue to the remaining nodes.

    Raises ConfigError where the node is in the config, the others have not settled, or `--lost` comes with `--dir`.
    """
    node, directory, dry_run = (
        arguments.node,
        arguments.dir and Path(arguments.dir).resolve(),
        arguments.dry_run,
    )
    if arguments.lost and directory is not None:
        raise ConfigError("--lost is for a node with a lost directory; --dir names a directory")

    def act(dry_run: bool) -> RetireReport:
        with tool_stores(arguments) if dry_run else stage_stores(arguments) as stores:
            if arguments.lost:
                return retire_lost(stores, node=node, dry_run=dry_run)
            return retire_node(stores, node=node, directory=directory, dry_run=dry_run)

    given_up = f"URLs put by hand on the disk of {node} are given up"
    if arguments.lost:
        result = looked_first(arguments, act, lambda found: "" if found.retired else given_up)
    else:
        result = act(dry_run)
    facts = result.facts
    return print_counted(arguments, f"retire {node}", facts)


def admit(arguments: argparse.Namespace) -> int:
    """Let a node that was retired as lost take part again."""
    node, dry_run = arguments.node, arguments.dry_run
    with tool_stores(arguments, make=not dry_run) as stores:
        admitted = admit_node(stores, node=node, dry_run=dry_run)
    takes = "would take" if dry_run else "takes"
    text = (
        f"{node} {takes} part again" if admitted else f"{node} was not retired as lost: it may work"
    )
    print_result(arguments, text, lambda: say(text))
    return 0
