"""The index as an output: its making, and the versions with a page."""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime

from crawl_lib.derived import PagePlace, Pages
from crawl_lib.errors import DamagedFileError
from crawl_lib.index.look import IndexCounts, index_counts
from crawl_lib.index.update import update_index
from crawl_lib.index.versions import INDEX, PAGES_FILE, deleted_keys, file_of
from crawl_lib.stores import Stores
from crawl_lib.versions import TableOutput, Version, Versions, has_key


@dataclass(frozen=True)
class IndexOutput(TableOutput):
    """The index as an output."""

    def make(self, stores: Stores, *, now: datetime) -> IndexCounts:
        """Make or find the version of the current pages.

        Return its figures.
        """
        return index_counts(update_index(stores, now=now))

    def holds(self, versions: Versions, version: Version, pages: Pages) -> bool:
        """Say whether a version has pages, or words of deleted ones."""
        stores = versions.stores
        if not deleted_keys(stores, version).isdisjoint(pages):
            return True
        return has_key(stores, file_of(version, PAGES_FILE), pages)

    def places_of(self, stores: Stores, pages: Pages) -> Iterator[PagePlace]:
        """Return the versions that hold a page.

        Unreadable versions are included, to be safe.
        """
        versions = self.versions(stores)
        for number in versions.numbers():
            holds = True
            with suppress(DamagedFileError):
                holds = self.holds(versions, versions.read(number), pages)
            if holds:
                yield PagePlace(
                    versions.path(number),
                    "`krake index update --purge` makes the index again without these pages",
                )


INDEX_OUTPUT = IndexOutput(
    "index", ("text", "crawldb", "outlinks", "linkrank", "duplicates", "exports"), INDEX, "key"
)
