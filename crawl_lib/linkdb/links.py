"""The tables of links: by source the links of the newest capture of each page, and by target the LinkDb.

An unchanged or unvisited page keeps its links; a newer capture replaces all links of its page, even without a link. If
a page is gone or redirects, its links are kept and marked, since the page may come back unchanged. Dropped pages lose
their rows; links of a deleted segment stay. The grouping of segments into updates does not change the result.
"""

from collections.abc import Iterator
from dataclasses import asdict
from datetime import datetime
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from crawl_lib.derived import SEGMENTS
from crawl_lib.engine import first_of_each, hosts_of, in_batches
from crawl_lib.errors import InputError
from crawl_lib.stores import Stores
from crawl_lib.urls import Chain, Scope, host_of, key_of
from crawl_lib.versions import (
    GROUP_ROWS,
    Family,
    SegmentInputs,
    TableOutput,
    Version,
    Versions,
    VersionWork,
    columns,
    derive,
    find_segments,
    make_version,
)

_TIMES = "capture_time time, capture_segment text, seen_time time"
OUTLINKS_SCHEMA = columns(
    f"key key!, url text!, target key, target_url text, anchor text, is_gone flag!, {_TIMES}"
)
"""A row for each link, and a row without a target for each page. Only rows of pages have the last three columns: time
and segment (`<folder>/<node>`) of the capture with these links, and the time of the last visit."""
OUTLINKS = Family(
    folder="outlinks",
    name="the table of links",
    schema=OUTLINKS_SCHEMA,
    made_again="the earlier version counts, and `krake linkdb update` adds missing links",
    rebuilt="move all of them away: `krake linkdb update` makes one of the segments that are there",
    dictionary=("url", "target_url", "anchor", "capture_segment"),
)
"""A manifest has the fields of `SegmentInputs.facts`, and `dropped`, a digest of the dropped pages."""
OUTLINKS_OUTPUT = TableOutput("outlinks", (SEGMENTS,), OUTLINKS, "key")
_SOURCES = columns(f"key bytes, url text, {_TIMES}, is_gone flag, new_segment int32, is_kept flag")
INLINKS_SCHEMA = columns("key key!, url text!, source key!, source_url text!, anchor text!")
"""A row for each page with a link to `url` and each text of these links; in order of key, source and text."""
LINKDB = Family(
    folder="linkdb",
    name="the LinkDb",
    schema=INLINKS_SCHEMA,
    made_again="`krake linkdb update` makes it again",
    dictionary=("url", "source_url", "anchor"),
)
"""`settings` of a manifest: the section `linkdb` of the config, and a digest of the config if the scope has rules."""
LINKDB_OUTPUT = TableOutput("linkdb", ("outlinks",), LINKDB, "source")
_LINKS = pa.schema(list(OUTLINKS_SCHEMA)[:5])


def update_outlinks(stores: Stores, *, now: datetime) -> Version:
    """Take new segments and dropped pages into a new version.

    Returns the version. `now`: for the manifest. If two updates run at once, the second adds the segments that the
    first did not have. Raises InputError before the first segment, DamagedFileError (an input, or all versions),
    StorageError, NoRoomError, StoppedError, ConfigError.
    """
    versions = Versions(stores, OUTLINKS)
    while True:
        parent = versions.newest()
        inputs = find_segments(stores, parent.manifest["segments"] if parent else ())
        if parent is None and not inputs.segments:
            raise InputError(
                f"{stores.crawl.path}: has no segment yet, and so no links; crawl first"
            )
        if (
            parent is not None
            and not inputs.segments
            and parent.manifest["dropped"] == inputs.dropped_digest
        ):
            return parent
        facts = {**vars(inputs.facts(parent, now)), "dropped": inputs.dropped_digest}
        if version := make_version(versions, partial(_rows, parent, inputs), facts):
            return version


def _rows(
    parent: Version | None, inputs: SegmentInputs, work: VersionWork
) -> Iterator[pa.RecordBatch]:
    engine = work.engine
    inputs.give(engine)
    Versions(work.stores, OUTLINKS).give(parent, engine, "old")
    engine.view("seen", "linkdb/seen")
    work.ask("sources", _SOURCES, "linkdb/sources", "linkdb.pages")
    return engine.stream("linkdb/outlinks", GROUP_ROWS, "linkdb.outlinks")


def update_linkdb(stores: Stores, *, now: datetime) -> Version:
    """Add new segments, and sort the links by target.

    Returns the version. Raises the errors of `update_outlinks`.
    """
    chain = Chain(stores.config.urls, Scope.LINKDB)
    links = update_outlinks(stores, now=now)
    rules = None if chain.is_empty else stores.config_digest
    settings = {**asdict(stores.config.linkdb), "rules": rules}

    def rows(work: VersionWork) -> Iterator[pa.RecordBatch]:
        thinned = _thinned(work, links, chain)
        work.keep("thinned", _LINKS, (pa.Table.from_batches([batch]) for batch in thinned))
        batches = work.engine.stream("linkdb/inlinks", GROUP_ROWS, "linkdb.inlinks")
        return in_batches(
            first_of_each(batches, ["key"], stores.config.linkdb.max_inlinks), GROUP_ROWS
        )

    return derive(Versions(stores, LINKDB), of=links, settings=settings, rows=rows, now=now)


def _thinned(work: VersionWork, links: Version, chain: Chain) -> Iterator[pa.RecordBatch]:
    """Yield the links that count, by source.

    Texts are shortened, each link comes once, and a page has at most `max_outlinks`.
    """
    options, names = work.stores.config.linkdb, _LINKS.names
    known = Versions(work.stores, OUTLINKS).batches(links, [*names, "is_gone"])
    batches: Iterator[pa.RecordBatch] = (
        batch.filter(is_link(batch)).select(names) for batch in known
    )
    if not chain.is_empty:
        work.keep("ruled", _LINKS, (_ruled(batch, chain) for batch in batches))
        batches = work.engine.stream("linkdb/ruled", GROUP_ROWS, "linkdb.filter")
    if not options.within_host:
        batches = (
            batch.filter(pc.not_equal(hosts_of(batch["url"]), hosts_of(batch["target_url"])))
            for batch in batches
        )
    texts = (
        (batch, pc.utf8_slice_codeunits(batch["anchor"], 0, options.max_anchor_chars))
        for batch in batches
    )
    cut = (batch.set_column(names.index("anchor"), "anchor", text) for batch, text in texts)
    return first_of_each(
        first_of_each(cut, ["key", "target", "anchor"], 1), ["key"], options.max_outlinks
    )


def is_link(batch: pa.RecordBatch) -> "pa.Array[Any]":
    """Mark the rows that are links of existing pages.

    Rows of pages are not marked, nor links of pages that are gone or redirect.
    """
    found: pa.Array[Any] = pc.and_not(pc.is_valid(batch.column("target")), batch.column("is_gone"))
    return found


def _ruled(batch: pa.RecordBatch, chain: Chain) -> pa.Table:
    """Normalise the ends of links, and filter the links.

    A link stays if the filters accept both ends.
    """
    ends = [
        [chain.normalize(str(url)) for url in batch.column(name).to_pylist()]
        for name in ("url", "target_url")
    ]
    rows = [
        {
            "key": key_of(source),
            "url": source,
            "target": key_of(target),
            "target_url": target,
            "anchor": anchor,
        }
        for source, target, anchor in zip(*ends, batch.column("anchor").to_pylist(), strict=True)
        if source != target
        and not any(chain.rejects(url, host_of(url)) for url in (source, target))
    ]
    return pa.Table.from_pylist(rows, _LINKS)
