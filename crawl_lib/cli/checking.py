"""`krake fsck`, `krake sweep`."""

from __future__ import annotations

import argparse

from crawl_lib.cli.common import one_node, print_dry_run, print_json, stores_of, tool_progress


def fsck(arguments: argparse.Namespace) -> int:
    """Check everything of the crawl that this machine can see; 1 if anything is inconsistent."""
    from crawl_lib.repair import fsck as check  # noqa: PLC0415 - numpy and Arrow, for this command only

    with tool_progress(arguments) as progress:
        stores = stores_of(arguments)
        here = [one_node(node, stores.config) for node in arguments.node]
        report = check(stores, full=not arguments.fast, here=here, dry_run=arguments.dry_run, on_progress=progress)
    if arguments.json:
        print_json(report.to_mapping())
    else:
        print(report.to_text())
        print_dry_run(arguments)
    return 0 if report.clean else 1


def sweep(arguments: argparse.Namespace) -> int:
    """Delete what killed attempts left on the store, where it is certain that no attempt owns it."""
    from crawl_lib.repair import sweep as delete_leftovers  # noqa: PLC0415 - as above

    with tool_progress(arguments) as progress:
        stores = stores_of(arguments, stop=arguments.stop)
        report = delete_leftovers(stores, dry_run=arguments.dry_run, on_progress=progress)
    if arguments.json:
        print_json(report.to_mapping())
        return 0
    for text in report.skipped:
        print(f"skipped: {text}")
    for path in report.deleted:
        print(f"{'would delete' if arguments.dry_run else 'deleted'}: {path}")
    if not report.deleted:
        print("nothing is left over")
    print_dry_run(arguments)
    return 0
