"""The table `terms`: a row for each word, with the pages where the word has the highest weights."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from crawl_lib.captures import Captures, Row
from crawl_lib.derived import Pages
from crawl_lib.engine import in_batches
from crawl_lib.parquet import parquet_batches
from crawl_lib.stores import Stores
from crawl_lib.text import text_table
from crawl_lib.urls import key_of
from crawl_lib.versions import (
    Family,
    TableOutput,
    Version,
    Versions,
    VersionWork,
    columns,
    write_version,
)

MAX_POSTINGS = 1_000
"""Limit of pages of a word: the pages with the highest weights stay."""
TERM_ROWS = 1 << 10
"""Words of a row group. A look-up reads a whole group, and a frequent word has a thousand postings."""
POSTING_ROWS = 1 << 16
REVISION = 1
"""Raise this number when equal inputs may give other rows."""
_POSTING = pa.struct(
    [pa.field("url", pa.string(), nullable=False), pa.field("tf_idf", pa.float64(), nullable=False)]
)
_FIELDS: "list[pa.Field[Any]]" = [
    pa.field("key", pa.binary(), nullable=False),
    pa.field("pages", pa.int64(), nullable=False),
    pa.field("postings", pa.list_(pa.field("element", _POSTING, nullable=False)), nullable=False),
]
TERMS_SCHEMA = pa.schema(_FIELDS)
"""`key`: the word in UTF-8. `pages`: number of pages with the word. `postings`: at most `MAX_POSTINGS` of these
pages, the highest `tf_idf` first, equal ones by URL."""
TERMS = Family(
    folder="terms",
    name="the table of terms",
    schema=TERMS_SCHEMA,
    made_again="`krake terms update` makes it again",
    dictionary=("postings.list.element.url",),
)
"""A manifest has `now` (POSIX seconds), `of` (a digest of the version's sources), `pages` (with words) and
`postings`."""
_WORDS = columns("word bytes!, url text!, tf number!")


@dataclass(frozen=True)
class TermsOutput(TableOutput):
    """The versions of the table. A row repeats words of the pages among its postings."""

    def holds(self, versions: Versions, version: Version, pages: Pages) -> bool:
        """Look for the pages among the URLs of all postings."""
        for path in version.paths:
            for batch in parquet_batches(versions.stores.storage, path, TERMS_SCHEMA, ["postings"]):
                urls = pc.struct_field(pc.list_flatten(batch.column(0)), "url").unique()
                if any(
                    key_of(url) in pages for url in versions.stores.until_stopped(urls.to_pylist())
                ):
                    return True
        return False


TERMS_OUTPUT = TermsOutput("terms", ("text", "crawldb"), TERMS, "postings")


def update_terms(stores: Stores, *, now: datetime) -> Version:
    """Make or find the table of terms of the current captures.

    `now`: for the manifest. Raises InputError without captures, DamagedFileError, StorageError,
    NoRoomError, StoppedError, ConfigError.
    """
    versions = Versions(stores, TERMS)
    while True:
        newest, number = versions.newest(), versions.next_number()
        with VersionWork.of(versions, number) as work:
            captures = Captures.of(work)
            tables = [text_table(stores, segment) for segment, _ in captures.segments]
            of = sha256(
                f"{captures.digest()} {REVISION} {MAX_POSTINGS} {tables}".encode()
            ).hexdigest()
            if newest is not None and newest.manifest["of"] == of:
                return newest
            facts: dict[str, Any] = {
                "now": int(now.timestamp()),
                "of": of,
                "pages": 0,
                "postings": 0,
            }
            if made := write_version(versions, number, _rows(captures, facts), facts):
                return made


def _rows(captures: Captures, facts: dict[str, Any]) -> Iterator[pa.RecordBatch]:
    """Make a version's rows in word order, and count them.

    `facts` gets the numbers of pages and postings.
    """
    work = captures.work
    work.keep("words", _WORDS, _words(captures.read("terms"), facts))
    limits = {
        "pages": pa.array([facts["pages"]], pa.int64()),
        "most": pa.array([MAX_POSTINGS], pa.int64()),
    }
    work.engine.values("limits", pa.table(limits))
    postings = work.engine.stream("terms/postings", POSTING_ROWS, "terms.postings")
    for batch in in_batches(_grouped(postings), TERM_ROWS):
        facts["postings"] += len(pc.list_flatten(batch.column("postings")))
        yield batch


def _words(pages: Iterable[Sequence[Row]], facts: dict[str, Any]) -> Iterator[pa.Table]:
    """Yield a row for each word of each page.

    `tf` is the word's count, divided by the largest count of the page.
    """
    for rows in pages:
        words, urls, shares = list[str](), list[str](), list[float]()
        for row in rows:
            if not row["terms"]:
                continue
            facts["pages"] += 1
            most = max(count for _, count in row["terms"])
            for word, count in row["terms"]:
                words.append(word)
                urls.append(row["url"])
                shares.append(count / most)
        yield pa.table(
            [pa.array(words, pa.string()).cast(pa.binary()), urls, shares], schema=_WORDS
        )


def _grouped(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Make one row of the postings of each word.

    `batches`: postings in order of words, `POSTING_ROWS` each.
    """
    held: list[pa.RecordBatch] = []
    for batch in batches:
        table = pa.Table.from_batches([*held, batch]).combine_chunks()
        starts = _starts(table)
        if len(starts) > 1:  # the next batch may have more rows of the last word
            yield _of_words(table.slice(0, starts[-1]), starts[:-1])
        held = table.slice(starts[-1]).to_batches()
    if held:
        yield _of_words(pa.Table.from_batches(held), np.zeros(1, np.int64))


def _starts(table: pa.Table) -> "np.ndarray[Any, np.dtype[np.int64]]":
    keys = table["key"].combine_chunks()
    changes = pc.not_equal(keys[1:], keys[:-1]).to_numpy(zero_copy_only=False)
    return np.concatenate([np.zeros(1, np.int64), np.flatnonzero(changes) + 1])


def _of_words(table: pa.Table, starts: "np.ndarray[Any, np.dtype[np.int64]]") -> pa.RecordBatch:
    postings = pa.StructArray.from_arrays(
        [table["url"].combine_chunks(), table["tf_idf"].combine_chunks()], fields=list(_POSTING)
    )
    offsets = pa.array([*starts.tolist(), len(table)], pa.int32())
    lists = pa.ListArray.from_arrays(offsets, postings, type=TERMS_SCHEMA.field("postings").type)
    first = table.take(pa.array(starts))
    return pa.RecordBatch.from_arrays(
        [first["key"].combine_chunks().cast(pa.binary()), first["pages"].combine_chunks(), lists],
        schema=TERMS_SCHEMA,
    )
