"""The key store: which URLs the crawl has seen, and how far they came.

A key is the SHA-1 of a canonical URL. `intervals` says which servers hold it: the 2^160 keys are cut into one interval per
server, and `replication` servers in the ring hold each. `ShardedKeyStore` sorts keys, cuts them by interval into
statements of at most 5,000, and sends them to `KeyServer`s: SQLite files on one machine (`sqlite`), MySQL or MariaDB
on several (`mysql`). Servers are asked at the same time, a connection each (`lanes`). The tables are made by the files
of `sql/keys/`, which people can run with the mysql client too. `maintenance` compares the replicas and fills what a
server missed while it was down; `ring` refuses a config that the tables were not filled for, `reshard` moves keys to
other servers, `dump` saves them.

Servers hold keys only; URLs are in files. So the order is always: first the URL is durable, then its key. Losing all
key servers costs double fetches, never a URL.

The steps in the life of a key, and what is true if everything stops between two of them
-----------------------------------------------------------------------------------------
Each statement is one transaction: after a crash it stands on its server wholly or not at all. A call sends its first
round of statements to the first replicas, the next round to the second ones, and returns when all have answered.

0. `unknown` asks and changes nothing. Stopped before 1: the intake's journal still points before these URLs; the next
   run asks again.
1. The new URLs are appended to the queue's file `new`, and the journal says so (`frontier.intake`). Stopped here: the
   URL is decided upon and its key nowhere. The next run inserts the keys of the journal's last chunk before it reads
   on; they cannot be found `known` and dropped, as they are not asked about again.
2. `insert`, first replicas. Stopped before all are done: some replicas know a key, others do not. Any replica that
   knows it makes it known, so nobody adds it again; the next run repeats the whole `insert`, which changes nothing
   where it has been.
3. `insert`, the other replicas. A server that does not answer, or has lost its tables, is left out and counted as
   `missed`; the call fails only if no replica of some key took it. Stopped after this: the key is QUEUED on every
   replica that was there.
4. With `local` routing several nodes find a key, and `claim` takes the place of 0 to 3: the candidates are durable and
   journalled, all replicas are asked, then the first that answers adds what is missing and says what that was (one
   transaction; of two writers exactly one is told `ours`), then the others are told. Stopped after the first sending:
   nobody knows whether the keys that stand there now are this claim's own. So the next run does not claim again: it
   keeps all candidates and inserts their keys. A URL may then be on two nodes, which is counted as `unsure`.
5. The page is fetched, its segment published, the queue has moved on. Then `mark` sets CRAWLED or GONE. Stopped
   before or in it: the take is still open, and the next run marks the whole segment again. A key that is QUEUED all
   the while is known, so nothing is fetched twice. `mark` adds keys that a server missed too.
6. Maintenance, a task per server, any time: reads both replicas' sums, then the keys of prefixes that differ, then
   inserts what is missing with the highest state that any replica has. Stopped anywhere: what was filled is filled;
   the next run finds the rest. It only adds and raises, so it cannot undo what a crawl writes at the same time.
7. `forget` (by hand, while nothing else runs): asks every replica first, so that a server that is down stops it before
   anything is deleted; then deletes on the first replicas, then on the others. Stopped in the middle: the key is known
   to some replicas, so it is known; run `forget` again. A maintenance in between would bring it back whole.

Overlap and late statements
---------------------------
Two tasks of one node never overlap: the lock of the node's directory is free only when the last process of the task is
dead. But a statement that a killed process had sent may still be carried out, after its successor has begun. That does
no harm: a late `insert` adds a key whose URL is durable and never lowers a state; a late `mark` says what the
successor will say; a late `claim` adds keys that the successor keeps. Writers on several nodes, and maintenance beside
them, meet in single rows only: statements are sorted by key, so they wait for each other in the same order, and a
deadlock is tried again. State grows: QUEUED is never written over CRAWLED or GONE, whoever is late.

Which errors mean what: KeyServerDownError (no answer) and KeyTablesError (an empty disk) make a replica be left out as
long as another one answers. A refused user, a full disk or a read-only server stop the call, naming the server: it
would not get better by itself, and every page would be missed there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from crawl_lib.keys.dump import dump_keys, load_keys
from crawl_lib.keys.intervals import KEY_BYTES, interval, replicas
from crawl_lib.keys.keystore import (
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
from crawl_lib.keys.reshard import reshard
from crawl_lib.keys.ring import mend_notes, read_ring
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
