"""`krake realtime collect|statistics|fill`: segments of fetched pages, their statistics, and the lost table."""

import argparse
from pathlib import Path

from crawl_lib.cli.common import print_result, say, tool_stores
from crawl_lib.realtime import CollectReport, FillReport, collect_from, fill_table
from crawl_lib.stages import make_statistics
from crawl_lib.statistics import write_statistics


def collect(arguments: argparse.Namespace) -> int:
    """Make a segment of the fetcher's closed parts."""
    with tool_stores(arguments, make=True) as stores:
        report = collect_from(stores, arguments.fetcher)
    print_result(arguments, report, lambda: _show(report))
    return 0


def _show(report: CollectReport) -> None:
    if report.folder:
        say(
            f"segment {report.folder}/{report.name}: {report.pages:,} pages of {report.parts:,} parts"
        )
        say(f"{report.submissions:,} submissions")
        if report.unreadable:
            say(
                f"{report.unreadable:,} lines of logs cannot be read, such as the last line of a killed service"
            )
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
        say(f"{report.redirected:,} rows have the documents of redirects' targets")
    if report.waiting:
        say(f"{report.waiting:,} redirects wait: the service fetches the targets at the next start")
    say("URLs that only waited in a lost table are lost: submit them again")


def statistics(arguments: argparse.Namespace) -> int:
    """Make the statistics of an hour and of late segments; or write the page of a date."""
    with tool_stores(arguments, make=True) as stores:
        if arguments.page:
            target = Path(arguments.page).absolute()
            date = write_statistics(stores, date=arguments.date, target=target)
            print_result(
                arguments,
                {"date": date, "page": str(target)},
                lambda: say(f"written: {target.as_uri()}"),
            )
            return 0
        result = make_statistics(stores, hour=arguments.hour)
    print_result(arguments, result, lambda: _show_made(result["hour"], result["made"]))
    return 0


def _show_made(hour: str, made: list[str]) -> None:
    for path in made:
        say(f"made {path}")
    if not made:
        say(f"nothing to do: the statistics of {hour} have all segments")
