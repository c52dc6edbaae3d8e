"""`krake realtime collect` makes a segment of fetched pages; `krake realtime fill` makes the lost table again."""

import argparse

from crawl_lib.cli.common import print_result, say, tool_stores
from crawl_lib.realtime import CollectReport, FillReport, collect_from, fill_table


def collect(arguments: argparse.Namespace) -> int:
    """Make a segment of what the fetcher has closed."""
    with tool_stores(arguments, make=True) as stores:
        report = collect_from(stores, arguments.fetcher)
    print_result(arguments, report.to_mapping(), lambda: _show(report))
    return 0


def _show(report: CollectReport) -> None:
    if report.folder:
        say(f"segment {report.folder}/{report.name}: {report.pages:,} pages of {report.parts:,} parts")
        say(f"{report.submissions:,} submissions")
        if report.unreadable:
            say(f"{report.unreadable:,} lines of them cannot be read, such as the last line of a killed service")
    else:
        say("nothing to do: no part is closed")


def fill(arguments: argparse.Namespace) -> int:
    """Make the table krakepages again from segments, while the service is stopped."""
    with tool_stores(arguments, make=True) as stores:
        report = fill_table(stores)
    print_result(arguments, report.to_mapping(), lambda: _show_filled(report))
    return 0


def _show_filled(report: FillReport) -> None:
    if report.aside:
        say(f"kept {report.aside} damaged files as <file>.damaged-<time>")
    if report.moved:
        say(f"moved {report.moved:,} rows to the key servers of their keys")
    say(f"filled {report.filled:,} rows from {report.captures:,} captures in segments")
    if report.redirected:
        say(f"{report.redirected:,} of them have the documents of their redirects' targets")
    if report.waiting:
        say(f"{report.waiting:,} redirects wait: the service fetches their targets at its next start")
    say("what was only waiting in a lost table is lost: submit it again")
