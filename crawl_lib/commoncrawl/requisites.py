"""Requisites of pages, which files for the field's tools leave out unless someone asks for them."""

from collections.abc import Sequence
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from crawl_lib.crawldir import SegmentRef
from crawl_lib.segment import Manifest, SegmentReader
from crawl_lib.stores import Stores
from crawl_lib.versions import VersionWork, give_segments

Keys: TypeAlias = "pa.Array[Any]"
_HOP = "E"


def no_keys() -> Keys:
    """Return keys of no requisite."""
    return pa.array([], pa.binary(20))


def requisites_of(stores: Stores, segments: Sequence[SegmentRef]) -> Keys:
    """Return the requisites without followed links in some segments.

    Without requisites one column of each segment is read, else all pages and links. Raises DamagedFileError,
    StorageError, StoppedError.
    """
    some = [
        segment for segment in stores.until_stopped(segments) if _has_requisites(stores, segment)
    ]
    if not some:
        return no_keys()
    with VersionWork.to_read(stores) as work:
        give_segments(stores, work.engine, "all_visits", some, Manifest.PAGES_NAME)
        give_segments(stores, work.engine, "named", segments, Manifest.LINKS_NAME)
        found: Keys = pa.array(work.engine.column("export/requisites_alone"), pa.binary(20))
        return found


def pages_among(batch: pa.RecordBatch, requisites: Keys) -> "pa.Array[Any]":
    """Say for each row of `pages` whether it counts as a page."""
    needed: Any = pc.and_(
        pc.equal(batch["hop"], pa.scalar(_HOP, pa.string())),
        pc.is_in(batch["key"], value_set=requisites),
    )
    counts: pa.Array[Any] = pc.invert(pc.fill_null(needed, pa.scalar(False)))
    return counts


def _has_requisites(stores: Stores, segment: SegmentRef) -> bool:
    hop = pa.scalar(_HOP, pa.string())
    for batch in SegmentReader(stores.storage, segment.path).pages(["hop"]):
        if pc.any(pc.equal(batch["hop"], hop)).as_py():
            return True
    return False
