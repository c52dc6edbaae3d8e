"""`krake index update|push|check|stats`, `krake captures update`, `krake commoncrawl index|wet`."""

import argparse
from datetime import UTC, datetime
from functools import partial

from crawl_lib import stages
from crawl_lib.cli.common import print_counted, print_result, say, stage_stores, tool_stores
from crawl_lib.commoncrawl import make_index, make_wet
from crawl_lib.index import INDEX_OUTPUT, index_counts, index_stats, update_index
from crawl_lib.push import push_index


def update(arguments: argparse.Namespace) -> int:
    """Make a version with the current pages."""
    with stage_stores(arguments) as stores:
        version = update_index(stores, now=datetime.now(UTC), purge=arguments.purge)
    return print_counted(arguments, "index", index_counts(version))


def push(arguments: argparse.Namespace) -> int:
    """Bring OpenSearch to the newest version."""
    with stage_stores(arguments) as stores:
        return print_counted(arguments, "push", push_index(stores))


def check(arguments: argparse.Namespace) -> int:
    """Compare all files with their digests; 1 if one differs."""
    with tool_stores(arguments) as stores:
        found = INDEX_OUTPUT.check(stores, full=True)
    text = "\n".join(one.to_text() for one in found) or "clean"
    print_result(arguments, [vars(one) for one in found], partial(say, text))
    return 1 if found else 0


def stats(arguments: argparse.Namespace) -> int:
    """Show the newest version's content and omissions."""
    with tool_stores(arguments) as stores:
        return print_counted(arguments, "index", index_stats(stores))


def update_places(arguments: argparse.Namespace) -> int:
    """Take segments into the table of captures."""
    with stage_stores(arguments) as stores:
        found = stages.make_output(stores, output="captures")
    return print_counted(arguments, "captures", found)


def commoncrawl_index(arguments: argparse.Namespace) -> int:
    """Make Common Crawl's columnar index."""
    with stage_stores(arguments) as stores:
        given = {name: getattr(arguments, name) for name in ("label", "folders", "with_requisites")}
        report = make_index(stores, **given)
    return print_counted(arguments, report.path, report)


def commoncrawl_wet(arguments: argparse.Namespace) -> int:
    """Make WET files."""
    with stage_stores(arguments) as stores:
        report = make_wet(stores, label=arguments.label, folders=arguments.folders)
    return print_counted(arguments, report.path, report)
