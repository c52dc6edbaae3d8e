"""`krake inject`, `krake crawl`, `krake settle`, `krake export`, `krake graph link|finalize`."""

import argparse
import sys
import time
import uuid

from crawl_lib import stages
from crawl_lib.cli.common import one_node, print_counts, stage_stores, waiting
from crawl_lib.config import Config
from crawl_lib.errors import ConfigError, KrakeError, StoppedError
from crawl_lib.export import newest_export
from crawl_lib.frontier import NodeLock
from crawl_lib.node import require_ready
from crawl_lib.stores import Stores


def _run_id(arguments: argparse.Namespace) -> str:
    # The random part: two commands of one second are two runs.
    made = f"by-hand-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}-{uuid.uuid4().hex[:4]}"
    return str(arguments.run_id or made)


def _nodes(arguments: argparse.Namespace, config: Config) -> list[str]:
    return list(config.servers) if arguments.node is None else [one_node(arguments.node, config)]


def inject(arguments: argparse.Namespace) -> int:
    """Add seeds to the crawl."""
    with stage_stores(arguments) as stores:
        print_counts("injected", stages.inject(stores, run_id=_run_id(arguments), seeds=arguments.seeds))
    return 0


def crawl(arguments: argparse.Namespace) -> int:
    """Iterations of start, every node's crawl, commit; with --node only that node's crawl.

    With `crawl.min_nodes` below 1 a node that fails is named, and commit decides whether it may be missing. Raises
    ConfigError for what would fail only after hours.
    """
    run_id, taken, is_whole = _run_id(arguments), 0, arguments.node is None
    with stage_stores(arguments) as stores:
        settings = stores.config.crawl
        nodes = _nodes(arguments, stores.config)
        if arguments.iterations > settings.max_iterations:
            raise ConfigError(
                f"--iterations {arguments.iterations} is more than crawl.max_iterations ({settings.max_iterations})"
            )
        if not is_whole and arguments.run_id is None:
            raise ConfigError(
                "--node crawls one node's part of a run that was started elsewhere: name it with --run-id"
            )
        for iteration in range(1, arguments.iterations + 1):
            if is_whole:
                require_ready(stores, run_id=run_id, iteration=iteration)
                stages.start_iteration(stores, run_id=run_id, iteration=iteration, batch_size=arguments.batch_size)
            for node in nodes:
                try:
                    result = stages.crawl_node(stores, run_id=run_id, iteration=iteration, node=node)
                    taken += result.get("taken", 0)
                    print_counts(f"{run_id}: iteration {iteration}, {node}", result)
                except KrakeError as error:
                    if isinstance(error, StoppedError) or not is_whole or settings.min_nodes == 1:
                        raise
                    print(f"node failed: {error}", file=sys.stderr)
            if is_whole:
                stages.commit_iteration(stores, run_id=run_id, iteration=iteration)
    if not taken and settings.max_pages is None:
        print("no URL was queued: `krake inject` adds seeds, `krake forget` makes known ones new", file=sys.stderr)
    return 0


def settle(arguments: argparse.Namespace) -> int:
    """Take in what the last iteration found."""
    with stage_stores(arguments) as stores:
        for node in _nodes(arguments, stores.config):
            if arguments.all_again:
                _read_all_again(arguments, stores, node)
            print_counts(f"settled {node}", stages.settle_node(stores, node=node))
    return 0


def _read_all_again(arguments: argparse.Namespace, stores: Stores, node: str) -> None:
    """Have the node read every segment again: for URLs whose keys a repair on another machine took out."""
    from crawl_lib.repair import take_all_in_again  # noqa: PLC0415 - numpy and Arrow, for this option only

    directory, timeout_s = stores.node_dir(node), stores.config.queue.lock_timeout_s
    with NodeLock(directory, node, timeout_s, what="krake settle", on_wait=waiting(arguments)):
        take_all_in_again(stores, node)


def export(arguments: argparse.Namespace) -> int:
    """Write mapping, content and offsets."""
    with stage_stores(arguments) as stores:
        print_counts("export", stages.export_pages(stores, label=arguments.label, folders=arguments.folders))
    return 0


def link(arguments: argparse.Namespace) -> int:
    """Turn links into arcs."""
    with stage_stores(arguments) as stores:
        print_counts("linker", stages.link_export(stores, export=arguments.export or newest_export(stores)))
    return 0


def finalize(arguments: argparse.Namespace) -> int:
    """Write the web graph."""
    with stage_stores(arguments) as stores:
        print_counts("finalizer", stages.finalize_export(stores, export=arguments.export or newest_export(stores)))
    return 0
