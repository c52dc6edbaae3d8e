"""Which captures are read, and what the text stage has of them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from itertools import groupby
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from crawl_lib.crawldb import CRAWLDB_SCHEMA, newest_version
from crawl_lib.crawldir import SegmentRef
from crawl_lib.errors import InputError
from crawl_lib.rounds import note_texts
from crawl_lib.segment import PAGES_NAME, PAGES_SCHEMA, SegmentReader, open_parquet
from crawl_lib.stores import Stores
from crawl_lib.text import TEXT_SCHEMA, extract_text, text_table
from crawl_lib.versions import GROUP_ROWS, Version, Work, columns, numbered, table_of

TEXT_ROWS = 2_000
AGAIN = "; delete it, and run this again: it is made of the segment's WARC files"


@dataclass(frozen=True)
class Inputs:
    """What duplicates are looked for in. `segments`: in a fixed order; `version`: of the CrawlDb, None with `fifo`."""

    stores: Stores
    segments: tuple[SegmentRef, ...]
    version: Version | None

    @property
    def query(self) -> str:
        """That answers which captures count."""
        return "duplicates/known" if self.version else "duplicates/newest"


def find_inputs(stores: Stores) -> Inputs:
    """What there is now: the newest version of the CrawlDb with the segments it has taken in, or all segments.

    Raises InputError before the first version, or without any segment; DamagedFileError, StorageError, StoppedError.
    """
    version = newest_version(stores) if stores.config.frontier.is_crawldb else None
    if stores.config.frontier.is_crawldb and version is None:
        raise InputError(f"{stores.crawl.path}: has no CrawlDb yet; `krake crawldb update` makes it")
    there = stores.until_stopped(stores.crawl.segments())
    segments = [one for one in there if version is None or str(one) in version.manifest["segments"]]
    if not segments:
        raise InputError(f"{stores.crawl.path}: has no segment yet; `krake crawl` makes some")
    return Inputs(stores, tuple(sorted(segments, key=str)), version)


def digest_of(work: Work, inputs: Inputs) -> str:
    """Of which captures count, and of the segments that have them, in hex: a version of the CrawlDb with other scores
    or duplicates, and the same captures, has the same. Raises PathNotFoundError, StorageError, StoppedError."""
    storage, digest = inputs.stores.storage, sha256()
    for segment in inputs.stores.until_stopped(inputs.segments):
        digest.update(f"{segment} {SegmentReader(storage, segment.path).digest}\n".encode())
    for batch in work.engine.stream(inputs.query, GROUP_ROWS, "duplicates.pages"):
        digest.update(repr([batch.column(name).to_pylist() for name in ("key", "time", "segment")]).encode())
    return digest.hexdigest()


def read_pages(work: Work, inputs: Inputs, wanted: Sequence[str]) -> Iterator[list[dict[str, Any]]]:
    """Pages with `key`, `url`, `host`, and the columns `wanted` of their texts, in batches, without those that have no
    row there.

    The tables of `prepare` are there. Texts that no task has made yet are made first. Raises DamagedFileError naming a
    table that cannot be read, ConfigError if the texts are of another crawl, and what `extract_text` does.
    """
    stores = inputs.stores
    note_texts(stores)
    extract_text(stores, inputs.segments)
    batches = work.engine.stream(inputs.query, GROUP_ROWS, "duplicates.pages")
    rows = (row for batch in batches for row in batch.to_pylist())
    for number, found in groupby(rows, lambda row: int(row["segment"])):
        yield from _texts_of(stores, inputs.segments[number], {row["key"]: row for row in found}, wanted)


def prepare(work: Work, inputs: Inputs) -> None:
    """The tables that say which captures count. Raises DamagedFileError, StorageError."""
    engine, storage = work.engine, inputs.stores.storage
    if inputs.version is not None:
        engine.tables("crawldb", inputs.version.paths, CRAWLDB_SCHEMA)
        engine.values("segments", numbered(map(str, inputs.segments)))
        return
    dropped = [
        {"key": key, "segment": number}
        for number, segment in enumerate(inputs.stores.until_stopped(inputs.segments))
        for key in sorted(SegmentReader(storage, segment.path).dropped)
    ]
    engine.tables("pages", [f"{segment.path}/{PAGES_NAME}" for segment in inputs.segments], PAGES_SCHEMA)
    engine.values("dropped", table_of(dropped, columns("key bytes, segment int32")))
    engine.view("visits", "export/visits")


def _texts_of(
    stores: Stores, segment: SegmentRef, pages: dict[bytes, dict[str, Any]], wanted: Sequence[str]
) -> Iterator[list[dict[str, Any]]]:
    """The texts of some captures of a segment. `pages`: rows by key."""
    keys = pa.array(list(pages), pa.binary(20))
    with open_parquet(stores.storage, text_table(stores, segment), TEXT_SCHEMA, AGAIN) as table:
        for batch in stores.until_stopped(table.batches(TEXT_ROWS, ("key", "time", *wanted))):
            chosen = batch.filter(pc.is_in(batch.column("key"), value_set=keys)).to_pylist()
            yield [{**pages[row["key"]], **row} for row in chosen if row["time"] == pages[row["key"]]["time"]]
