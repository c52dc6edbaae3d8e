"""Key tables that were made again, and lack keys: until they are filled no task asks them.

`<crawl>/unfilled/<name>`, an empty file for each source whose keys they lack: a node's name (its queue), or `pages` of
all segments. `krake fsck --repair` writes them before it makes tables, and deletes each once its keys are in.
"""

from collections.abc import Iterable
from contextlib import suppress

from crawl_lib.crawldir.directory import CrawlDirectory
from crawl_lib.errors import TargetExistsError

UNFILLED_FOLDER = "unfilled"
PAGES = ".pages"
"""The name for the pages of all segments; no node is called so."""


def unfilled(crawl: CrawlDirectory) -> list[str]:
    """What the key tables lack; nothing, as a rule."""
    path = crawl.at(UNFILLED_FOLDER)
    return [entry.name for entry in crawl.storage.list(path)] if crawl.storage.exists(path) else []


def mark_unfilled(crawl: CrawlDirectory, names: Iterable[str]) -> None:
    """Write down that the tables lack the keys of some sources."""
    for name in names:
        with suppress(TargetExistsError):
            crawl.storage.write_bytes(crawl.at(UNFILLED_FOLDER, name), b"")


def mark_filled(crawl: CrawlDirectory, name: str) -> None:
    """Write down that the tables have all keys of a source."""
    crawl.storage.delete(crawl.at(UNFILLED_FOLDER, name))
