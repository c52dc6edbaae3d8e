"""What pages say: which captures are read, and reports of hosts that mirror others, and blocks that repeat over one."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from hashlib import sha256
from itertools import groupby, islice
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from crawl_lib.crawldb import CRAWLDB, newest_version
from crawl_lib.crawldir import SegmentRef
from crawl_lib.errors import InputError
from crawl_lib.rounds import note_texts
from crawl_lib.segment import open_parquet
from crawl_lib.stores import Stores
from crawl_lib.text import AGAIN, TEXT_SCHEMA, extract_text, text_table
from crawl_lib.versions import GROUP_ROWS, Versions, Work, columns, find_segments, tables_of

TEXT_ROWS = 2_000
LEAST_PAGES = 5
"""Of a host that is reported, and on which a block is."""
MOST_HOSTS = 100
"""That have a text: one that more have, such as that of an empty page, makes none of them a mirror."""
MOST_LINES, MOST_LINE_CHARS = 1_000, 200
"""Of a page, and of a line, that templates are looked for in."""
Row = dict[str, Any]


@dataclass(frozen=True)
class Captures:
    """What duplicates are looked for in. `segments`: in a fixed order, with the digests of what they hold; `query`:
    answers which of their captures count."""

    work: Work
    segments: tuple[tuple[SegmentRef, str], ...]
    query: str

    @classmethod
    def of(cls, work: Work) -> "Captures":
        """What there is now: the newest version of the CrawlDb with the segments it has taken in, or all segments.
        Raises InputError before the first of them, DamagedFileError, StorageError, StoppedError."""
        stores, engine = work.stores, work.engine
        version = newest_version(stores) if stores.config.frontier.is_crawldb else None
        if stores.config.frontier.is_crawldb and version is None:
            raise InputError(f"{stores.crawl.path}: has no CrawlDb yet; `krake crawldb update` makes it")
        there = find_segments(stores, ())
        known = [one for one in there.segments if version is None or str(one[0]) in version.manifest["segments"]]
        if not known:
            raise InputError(f"{stores.crawl.path}: has no segment yet; `krake crawl` makes some")
        inputs = replace(there, segments=tuple(sorted(known, key=lambda one: str(one[0]))))
        inputs.give(engine, links=None)
        if version is None:
            engine.view("visits", "export/visits")
            return cls(work, inputs.segments, "duplicates/newest")
        Versions(stores, CRAWLDB).give(version, engine, "crawldb")
        return cls(work, inputs.segments, "duplicates/known")

    def digest(self) -> str:
        """Of which captures count, and of the segments that have them, in hex: a version of the CrawlDb with other
        scores or duplicates, and the same captures, has the same."""
        digest = sha256("".join(f"{segment} {digest}\n" for segment, digest in self.segments).encode())
        for batch in self.work.engine.stream(self.query, GROUP_ROWS, "duplicates.pages"):
            digest.update(repr([batch.column(name).to_pylist() for name in ("key", "time", "segment")]).encode())
        return digest.hexdigest()

    def read(self, *wanted: str) -> Iterator[list[Row]]:
        """Pages that have a text with `key`, `url`, `host`, and columns `wanted` of their texts, in batches.

        Texts that no task has made yet are made first. Raises ConfigError if those that are there are of another crawl,
        DamagedFileError, and what `extract_text` does.
        """
        note_texts(self.work.stores)
        extract_text(self.work.stores, [segment for segment, _ in self.segments])
        batches = self.work.engine.stream(self.query, GROUP_ROWS, "duplicates.pages")
        rows = (row for batch in batches for row in batch.to_pylist())
        for number, found in groupby(rows, lambda row: int(row["segment"])):
            yield from self._texts(self.segments[number][0], {row["key"]: row for row in found}, wanted)

    def _texts(self, segment: SegmentRef, pages: dict[bytes, Row], wanted: tuple[str, ...]) -> Iterator[list[Row]]:
        stores, keys = self.work.stores, pa.array(list(pages), pa.binary(20))
        with open_parquet(stores.storage, text_table(stores, segment), TEXT_SCHEMA, AGAIN) as table:
            for batch in stores.until_stopped(table.batches(TEXT_ROWS, ("key", "time", *wanted))):
                chosen = batch.filter(pc.is_in(batch.column("key"), value_set=keys)).to_pylist()
                yield [{**pages[row["key"]], **row} for row in chosen if row["time"] == pages[row["key"]]["time"]]


def find_mirrors(stores: Stores) -> list[Row]:
    """Pairs of hosts with more than half of their texts in common, counted by the host that has fewer: `host`, `texts`
    (different ones), `mirror`, `mirror_texts`, `shared`; those that share most first. Raises what `find_near` does."""
    return _asked(stores, "mirrors", "signature", "host text, signature bytes", lambda page: [page])


def find_templates(stores: Stores) -> list[Row]:
    """Lines of text (one is a block of a page) that are on half of a host's pages or more: `host`, `pages` (with text),
    `line`, `pages_with_line`; by host, the most frequent first. Raises what `find_near` does."""
    return _asked(stores, "templates", "text", "host text, line text", _lines)


def _asked(stores: Stores, name: str, wanted: str, schema: str, rows_of: Callable[[Row], Iterable[Row]]) -> list[Row]:
    """The answer of a report's query over the rows of all pages; no version is made."""
    limits = {"least": LEAST_PAGES, "most_hosts": MOST_HOSTS}
    with Work.to_read(stores) as work:
        rows = (row for pages in Captures.of(work).read(wanted) for page in pages for row in rows_of(page))
        work.keep("said", columns(schema), tables_of(rows, columns(schema)))
        work.engine.values("limits", pa.Table.from_pylist([limits]))
        batches = work.engine.stream(f"duplicates/{name}", GROUP_ROWS, f"duplicates.{name}")
        return [row for batch in batches for row in batch.to_pylist()]


def _lines(page: Row) -> list[Row]:
    """The different lines of a text, their white space made one, and an empty one, which each page has once."""
    lines = (" ".join(line.split())[:MOST_LINE_CHARS] for line in (page["text"] or "").split("\n"))
    found = ["", *dict.fromkeys(islice(filter(None, lines), MOST_LINES))] if page["text"] else []
    return [{"host": page["host"], "line": line} for line in found]
