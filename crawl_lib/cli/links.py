"""`krake linkdb ...`: links to a page, and their anchor texts; ranks by links."""

import argparse
import sys
from datetime import UTC, datetime
from functools import partial
from typing import Any

from crawl_lib import stages
from crawl_lib.ask import dump_links, inlinks_of, links_left_out
from crawl_lib.cli.common import print_counted, print_result, say, stage_stores, tool_stores
from crawl_lib.ranks import update_linkrank


def update(arguments: argparse.Namespace) -> int:
    """Take in segments."""
    with stage_stores(arguments) as stores:
        found = stages.invert_links(stores)
    return print_counted(arguments, "LinkDb", found)


def rank(arguments: argparse.Namespace) -> int:
    """Take in segments, and rank."""
    with stage_stores(arguments) as stores:
        version = update_linkrank(stores, now=datetime.now(UTC))
    found = {"version": version.number, "path": version.path, "rows": version.manifest["rows"]}
    return print_counted(arguments, "LinkRank", found)


def get(arguments: argparse.Namespace) -> int:
    """Show the links to a URL, and the number left out.

    The exit code is 1 without links.
    """
    with tool_stores(arguments) as stores:
        found = inlinks_of(stores, arguments.url)
        left_out = {} if arguments.json else links_left_out(stores, arguments.url, found)
    print_result(arguments, found, partial(_show, found, left_out))
    return 0 if found else 1


def _show(found: list[dict[str, Any]], left_out: dict[str, int]) -> None:
    for row in found:
        say(f"{row['source_url']} {row['anchor']}".rstrip())
    if not found:
        say("the LinkDb has no link to the URL; `krake linkdb update` adds new segments")
    for option, count in left_out.items():
        say(f"left out: {count:,} of its links ({option})")


def dump(arguments: argparse.Namespace) -> int:
    """Print all rows of a table."""
    with tool_stores(arguments) as stores:
        dump_links(stores, arguments.table, sys.stdout, as_csv=arguments.format == "csv")
    return 0
