"""Rows of `krakepages` for commands: what the table says of a URL, and deletions by hand.

A service may be at work meanwhile: each deletion is a single statement, and a service that finishes a deleted row
writes nothing.
"""

import json
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from crawl_lib.errors import DamagedFileError
from crawl_lib.keys import interval
from crawl_lib.realtime.pages import PageServer, Row
from crawl_lib.realtime.store import MOST, connect_pages
from crawl_lib.stores import Stores
from crawl_lib.urls import host_of, key_of

_HOP_KEY = re.compile(rb'"key":"([0-9a-f]{40})"')
"""The key of a hop in a document; the quotes within a text of the document have backslashes."""
Facts = dict[str, Any]


@dataclass
class RowsReport:
    """The changes of rows by a command. `waiting`: rows that stay, since they wait. `unknown`: named URLs without a
    row.
    """

    deleted: int = 0
    waiting: int = 0
    unknown: int = 0


@contextmanager
def page_servers(stores: Stores) -> Iterator[list[PageServer]]:
    """Connect to the tables of all key servers, in order.

    The list is empty if no server has the table. Raises KeyServerDownError for a server that is away, KeyTablesError if
    only some servers have the table.
    """
    config = stores.config
    with ExitStack() as stack:
        servers = []
        for name in config.key_storage.servers if config.realtime is not None else ():
            server = connect_pages(config.key_storage, stores.secrets.key_storage_password, name)
            stack.callback(server.close)
            servers.append(server)
        yield servers if any(server.exists() for server in servers) else []


def row_facts(stores: Stores, key: bytes) -> Facts | None:
    """Return a URL's row in the table, for JSON.

    The result is None if the crawl has no table.

    `state`: `unknown` (no row), `due`, `redirected` (the row waits for a redirect's target), or `known`. Times are in
    ISO 8601. `document`: the newest one, None without any. Raises KeyStoreError, DamagedFileError for a damaged row.
    """
    with page_servers(stores) as servers:
        if not servers:
            return None
        row = servers[interval(key, len(servers))].read([key]).get(key)
    if row is None:
        return {"state": "unknown"}
    try:
        request = json.loads(row.request)
        document = None if row.data is None else json.loads(row.data)
        return _facts(row, request, document)
    except (ValueError, TypeError, AttributeError, KeyError) as error:
        problem = (
            f"krakepages, key {key.hex()}: a damaged row: {error!r}: `krake forget URL` deletes it"
        )
        raise DamagedFileError(problem) from error


def _facts(row: Row, request: Facts, document: Facts | None) -> Facts:
    state = "due" if row.is_due else "redirected" if row.waits_for is not None else "known"
    times = {
        "due": row.due_ms,
        "fetched": row.fetched_ms,
        "again": row.again_ms,
        "shared": row.shared_ms,
    }
    return {
        "state": state,
        **{name: _utc(time_ms) for name, time_ms in times.items()},
        "shares": row.shares,
        "tries": row.tries,
        "url": request["url"],
        "policy": request.get("policy", "default"),
        "redirects_to": (request.get("target") or {}).get("url"),
        "document": document,
    }


def _utc(time_ms: int | None) -> str | None:
    return (
        datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(timespec="milliseconds")
        if time_ms
        else None
    )


def forget_rows(
    stores: Stores,
    urls: Sequence[str],
    hosts: Collection[str],
    older_than_s: float | None,
    *,
    dry_run: bool,
) -> RowsReport | None:
    """Delete rows by URL, by host, or by documents' age.

    Rows that wait stay. Returns None if the crawl has no table. `urls`: canonical. `hosts`: empty: of any host, if an
    age is given. Raises KeyStoreError.
    """
    keys = {key_of(url) for url in urls}
    age_ms = None if older_than_s is None else round(older_than_s * 1000)
    by_scan = bool(hosts) or age_ms is not None

    def is_meant(row: Row, now_ms: int) -> bool:
        is_old = age_ms is None or (row.fetched_ms > 0 and row.fetched_ms < now_ms - age_ms)
        return row.key in keys or (by_scan and is_old and (not hosts or _host_of(row) in hosts))

    with page_servers(stores) as servers:
        if not servers:
            return None
        report = RowsReport(unknown=len(keys))
        for place, server in enumerate(servers):
            own = [key for key in keys if interval(key, len(servers)) == place]
            pieces = _pieces(stores, server) if by_scan else iter([[*server.states(own).values()]])
            for meant in _meant(pieces, is_meant, server.now_ms()):
                closed = [row.key for row in meant if not row.is_open]
                report.unknown -= sum(row.key in keys for row in meant)
                deleted = len(closed) if dry_run else server.forget(closed)
                report.deleted += deleted
                report.waiting += len(meant) - deleted
    return report


def drop_rows(stores: Stores, keys: Collection[bytes], *, dry_run: bool) -> int:
    """Delete the rows of pages; return how many.

    Rows with a document that came by one of these pages are deleted, too. Rows that wait are deleted too, since their
    old documents may be such. Raises KeyStoreError.
    """
    wanted, count = {key.hex().encode() for key in keys}, 0

    def is_meant(row: Row, now_ms: int) -> bool:
        return row.key in keys or not wanted.isdisjoint(_HOP_KEY.findall(row.data or b""))

    with page_servers(stores) as servers:
        for server in servers:
            for meant in _meant(_pieces(stores, server), is_meant, 0):
                count += len(meant) if dry_run else server.delete([row.key for row in meant])
    return count


def _meant(
    pieces: Iterator[list[Row]], is_meant: Callable[[Row, int], bool], now_ms: int
) -> Iterator[list[Row]]:
    for rows in pieces:
        yield [row for row in rows if is_meant(row, now_ms)]


def _pieces(stores: Stores, server: PageServer) -> Iterator[list[Row]]:
    """Yield all rows of a server in pieces, by key."""
    key, count = b"", 0
    while rows := server.rows_after(key, MOST):
        stores.go_on()
        stores.report(reading=f"{server.name}: krakepages", done=count, unit="rows")
        yield rows
        key, count = rows[-1].key, count + len(rows)


def _host_of(row: Row) -> str:
    """Return the host of a row; "" for a damaged row."""
    try:
        return host_of(json.loads(row.request)["url"])
    except (ValueError, TypeError, KeyError):
        return ""
