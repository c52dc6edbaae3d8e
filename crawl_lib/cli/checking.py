"""`krake fsck`."""

from __future__ import annotations

import argparse

from crawl_lib.cli.common import print_json, stores_of, tool_progress


def fsck(arguments: argparse.Namespace) -> int:
    """Check everything of the crawl that this machine can see; 1 if anything is inconsistent."""
    from crawl_lib.repair.fsck import fsck as check  # noqa: PLC0415 - numpy and Arrow, for this command only

    with tool_progress(arguments) as progress:
        report = check(stores_of(arguments), full=not arguments.fast, on_progress=progress)
    if arguments.json:
        print_json(report.to_mapping())
    else:
        print(report.to_text())
    return 0 if report.clean else 1
