"""Reports of mirror hosts, and of repeated blocks of text on one host."""

from collections.abc import Callable, Iterable
from itertools import islice

import pyarrow as pa

from crawl_lib.captures import Captures, Row
from crawl_lib.stores import Stores
from crawl_lib.versions import VersionWork, columns

LEAST_PAGES = 5
"""Least number of pages of a reported host, and of pages with a block."""
MOST_HOSTS = 100
"""Limit of hosts with a text: a text of more hosts, such as the empty text, is no sign of a mirror."""
MOST_LINES, MOST_LINE_CHARS = 1_000, 200
"""Number of lines of a page, and of characters of a line, in the search for templates."""


def find_mirrors(stores: Stores) -> list[Row]:
    """Return pairs of hosts with mostly common texts.

    The pair shares more than half of the texts of the host with fewer texts. Fields: `host`, `texts` (different ones),
    `mirror`, `mirror_texts`, `shared`; the pairs with most shared texts first. Raises the errors of `find_near`.
    """
    return _asked(stores, "mirrors", "signature", "host text, signature bytes", lambda page: [page])


def find_templates(stores: Stores) -> list[Row]:
    """Return lines of text on at least half of a host's pages.

    A line is a block of a page: `host`, `pages` (with text), `line`, `pages_with_line`; by host, the most frequent
    first. Raises the errors of `find_near`.
    """
    return _asked(stores, "templates", "text", "host text, line text", _lines)


def _asked(
    stores: Stores, name: str, wanted: str, schema: str, rows_of: Callable[[Row], Iterable[Row]]
) -> list[Row]:
    """Return the result of a report's query over all pages.

    No version is made.
    """
    limits = {"least": LEAST_PAGES, "most_hosts": MOST_HOSTS}
    with VersionWork.to_read(stores) as work:
        rows = (
            row
            for pages in Captures.of(work).read(wanted)
            for page in pages
            for row in rows_of(page)
        )
        work.keep_rows("said", columns(schema), rows)
        work.engine.values("limits", pa.Table.from_pylist([limits]))
        return [*work.engine.rows(f"duplicates/{name}", f"duplicates.{name}")]


def _lines(page: Row) -> list[Row]:
    """Return a text's different lines, and one empty line.

    A run of white space becomes one space. Each page has the empty line once.
    """
    lines = (" ".join(line.split())[:MOST_LINE_CHARS] for line in (page["text"] or "").split("\n"))
    found = ["", *dict.fromkeys(islice(filter(None, lines), MOST_LINES))] if page["text"] else []
    return [{"host": page["host"], "line": line} for line in found]
