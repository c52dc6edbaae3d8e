"""The table of captures: where the newest capture of each URL is, for whoever looks up one URL.

Without the table, a look-up reads the keys of every segment. With the table, a look-up reads a few keys, one row group,
and segments that are newer than the table. The table repeats what segments say, and so a look-up compares: where a
segment has changed since (dropped pages, `krake segment compact`, a repair), the table says nothing of that URL.
"""

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property, partial
from typing import Any

import pyarrow as pa

from crawl_lib.crawldir import FolderState, SegmentRef
from crawl_lib.derived import SEGMENTS
from crawl_lib.engine import Engine, in_batches
from crawl_lib.errors import DamagedFileError, InputError, PathNotFoundError
from crawl_lib.segment import SegmentReader
from crawl_lib.stores import Stores
from crawl_lib.versions import Family, TableOutput, Version, Versions, Work, columns, first_of_each, make_version

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
"""A manifest has `segments` (those that were taken in, with digests) and `open` (folders that may get late ones)."""
_GROUP_ROWS = 1 << 12
"""Of a row group: a look-up reads the keys of about ten groups, and one group whole."""
SORTED_ROWS = 1 << 16
_FOUND = ("key", "time", "status", "warc_file", "warc_offset", "warc_length")


@dataclass(frozen=True)
class PlacesOutput(TableOutput):
    """The table of captures as an output. No row repeats content of a page."""

    def make(self, stores: Stores, *, now: datetime) -> dict[str, Any]:
        """Make the version that has all segments, or find that version; return its figures."""
        version = update_captures(stores, now=now)
        return {"version": version.number, "path": version.path, "rows": version.manifest["rows"]}


CAPTURES_OUTPUT = PlacesOutput("captures", (SEGMENTS,), PLACES)


def update_captures(stores: Stores, *, now: datetime) -> Version:
    """Take the segments into the table of captures that the newest version lacks; return the version that has all.

    A version is made from all segments, not from the version before, once a segment has changed or is gone, since an
    older capture may count then. `now`: for the manifest.

    Raises InputError before the first segment, DamagedFileError naming a segment, StorageError, NoRoomError,
    StoppedError, ConfigError.
    """
    versions = Versions(stores, PLACES)
    while True:
        parent = _newest(versions)
        there = {str(one): SegmentReader(stores.storage, one.path).digest for one in _segments(stores)}
        if not there:
            raise InputError(f"{stores.crawl.path}: has no segment yet, and so no captures; crawl first")
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
    """Name the folders to which segments may be added: those that no commit has closed, or that wait for a node."""
    doubtful = {segment.folder for segment in fresh} | set(parent.manifest["open"] if parent else ())
    folders = stores.until_stopped(sorted(doubtful & set(stores.crawl.folders()), key=int))
    return [folder for folder in folders if not FolderState.read(stores.crawl, folder).is_complete]


def _rows(parent: Version | None, fresh: list[SegmentRef], work: Work) -> Iterator[pa.RecordBatch]:
    """Yield the newest capture of each key, in order of keys."""
    engine = work.engine
    work.keep("read", PLACES_SCHEMA, _captures(work.stores, fresh))
    Versions(work.stores, PLACES).give(parent, engine, "all_old")
    shares = engine.shares(engine.value("captures/size"))
    engine.keep("all_fresh", "captures/read", "captures.divide")
    batches = first_of_each(_sorted(engine, shares), ["key"], 1)
    return in_batches(batches, _GROUP_ROWS)


def _sorted(engine: Engine, shares: list[str]) -> Iterator[pa.RecordBatch]:
    """Yield all captures, share by share of the keys, so that what is sorted at once fits into memory."""
    for number, share in enumerate(shares, 1):
        for name in ("old", "fresh"):
            engine.define(name, f"select * from all_{name} where {share}")
        yield from engine.stream("captures/places", SORTED_ROWS, f"captures.sort, {number} of {len(shares)}")


def _captures(stores: Stores, segments: list[SegmentRef]) -> Iterator[pa.Table]:
    """Yield the rows of `pages` of some segments, as the table of captures has them."""
    for number, segment in enumerate(stores.until_stopped(segments)):
        stores.report(stage="captures.read", done=number, total=len(segments), unit="segments")
        for group, rows in SegmentReader(stores.storage, segment.path).row_groups(_FOUND):
            same = {"folder": int(segment.folder), "node": segment.node, "row_group": group}
            found: dict[str, Any] = {name: rows[name] for name in _FOUND}
            for name, value in same.items():
                found[name] = pa.repeat(pa.scalar(value, PLACES_SCHEMA.field(name).type), len(rows))
            yield pa.table({name: found[name] for name in PLACES_SCHEMA.names})


def _newest(versions: Versions) -> Version | None:
    """Return the newest whole version; None: there is none, or all are damaged, and the table is made anew."""
    try:
        return versions.newest()
    except DamagedFileError as error:
        log.warning("%s", error)
        return None


@dataclass(frozen=True)
class Place:
    """Where a capture is. `segment`: has its row in the row group `row_group` of `pages`."""

    segment: SegmentRef
    row_group: int
    time: datetime


class StaleError(Exception):
    """A segment has changed since the table was made, or the table is damaged: what the table says does not count."""


class KnownCaptures:
    """The newest version of the table of captures, for look-ups."""

    def __init__(self, stores: Stores, version: Version) -> None:
        self._stores, self._version = stores, version

    @classmethod
    def of(cls, stores: Stores) -> "KnownCaptures | None":
        """Return the table; None: there is none, or no version is whole. Raises StorageError."""
        version = _newest(Versions(stores, PLACES))
        return None if version is None else cls(stores, version)

    @cached_property
    def newer(self) -> list[SegmentRef]:
        """The segments that the table lacks, by iteration and node. Raises StorageError."""
        known, crawl = self._version.manifest["segments"], self._stores.crawl
        closed = {name.partition("/")[0] for name in known} - set(self._version.manifest["open"])
        folders = [folder for folder in crawl.folders() if folder not in closed]
        segments = (crawl.segment(folder, node) for folder in folders for node in crawl.folder(folder).segments())
        return [segment for segment in segments if str(segment) not in known]

    def place(self, key: bytes) -> Place | None:
        """Return where the newest capture of a key is, in the segments that the table has; None: no capture there.

        Raises StaleError, StorageError, StoppedError.
        """
        try:
            rows = [row for batch in self._rows_of(key) for row in batch.to_pylist()]
        except (DamagedFileError, PathNotFoundError) as error:
            log.warning("%s", error)
            raise StaleError from error
        for row in rows:
            segment = self._stores.crawl.segment(str(row["folder"]), row["node"])
            self._require_unchanged(segment)
            return Place(segment, row["row_group"], row["time"])
        return None

    def _rows_of(self, key: bytes) -> Iterator[pa.RecordBatch]:
        return Versions(self._stores, PLACES).rows_of(self._version, key)

    def _require_unchanged(self, segment: SegmentRef) -> None:
        """Raise StaleError where a segment is gone, or has other pages than when the table was made."""
        try:
            digest = SegmentReader(self._stores.storage, segment.path).digest
        except PathNotFoundError as error:
            raise StaleError from error
        if digest != self._version.manifest["segments"].get(str(segment)):
            raise StaleError
