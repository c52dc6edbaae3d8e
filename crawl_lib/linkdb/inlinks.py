"""The LinkDb: who links to a URL, and with which words. The table of links by source, turned around and limited."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from crawl_lib.engine import in_batches
from crawl_lib.linkdb.outlinks import OUTLINKS, OUTLINKS_SCHEMA, update_outlinks
from crawl_lib.stores import Stores
from crawl_lib.urls import Chain, Scope, host_of, key_of
from crawl_lib.versions import GROUP_ROWS, Family, Version, Versions, Work, columns, derive

INLINKS_SCHEMA = columns("key key!, url text!, source key!, source_url text!, anchor text!")
"""A row for each page that links to `url`, and each text with which it does; in order of key, source and text."""
LINKDB = Family(
    folder="linkdb",
    name="the LinkDb",
    schema=INLINKS_SCHEMA,
    remedy="move its folder away: `krake linkdb update` makes it again",
    rebuilt="`krake linkdb update` makes one",
    dictionary=("url", "source_url", "anchor"),
)
"""A version's manifest has `now` (POSIX seconds), `config_digest`, `of` (a digest of the rows that it was made of) and
`settings`, the section `linkdb` of the config, with a digest of the config where the scope `linkdb` has rules."""
_LINKS = pa.schema(list(OUTLINKS_SCHEMA)[:5])
_COUNTS = pc.is_valid(pc.field("target")) & ~pc.field("is_gone")
"""Not of the page itself, and not of one that is gone, or leads elsewhere."""
_HOST = r"^[a-z]+://(?P<host>\[[^\]]*\]|[^/:]*)"


def update_linkdb(stores: Stores, *, now: datetime) -> Version:
    """Take in new segments, and turn the links around; returns the version that has them: the newest one, where
    nothing has changed. Raises as `update_outlinks` does."""
    chain = Chain(stores.config.urls, Scope.LINKDB)
    links = update_outlinks(stores, now=now)
    rules = None if chain.is_empty else stores.config_digest
    settings = {**asdict(stores.config.linkdb), "rules": rules}

    def rows(work: Work) -> Iterator[pa.RecordBatch]:
        thinned = _thinned(work, links, chain)
        work.keep("thinned", _LINKS, (pa.Table.from_batches([batch]) for batch in thinned))
        batches = work.engine.stream("linkdb/inlinks", GROUP_ROWS, "linkdb.inlinks")
        return in_batches(first_of_each(batches, ["key"], stores.config.linkdb.max_inlinks), GROUP_ROWS)

    return derive(Versions(stores, LINKDB), of=links, settings=settings, rows=rows, now=now)


def _thinned(work: Work, links: Version, chain: Chain) -> Iterator[pa.RecordBatch]:
    """The links that count, with short texts, each once, at most `max_outlinks` of a page; by source."""
    options = work.stores.config.linkdb
    batches: Iterator[pa.RecordBatch]
    known = Versions(work.stores, OUTLINKS).batches(links, [*_LINKS.names, "is_gone"])
    batches = (batch.filter(_COUNTS).select(_LINKS.names) for batch in known)
    if not chain.is_empty:
        work.keep("ruled", _LINKS, (_ruled(batch, chain) for batch in batches))
        batches = work.engine.stream("linkdb/ruled", GROUP_ROWS, "linkdb.filter")
    if not options.within_host:
        batches = (batch.filter(pc.not_equal(hosts(batch, "url"), hosts(batch, "target_url"))) for batch in batches)
    place = _LINKS.names.index("anchor")
    cut = (
        batch.set_column(place, "anchor", pc.utf8_slice_codeunits(batch.column(place), 0, options.max_anchor_chars))
        for batch in batches
    )
    return first_of_each(first_of_each(cut, ["key", "target", "anchor"], 1), ["key"], options.max_outlinks)


def first_of_each(batches: Iterable[pa.RecordBatch], names: Sequence[str], most: int) -> Iterator[pa.RecordBatch]:
    """The first `most` of each run of rows that have the same in these columns, which have no nulls; a run may go on in
    the next batch."""
    last, before = None, 0  # rows of the run that the batch goes on with
    for batch in filter(len, batches):
        begins, values = np.zeros(len(batch), bool), [batch.column(name) for name in names]
        begins[0] = [value[0] for value in values] != last
        for value in values:
            begins[1:] |= pc.not_equal(value[1:], value[:-1]).to_numpy(zero_copy_only=False)
        numbers, last = np.arange(len(batch)), [value[-1] for value in values]
        starts = np.maximum.accumulate(np.where(begins, numbers, -before))
        before = len(batch) - int(starts[-1])
        yield batch.filter(pa.array(numbers - starts < most))


def hosts(batch: pa.RecordBatch, column: str) -> "pa.Array[Any]":
    """The hosts of canonical URLs, as `urls.host_of` has them, of all rows at once."""
    found: pa.Array[Any] = pc.struct_field(pc.extract_regex(batch.column(column), _HOST), "host")
    return found


def _ruled(batch: pa.RecordBatch, chain: Chain) -> pa.Table:
    """Links between what normalisers make of their ends, where filters accept both."""
    ends = [[chain.normalize(str(url)) for url in batch.column(name).to_pylist()] for name in ("url", "target_url")]
    rows = [
        {"key": key_of(source), "url": source, "target": key_of(target), "target_url": target, "anchor": anchor}
        for source, target, anchor in zip(*ends, batch.column("anchor").to_pylist(), strict=True)
        if source != target and not any(chain.rejects(url, host_of(url)) for url in (source, target))
    ]
    return pa.Table.from_pylist(rows, _LINKS)
