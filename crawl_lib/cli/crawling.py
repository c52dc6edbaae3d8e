"""`krake inject`, `krake crawl`, `krake settle`, `krake export`, `krake graph link|finalize|rank`, `krake score`."""

import argparse
import os
import shlex
import sys
import time
import uuid
from collections import Counter
from pathlib import Path
from typing import Any

from crawl_lib import stages
from crawl_lib.cli.common import (
    ResultTable,
    one_node,
    print_counted,
    print_counts,
    say,
    stage_stores,
    waiting,
)
from crawl_lib.config import Config, ConfigPlace, load_config
from crawl_lib.errors import ConfigError, InputError, KrakeError, StoppedError
from crawl_lib.frontier import NodeLock
from crawl_lib.rounds import note_change, requisite_rounds
from crawl_lib.stores import Secrets, Stores

_NO_URL = "no URL was queued: `krake inject` adds seeds, `krake forget` makes known ones new"
_NOT_DUE = "no URL was due: the waiting URLs have failed, and are tried again later"


def _run_id(arguments: argparse.Namespace) -> str:
    # The random part: two commands of one second are two runs.
    made = f"by-hand-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}-{uuid.uuid4().hex[:4]}"
    return str(arguments.run_id or made)


def _command_again(arguments: argparse.Namespace, run_id: str) -> str:
    """Return the command line that continues this run from anywhere."""
    config = Path(arguments.config).resolve() if arguments.config else ConfigPlace.find(os.environ)
    options = {
        "iterations": arguments.iterations,
        "batch-size": arguments.batch_size,
        "node": arguments.node,
    }
    given = [
        word
        for name, value in options.items()
        if value is not None
        for word in (f"--{name}", str(value))
    ]
    return shlex.join(["krake", "--config", str(config), "crawl", *given, "--run-id", run_id])


def _nodes(arguments: argparse.Namespace, config: Config) -> list[str]:
    return list(config.servers) if arguments.node is None else [one_node(arguments.node, config)]


def _require_usable(arguments: argparse.Namespace) -> None:
    """Check all needs of a crawl's commands.

    This comes before the first command does anything.
    """
    if (
        getattr(arguments, "node", None) is None
    ):  # else this is one task of many, on one machine of many
        stages.require_usable(
            load_config(arguments.config), Secrets.from_environment(), arguments.stop
        )


def inject(arguments: argparse.Namespace) -> int:
    """Add seeds to the crawl.

    Raises InputError if one of several is no URL: it may be a file.
    """
    seeds = arguments.seeds
    for text in seeds if len(seeds) > 1 else ():
        if "://" not in text:
            raise InputError(
                f"{text}: is not a URL such as https://example.org/; give each file by itself"
            )
    _require_usable(arguments)
    with stage_stores(arguments) as stores:
        print_counts(
            "injected", stages.inject(stores, run_id=_run_id(arguments), seeds="\n".join(seeds))
        )
    return 0


class _Rounds:
    """The table of a run, a row for each part of an iteration. `counts`: sums over nodes and iterations."""

    def __init__(self, run_id: str) -> None:
        self.counts = Counter[str]()
        self._run_id = run_id
        self._table = ResultTable(
            {"iteration": 9, "part": 10, "taken": 7, "pages": 7, "links": 7}, f"run {run_id}"
        )

    def add(self, iteration: int, part: str, result: dict[str, Any]) -> None:
        """Show the result of a part of an iteration.

        A part is a node, or the list or update of the CrawlDb.
        """
        self._table.add(
            f"{self._run_id}: iteration {iteration}, {part}", result, iteration=iteration, part=part
        )


def crawl(arguments: argparse.Namespace) -> int:
    """Run iterations of every node's crawl and commit.

    With --node only that node's crawl. With a CrawlDb each begins with its list, and ends with an update. Rounds of
    requisites follow where some wait.
    --node leaves out updates and commits. Raises ConfigError for failures that would come only after hours.
    """
    run_id = _run_id(arguments)
    arguments.stop.text = f"stopped. To go on: {_command_again(arguments, run_id)}"
    rounds = _Rounds(run_id)
    counts = rounds.counts
    _require_usable(arguments)
    with stage_stores(arguments) as stores:
        settings = stores.config.crawl
        _require_right(arguments, settings.max_iterations)
        from crawl_lib.worker import prepare_workers  # noqa: PLC0415 - inject and export do without

        prepare_workers()  # before Arrow is loaded for the tasks, and before the first node's intake
        if arguments.node is None:
            note_change(stores, run_id)
        for iteration in range(1, arguments.iterations + 1):
            if said := _iterate(arguments, stores, run_id, iteration, rounds):
                say(f"{run_id}: ended with iteration {iteration}: {said}")
                break
        for iteration in _requisite_rounds(arguments, stores.config):
            ended = stages.ended_before(stores, run_id=run_id, iteration=iteration)
            if ended or _iterate(arguments, stores, run_id, iteration, rounds):
                break
    is_told = said and stores.config.order.makes_lists
    if (
        not counts["taken"]
        and not is_told
        and (counts["passed_over"] or settings.max_pages is None)
    ):
        say(_NOT_DUE if counts["passed_over"] else _NO_URL, file=sys.stderr)
    return 0


def _requisite_rounds(arguments: argparse.Namespace, config: Config) -> range:
    """Return the rounds of requisites.

    None for one node with a CrawlDb, whose lists need an update of all nodes.
    """
    is_possible = arguments.node is None or not config.order.makes_lists
    return requisite_rounds(config) if is_possible else range(0)


def _iterate(
    arguments: argparse.Namespace, stores: Stores, run_id: str, iteration: int, rounds: _Rounds
) -> str | None:
    """Run one iteration; return the reason for the end of the run, if any."""
    is_whole, makes_lists = arguments.node is None, stores.config.order.makes_lists
    which: dict[str, Any] = {"run_id": run_id, "iteration": iteration}
    if is_whole:
        from crawl_lib.node import require_ready  # noqa: PLC0415 - Arrow, which inject does without

        require_ready(stores, **which)
    if makes_lists:
        made = stages.generate(stores, **which, batch_size=arguments.batch_size)
        rounds.add(iteration, "list", made)
        if "ended" in made:
            return str(made["ended"])
    for node in _nodes(arguments, stores.config):
        _crawl_node(arguments, stores, {**which, "node": node}, rounds)
    if not is_whole:
        return None
    committed = stages.commit_iteration(stores, **which)
    if makes_lists:
        rounds.add(iteration, "update", stages.update_crawldb(stores))
    if "budgets" in committed:
        say(f"{run_id}: iteration {iteration}, limits reached: {committed['budgets']}")
    if "waiting" in committed:
        say(f"{run_id}: iteration {iteration}: {committed['waiting']}")
    return committed.get("ended")


def _crawl_node(
    arguments: argparse.Namespace, stores: Stores, which: dict[str, Any], rounds: _Rounds
) -> None:
    """Run a node's part.

    With `crawl.min_nodes` below 1 a failed node is named, and commit decides.
    """
    try:
        result = stages.crawl_node(stores, **which, batch_size=arguments.batch_size)
    except KrakeError as error:
        if (
            isinstance(error, StoppedError)
            or arguments.node is not None
            or stores.config.crawl.min_nodes == 1
        ):
            raise
        say(f"node failed: {error}", file=sys.stderr)
        return
    rounds.counts.update({name: result.get(name, 0) for name in ("taken", "passed_over")})
    rounds.add(which["iteration"], which["node"], result)


def _require_right(arguments: argparse.Namespace, most: int) -> None:
    if arguments.iterations > most:
        raise ConfigError(
            f"--iterations {arguments.iterations} is more than crawl.max_iterations ({most})"
        )
    if arguments.node is not None and arguments.run_id is None:
        raise ConfigError("--node crawls a node's part of a run: name the run with --run-id")


def settle(arguments: argparse.Namespace) -> int:
    """Take in the finds of the last iteration."""
    table = ResultTable({"node": 12})
    with stage_stores(arguments) as stores:
        for node in _nodes(arguments, stores.config):
            if arguments.all_again:
                _read_all_again(arguments, stores, node)
            table.add(f"settled {node}", stages.settle_node(stores, node=node), node=node)
    return 0


def _read_all_again(arguments: argparse.Namespace, stores: Stores, node: str) -> None:
    """Have the node read every source again, and find its lost URLs."""
    from crawl_lib.repair import find_lost_again  # noqa: PLC0415 - numpy and Arrow, for this option only

    directory, timeout_s = stores.node_dir(node), stores.config.queue.lock_timeout_s
    if not directory.is_dir():
        return  # its settle reads all, or says that the queue is gone
    with NodeLock(
        directory, node, timeout_s, what="krake settle", on_wait=waiting(arguments)
    ) as home:
        find_lost_again(stores, home)


def export(arguments: argparse.Namespace) -> int:
    """Write mapping, content and offsets."""
    with stage_stores(arguments) as stores:
        given = {name: getattr(arguments, name) for name in ("label", "folders", "with_requisites")}
        print_counts("export", stages.export_pages(stores, **given))
    return 0


def _export(arguments: argparse.Namespace, stores: Stores) -> str:
    """Return the export named by the user, else the newest export."""
    from crawl_lib.export import newest_export  # noqa: PLC0415 - numpy and Arrow, for these commands only

    return arguments.export or newest_export(stores)


def link(arguments: argparse.Namespace) -> int:
    """Turn links into arcs."""
    with stage_stores(arguments) as stores:
        print_counts("linker", stages.link_export(stores, export=_export(arguments, stores)))
    return 0


def finalize(arguments: argparse.Namespace) -> int:
    """Write the web graph."""
    with stage_stores(arguments) as stores:
        print_counts("finalizer", stages.finalize_export(stores, export=_export(arguments, stores)))
    return 0


def rank(arguments: argparse.Namespace) -> int:
    """Rank pages, hosts or domains."""
    with stage_stores(arguments) as stores:
        found = stages.rank_export(stores, export=_export(arguments, stores), of=arguments.graph)
    return print_counted(arguments, f"ranks of {arguments.graph}", found)


def score(arguments: argparse.Namespace) -> int:
    """Make ranks the scores of the CrawlDb."""
    with stage_stores(arguments) as stores:
        found = stages.update_score(stores, export=arguments.export)
    return print_counted(arguments, "CrawlDb", found)


def text(arguments: argparse.Namespace) -> int:
    """Make the texts of segments that have none yet."""
    with stage_stores(arguments) as stores:
        report = stages.make_output(stores, output="text")
    return print_counted(arguments, "text", report)
