"""`krake realtime collect`: pages that were fetched in real time become a segment."""

import argparse

from crawl_lib.cli.common import print_result, say, tool_stores
from crawl_lib.realtime import CollectReport, collect_from


def collect(arguments: argparse.Namespace) -> int:
    """Make a segment of what the fetcher has closed."""
    with tool_stores(arguments, make=True) as stores:
        report = collect_from(stores, arguments.fetcher)
    print_result(arguments, report.to_mapping(), lambda: _show(report))
    return 0


def _show(report: CollectReport) -> None:
    if report.folder:
        say(f"segment {report.folder}/{report.name}: {report.pages:,} pages of {report.parts:,} parts")
    else:
        say("nothing to do: no part is closed")
