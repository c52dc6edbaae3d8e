"""Questions about the CrawlDb: `krake crawldb stats|get|top|dump|hosts|explain`. Nothing is written."""

import csv
import json
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import asdict, fields
from datetime import datetime
from decimal import Decimal
from functools import partial
from itertools import islice
from types import MappingProxyType
from typing import Any, TextIO

import pyarrow as pa

from crawl_lib import crawldb
from crawl_lib.crawldb import (
    CRAWLDB,
    CRAWLDB_SCHEMA,
    HostStatistics,
    counts_of,
    host_statistics,
    newest_version,
)
from crawl_lib.errors import InputError
from crawl_lib.export import url_named
from crawl_lib.parquet import plain_row
from crawl_lib.rounds import generated
from crawl_lib.scoring import Scoring
from crawl_lib.stores import Stores
from crawl_lib.urls import key_of
from crawl_lib.versions import TIME, Version, Versions, VersionWork

Facts = dict[str, Any]
More = Mapping[str, Callable[[pa.RecordBatch], "pa.Array[Any]"]]
_DUE = {
    "now": "due",
    "within a day": "due_day",
    "within a week": "due_week",
    "within 30 days": "due_30_days",
}


def crawldb_stats(stores: Stores, *, now: datetime) -> Facts:
    """Return sums over the newest version.

    Rows by status, the `hosts` with most URLs, when URLs are due, and scores. Raises InputError before the first
    version, StorageError, NoRoomError, StoppedError.
    """
    version = _version(stores)
    with VersionWork.to_read(stores) as work:
        engine = work.engine
        Versions(stores, CRAWLDB).give(version, engine, "crawldb")
        engine.values("settings", pa.table({"now": pa.array([now], TIME)}))
        [sums] = engine.rows("crawldb/stats", "stats")
        largest = [*engine.rows("crawldb/largest_hosts")]
    return {
        **vars(counts_of(version)),
        "hosts": sums["hosts"],
        "rows_of_host": {row["host"]: row["urls"] for row in largest},
        "due": {name: sums[column] for name, column in _DUE.items()},
        "score": {name: float(sums[name]) for name in ("least", "highest")}
        if sums["hosts"]
        else {},
    }


def row_of_url(stores: Stores, text: str) -> Facts | None:
    """Return the row of a URL for JSON, or None.

    Raises InputError for a URL that cannot be crawled.
    """
    version, key = _version(stores), key_of(url_named(stores, text))
    found = next(Versions(stores, CRAWLDB).rows_of(version, key), None)
    return _plain(found.to_pylist()[0]) if found else None


def best_rows(stores: Stores, count: int) -> list[Facts]:
    """Return the rows with the highest scores.

    Among equal scores, rows with smaller keys come first.
    """
    best = CRAWLDB_SCHEMA.empty_table()
    for batch in Versions(stores, CRAWLDB).batches(_version(stores), CRAWLDB_SCHEMA.names):
        both = pa.concat_tables([best, pa.Table.from_batches([batch])])
        best = both.sort_by([("score", "descending"), ("key", "ascending")]).slice(0, count)
    return [_plain(row) for row in best.to_pylist()]


def dump_crawldb(stores: Stores, out: TextIO, *, as_csv: bool) -> int:
    """Write all rows by key, as `dump_version` does.

    With plug-ins that have an `index_boost` the last column is `boost`: the page's boost for a search engine.
    """
    version = _version(stores)
    scoring = Scoring.of(stores.config, now=version.manifest["now"], version=version.number)
    more: More = (
        {"boost": partial(scoring.values, "index_boost")} if scoring.wanting("index_boost") else {}
    )
    return dump_version(Versions(stores, CRAWLDB), version, out, as_csv=as_csv, more=more)


def dump_version(
    versions: Versions,
    version: Version,
    out: TextIO,
    *,
    as_csv: bool,
    more: "More" = MappingProxyType({}),
) -> int:
    """Write the rows of a version; return their number.

    A line is a JSON object, or values below a line of names.

    `more`: columns after the columns of the table, each with the function that computes the column.
    """
    count, writer, stores = 0, csv.writer(out, lineterminator="\n"), versions.stores
    names = versions.family.schema.names
    if as_csv:
        writer.writerow([*names, *more])
    for batch in versions.batches(version, names):
        stores.report(rows=count)
        made = [make(batch) for make in more.values()]
        table = pa.Table.from_arrays([*batch.columns, *made], names=[*names, *more])
        for row in map(_plain, table.to_pylist()):
            if as_csv:
                writer.writerow(row.values())
            else:
                out.write(json.dumps(row) + "\n")
        count += batch.num_rows
    return count


def dump_hosts(
    stores: Stores, out: TextIO, *, now: datetime, as_csv: bool, count: int | None = None
) -> None:
    """Write the facts of each host, largest first.

    The format is that of `dump_crawldb`.

    `now`: decides which URLs are due; `count`: the number of hosts, None: all. Raises as `host_statistics`.
    """
    names = [column.name for column in fields(HostStatistics)]
    writer = csv.DictWriter(out, names, lineterminator="\n")
    if as_csv:
        writer.writeheader()
    with closing(host_statistics(stores, _version(stores), now=now)) as found:
        for facts in map(asdict, islice(found, count)):
            if as_csv:
                writer.writerow(facts)
            else:
                out.write(json.dumps(facts) + "\n")


def explain_listing(stores: Stores, text: str) -> Facts:
    """Return a URL's row, and why the newest list has it.

    `row`, and as `list` the result of `crawldb.explain`. Raises InputError before the first version; `list` is null
    before the first list.
    """
    return _listing(stores, text, crawldb.explain)


def look_up_listing(stores: Stores, text: str) -> Facts:
    """Return the same by a look-up, without reading whole versions.

    `list` is the result of `crawldb.look_up`.
    """
    return _listing(stores, text, crawldb.look_up)


def _listing(stores: Stores, text: str, ask: Callable[[Stores, str], crawldb.WhyListed]) -> Facts:
    url = url_named(stores, text)
    found: Facts = {"url": url, "row": row_of_url(stores, url), "list": None}
    if any(generated(stores)):
        why = vars(ask(stores, url))
        found["list"] = {name: value for name, value in why.items() if value is not None}
    return found


def _version(stores: Stores) -> Version:
    version = newest_version(stores)
    if version is None:
        raise InputError(f"{stores.crawl.path}: has no CrawlDb yet; run `krake crawldb update`")
    return version


def _plain(row: Mapping[str, Any]) -> Facts:
    return plain_row(
        {name: float(value) if isinstance(value, Decimal) else value for name, value in row.items()}
    )
