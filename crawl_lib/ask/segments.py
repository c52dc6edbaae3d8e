"""Committed segments for people: a list of all, the records of one URL, rows of a table as text."""

import csv
import json
from collections.abc import Collection, Iterator, Sequence
from io import BytesIO
from itertools import islice
from typing import Any, NamedTuple, TextIO

from crawl_lib.crawldir import SegmentRef
from crawl_lib.dataclass import dataclass
from crawl_lib.errors import InputError
from crawl_lib.export import url_named
from crawl_lib.parquet import plain_row
from crawl_lib.repair import bodies_needed
from crawl_lib.segment import SegmentReader
from crawl_lib.states import Outcome
from crawl_lib.storage import Storage
from crawl_lib.stores import Stores
from crawl_lib.urls import key_of
from crawl_lib.warc import Whole, scan

_AROUND_BYTES = 1 << 18
"""A request or metadata record has fewer bytes: both have the URL, of up to 65,535 characters, a few times."""


@dataclass(frozen=True)
class ListedSegment:
    """The content of a segment. `outcomes`: rows of `pages` by outcome; `dropped`: pages that were taken out.

    `bytes`: of all files; `needed`: pages whose body later visits need, since they found them as they were.
    """

    segment: str
    finished: str
    pages: int
    links: int
    outcomes: dict[str, int]
    dropped: int
    bytes: int
    needed: int


def list_segments(stores: Stores) -> list[ListedSegment]:
    """List the content of each segment, by iteration and node.

    Raises DamagedFileError, StorageError.
    """
    needed = bodies_needed(stores)
    counts = {name: len(keys) for name, keys in needed.items()}
    return [
        _listed(stores.storage, segment, counts.get(str(segment), 0))
        for segment in stores.crawl.segments()
    ]


def segment_files(stores: Stores, kind: str) -> list[str]:
    """Return paths of files of all committed segments.

    Each path has the address of the store.

    `kind`: `pages`, `links` or `warc`. A glob over a bucket may also find a half-copied segment; these segments are
    committed. Raises DamagedFileError, StorageError.
    """
    paths = []
    for segment in stores.until_stopped(stores.crawl.segments()):
        names = [entry.name for entry in SegmentReader(stores.storage, segment.path).manifest.files]
        wanted = [
            name
            for name in names
            if (name.startswith(f"{kind}.") if kind != "warc" else ".warc" in name)
        ]
        paths += [f"{stores.storage.name}/{segment.path}/{name}" for name in wanted]
    return paths


def _listed(storage: Storage, segment: SegmentRef, needed: int) -> ListedSegment:
    reader = SegmentReader(storage, segment.path)
    counts = reader.manifest.counts
    return ListedSegment(
        segment=str(segment),
        finished=reader.manifest.finished,
        pages=counts["pages"],
        links=counts["links"],
        outcomes=counts["outcomes"],
        dropped=len(reader.taken_out),
        bytes=sum(entry.size_bytes for entry in reader.manifest.files),
        needed=needed,
    )


class Captured(NamedTuple):
    """A row of `pages` with its segment, and the records of its fetch."""

    segment: str
    row: dict[str, Any]
    records: list[Whole]


def captures_of(
    stores: Stores, url: str, segments: Sequence[SegmentRef] = ()
) -> Iterator[Captured]:
    """Yield all captures of a URL, oldest first.

    `segments`: empty: all segments. Raises InputError for a text that is no URL, DamagedFileError, StorageError.
    """
    key = key_of(url_named(stores, url))
    for segment in stores.until_stopped(segments or stores.crawl.segments()):
        stores.report(reading=segment.path)
        for row in SegmentReader(stores.storage, segment.path).find([key]):
            yield Captured(
                str(segment), row, _group(stores.storage, f"{segment.path}/{row['warc_file']}", row)
            )


def _group(storage: Storage, where: str, row: dict[str, Any]) -> list[Whole]:
    """Return a capture's request, main record and metadata.

    The records follow each other in the file; only complete records count.
    """
    offset, length = row["warc_offset"], row["warc_length"]
    begin = max(0, offset - _AROUND_BYTES)
    with storage.open_read(where, begin, offset - begin + length + _AROUND_BYTES) as file:
        before, after = BytesIO(file.read(offset - begin)), BytesIO(file.read())
    request = [
        one
        for one in [*scan(before)][-1:]
        if isinstance(one, Whole) and one.record.type == "request"
    ]
    found = [one for one in islice(scan(after), 2) if isinstance(one, Whole)]
    return found[:1] if row["status"] is None else [*request, *found]


def dump_rows(
    stores: Stores, segments: Sequence[SegmentRef], table: str, out: TextIO, *, as_csv: bool
) -> int:
    """Write rows of `pages` or `links` as text; return their number.

    `segments`: empty: all segments. Each row is a line: a JSON object, or comma-separated values below a line of names,
    with inner values as JSON. Each row begins with its `segment`; keys are in hex, times in ISO 8601. Raises
    DamagedFileError, StorageError.
    """
    count, writer = 0, csv.writer(out, lineterminator="\n")
    for segment in segments or stores.crawl.segments():
        reader = SegmentReader(stores.storage, segment.path)
        for batch in stores.until_stopped(reader.pages() if table == "pages" else reader.links()):
            stores.report(reading=segment.path, rows=count)
            if as_csv and not count and batch.num_rows:
                writer.writerow(["segment", *batch.schema.names])
            for row in batch.to_pylist():
                values = {"segment": str(segment), **plain_row(row)}
                if as_csv:
                    writer.writerow(
                        [
                            json.dumps(one) if isinstance(one, dict) else one
                            for one in values.values()
                        ]
                    )
                else:
                    out.write(json.dumps(values) + "\n")
            count += batch.num_rows
    return count


def refused_hosts(stores: Stores, folders: Collection[str]) -> dict[str, str]:
    """Return some hosts refused for their addresses.

    Only in the given iterations; each host has an error that names an address. Raises DamagedFileError, StorageError.
    """
    for segment in stores.crawl.segments():
        if segment.folder not in folders:
            continue
        for batch in SegmentReader(stores.storage, segment.path).pages(
            ["host", "outcome", "error"]
        ):
            rows = (row for row in batch.to_pylist() if row["outcome"] == Outcome.ADDRESS_REFUSED)
            if found := {row["host"]: row["error"] or "" for row in rows}:
                return found
    return {}


def require_segments(stores: Stores, names: Sequence[str]) -> list[SegmentRef]:
    """Return segments by name.

    Raises InputError for a missing segment.
    """
    found = [stores.crawl.segment_named(text) for text in names]
    for one in found:
        if not one.exists():
            raise InputError(f"{one}: there is no such segment; `krake segment list` names all")
    return found
