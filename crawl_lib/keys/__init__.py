"""The key store: which URLs the crawl has seen, and how far they came.

A key is the SHA-1 of a canonical URL. `ring` says which servers hold it: the 2^160 keys are cut into one interval per
server, and `replication` servers in the ring hold each. `ShardedKeyStore` sorts keys, cuts them by interval into
statements of at most 5,000, and sends them to `KeyServer`s: SQLite files on one machine (`sqlite`), MySQL or MariaDB on
several (`mysql`), each on a connection of its own at the same time (`lanes`). `maintenance` compares the replicas and
fills what a server missed while it was down; a config that the tables were not filled for is refused, `reshard` moves
keys to other servers, `dump` saves them.

Servers hold keys only; URLs are in files. So the order is always: first the URL is durable, then its key. Each
statement is one transaction, and states only rise, so a statement that comes late or twice does no harm:
`docs/protocol.md` goes through the life of a key.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

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
from crawl_lib.keys.dump import dump_keys, load_keys
from crawl_lib.keys.maintenance import check, repair
from crawl_lib.keys.opening import open_key_store, own_server
from crawl_lib.keys.report import MaintenanceReport
from crawl_lib.keys.reshard import reshard
from crawl_lib.keys.ring import KEY_BYTES, interval, replicas
from crawl_lib.keys.rings import mend_notes, read_ring
from crawl_lib.keys.scans import side_by_side
from crawl_lib.keys.sharded import LOOK_S, ShardedKeyStore
from crawl_lib.keys.sqlite import SqliteKeyServer
from crawl_lib.lazy import loads_later

if TYPE_CHECKING:
    from crawl_lib.keys.mysql import MySqlKeyServer, parse_server
else:
    __getattr__ = loads_later(__name__, {"mysql": ("MySqlKeyServer", "parse_server")})  # PyMySQL takes 60 ms


__all__ = [
    "KEY_BYTES",
    "LOOK_S",
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
    "annotations",
    "check",
    "dump_keys",
    "interval",
    "load_keys",
    "mend_notes",
    "open_key_store",
    "own_server",
    "parse_server",
    "read_ring",
    "repair",
    "replicas",
    "reshard",
    "side_by_side",
]
