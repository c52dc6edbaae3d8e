"""The captures that count, and their texts."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from hashlib import sha256
from itertools import groupby
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from crawl_lib.crawldb import CRAWLDB, newest_version
from crawl_lib.crawldir import SegmentRef
from crawl_lib.errors import InputError
from crawl_lib.export import view_visits
from crawl_lib.parquet import open_parquet
from crawl_lib.rounds import CrawlName
from crawl_lib.segment import Manifest, SegmentReader
from crawl_lib.text import AGAIN, TEXT_SCHEMA, extract_text, text_table
from crawl_lib.versions import GROUP_ROWS, Versions, VersionWork, find_segments

TEXT_ROWS = 2_000
Row = dict[str, Any]


@dataclass(frozen=True)
class Captures:
    """The captures that count. `segments`: in a fixed order, with the digests of their content; `query`: selects the
    captures that count, as the engine's view `captured` does."""

    work: VersionWork
    segments: tuple[tuple[SegmentRef, str], ...]
    query: str

    @classmethod
    def of(cls, work: VersionWork, *, standing: bool = False) -> "Captures":
        """Take the newest CrawlDb and its segments, or all segments.

        With a CrawlDb, the segments are the inputs of its version.

        `standing`: leave out pages that are gone, by their newest answer (the engine's view `answered`) or by the
        CrawlDb; orphans of the CrawlDb stay with `crawldb.orphans: keep`. Raises InputError before the first CrawlDb or
        segment, DamagedFileError, StorageError, StoppedError.
        """
        stores, engine = work.stores, work.engine
        version = newest_version(stores) if stores.config.order.has_crawldb else None
        if stores.config.order.has_crawldb and version is None:
            raise InputError(f"{stores.crawl.path}: has no CrawlDb yet; run `krake crawldb update`")
        there = find_segments(stores, ())
        known = [
            one
            for one in there.segments
            if version is None or str(one[0]) in version.manifest["segments"]
        ]
        if not known:
            raise InputError(f"{stores.crawl.path}: has no segment yet; `krake crawl` makes some")
        by_name = sorted(known, key=lambda one: str(one[0]))
        inputs = replace(there, segments=tuple(by_name))
        inputs.give(engine, links=None)
        paths = (
            SegmentReader(stores.storage, one.path).verified(Manifest.LINKS_NAME, stores)
            for one, _ in inputs.segments
        )
        view_visits(engine, "export/visits", lambda: list(paths))
        query = "captures/newest" if version is None else "captures/known"
        if version is not None:
            Versions(stores, CRAWLDB).give(version, engine, "crawldb")
        if standing and version is None:
            engine.view("newest", query)
            engine.view("answered", "captures/answered")
            query = "captures/standing"
        elif standing and stores.config.crawldb.orphans == "keep":
            query = "captures/known_or_orphan"
        engine.view("captured", query)
        engine.view("described", "captures/described")
        return cls(work, inputs.segments, query)

    def digest(self) -> str:
        """Return a digest of the counting captures and their segments.

        SHA-256 in hex. Scores and duplicates of the CrawlDb do not change it.
        """
        digest = sha256(
            "".join(f"{segment} {digest}\n" for segment, digest in self.segments).encode()
        )
        for batch in self.work.engine.stream(self.query, GROUP_ROWS, "captures.pages"):
            columns = [batch.column(name).to_pylist() for name in ("key", "time", "segment")]
            digest.update(repr(columns).encode())
        return digest.hexdigest()

    def read(self, *wanted: str, query: str = "") -> Iterator[list[Row]]:
        """Yield pages with a text in batches.

        A page has `key`, `url`, `host`, and columns `wanted` of its text.

        `query`: another query for the captures, segment by segment; pages have its columns, too. `captures/described`
        has title, MIME type, canonical URL and meta robots of the pages, and the places of their records. The text
        stage first makes missing texts. Raises ConfigError if existing texts are of another crawl, DamagedFileError,
        and the errors of `extract_text`.
        """
        CrawlName(self.work.stores).note_texts()
        extract_text(self.work.stores, [segment for segment, _ in self.segments])
        rows = self.work.engine.rows(query or self.query, "captures.pages")
        for number, found in groupby(rows, lambda row: int(row["segment"])):
            yield from self._texts(
                self.segments[number][0], {row["key"]: row for row in found}, wanted
            )

    def _texts(
        self, segment: SegmentRef, pages: dict[bytes, Row], wanted: tuple[str, ...]
    ) -> Iterator[list[Row]]:
        stores, keys = self.work.stores, pa.array(list(pages), pa.binary(20))
        with open_parquet(stores.storage, text_table(stores, segment), TEXT_SCHEMA, AGAIN) as table:
            for batch in stores.until_stopped(table.batches(TEXT_ROWS, ("key", "time", *wanted))):
                chosen = batch.filter(pc.is_in(batch.column("key"), value_set=keys)).to_pylist()
                yield [
                    {**pages[row["key"]], **row}
                    for row in chosen
                    if row["time"] == pages[row["key"]]["time"]
                ]
