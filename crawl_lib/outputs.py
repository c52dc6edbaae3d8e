"""The list of all outputs, by which checks, sweeps, drops of pages and `outputs.tasks` go.

A room that derives data from segments defines its output (`crawl_lib.derived`), and has an entry here.
"""

import json
from collections.abc import Iterator
from contextlib import suppress

from crawl_lib.captures import CAPTURES_OUTPUT
from crawl_lib.commoncrawl import COMMONCRAWL_OUTPUT, GRAPHS_OUTPUT
from crawl_lib.crawldb import CRAWLDB_OUTPUT
from crawl_lib.derived import SEGMENTS, Output, PagePlace, Pages, existing
from crawl_lib.duplicates import DUPLICATES_OUTPUT
from crawl_lib.findings import Finding, Findings, Severity
from crawl_lib.graph import EXPORTS_OUTPUT
from crawl_lib.index import INDEX_OUTPUT
from crawl_lib.linkdb import LINKDB_OUTPUT, OUTLINKS_OUTPUT
from crawl_lib.push import PUSH_OUTPUT
from crawl_lib.ranks import LINKRANK_OUTPUT
from crawl_lib.segment import Manifest
from crawl_lib.statistics import STATISTICS_OUTPUT
from crawl_lib.stores import Stores
from crawl_lib.terms import TERMS_OUTPUT
from crawl_lib.text import TEXT_OUTPUT
from crawl_lib.urls import key_of


class CdxjOutput(Output):
    """The one CDXJ file of all segments, as `krake index cdxj` makes it in the crawl directory.

    The hidden file of an attempt lies in the crawl directory, where `krake sweep` finds all leftovers.
    """

    def paths(self, stores: Stores) -> list[str]:
        """Name the file."""
        return existing(stores, stores.crawl.at(Manifest.INDEX_NAME))

    def check(self, stores: Stores, *, full: bool) -> list[Finding]:
        """Find lines that no program can read."""
        findings = Findings("segment", "run `krake index cdxj`, which makes it again")
        for path in self.paths(stores) if full else ():
            with stores.storage.open_read(path) as lines:
                for number, line in enumerate(stores.until_stopped(lines), 1):
                    if not _key_of_line(line):
                        findings.add(
                            "cdxj_damaged",
                            path,
                            f"line {number} cannot be read",
                            severity=Severity.WARNING,
                        )
        return findings.list()

    def places_of(self, stores: Stores, pages: Pages) -> Iterator[PagePlace]:
        """Look for the pages line by line."""
        for path in self.paths(stores):
            with stores.storage.open_read(path) as lines:
                if any(_key_of_line(line) in pages for line in stores.until_stopped(lines)):
                    yield PagePlace(path, "`krake index cdxj` makes it again without them")


def _key_of_line(line: bytes) -> bytes:
    """Return the key of the URL of a CDXJ line.

    b"": the line is damaged.
    """
    with suppress(ValueError, KeyError, TypeError):
        fields = json.loads(line[line.index(b" {") :])
        return key_of(str(fields["url"]))
    return b""


CDXJ_OUTPUT = CdxjOutput("cdxj", (SEGMENTS,))
OUTPUTS: tuple[Output, ...] = (
    TEXT_OUTPUT,
    CRAWLDB_OUTPUT,
    OUTLINKS_OUTPUT,
    LINKDB_OUTPUT,
    LINKRANK_OUTPUT,
    DUPLICATES_OUTPUT,
    TERMS_OUTPUT,
    EXPORTS_OUTPUT,
    CDXJ_OUTPUT,
    INDEX_OUTPUT,
    PUSH_OUTPUT,
    COMMONCRAWL_OUTPUT,
    GRAPHS_OUTPUT,
    CAPTURES_OUTPUT,
    STATISTICS_OUTPUT,
)
"""An output follows its inputs in this order."""
MADE_BY_TASKS = {output.name: output for output in OUTPUTS if type(output).make is not Output.make}
"""The outputs with tasks, by their names in `outputs.tasks`, in the order of the tasks."""
