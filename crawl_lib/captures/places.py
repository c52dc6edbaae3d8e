"""The table of captures: the place of each URL's newest capture, for look-ups of single URLs.

Without the table, a look-up reads the keys of every segment. With the table, a look-up reads a few keys, one row group,
and the segments newer than the table. The table repeats facts of segments, and so a look-up compares digests: after a
change of the segment (dropped pages, `krake segment compact`, a repair), the table does not count for this URL.
"""

import logging
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property, partial
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from crawl_lib.crawldir import FolderState, SegmentRef
from crawl_lib.derived import SEGMENTS
from crawl_lib.engine import KEY_BYTES, Ints, in_batches, keys_of
from crawl_lib.errors import DamagedFileError, InputError, PathNotFoundError, os_errors
from crawl_lib.segment import SegmentReader
from crawl_lib.stores import Stores
from crawl_lib.versions import (
    Family,
    TableOutput,
    Version,
    VersionFacts,
    Versions,
    VersionWork,
    columns,
    make_version,
)

log = logging.getLogger(__name__)

PLACES_SCHEMA = columns(
    "key key!, folder int64!, node text!, row_group int32!, time time!, status int32, warc_file text!,"
    " warc_offset int64!, warc_length int64!"
)
"""A row for each key: the segment of its newest capture, the row group of `pages` there, and the record."""
PLACES = Family(
    folder="captures",
    name="the table of captures",
    schema=PLACES_SCHEMA,
    made_again="`krake captures update` makes it again",
    dictionary=("node", "warc_file"),
)
"""A manifest has `segments` (their names with digests) and `open` (folders that may get a late segment)."""
_GROUP_ROWS = 1 << 12
"""Rows of a row group: a look-up reads the keys of two groups, and one group whole."""
SHARE_ROWS, _GATHERED_ROWS = 1 << 20, 1 << 17
"""About the number of rows that are sorted at once, and that are divided among the shares at once."""
_PACKED = pa.ipc.IpcWriteOptions(compression="lz4")
_FOUND = ("key", "time", "status", "warc_file", "warc_offset", "warc_length")


@dataclass(frozen=True)
class PlacesOutput(TableOutput):
    """The table of captures as an output. No row repeats content of a page."""

    def make(self, stores: Stores, *, now: datetime) -> VersionFacts:
        """Make or find the version with all segments; return its figures."""
        return update_captures(stores, now=now).facts


CAPTURES_OUTPUT = PlacesOutput("captures", (SEGMENTS,), PLACES)


def update_captures(stores: Stores, *, now: datetime) -> Version:
    """Make or find the table of captures with all segments.

    Usually new segments are added to the version before. If a segment has changed or is gone, the version is made from
    all segments, since an older capture may count then. `now`: for the manifest.

    Raises InputError before the first segment, DamagedFileError naming a segment, StorageError, NoRoomError,
    StoppedError, ConfigError.
    """
    versions = Versions(stores, PLACES)
    while True:
        parent = _newest(versions)
        there = {
            str(one): SegmentReader(stores.storage, one.path).digest for one in _segments(stores)
        }
        if not there:
            raise InputError(
                f"{stores.crawl.path}: has no segment yet, and so no captures; crawl first"
            )
        known: Mapping[str, str] = parent.manifest["segments"] if parent else {}
        if parent and known == there:
            return parent
        if not known.items() <= there.items():
            parent, known = None, {}
        fresh = [stores.crawl.segment_named(name) for name in there if name not in known]
        facts = {
            "parent": parent.number if parent else None,
            "now": int(now.timestamp()),
            "config_digest": stores.config_digest,
            "segments": there,
            "open": _open_folders(stores, parent, fresh),
        }
        if version := make_version(versions, partial(_rows, parent, fresh), facts):
            return version


def _segments(stores: Stores) -> Iterator[SegmentRef]:
    return stores.until_stopped(stores.crawl.segments())


def _open_folders(stores: Stores, parent: Version | None, fresh: list[SegmentRef]) -> list[str]:
    """Return the folders to which segments may be added.

    No commit has closed these folders, or the folders wait for a node.
    """
    doubtful = {segment.folder for segment in fresh} | set(
        parent.manifest["open"] if parent else ()
    )
    folders = stores.until_stopped(sorted(doubtful & set(stores.crawl.folders()), key=int))
    return [folder for folder in folders if not FolderState.read(stores.crawl, folder).is_complete]


def _rows(
    parent: Version | None, fresh: list[SegmentRef], work: VersionWork
) -> Iterator[pa.RecordBatch]:
    """Yield the newest capture of each key, in order of keys."""
    stores = work.stores
    pages = sum(
        int(SegmentReader(stores.storage, one.path).manifest.counts["pages"]) for one in fresh
    )
    bits = _share_bits(pages + (parent.manifest["rows"] if parent else 0))
    shares = zip(
        _divided(work, _captures(stores, fresh), bits),
        _old_shares(stores, parent, bits),
        strict=True,
    )
    return in_batches(chain.from_iterable(map(_newest_of_each, shares)), _GROUP_ROWS)


def _share_bits(rows: int) -> int:
    """Return the bits that divide rows into shares for memory.

    The bits are the first bits of a key.
    """
    return min(8, max(0, (rows // SHARE_ROWS).bit_length()))


def _captures(stores: Stores, segments: list[SegmentRef]) -> Iterator[pa.Table]:
    """Yield segments' rows of `pages` in the table's form."""
    for number, segment in enumerate(stores.until_stopped(segments)):
        stores.report(stage="captures.read", done=number, total=len(segments), unit="segments")
        for group, rows in SegmentReader(stores.storage, segment.path).row_groups(_FOUND):
            same = {"folder": int(segment.folder), "node": segment.node, "row_group": group}
            found: dict[str, Any] = {name: rows[name] for name in _FOUND}
            for name, value in same.items():
                found[name] = pa.repeat(pa.scalar(value, PLACES_SCHEMA.field(name).type), len(rows))
            yield pa.table({name: found[name] for name in PLACES_SCHEMA.names}).cast(PLACES_SCHEMA)


def _divided(work: VersionWork, tables: Iterable[pa.Table], bits: int) -> Iterator[pa.Table]:
    """Yield the rows of each share of the keys.

    With several shares, rows wait in files of this machine's scratch.
    """
    if not bits:
        yield pa.concat_tables([PLACES_SCHEMA.empty_table(), *tables])
        return
    paths = [work.scratch / f"captures-{share}.arrow" for share in range(1 << bits)]
    with ExitStack() as stack, os_errors(work.scratch, "cannot be written"):
        files = [
            stack.enter_context(pa.ipc.new_file(str(path), PLACES_SCHEMA, options=_PACKED))
            for path in paths
        ]
        for table in _gathered(tables):
            share_of = _shares_of(table["key"], bits)
            for share in np.unique(share_of):
                files[share].write_table(table.filter(pa.array(share_of == share)))
    for path in paths:
        with os_errors(path, "cannot be read"), pa.ipc.open_file(str(path)) as file:
            rows = file.read_all()
        path.unlink()
        yield rows


def _gathered(tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """Yield the same rows in larger tables.

    A segment may have a few rows.
    """
    waiting, count = list[pa.Table](), 0
    for table in tables:
        waiting.append(table)
        count += len(table)
        if count >= _GATHERED_ROWS:
            yield pa.concat_tables(waiting)
            waiting, count = [], 0
    if waiting:
        yield pa.concat_tables(waiting)


def _old_shares(stores: Stores, parent: Version | None, bits: int) -> Iterator[pa.Table]:
    """Yield the parent version's rows, share by share.

    Raises DamagedFileError, StorageError, StoppedError.
    """
    waiting, current = [PLACES_SCHEMA.empty_table()], 0
    for batch in Versions(stores, PLACES).batches(parent, PLACES_SCHEMA.names) if parent else ():
        share_of = _shares_of(batch["key"], bits)
        for share in np.unique(share_of):  # in order, as keys are
            while current < share:
                yield pa.concat_tables(waiting)
                waiting, current = [PLACES_SCHEMA.empty_table()], current + 1
            first, end = np.searchsorted(share_of, [share, share + 1])
            rows = pa.Table.from_batches([batch.slice(first, end - first)])
            waiting.append(rows.cast(PLACES_SCHEMA))
    while current < 1 << bits:
        yield pa.concat_tables(waiting)
        waiting, current = [PLACES_SCHEMA.empty_table()], current + 1


def _numbers(octets: Any, kind: str) -> Any:
    """Return each row of octets as one number of a kind."""
    return np.ascontiguousarray(octets).view(kind)[:, 0]


def _newest_of_each(tables: tuple[pa.Table, pa.Table]) -> Iterator[pa.RecordBatch]:
    """Yield each key's newest row of a share, in key order.

    The newest row has the newest iteration, then the latest time. `krake show` without the table uses the same order.
    """
    rows = pa.concat_tables(tables)
    if not len(rows):
        return
    keys = keys_of(rows["key"]).view(np.uint8).reshape(-1, KEY_BYTES)
    first, second = (_numbers(keys[:, at : at + 8], ">u8").astype(np.uint64) for at in (0, 8))
    third = _numbers(keys[:, 16:], ">u4")
    order = np.argsort(first, kind="stable")
    equal = first[order][1:] == first[order][:-1]
    tied = np.append(equal, False) | np.insert(equal, 0, False)  # few rows need more columns
    some = order[tied]
    ages = [-_ranks(rows, name, some) for name in ("row_group", "node", "time", "folder")]
    order[tied] = some[np.lexsort((*ages, third[some], second[some], first[some]))]
    is_next = np.insert((first[order][1:] != first[order][:-1]), 0, True)
    for part in (second, third):
        is_next[1:] |= part[order][1:] != part[order][:-1]
    yield from rows.take(pa.array(order[is_next])).combine_chunks().to_batches()


def _ranks(rows: pa.Table, name: str, some: "npt.NDArray[np.int64]") -> "npt.NDArray[np.int64]":
    """Return numbers that order some rows as a column does."""
    ranks = pc.rank(rows[name].take(pa.array(some, pa.int64())), tiebreaker="dense")
    return np.from_dlpack(ranks).astype(np.int64)  # `to_numpy` imports pandas


def _newest(versions: Versions) -> Version | None:
    """Return the newest complete version, or None.

    The log names damaged versions; the update makes these again.
    """
    try:
        return versions.newest()
    except DamagedFileError as error:
        log.warning("%s", error)
        return None


@dataclass(frozen=True)
class CaptureRef:
    """Place of a capture. The row is in the row group `row_group` of the `pages` of `segment`."""

    segment: SegmentRef
    row_group: int
    time: datetime


class StaleError(Exception):
    """A segment has changed since the table was made, or the table is damaged: the table does not count."""


class KnownCaptures:
    """The newest version of the table of captures, for look-ups."""

    def __init__(self, stores: Stores, version: Version) -> None:
        self._stores, self._version = stores, version

    @classmethod
    def of(cls, stores: Stores) -> "KnownCaptures | None":
        """Return the table, or None without a complete version.

        Raises StorageError.
        """
        version = _newest(Versions(stores, PLACES))
        return None if version is None else cls(stores, version)

    @cached_property
    def newer(self) -> list[SegmentRef]:
        """The segments that the table lacks, by iteration and node. Raises StorageError."""
        known, crawl = self._version.manifest["segments"], self._stores.crawl
        closed = {name.partition("/")[0] for name in known} - set(self._version.manifest["open"])
        folders = [folder for folder in crawl.folders() if folder not in closed]
        segments = (
            crawl.segment(folder, node)
            for folder in folders
            for node in crawl.folder(folder).segments()
        )
        return [segment for segment in segments if str(segment) not in known]

    def place(self, key: bytes) -> CaptureRef | None:
        """Return the place of a key's newest capture, or None.

        Segments outside the table do not count. Raises StaleError, StorageError, StoppedError.
        """
        try:
            rows = [row for batch in self._rows_of(key) for row in batch.to_pylist()]
        except (DamagedFileError, PathNotFoundError) as error:
            log.warning("%s", error)
            raise StaleError from error
        for row in rows:
            segment = self._stores.crawl.segment(str(row["folder"]), row["node"])
            self._require_unchanged(segment)
            return CaptureRef(segment, row["row_group"], row["time"])
        return None

    def _rows_of(self, key: bytes) -> Iterator[pa.RecordBatch]:
        return Versions(self._stores, PLACES).rows_of(self._version, key)

    def _require_unchanged(self, segment: SegmentRef) -> None:
        """Check that a segment has not changed.

        Raises StaleError if a segment is gone, or its pages have changed since the table was made.
        """
        try:
            digest = SegmentReader(self._stores.storage, segment.path).digest
        except PathNotFoundError as error:
            raise StaleError from error
        if digest != self._version.manifest["segments"].get(str(segment)):
            raise StaleError


def _shares_of(keys: "pa.ChunkedArray[Any] | pa.Array[Any]", bits: int) -> Ints:
    """Return the first bits of keys."""
    shares: Ints = keys_of(keys).view(np.uint8)[::KEY_BYTES].astype(np.int64) >> (8 - bits)
    return shares
