"""The key store: asking, inserting and marking in batches, on SQLite and on real MariaDB servers.

The MariaDB servers run on this machine too, as durable as they are by default, and share its cores with the client:
the CPU that a key costs a server and the client says what machines of their own would do.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from benchmarks.report import Row, ahead, measure
from crawl_lib.config import KeyStorageConfig
from crawl_lib.keys import ShardedKeyStore, open_key_store
from crawl_lib.states import KeyState
from tests.contracts.mariadb import PASSWORD, MariaDb, start_mariadb, why_not

KEYS = 500_000
BATCH = 50_000
REPLICATION = 2
SETTINGS = (
    "--innodb-flush-log-at-trx-commit=1",
    "--innodb-log-file-size=1G",
    "--innodb-buffer-pool-size=512M",
)
"""As a key server should have them: every commit on the disk, a log that need not be emptied all the time, and all keys
in memory: with the default of 128 MB a key of three million was seen to cost the server three times the CPU."""
TICKS_PER_S = 100
"""Linux reports the CPU time of other processes in these."""
BUDGET = 100_000
"""Keys a second, of each server."""


@dataclass(frozen=True)
class Rate:
    """A step's keys per second, and the CPU microseconds that a key costs the client and one server that has it."""

    keys_per_s: float
    client_us: float
    server_us: float = 0.0


Step = Callable[[Collection[bytes]], object]


def rates(store: ShardedKeyStore, server_cpu_s: Callable[[], float]) -> dict[str, Rate]:
    """What each request of an intake and of a commit takes; `server_us` is of all servers together."""
    keys = [hashlib.sha1(str(number).encode()).digest() for number in range(KEYS)]
    batches = [keys[start : start + BATCH] for start in range(0, KEYS, BATCH)]
    steps: dict[str, Step] = {
        "unknown": store.unknown,
        "insert": store.insert,
        "known": store.unknown,
        "mark": lambda batch: store.set_state(batch, KeyState.CRAWLED),
    }
    return {name: _rate(step, batches, server_cpu_s) for name, step in steps.items()}


def _rate(step: Step, batches: Sequence[list[bytes]], server_cpu_s: Callable[[], float]) -> Rate:
    wall_s, client_s, server_s = time.perf_counter(), time.process_time(), server_cpu_s()
    for batch in batches:
        step(batch)
    return Rate(
        KEYS / (time.perf_counter() - wall_s),
        (time.process_time() - client_s) / KEYS * 1e6,
        (server_cpu_s() - server_s) / KEYS * 1e6,
    )


def on_sqlite(path: str) -> dict[str, Rate]:
    """The rates of one file."""
    with open_key_store(KeyStorageConfig(servers=(path,))) as store:
        store.create()
        return rates(store, lambda: 0.0)


def on_mariadb(
    servers: Sequence[str], pids: Sequence[int], database: str, connections: int
) -> dict[str, Rate]:
    """The rates of these servers, two replicas if there are several. `known` asks the first replica only."""
    replication = min(REPLICATION, len(servers))
    config = KeyStorageConfig(
        servers=tuple(servers), database=database, replication=replication, connections=connections
    )
    with open_key_store(config, PASSWORD) as store:
        store.create()
        found = rates(store, lambda: sum(map(cpu_s, pids)))
    return {
        name: Rate(
            rate.keys_per_s,
            rate.client_us,
            rate.server_us / (1 if name == "known" else replication),
        )
        for name, rate in found.items()
    }


def cpu_s(pid: int) -> float:
    """CPU seconds of a process so far: utime and stime of proc(5)."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_S


def run(directory: Path) -> list[Row]:
    """Half a million keys on one SQLite file, on one MariaDB, and on three, asked in turn and at the same time."""
    with ahead():
        rows = _rows("SQLite", measure(on_sqlite, str(directory / "0.sqlite")).result, BUDGET)
    if missing := why_not():
        return [*rows, Row("keys: MariaDB", f"not measured: {missing}", f"{BUDGET:,}")]
    with ExitStack() as stack:
        servers = [stack.enter_context(start_mariadb(*SETTINGS)) for _ in range(3)]
        stack.enter_context(ahead(*_pids(servers)))
        rows += _rows("1 MariaDB", _measured(servers[:1], 1), BUDGET)
        # Three servers and the client share this machine's cores: what each would do alone, only their CPU says.
        rows += _rows("3 MariaDB, 2 replicas, in turn", _measured(servers, 1))
        rows += _rows("3 MariaDB, 2 replicas, at the same time", _measured(servers, 8))
    return rows


def _pids(servers: Sequence[MariaDb]) -> list[int]:
    return [server.process.pid for server in servers if server.process]


def _measured(servers: Sequence[MariaDb], connections: int) -> dict[str, Rate]:
    names = [server.server for server in servers]
    arguments = names, _pids(servers), servers[0].new_database(), connections
    found: dict[str, Rate] = measure(on_mariadb, *arguments).result
    return found


def _rows(where: str, found: dict[str, Rate], budget: int = 0) -> list[Row]:
    return [_row(f"keys: {name}, {where}", rate, budget) for name, rate in found.items()]


def _row(what: str, rate: Rate, budget: int) -> Row:
    server = f", server {rate.server_us:.1f} us" if rate.server_us else ""
    value = f"{rate.keys_per_s:,.0f} keys/s (CPU a key: client {rate.client_us:.1f} us{server})"
    return (
        Row(what, value, f"{budget:,}", rate.keys_per_s >= budget) if budget else Row(what, value)
    )
