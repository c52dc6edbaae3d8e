"""The chain of the scope `crawldb`, over all rows of a version that is being made.

Rejected rows go. A row whose URL normalisers change is that of the new URL from then on: the capture
belongs to another URL, so the next visit has no conditions. If several rows get the same URL, the row of the newest
visit counts, then the row that had this URL, then the row with the smallest key; depth and redirects are the least, the
score is the highest, links to it are added up.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator

import pyarrow as pa

from crawl_lib.crawldb.table import CRAWLDB_SCHEMA
from crawl_lib.urls import Chain, host_of, key_of
from crawl_lib.versions import columns

RULED_SCHEMA = pa.schema(
    [
        *(field.with_nullable(True) for field in CRAWLDB_SCHEMA),
        *columns("old_key bytes, is_moved int32"),
    ]
)


def ruled(
    batches: Iterable[pa.RecordBatch], chain: Chain, counts: "Counter[str]"
) -> Iterator[pa.Table]:
    """Yield the rows kept by the chain, under new URLs.

    `is_moved` is 1 where the URL has changed.

    `counts`: `rejected`, `moved`, and how often a rule raised, by its name.
    """
    for batch in batches:
        urls, hosts = (batch.column(name).to_pylist() for name in ("url", "host"))
        becomes = [chain.normalize(str(url)) for url in urls]
        moved = [new != url for new, url in zip(becomes, urls, strict=True)]
        hosts = [
            host_of(new) if is_moved else host
            for new, is_moved, host in zip(becomes, moved, hosts, strict=True)
        ]
        stay = [
            chain.rejects(new, str(host)) is None for new, host in zip(becomes, hosts, strict=True)
        ]
        counts += (
            Counter(rejected=stay.count(False), moved=sum(map(all, zip(moved, stay, strict=True))))
            + chain.errors
        )
        chain.errors.clear()
        table = pa.Table.from_batches([batch]).append_column("old_key", batch.column("key"))
        table = _with(table, moved, {"key": key_of, "url": str, "host": host_of}, becomes)
        table = table.append_column("is_moved", pa.array(map(int, moved), pa.int32()))
        yield table.select(RULED_SCHEMA.names).filter(pa.array(stay))


def _with(
    table: pa.Table, moved: list[bool], made: dict[str, Callable[[str], object]], urls: list[str]
) -> pa.Table:
    """Recompute columns of the rows whose URLs have changed.

    The domain is found later.
    """
    if not any(moved):
        return table
    changed: dict[str, Callable[[str], object]] = {**made, "domain": lambda _: None}
    for name, make in changed.items():
        values = zip(table[name].to_pylist(), urls, moved, strict=True)
        made_values = [make(url) if is_moved else value for value, url, is_moved in values]
        place = table.schema.get_field_index(name)
        table = table.set_column(place, name, pa.array(made_values, table.schema.field(name).type))
    return table
