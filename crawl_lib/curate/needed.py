"""Requisites among the captures of foreign archives: pages name requisites, and no page links to them.

Archives do not say which captures a program fetched to show a page. A first reading of the archives finds out: the code
of the crawl writes rows of pages and links to a scratch folder, which is deleted after the rows are read.
"""

import shutil
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from crawl_lib.curate.import_pages import ImportedPage
from crawl_lib.records import MOST_STEPS, QueuedUrl, TakenUrl
from crawl_lib.repair import is_robots
from crawl_lib.segment import Part, PartWriter, Spool, WarcInfo, read_blocks
from crawl_lib.stores import Stores
from crawl_lib.urls import REQUISITE, Rejection, UrlFilter, key_of
from crawl_lib.version import VERSION
from crawl_lib.worker import PageHandler

_PREFIX = "first"
_FRAMES = frozenset({"frame", "iframe"})
_NO_LINKS = frozenset({REQUISITE, Rejection.ELEMENT})
"""The rules of rows of `links` that are no links of a page."""


def steps_of_requisites(
    stores: Stores,
    pages: Iterable[ImportedPage],
    scope: UrlFilter,
    room: Path,
    clock: Callable[[], float],
) -> dict[bytes, int]:
    """Return the captured requisites with their steps from a page.

    By key; the nearest page counts.

    `pages`: all captures of the archives; `scope`: the filter of the crawl; `room`: a folder for scratch files, which
    is deleted. Takes some 200 bytes of memory a capture. Raises StorageError, NoRoomError.
    """
    shutil.rmtree(room, ignore_errors=True)
    _spool(stores, pages, scope, room, clock)
    parts = Spool(room, _PREFIX).parts()
    captured = {row["key"]: row["redirect_url"] for row in _rows(parts, Part.PAGES_SUFFIX)}
    named: defaultdict[bytes, set[bytes]] = defaultdict(set)
    linked = set[bytes]()
    for row in _rows(parts, Part.LINKS_SUFFIX):
        if row["rule"] == REQUISITE and row["target"] in captured:
            named[row["source"]].add(row["target"])
        elif row["followed"] or (row["rule"] not in _NO_LINKS and row["element"] not in _FRAMES):
            linked.add(row["target"])
    shutil.rmtree(room)
    return _steps(captured, named, linked)


def _spool(
    stores: Stores,
    pages: Iterable[ImportedPage],
    scope: UrlFilter,
    room: Path,
    clock: Callable[[], float],
) -> None:
    """Write the rows of captures, without bodies.

    The bodies are not read.
    """
    config = stores.config
    info = WarcInfo(VERSION, stores.config_digest, "", "", _PREFIX)
    with PartWriter(room, _PREFIX, info, config.segment, clock=clock) as writer:
        handler = PageHandler(config, config.servers, 0, scope, writer, seeds_widen_scope=False)
        for position, (fetched, key, _) in enumerate(
            page for page in pages if not is_robots(page.fetched.url)
        ):
            taken = TakenUrl(position, key, QueuedUrl(fetched.url))
            handler.handle_all([(taken, fetched, writer.append(taken, replace(fetched, body=b"")))])


def _rows(parts: Iterable[Part], suffix: str) -> Iterator[dict[str, Any]]:
    for part in parts:
        for block in read_blocks(part.path(suffix)):
            yield from block.to_pylist()


def _steps(
    captured: dict[bytes, str | None], named: dict[bytes, set[bytes]], linked: set[bytes]
) -> dict[bytes, int]:
    """Follow requisites from pages, a step at a time.

    A redirect of a requisite leads to a requisite.
    """
    moved = {
        key: target for key, url in captured.items() if url and (target := key_of(url)) in captured
    }
    needed = set[bytes]().union(*named.values()) - linked
    needed -= {target for key, target in moved.items() if key not in needed}
    while more := {moved[key] for key in needed & moved.keys()} - needed - linked:
        needed |= more
    found: dict[bytes, int] = {}
    sources = captured.keys() - needed
    for steps in range(1, MOST_STEPS + 1):
        targets = set[bytes]().union(*(named.get(key, ()) for key in sources))
        targets |= {moved[key] for key in sources & moved.keys()}
        sources = (targets & needed) - found.keys()
        found |= dict.fromkeys(sources, steps)
    return found
