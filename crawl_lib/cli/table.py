"""`krake crawldb ...`: show the CrawlDb, and take the steps of a round by hand."""

import argparse
import sys
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

from crawl_lib import crawldb, stages
from crawl_lib.ask import (
    best_rows,
    crawldb_stats,
    dump_crawldb,
    dump_hosts,
    explain_listing,
    row_of_url,
    says_listing,
)
from crawl_lib.cli.common import (
    print_counted,
    print_counts,
    print_result,
    say,
    stage_stores,
    tool_stores,
)
from crawl_lib.crawldb import counts_of, filter_crawldb, init_crawldb, rebuild
from crawl_lib.rounds import CrawlName
from crawl_lib.stores import Stores
from crawl_lib.versions import Version


def stats(arguments: argparse.Namespace) -> int:
    """Show sums over the newest version."""
    with tool_stores(arguments) as stores:
        found = crawldb_stats(stores, now=datetime.now(UTC))
    return print_counted(arguments, f"version {found['version']}", found)


def get(arguments: argparse.Namespace) -> int:
    """Show the row of a URL; return 1 if there is no row."""
    with tool_stores(arguments) as stores:
        found = row_of_url(stores, arguments.url)
    print_result(arguments, found, partial(_show_rows, [found] if found else []))
    return 0 if found else 1


def top(arguments: argparse.Namespace) -> int:
    """Show the rows with the highest scores."""
    with tool_stores(arguments) as stores:
        found = best_rows(stores, arguments.count)
    print_result(arguments, found, partial(_show_best, found))
    return 0


def _show_best(found: list[dict[str, Any]]) -> None:
    for row in found:
        say(f"{row['score']} {row['status']} {row['url']}")


def _show_rows(found: list[dict[str, Any]]) -> None:
    for row in found:
        print_counts(
            row["url"], {name: str(value) for name, value in row.items() if value is not None}
        )
    if not found:
        say("the URL is not in the CrawlDb; `krake why` explains")


def dump(arguments: argparse.Namespace) -> int:
    """Print all rows."""
    with tool_stores(arguments) as stores:
        dump_crawldb(stores, sys.stdout, as_csv=arguments.format == "csv")
    return 0


def hosts(arguments: argparse.Namespace) -> int:
    """Show the facts of each host."""
    as_csv = arguments.format == "csv"
    with tool_stores(arguments) as stores:
        dump_hosts(stores, sys.stdout, now=datetime.now(UTC), as_csv=as_csv, count=arguments.count)
    return 0


def explain(arguments: argparse.Namespace) -> int:
    """Explain why the newest list has a URL or not."""
    with tool_stores(arguments) as stores:
        found = explain_listing(stores, arguments.url)
    facts = {
        name: str(value)
        for part in ("row", "list")
        for name, value in (found[part] or {}).items()
        if value
    }
    print_result(
        arguments, found, partial(print_counts, f"{found['url']} {says_listing(found)}", facts)
    )
    return 0


def init(arguments: argparse.Namespace) -> int:
    """Make the first version of the CrawlDb.

    For a crawl begun with fifo, a note on the DFS then refuses any return to fifo.
    """

    def first(stores: Stores, *, now: datetime) -> Version:
        begun_with_fifo = bool(CrawlName(stores).others())
        if begun_with_fifo:
            CrawlName(replace(stores, config=stores.config.as_fifo())).require()
        version = init_crawldb(stores, now=now)
        if begun_with_fifo:
            CrawlName(stores).note_crawldb()
        else:
            CrawlName(stores).note()
        return version

    return _grow(arguments, first, is_first=True)


def update(arguments: argparse.Namespace) -> int:
    """Make a version with new seeds and segments."""
    return _grow(arguments, crawldb.update)


def make_again(arguments: argparse.Namespace) -> int:
    """Make a version from all seeds and segments, without an earlier version."""
    return _grow(arguments, rebuild)


def filter_rows(arguments: argparse.Namespace) -> int:
    """Make a version by the current rules, without new seeds and segments."""
    return _grow(arguments, filter_crawldb)


def _grow(
    arguments: argparse.Namespace, make: Callable[..., Version], *, is_first: bool = False
) -> int:
    """Make a version, and show its sums.

    Raises ConfigError for a crawl begun with fifo, unless `is_first`.
    """
    with stage_stores(arguments) as stores:
        stages.require_crawldb(stores)
        if not is_first:
            CrawlName(stores).require()
        found = counts_of(make(stores, now=datetime.now(UTC)))
    return print_counted(arguments, "CrawlDb", found)


def generate(arguments: argparse.Namespace) -> int:
    """Make the list of an iteration, or find the existing list."""
    which = {"run_id": arguments.run_id, "iteration": arguments.iteration}
    with stage_stores(arguments) as stores:
        found = stages.generate(stores, **which, batch_size=arguments.batch_size)
    return print_counted(arguments, f"{arguments.run_id}: list", found)
