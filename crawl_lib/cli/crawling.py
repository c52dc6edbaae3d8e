"""`krake inject`, `krake crawl`, `krake settle`."""

from __future__ import annotations

import argparse
import time
from typing import Any

from crawl_lib import stages
from crawl_lib.cli.common import ProgressLine, config_of, print_counts
from crawl_lib.config import Config
from crawl_lib.crawl.signals import stop_on_signals
from crawl_lib.errors import ConfigError


def _run_id(arguments: argparse.Namespace) -> str:
    return arguments.run_id or f"by-hand-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}"


def _node(arguments: argparse.Namespace, config: Config) -> list[str]:
    if arguments.node is None:
        return list(config.servers)
    if arguments.node not in config.servers:
        raise ConfigError(f"node {arguments.node!r} is not one of servers: {', '.join(config.servers)}")
    return [arguments.node]


def inject(arguments: argparse.Namespace) -> int:
    """Add seeds to the crawl."""
    result = stages.inject(config_of(arguments), run_id=_run_id(arguments), seeds=arguments.seeds)
    print_counts("injected", result)
    return 0


def crawl(arguments: argparse.Namespace) -> int:
    """Iterations of start, every node's crawl, commit; with --node only that node's crawl."""
    config, run_id = config_of(arguments), _run_id(arguments)
    nodes, progress = _node(arguments, config), ProgressLine()
    with stop_on_signals() as stop:
        for iteration in range(1, arguments.iterations + 1):
            if arguments.node is None:
                stages.start_iteration(config, run_id=run_id, iteration=iteration, batch_size=arguments.batch_size)
            for node in nodes:
                result = stages.crawl_node(
                    config, run_id=run_id, iteration=iteration, node=node, stop=stop, on_progress=progress
                )
                progress.close()
                print_counts(f"{run_id}: iteration {iteration}, {node}", result)
            if arguments.node is None:
                stages.commit_iteration(config, run_id=run_id, iteration=iteration)
    return 0


def settle(arguments: argparse.Namespace) -> int:
    """Take in what the last iteration found."""
    config = config_of(arguments)
    with stop_on_signals() as stop:
        for node in _node(arguments, config):
            result: dict[str, Any] = stages.settle_node(config, node=node, stop=stop, on_progress=ProgressLine())
            print_counts(f"settled {node}", result)
    return 0
