"""Reports: hosts that mirror others, and blocks of text that repeat over a host."""

from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Any

import pyarrow as pa

from crawl_lib.duplicates.near import DUPLICATES
from crawl_lib.duplicates.pages import Inputs, find_inputs, prepare, read_pages
from crawl_lib.stores import Stores
from crawl_lib.versions import GROUP_ROWS, Versions, Work, columns, table_of

LEAST_PAGES = 5
"""Of a host that is reported, and on which a block is."""
MOST_HOSTS = 100
"""That have a text: one that more have, such as that of an empty page, makes none of them a mirror."""
MOST_LINES, MOST_LINE_CHARS = 1_000, 200
"""Of a page, and of a line, that templates are looked for in."""
_SIGNATURES, _LINES = columns("host text, signature bytes"), columns("host text, line text")
Row = dict[str, Any]


def find_mirrors(stores: Stores) -> list[Row]:
    """Pairs of hosts with more than half of their texts in common, counted by the host that has fewer.

    Rows have `host`, `texts` (different ones), `mirror`, `mirror_texts`, `shared`; those that share most first. Raises
    what `find_near` does.
    """

    def rows(batches: Iterable[list[Row]]) -> Iterator[pa.Table]:
        for batch in batches:
            yield pa.table({name: [row[name] for row in batch] for name in _SIGNATURES.names}, _SIGNATURES)

    with _work(stores) as (work, inputs):
        work.keep("texts_of_hosts", _SIGNATURES, rows(read_pages(work, inputs, ("signature",))))
        return _asked(work, "mirrors", {"least": LEAST_PAGES, "most_hosts": MOST_HOSTS})


def find_templates(stores: Stores) -> list[Row]:
    """Lines of text (one is a block of a page) that are on half of a host's pages or more.

    Rows have `host`, `pages` (with a text), `line`, `pages_with_line`; by host, the most frequent first. Raises what
    `find_near` does.
    """
    pages = Counter[str]()

    def rows(batches: Iterable[list[Row]]) -> Iterator[pa.Table]:
        for batch in batches:
            pages.update(row["host"] for row in batch if row["text"])
            found = [(row["host"], line) for row in batch for line in _lines(row["text"] or "")]
            yield pa.table([list(column) for column in zip(*found, strict=True)] or [[], []], schema=_LINES)

    with _work(stores) as (work, inputs):
        work.keep("lines", _LINES, rows(read_pages(work, inputs, ("text",))))
        counted = [{"host": host, "pages": number} for host, number in pages.items()]
        work.engine.values("hosts", table_of(counted, columns("host text, pages int64")))
        return _asked(work, "templates", {"least": LEAST_PAGES})


@contextmanager
def _work(stores: Stores) -> Iterator[tuple[Work, Inputs]]:
    """Room for a report; no version is made."""
    versions, inputs = Versions(stores, DUPLICATES), find_inputs(stores)
    with Work.of(versions, versions.next_number()) as work:
        prepare(work, inputs)
        yield work, inputs


def _asked(work: Work, name: str, limits: dict[str, int]) -> list[Row]:
    work.engine.values("limits", pa.Table.from_pylist([limits]))
    batches = work.engine.stream(f"duplicates/{name}", GROUP_ROWS, f"duplicates.{name}")
    return [row for batch in batches for row in batch.to_pylist()]


def _lines(text: str) -> list[str]:
    """The different lines of a text, their white space made one, without empty ones."""
    lines = (" ".join(line.split())[:MOST_LINE_CHARS] for line in text.split("\n"))
    return list(dict.fromkeys(islice(filter(None, lines), MOST_LINES)))
