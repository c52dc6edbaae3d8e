"""`krake show`, `krake cat`, `krake why`, `krake check`: answers about a page or a URL."""

import argparse
import sys
from collections.abc import Mapping
from functools import partial
from typing import Any

from crawl_lib.ask import check_url, explain, find_page, read_answer
from crawl_lib.cli.common import config_file, print_counts, print_result, say, tool_stores
from crawl_lib.export import PageView
from crawl_lib.fetch import how_to_allow, inner_networks
from crawl_lib.states import Outcome


def show(arguments: argparse.Namespace) -> int:
    """Show a page and its links."""
    with tool_stores(arguments) as stores:
        found = find_page(stores, arguments.page, export=arguments.export)
    print_result(arguments, found, partial(_show_page, found))
    return 0


def _show_page(found: PageView) -> None:
    """Print a page as a table, then the pages at its arcs.

    Numbers are as in files.
    """
    where = f"export {found.export}" if found.export else "no export has it"
    facts = _facts({**found.row, "key": found.key, "node_id": found.node_id})
    sides = {
        "in": (found.in_degree, found.in_links),
        "out": (found.out_degree, found.out_links),
    }
    for side, (degree, links) in sides.items():
        if degree is not None:
            facts[f"{side}_degree"] = degree
            facts[f"{side}_links"] = [f"{one['node_id']} {one['url']}" for one in links or ()]
    print_counts(f"{found.url} ({where})", facts)


def cat(arguments: argparse.Namespace) -> int:
    """Print a page's answer.

    A terminal gets no control sequences; elsewhere the body's bytes stay.
    """
    with tool_stores(arguments) as stores:
        found = find_page(stores, arguments.page, export=arguments.export)
        answer = read_answer(stores, found)
    head, content = answer
    if content.error:
        say(f"krake: {found.url}: {content.error}", file=sys.stderr)
    if not sys.stdout.isatty():
        sys.stdout.buffer.write(content.data if arguments.body else head + content.data)
        return 0
    for line in (
        "" if arguments.body else head.decode("latin-1")
    ).splitlines() + answer.source().splitlines():
        say(line.expandtabs())
    return 0


def why(arguments: argparse.Namespace) -> int:
    """Show all that is known of a URL."""
    with tool_stores(arguments) as stores:
        found = explain(stores, arguments.url, all_links=arguments.all_links)
    _add_cure(arguments, found, found["capture"] or {})
    print_result(arguments, found, partial(_show_url, found))
    return 0


def check(arguments: argparse.Namespace) -> int:
    """Judge a URL, and fetch it once.

    The exit code is 1 without an answer.
    """
    with tool_stores(arguments) as stores:
        found = check_url(stores, arguments.url)
    _add_cure(arguments, found, found["fetch"])
    print_result(arguments, found, partial(_show_url, found))
    return 0 if found["fetch"]["status"] else 1


def _add_cure(
    arguments: argparse.Namespace, found: dict[str, Any], ended: Mapping[str, Any]
) -> None:
    """Add `cure`: how to allow a refused address.

    `ended`: the outcome of a fetch of the URL.
    """
    networks = inner_networks(ended.get("error") or "")
    if ended.get("outcome") == Outcome.ADDRESS_REFUSED and networks:
        again = "the same command again" if "fetch" in found else "inject it again"
        found["cure"] = (
            f"if it is yours: {how_to_allow(networks, config_file(arguments))},"
            f" then krake forget {found['host']} --yes, and {again}"
        )


def _show_url(found: Mapping[str, Any]) -> None:
    answer = f" {found['answer']}" if "answer" in found else ""
    facts = {name: value for name, value in found.items() if name not in {"url", "answer"}}
    print_counts(f"{found['url']}{answer}", _facts(facts))


def _facts(found: Mapping[str, Any]) -> dict[str, object]:
    """Return facts as files and commands write them.

    Numbers have no marks between their digits.
    """
    facts = {
        name: _facts(value) if isinstance(value, Mapping) else value
        for name, value in found.items()
    }
    return {
        name: str(value) if isinstance(value, int) else value
        for name, value in facts.items()
        if value is not None
    }
