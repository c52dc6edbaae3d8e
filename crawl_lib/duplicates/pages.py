"""Which captures are read, and what the text stage has of them."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from hashlib import sha256
from itertools import groupby
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from crawl_lib.crawldb import CRAWLDB_SCHEMA, newest_version
from crawl_lib.crawldir import SegmentRef
from crawl_lib.errors import InputError
from crawl_lib.rounds import note_texts
from crawl_lib.segment import open_parquet
from crawl_lib.text import TEXT_SCHEMA, extract_text, text_table
from crawl_lib.versions import GROUP_ROWS, Work, find_segments

TEXT_ROWS = 2_000
AGAIN = "; delete it, and run this again: it is made of the segment's WARC files"
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
        engine.tables("crawldb", version.paths, CRAWLDB_SCHEMA)
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
