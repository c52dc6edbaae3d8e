"""`krake duplicates ...`: equal pages, and the choice between equal pages."""

import argparse
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from typing import Any

from crawl_lib import stages
from crawl_lib.cli.common import print_counted, print_result, say, stage_stores
from crawl_lib.cli.tables import console, grid
from crawl_lib.crawldb import counts_of
from crawl_lib.duplicates import find_mirrors, find_near, find_templates, mark_duplicates
from crawl_lib.rounds import CrawlName
from crawl_lib.stores import Stores


def mark(arguments: argparse.Namespace) -> int:
    """Give the status `duplicate` in the CrawlDb."""
    with stage_stores(arguments) as stores:
        stages.require_crawldb(stores)
        CrawlName(stores).require()
        found = counts_of(mark_duplicates(stores, now=datetime.now(UTC)))
    return print_counted(arguments, "CrawlDb", found)


def near(arguments: argparse.Namespace) -> int:
    """Make the table of near duplicates."""
    with stage_stores(arguments) as stores:
        CrawlName(stores).require()
        version = find_near(stores, now=datetime.now(UTC))
    counts = {
        name: version.manifest[name] for name in ("version", "cosine", "pages", "groups", "rows")
    }
    found = {**counts, "path": version.path}
    return print_counted(arguments, "near duplicates", found)


def mirrors(arguments: argparse.Namespace) -> int:
    """Show hosts that share most texts."""
    return _report(arguments, find_mirrors, "no two hosts share most of their texts")


def templates(arguments: argparse.Namespace) -> int:
    """Show blocks that repeat over a host."""
    return _report(arguments, find_templates, "no block is on half of a host's pages")


def _report(
    arguments: argparse.Namespace, find: Callable[[Stores], list[dict[str, Any]]], none: str
) -> int:
    with stage_stores(arguments) as stores:
        CrawlName(stores).require()
        found = find(stores)
    print_result(arguments, found, partial(_show, found, none))
    return 0


def _show(found: list[dict[str, Any]], none: str) -> None:
    if not found:
        say(none)
        return
    names = [name.replace("_", " ") for name in found[0]]
    console().print(grid(names, [list(row.values()) for row in found]))
