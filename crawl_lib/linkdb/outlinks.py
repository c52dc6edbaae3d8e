"""The table of links by source: those of the newest capture of each page, as far as segments say.

A row for each page, without a target, and one for each of its links. A page whose content was found unchanged, or that
was not visited, keeps its links; a newer capture replaces them, even if it has none. Those of a page that is gone, or
leads elsewhere, are kept and marked, since it may come back unchanged. Dropped pages go; a segment that is gone leaves
what is known of it. The rows do not depend on how segments were grouped into updates.
"""

from collections.abc import Iterator
from datetime import datetime
from functools import partial

import pyarrow as pa

from crawl_lib.errors import InputError
from crawl_lib.stores import Stores
from crawl_lib.versions import (
    GROUP_ROWS,
    Family,
    SegmentInputs,
    Version,
    Versions,
    Work,
    columns,
    find_segments,
    make_version,
)

OUTLINKS_SCHEMA = columns(
    "key key!, url text!, target key, target_url text, anchor text, is_gone flag!, capture_time time, "
    "capture_segment text, seen_time time"
)
"""`key`, `url`: of the page. `target`: null in the row of the page itself, which has the last three columns: when and
in which segment (`<folder>/<node>`) the capture was made whose links these are, and when the page was seen last."""
OUTLINKS = Family(
    folder="outlinks",
    name="the table of links",
    schema=OUTLINKS_SCHEMA,
    remedy="move its folder away: the version before it counts, and `krake linkdb update` makes what it lacks",
    rebuilt="move all of them away: `krake linkdb update` makes one of the segments that are there",
    dictionary=("url", "target_url", "anchor", "capture_segment"),
)
"""A version's manifest has `parent` (a number, or null), `now` (POSIX seconds), `config_digest`, `segments` (those
taken in, with the digest of what they hold) and `dropped`, a digest of which pages were dropped."""
_SOURCES = columns(
    "key bytes, url text, capture_time time, capture_segment text, seen_time time, is_gone flag, new_segment int32, "
    "is_kept flag"
)


def update_outlinks(stores: Stores, *, now: datetime) -> Version:
    """Take in the segments that the newest version lacks; returns the version that has them.

    Where it lacks none, and no more pages were dropped, that is the newest one. `now`: when, for the manifest. Run
    again after a kill, it finds what is there; of two at once, the second takes in what the first has left. Raises
    InputError before the first segment, DamagedFileError (an input, or all versions), StorageError, NoRoomError,
    StoppedError, ConfigError.
    """
    versions = Versions(stores, OUTLINKS)
    while True:
        parent = versions.newest()
        before = parent.manifest if parent else {"segments": {}, "dropped": None}
        inputs = find_segments(stores, before["segments"])
        if parent is None and not inputs.segments:
            raise InputError(f"{stores.crawl.path}: has no segment yet, and so no links; crawl first")
        if parent is not None and not inputs.segments and before["dropped"] == inputs.dropped_digest:
            return parent
        facts = {**inputs.facts(parent, now), "dropped": inputs.dropped_digest}
        if version := make_version(versions, partial(_rows, parent, inputs), facts):
            return version


def _rows(parent: Version | None, inputs: SegmentInputs, work: Work) -> Iterator[pa.RecordBatch]:
    engine = work.engine
    inputs.give(engine)
    engine.tables("old", parent.paths if parent else (), OUTLINKS_SCHEMA)
    engine.view("seen", "linkdb/seen")
    work.ask("sources", _SOURCES, "linkdb/sources", "linkdb.pages")
    return engine.stream("linkdb/outlinks", GROUP_ROWS, "linkdb.outlinks")
