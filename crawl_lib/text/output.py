"""Texts as an output: damaged tables, leftover tables, and the tables with a page."""

from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime

from crawl_lib.derived import SEGMENTS, Output, PagePlace, Pages, existing
from crawl_lib.errors import DamagedFileError
from crawl_lib.findings import Finding, Findings, Severity
from crawl_lib.graph import check_table
from crawl_lib.rounds import CrawlName
from crawl_lib.stores import Stores
from crawl_lib.text.stage import (
    TEXT_SCHEMA,
    TextReport,
    check_text_leftovers,
    extract_text,
    text_folder,
    text_folders,
    text_tables,
)
from crawl_lib.versions import has_key


class TextOutput(Output):
    """The tables of texts, by segment."""

    def paths(self, stores: Stores) -> list[str]:
        """Return the folders of texts of all iterations of this crawl."""
        return text_folders(stores)

    def make(self, stores: Stores, *, now: datetime) -> TextReport:
        """Make the missing tables of committed segments.

        Return the stage's report.
        """
        CrawlName(stores).note_texts()
        return extract_text(stores, stores.crawl.segments())

    def check(self, stores: Stores, *, full: bool) -> list[Finding]:
        """Find damaged tables among the newest ones of all segments."""
        findings = Findings("text", "move it away: the next task that needs it makes it again")
        for path in text_tables(stores):
            try:
                check_table(stores.storage, path, TEXT_SCHEMA, full=full)
            except DamagedFileError as error:
                findings.add("text_damaged", path, str(error), severity=Severity.WARNING)
        return findings.list()

    def leftovers(self, stores: Stores) -> Iterator[tuple[str, str]]:
        """Find tables of deleted segments, and other files than newest tables."""
        return check_text_leftovers(stores)

    def places_of(self, stores: Stores, pages: Pages) -> Iterator[PagePlace]:
        """Find tables with a page.

        An unreadable table is included, to be safe.
        """
        for folder in self._folders_of(stores, pages):
            for entry in stores.storage.list(folder):
                holds, path = True, f"{folder}/{entry.name}"
                with suppress(DamagedFileError):
                    holds = has_key(stores, path, pages)
                if holds:
                    yield PagePlace(
                        path, "`krake text` makes the table again without it; or delete the table"
                    )

    def _folders_of(self, stores: Stores, pages: Pages) -> list[str]:
        """Return the text folders of segments with one of these pages."""
        names = sorted({name for names in pages.values() for name in names})
        return existing(
            stores, *(text_folder(stores, stores.crawl.segment_named(name)) for name in names)
        )


TEXT_OUTPUT = TextOutput("text", (SEGMENTS,))
