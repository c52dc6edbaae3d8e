"""`krake search`: search the pages of the index."""

import argparse
import json
from collections.abc import Iterator
from functools import partial

from crawl_lib.cli.common import print_result, say, tool_stores
from crawl_lib.search import (
    PAGE_SIZE,
    IndexReader,
    IndexVersions,
    Result,
    SearchAnswer,
    SearchOptions,
    Sites,
    Snippet,
    answer,
    as_json,
    every_page,
    time_of,
)


def search(arguments: argparse.Namespace) -> int:
    """Print the results of a query; 1 without results."""
    query = " ".join(arguments.query)
    with tool_stores(arguments) as stores:
        sites = Sites.of(stores.config.search)
        reader = IndexReader(IndexVersions(stores), background=None)
        if arguments.all:
            return _print_all(every_page(reader.current(), query, sites), is_json=arguments.json)
        wanted = SearchOptions(
            arguments.page, is_broader=arguments.broader, is_explained=arguments.explain
        )
        found = reader.ask(lambda index: answer(index, query, sites, wanted))
    print_result(arguments, as_json(found), partial(_show, found))
    return 0 if found.results else 1


def _print_all(pages: Iterator[tuple[bytes, str]], *, is_json: bool) -> int:
    """Print pages as they are found."""
    has_some = False
    for key, url in pages:
        say(json.dumps({"key": key.hex(), "url": url}) if is_json else url)
        has_some = True
    return 0 if has_some else 1


def _show(found: SearchAnswer) -> None:
    for note in found.reading.notes:
        say(note)
    for number, one in enumerate(found.results, (found.page - 1) * PAGE_SIZE + 1):
        say(f"{number}. {one.title or one.url}")
        for line in _lines(one):
            say(f"   {line}")
    if found.suggestion:
        say(f"did you mean: {found.suggestion}")
    if not found.results:
        say("no page was found")
    elif found.total:
        say(f"pages with all words: {found.total:,}")


def _lines(one: Result) -> Iterator[str]:
    """Return the lines below a result's title."""
    yield one.url
    score = "" if one.score is None else f", score {one.score:.4f}"
    yield f"{one.date_is} {time_of(one.date_us):%Y-%m-%d}{score}"
    if one.snippet:
        yield _marked(one.snippet)
    if one.missing:
        yield f"without: {', '.join(one.missing)}"
    if one.like:
        yield f"and {len(one.like)} like it: {', '.join(one.like)}"
    if (explained := one.explanation) is not None:
        for share in explained.shares:
            value = f"{share.bm25:.6f} * {share.weight:g} * {share.times:g} = {share.value:.6f}"
            yield f"{share.words} in {share.field}: {value}"
        factors = f"{explained.boost_factor:.6f} (boost {explained.boost:g}) * {explained.site_factor:g} (site)"
        yield f"{explained.by_words:.6f} * {factors} = {explained.score:.6f}"


def _marked(snippet: Snippet) -> str:
    """Return a snippet as one line, query words between asterisks."""
    parts, last = [], 0
    for start, end in snippet.marks:
        parts += [snippet.text[last:start], "*", snippet.text[start:end], "*"]
        last = end
    return " ".join("".join([*parts, snippet.text[last:]]).split())
