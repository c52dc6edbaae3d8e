"""The key store: which URLs the crawl has seen, and how far they came.

A key is the SHA-1 of a canonical URL. The 2^160 keys are cut into an interval for each server, and `replication`
servers in the ring hold each (`intervals`). `ShardedKeyStore` sorts keys, cuts them by interval into statements of at
most 5,000, and sends them to `KeyServer`s, all at the same time (`lanes`): SQLite files on one machine (`sqlite`),
MySQL or MariaDB on several (`mysql`). The files of `sql/keys/` make the tables. `maintenance` compares the replicas and
fills what a server missed, `ring` refuses a config that the tables were not filled for, `moving` moves keys to other
servers. Next to its keys a server keeps the turns that nodes share (`slots`); where a CrawlDb says what is known, it
keeps nothing else (`turns_only`).

Servers hold keys only; URLs are in files. The order is always: first the URL is durable, then its key. Losing all key
servers costs double fetches, never a URL. A server that does not answer (KeyServerDownError) or came back empty
(KeyTablesError) is left out as long as another replica answers; any other error stops the call. State if everything
stops between two steps in the life of a key: docs/protocol.md.
"""

from typing import TYPE_CHECKING

from crawl_lib.keys.intervals import KEY_BYTES, KeyHeap, interval, unheld_keys
from crawl_lib.keys.maintenance import check, repair
from crawl_lib.keys.moving import reshard
from crawl_lib.keys.ring import rewrite_notes
from crawl_lib.keys.server import (
    MAKE,
    STATEMENT_KEYS,
    KeyServer,
    sql_file,
)
from crawl_lib.keys.sharded import LOOK_S, ShardedKeyStore, open_key_store, own_server
from crawl_lib.keys.slots import SharedTurns
from crawl_lib.keys.sqlite import translated
from crawl_lib.keys.turns_only import TurnsOnly
from crawl_lib.lazy import loads_later

if TYPE_CHECKING:
    from crawl_lib.keys.looks import check_tables, make_again, set_aside, why_broken
    from crawl_lib.keys.mysql import MySqlServer, parse_server
else:
    # PyMySQL takes 60 ms, and no task looks for damage.
    __getattr__ = loads_later(
        __name__,
        {
            "mysql": ("MySqlServer", "parse_server"),
            "looks": ("check_tables", "make_again", "set_aside", "why_broken"),
        },
    )
