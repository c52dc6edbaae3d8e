"""`krake fsck`."""

from __future__ import annotations

import argparse

from crawl_lib.cli.common import ProgressLine, print_json, stores_of


def fsck(arguments: argparse.Namespace) -> int:
    """Check everything of the crawl that this machine can see; 1 if anything is inconsistent."""
    from crawl_lib.repair.fsck import fsck as check  # noqa: PLC0415 - numpy and Arrow, for this command only

    progress = ProgressLine(after_s=2.0)
    try:
        report = check(stores_of(arguments), full=not arguments.fast, on_progress=progress)
    finally:
        progress.close()
    if arguments.json:
        print_json(report.to_mapping())
    else:
        print(report.to_text())
    return 0 if report.clean else 1
