"""Key tables that were made again, and lack keys: no task asks these tables before they are filled.

`<crawl>/unfilled/<name>`: an empty file for each source of missing keys: a node's name (its queue), or `.pages` of all
segments. `krake fsck --repair` writes these files before making tables, and deletes each once its keys are in.
"""

from collections.abc import Iterable
from contextlib import suppress

from crawl_lib.crawldir.directory import CrawlDirectory, FileName
from crawl_lib.errors import TargetExistsError


class Unfilled:
    """The sources of keys that the key tables lack."""

    PAGES = ".pages"
    """The name for the pages of all segments; no node has this name."""

    def __init__(self, crawl: CrawlDirectory) -> None:
        self._storage, self.path = crawl.storage, crawl.at(FileName.UNFILLED)

    def names(self) -> list[str]:
        """Return the sources of missing keys; mostly an empty list."""
        return (
            [entry.name for entry in self._storage.list(self.path)]
            if self._storage.exists(self.path)
            else []
        )

    def add(self, names: Iterable[str]) -> None:
        """Write down that the tables lack the keys of some sources."""
        for name in names:
            with suppress(TargetExistsError):
                self._storage.write_bytes(f"{self.path}/{name}", b"")

    def remove(self, name: str) -> None:
        """Write down that the tables have all keys of a source."""
        self._storage.delete(f"{self.path}/{name}")
