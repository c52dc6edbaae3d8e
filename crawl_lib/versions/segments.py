"""The inputs of a version besides the version before: committed segments that it lacks, and dropped pages."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256

import pyarrow as pa

from crawl_lib.crawldir import FileName, SegmentRef
from crawl_lib.engine import Engine
from crawl_lib.segment import LINKS_SCHEMA, PAGES_SCHEMA, Manifest, SegmentReader
from crawl_lib.stores import Stores
from crawl_lib.versions.version import Version
from crawl_lib.versions.work import columns

_DROPPED = columns("key bytes, segment int32")
_TAKEN_OUT = columns("key bytes, name text")
_SEGMENTS = columns("segment int32, name text")


@dataclass(frozen=True)
class InputFacts:
    """The first facts of a manifest. `parent`: number of the version before; `segments`: with their digests."""

    parent: int | None
    now: int
    config_digest: str
    segments: dict[str, str]


@dataclass(frozen=True)
class SegmentInputs:
    """All inputs, and the new ones. `there`: all segments; `taken_out`: (key, `<folder>/<node>`) of dropped pages;
    `segments`: the segments to take in, oldest first, with their digests."""

    stores: Stores
    there: tuple[SegmentRef, ...]
    taken_out: tuple[tuple[bytes, str], ...]
    segments: tuple[tuple[SegmentRef, str], ...]

    @property
    def dropped_digest(self) -> str:
        """The SHA-256 of the dropped pages, in hex."""
        lines = b"".join(key + f" {name}\n".encode() for key, name in self.taken_out)
        return sha256(lines).hexdigest()

    def taken_in(self, before: Mapping[str, str]) -> dict[str, str]:
        """Return the next version's segments with their digests.

        These are the earlier segments that still exist, and the new segments.
        """
        there = {str(segment) for segment in self.there}
        kept = {name: digest for name, digest in before.items() if name in there}
        return kept | {str(segment): digest for segment, digest in self.segments}

    def facts(self, parent: Version | None, now: datetime) -> InputFacts:
        """Return the first facts of a manifest with these segments."""
        return InputFacts(
            parent=parent.number if parent else None,
            now=int(now.timestamp()),
            config_digest=self.stores.config_digest,
            segments=self.taken_in(parent.manifest["segments"] if parent else {}),
        )

    def give(self, engine: Engine, pages: str = "pages", links: str | None = "links") -> None:
        """Make tables of the new segments for an engine.

        `pages` and `links` of the new segments; `segments`: their places and names; `dropped` (key, segment): their
        dropped pages; `taken_out` (key, name): dropped pages of all segments. With `links` there is `unread` (key,
        segment), the unreadable captures. `pages`, `links`: other names for these tables; None: no such table.
        """
        fresh = [segment for segment, _ in self.segments]
        marked = {name for _, name in self.taken_out}
        dropped = [
            (key, number)
            for number, segment in enumerate(self.stores.until_stopped(fresh))
            if str(segment) in marked
            for key in sorted(SegmentReader(self.stores.storage, segment.path).dropped)
        ]
        give_segments(self.stores, engine, pages, fresh, Manifest.PAGES_NAME)
        if links is not None:
            give_segments(self.stores, engine, links, fresh, Manifest.LINKS_NAME)
            _give_unread(engine, pages, links)
        engine.values("dropped", _table(dropped, _DROPPED))
        engine.values("taken_out", _table(self.taken_out, _TAKEN_OUT))
        engine.values("segments", numbered(map(str, fresh)))


def find_segments(stores: Stores, known: Collection[str]) -> SegmentInputs:
    """Return the segments that a version lacks.

    `known`: the version's segments. Raises StorageError, DamagedFileError, StoppedError.
    """
    there = tuple(stores.crawl.segments())
    fresh = stores.until_stopped([segment for segment in there if str(segment) not in known])
    found = tuple((one, SegmentReader(stores.storage, one.path).digest) for one in fresh)
    return SegmentInputs(stores, there, tuple(_taken_out(stores, there)), found)


def give_segments(
    stores: Stores, engine: Engine, table: str, segments: Sequence[SegmentRef], name: str
) -> None:
    """Make an engine's table of one of the segments' tables.

    `name`: `PAGES_NAME` or `LINKS_NAME` of `Manifest`. The digest of each file is compared. Raises DamagedFileError
    naming the file, StorageError, StoppedError.
    """
    paths = [
        SegmentReader(stores.storage, segment.path).verified(name, stores) for segment in segments
    ]
    engine.tables(table, paths, LINKS_SCHEMA if name == Manifest.LINKS_NAME else PAGES_SCHEMA)


def _give_unread(engine: Engine, pages: str, links: str) -> None:
    """Make the table `unread`.

    Links are read only for a suspected capture, which is rare.
    """
    engine.define("given_pages", f"select * from {pages}")
    engine.define("given_links", f"select * from {links}")
    engine.keep("suspects", "versions/suspects")
    if engine.value("versions/suspected"):
        engine.keep("unread", "versions/unread")
    else:
        engine.values("unread", _DROPPED.empty_table())


def numbered(names: Iterable[str]) -> pa.Table:
    """Return segments by their place."""
    return _table([(number, name) for number, name in enumerate(names)], _SEGMENTS)


def _taken_out(stores: Stores, there: Iterable[SegmentRef]) -> Iterator[tuple[bytes, str]]:
    marked: dict[str, bool] = {}
    for segment in stores.until_stopped(there):
        if segment.folder not in marked:
            mark = stores.crawl.folder(segment.folder).at(FileName.DROPPED)
            marked[segment.folder] = stores.storage.exists(mark)
        if marked[segment.folder]:
            for key in sorted(SegmentReader(stores.storage, segment.path).taken_out):
                yield key, str(segment)


def _table(rows: Collection[tuple[object, ...]], schema: pa.Schema) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(schema.names, row, strict=True)) for row in rows], schema)
