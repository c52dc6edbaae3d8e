"""`krake inject`, `krake crawl`, `krake settle`."""

import argparse
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from crawl_lib import stages
from crawl_lib.cli.common import ProgressLine, Waiting, config_of, one_node, print_counts, stores_of
from crawl_lib.config import Config
from crawl_lib.errors import ConfigError, KrakeError, StoppedError
from crawl_lib.frontier import NodeLock
from crawl_lib.node import require_ready
from crawl_lib.stores import open_stores


def _run_id(arguments: argparse.Namespace) -> str:
    if arguments.run_id:
        return str(arguments.run_id)
    # The random part: two commands of one second are two runs.
    return f"by-hand-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}-{uuid.uuid4().hex[:4]}"


def _nodes(arguments: argparse.Namespace, config: Config) -> list[str]:
    return list(config.servers) if arguments.node is None else [one_node(arguments.node, config)]


def inject(arguments: argparse.Namespace) -> int:
    """Add seeds to the crawl."""
    result = stages.inject(
        open_stores(config_of(arguments), stop=arguments.stop),
        run_id=_run_id(arguments),
        seeds=arguments.seeds,
    )
    print_counts("injected", result)
    return 0


def crawl(arguments: argparse.Namespace) -> int:
    """Iterations of start, every node's crawl, commit; with --node only that node's crawl."""
    config, run_id = config_of(arguments), _run_id(arguments)
    nodes, progress = _nodes(arguments, config), ProgressLine()
    _check(arguments, config)
    stores, taken = open_stores(config, stop=arguments.stop, on_progress=progress), 0
    for iteration in range(1, arguments.iterations + 1):
        if arguments.node is None:
            require_ready(stores, run_id=run_id, iteration=iteration)
            stages.start_iteration(stores, run_id=run_id, iteration=iteration, batch_size=arguments.batch_size)
        for node in nodes:
            with _others_go_on(arguments, config):
                result = stages.crawl_node(stores, run_id=run_id, iteration=iteration, node=node)
                progress.close()
                taken += result.get("taken", 0)
                print_counts(f"{run_id}: iteration {iteration}, {node}", result)
        if arguments.node is None:
            stages.commit_iteration(stores, run_id=run_id, iteration=iteration)
    if not taken and config.crawl.max_pages is None:
        print("no URL was queued: `krake inject` adds seeds, `krake forget` makes known ones new", file=sys.stderr)
    return 0


@contextmanager
def _others_go_on(arguments: argparse.Namespace, config: Config) -> Iterator[None]:
    """With `crawl.min_nodes` below 1 a node that fails is named, and commit decides whether it may be missing."""
    try:
        yield
    except StoppedError:
        raise
    except KrakeError as error:
        if arguments.node is not None or config.crawl.min_nodes == 1:
            raise
        print(f"node failed: {error}", file=sys.stderr)


def _check(arguments: argparse.Namespace, config: Config) -> None:
    """Refuse what would fail only after hours."""
    if arguments.iterations > config.crawl.max_iterations:
        raise ConfigError(
            f"--iterations {arguments.iterations} is more than crawl.max_iterations ({config.crawl.max_iterations})"
        )
    if arguments.node is not None and arguments.run_id is None:
        raise ConfigError("--node crawls one node's part of a run that was started elsewhere: name it with --run-id")


def settle(arguments: argparse.Namespace) -> int:
    """Take in what the last iteration found."""
    config = config_of(arguments)
    for node in _nodes(arguments, config):
        if arguments.all_again:
            _read_all_again(arguments, node)
        progress = ProgressLine()
        result: dict[str, Any] = stages.settle_node(
            open_stores(config, stop=arguments.stop, on_progress=progress), node=node
        )
        progress.close()
        print_counts(f"settled {node}", result)
    return 0


def _read_all_again(arguments: argparse.Namespace, node: str) -> None:
    """Have the node read every segment again: for URLs whose keys a repair on another machine took out."""
    from crawl_lib.repair import take_all_in_again  # noqa: PLC0415 - numpy and Arrow, for this option only

    stores = stores_of(arguments, stop=arguments.stop)
    directory, timeout_s = stores.node_dir(node), stores.config.queue.lock_timeout_s
    with NodeLock(directory, node, timeout_s, what="krake settle", on_wait=Waiting(arguments)):
        take_all_in_again(stores, node)
