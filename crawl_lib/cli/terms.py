"""`krake terms ...`: the pages of a word, with weights."""

import argparse
from datetime import UTC, datetime
from functools import partial
from typing import Any

from crawl_lib.cli.common import print_counted, print_result, say, stage_stores, tool_stores
from crawl_lib.rounds import CrawlName
from crawl_lib.terms import postings_of, search_terms, update_terms


def update(arguments: argparse.Namespace) -> int:
    """Make the table of terms."""
    with stage_stores(arguments) as stores:
        CrawlName(stores).require()
        version = update_terms(stores, now=datetime.now(UTC))
    counts = {name: version.manifest[name] for name in ("version", "pages", "postings", "rows")}
    found = {**counts, "path": version.path}
    return print_counted(arguments, "terms", found)


def get(arguments: argparse.Namespace) -> int:
    """Show the pages of a word; 1 if no page has the word."""
    with tool_stores(arguments) as stores:
        found = postings_of(stores, arguments.word)
    print_result(arguments, found, partial(_show_words, found))
    return 0 if found else 1


def _show_words(found: list[dict[str, Any]]) -> None:
    for row in found:
        say(f"{row['word']}: {row['pages']:,} pages")
        for posting in row["postings"]:
            say(f"{posting['tf_idf']:9.4f} {posting['url']}")
    if not found:
        say("no page has the word; `krake terms update` adds new segments")


def search(arguments: argparse.Namespace) -> int:
    """Show the best pages for some words; 1 if there are none."""
    with stage_stores(arguments) as stores:
        found = search_terms(stores, arguments.words, count=arguments.count)
    print_result(arguments, found, partial(_show_pages, found))
    return 0 if found else 1


def _show_pages(found: list[dict[str, Any]]) -> None:
    for row in found:
        say(f"{row['score']:9.4f} {row['url']}")
    if not found:
        say("no page has any of these words; `krake terms update` adds new segments")
