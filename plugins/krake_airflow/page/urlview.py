"""The values for the template of a URL: the answers of `krake why`, `cat` and `show`, as text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from crawl_lib.ask import LookUp
from crawl_lib.errors import printable
from krake_airflow.page.crawls import Crawl
from krake_airflow.page.lookups import SECONDS
from krake_airflow.page.table import Links

_MISSED = {
    "why": "where the URL is",
    "cat": "what the server answered",
    "text": "the main text",
    "show": "the page in an export",
}
_COMMANDS = {"why": "why", "cat": "cat", "text": "cat", "show": "show"}
_TOLD = ("answer", "url", "notes", "error", "unsearched")
"""Facts of `why` with their own places, outside of the table."""


class Text(NamedTuple):
    """A text of strangers. `note`: a sentence before the text."""

    text: str
    note: str


def url_view(crawl: Crawl, url: str, found: LookUp, links: Links) -> dict[str, Any]:
    """Return the values for the page of a URL."""
    why, cat = found.parts.get("why", {}), found.parts.get("cat", {})
    answer = f"{why['url']} {why['answer']}" if "answer" in why else why.get("error", "")
    return {
        "url": printable(url),
        "crawl": crawl.name,
        "whole": links.crawl(crawl.name),
        "ask": links.ask(crawl.name),
        "answer": printable(answer),
        "notes": [printable(note) for note in why.get("notes", ())],
        "missed": list(_missed(url, found)),
        "replay": _replay(crawl, why, cat),
        "why": dict(_facts({name: fact for name, fact in why.items() if name not in _TOLD})),
        "texts": dict(_texts(found)),
        **_row(found.parts.get("show", {})),
    }


def _missed(url: str, found: LookUp) -> Iterator[str]:
    """Name the parts that the look-up missed, with a command for each."""
    for name in found.missed:
        command = f"krake {_COMMANDS[name]} {printable(url)}"
        yield f"Not reached within {SECONDS:.0f} s: {_MISSED[name]}. `{command}` takes its time."


def _replay(crawl: Crawl, why: Mapping[str, Any], cat: Mapping[str, Any]) -> str:
    """Return the address of the capture on a replay server; "" without a server or a capture."""
    address = crawl.config.outputs.replay_url
    return (
        f"{address.rstrip('/')}/{cat['time']}/{why['url']}"
        if address and cat.get("time") and "url" in why
        else ""
    )


def _row(show: Mapping[str, Any]) -> dict[str, Any]:
    """Return the row of a page in the newest export, or else in the newest capture."""
    title = f"In the export {show['export']}" if show.get("export") else "The newest capture"
    lists = {
        name: "\n".join(one["url"] for one in show.get(name) or ())
        for name in ("in_links", "out_links")
    }
    return {
        "row_title": title,
        "row": dict(_facts({**show["row"], **lists})) if show.get("row") else {},
    }


def _facts(facts: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, str]]:
    """Yield known facts; a fact of an inner mapping has the mapping's name before its own."""
    for name, fact in facts.items():
        title = f"{before}{name.replace('_', ' ')}"
        if isinstance(fact, Mapping):
            yield from _facts(fact, f"{title}: ")
        elif fact not in (None, "", []):
            yield printable(title), "\n".join(map(printable, str(fact).splitlines()))


def _texts(found: LookUp) -> Iterator[tuple[str, Text]]:
    cat, text = found.parts.get("cat", {}), found.parts.get("text", {})
    if cat.get("head"):
        yield "Headers", Text(_lines(cat["head"]), "")
    if text.get("text"):
        yield "Main text", Text(_lines(text["text"]), _note(text))
    if cat.get("source"):
        yield "Source", Text(_lines(cat["source"]), _note(cat))


def _note(part: Mapping[str, Any]) -> str:
    left_out = part.get("left_out", 0)
    return (
        f"{left_out:,} more characters are not shown. {part.get('error', '')}"
        if left_out
        else part.get("error", "")
    )


def _lines(text: str) -> str:
    """Return a text with its lines kept, and with its other control characters visible."""
    return "\n".join(printable(line.expandtabs()) for line in text.splitlines())
