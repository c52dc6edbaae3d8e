"""`krake fsck`, `krake sweep`, `krake nodes restart`."""

import argparse
from collections.abc import Callable
from functools import partial

from crawl_lib import repair
from crawl_lib.cli.common import one_node, print_result, say, tool_stores, waiting
from crawl_lib.errors import ConfigError
from crawl_lib.frontier import LostUrls
from crawl_lib.realtime import check_live, repair_live
from crawl_lib.repair import FsckReport, SweepReport
from crawl_lib.stores import Stores


def fsck(arguments: argparse.Namespace) -> int:
    """Check or repair all that this machine can see.

    The exit code is 1 if anything stays inconsistent. Raises ConfigError where `--only` comes without `--repair`, and
    for `--node`, an option of earlier versions.
    """
    if arguments.node:
        raise ConfigError(
            "--node is no option any more: `krake fsck` checks all queues of this machine, and"
            f" `krake settle --all-again --node {arguments.node}` finds the lost URLs of the node again"
        )
    if arguments.only and not arguments.repair:
        raise ConfigError("--only is for --repair: a check looks at everything")
    full, dry_run = not arguments.fast, arguments.dry_run
    with tool_stores(arguments) as stores:
        if arguments.repair:
            tell = (lambda line: None) if arguments.json else say
            report = repair.repair_crawl(
                stores, only=arguments.only, full=full, dry_run=dry_run, say=tell
            )
            if arguments.only is None:
                _repair_live(stores, report, tell, dry_run=dry_run)
        else:
            report = repair.fsck(stores, full=full, dry_run=dry_run)
        if arguments.only is None:
            _check_live(stores, report)
    shown = {**vars(report), "clean": report.clean}
    print_result(arguments, shown, lambda: say(report.to_text()))
    return 0 if report.clean else 1


def _repair_live(
    stores: Stores, report: FsckReport, tell: Callable[[str], None], *, dry_run: bool
) -> None:
    def did(line: str) -> None:
        report.done.append(line)
        tell(f"would: {line}" if dry_run else line)

    report.skipped += repair_live(stores, say=did, dry_run=dry_run)


def _check_live(stores: Stores, report: FsckReport) -> None:
    found, count = check_live(stores, full=report.full)
    report.findings += found
    if count:
        report.checked["parts in real time"] = count


def sweep(arguments: argparse.Namespace) -> int:
    """Delete leftovers of killed attempts, if certainly without an owner."""
    with tool_stores(arguments) as stores:
        report = repair.sweep(stores, dry_run=arguments.dry_run, damaged=arguments.damaged)
    print_result(arguments, report, partial(_show_swept, report))
    return 0


def _show_swept(report: SweepReport) -> None:
    for text in report.skipped:
        say(f"skipped: {text}")
    for path in report.deleted:
        say(f"{'would delete' if report.dry_run else 'deleted'}: {path}")
    if not report.deleted:
        say("nothing is left over")


def restart(arguments: argparse.Namespace) -> int:
    """Begin an empty queue for a node that lost its disk."""
    with tool_stores(arguments, make=not arguments.dry_run) as stores:
        node = one_node(arguments.node, stores.config)
        report = repair.restart_node(
            stores, node, dry_run=arguments.dry_run, on_wait=waiting(arguments)
        )
    lines = [*report.done, *([f"next: {LostUrls.advice(report.lost)}"] if report.lost else [])]
    print_result(arguments, lines, lambda: say("\n".join(lines)))
    return 0
