"""`krake shell URL`: an interactive Python with one page, its links and its verdicts."""

import argparse
import code
import sys
from typing import Any

from crawl_lib.ask import CheckedFetch, visit_url
from crawl_lib.cli.common import say, tool_stores
from crawl_lib.signals import interrupt_on_signals

_NAMES = """\
page       title, description, base, charset, ...; None where the answer is no page
links      the links of the page: url, anchor, rel, element, followed, and the rule that decided
verdicts   the result of `krake check`, and the number of links that each rule rejects
content    the body without codings; headers: the headers; fetched: the answer as it came
Ctrl-D ends."""


def shell(arguments: argparse.Namespace) -> int:
    """Fetch a URL once, and open a Python shell.

    The crawl notices nothing.
    """
    with tool_stores(arguments) as stores:
        visit = visit_url(stores, arguments.url)
    names = dict(vars(visit))
    if sys.stdin.isatty():
        _complete(names)
    say(f"{_said(visit)}\n{_NAMES}", file=sys.stderr)
    with interrupt_on_signals():
        code.interact(banner="", local=names, exitmsg="")
    return 0


def _said(visit: CheckedFetch) -> str:
    fetch, followed = visit.verdicts["fetch"], sum(link.followed for link in visit.links)
    status = (
        f" {fetch['status']}"
        if fetch["status"]
        else f" ({fetch['error']})"
        if fetch["error"]
        else ""
    )
    links = (
        f", {len(visit.links):,} links, of which {followed:,} are followed" if visit.page else ""
    )
    return f"{visit.fetched.url}: {fetch['outcome']}{status}, {len(visit.content):,} bytes{links}"


def _complete(names: dict[str, Any]) -> None:
    """Make the tab key complete names, and the arrow keys recall lines."""
    import readline  # noqa: PLC0415 - changes the terminal
    import rlcompleter  # noqa: PLC0415

    readline.set_completer(rlcompleter.Completer(names).complete)
    readline.parse_and_bind("tab: complete")
