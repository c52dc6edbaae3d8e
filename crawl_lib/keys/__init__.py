"""The key store: which URLs the crawl has seen, and how far they came.

A key is the SHA-1 of a canonical URL. `ring` says which servers hold it: the 2^160 keys are cut into one interval per
server, and `replication` servers in the ring hold each. `ShardedKeyStore` sorts keys, cuts them by interval into
statements of at most 5,000, and sends them to `KeyServer`s: SQLite files on one machine (`sqlite`), MySQL or MariaDB
on several (`mysql`). The tables are made by the files of `sql/keys/`, which people can run with the mysql client too.

How it is used: intake asks `unknown`, makes the URLs that are new durable, then calls `insert` (with `local` routing
`claim`, which decides between nodes). After the commit of a segment `mark` sets CRAWLED or GONE. `forget` makes a URL
new again. `check` and `repair` compare the replicas and fill what a server missed while it was down.

After a crash: each statement is on its server wholly or not at all, and what a method returned for is durable. A call
that was cut short has reached some servers and not others; the caller repeats it (all but `claim` may be repeated; the
keys of a `claim` that was cut short are kept, and inserted). Servers hold keys only: losing them all costs double
fetches, never a URL.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from crawl_lib.keys.base import (
    STATEMENT_KEYS,
    Answer,
    Claim,
    InsertReport,
    KeyServer,
    KeyStore,
    PrefixSum,
    ServerCounts,
)
from crawl_lib.keys.maintenance import check, repair
from crawl_lib.keys.opening import open_key_store, own_server
from crawl_lib.keys.report import MaintenanceReport
from crawl_lib.keys.ring import interval, replicas
from crawl_lib.keys.sharded import ShardedKeyStore
from crawl_lib.keys.sqlite import SqliteKeyServer

if TYPE_CHECKING:
    from crawl_lib.keys.mysql import MySqlKeyServer

__all__ = [
    "STATEMENT_KEYS",
    "Answer",
    "Claim",
    "InsertReport",
    "KeyServer",
    "KeyStore",
    "MaintenanceReport",
    "MySqlKeyServer",
    "PrefixSum",
    "ServerCounts",
    "ShardedKeyStore",
    "SqliteKeyServer",
    "check",
    "interval",
    "open_key_store",
    "own_server",
    "repair",
    "replicas",
]


def __getattr__(name: str) -> Any:
    """`MySqlKeyServer` is imported when it is asked for: PyMySQL costs the start of every process 60 ms."""
    if name == "MySqlKeyServer":
        from crawl_lib.keys.mysql import MySqlKeyServer  # noqa: PLC0415

        return MySqlKeyServer
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
