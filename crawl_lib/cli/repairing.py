"""`krake fsck` and `krake sweep`."""

import argparse

from crawl_lib.cli.common import one_node, print_dry_run, print_json, tool_stores
from crawl_lib.errors import ConfigError

# The tools need numpy and Arrow, which cost every other command a second; so they are imported where they are used.


def fsck(arguments: argparse.Namespace) -> int:
    """Check everything of the crawl that this machine can see, or repair it; 1 if anything is inconsistent after it.

    Raises ConfigError where `--only` comes without `--repair`.
    """
    from crawl_lib.repair import fsck as check  # noqa: PLC0415
    from crawl_lib.repair import repair_crawl  # noqa: PLC0415

    if arguments.only and not arguments.repair:
        raise ConfigError("--only is for --repair: a check looks at everything")
    full, dry_run = not arguments.fast, arguments.dry_run
    with tool_stores(arguments) as stores:
        if arguments.repair:
            say = (lambda line: None) if arguments.json else print
            report = repair_crawl(stores, only=arguments.only, full=full, dry_run=dry_run, say=say)
        else:
            here = [one_node(node, stores.config) for node in arguments.node]
            report = check(stores, full=full, here=here, dry_run=dry_run)
    if arguments.json:
        print_json(report.to_mapping())
    else:
        print(report.to_text())
        print_dry_run(arguments)
    return 0 if report.clean else 1


def sweep(arguments: argparse.Namespace) -> int:
    """Delete what killed attempts left on the store, where it is certain that no attempt owns it."""
    from crawl_lib.repair import sweep as delete_leftovers  # noqa: PLC0415

    with tool_stores(arguments) as stores:
        report = delete_leftovers(stores, dry_run=arguments.dry_run, damaged=arguments.damaged)
    if arguments.json:
        print_json(vars(report))
        return 0
    for text in report.skipped:
        print(f"skipped: {text}")
    for path in report.deleted:
        print(f"{'would delete' if arguments.dry_run else 'deleted'}: {path}")
    if not report.deleted:
        print("nothing is left over")
    print_dry_run(arguments)
    return 0
