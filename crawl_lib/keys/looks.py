"""Whether key tables are whole: servers answer, their notes can be read, their files and replicas say the same."""

import time
from collections.abc import Sequence
from pathlib import Path

from crawl_lib.durable import fsync_dir, reached
from crawl_lib.errors import (
    KeyAccessError,
    KeyServerDownError,
    KeyServerFullError,
    KeyServerReadOnlyError,
    KeyStoreError,
    KeyTablesError,
)
from crawl_lib.findings import Findings, Severity
from crawl_lib.keys.maintenance import check
from crawl_lib.keys.ring import read_ring
from crawl_lib.keys.server import KeyServer
from crawl_lib.keys.sharded import ShardedKeyStore
from crawl_lib.keys.sqlite import SqliteKeyServer

ALL = "run `krake fsck --repair`"
ONLY = "run `krake fsck --repair --only keys`"
_NOT_BROKEN = (KeyServerDownError, KeyAccessError, KeyServerFullError, KeyServerReadOnlyError)


def check_tables(store: ShardedKeyStore, findings: Findings, *, full: bool) -> bool:
    """Check the tables of all servers; False if unusable.

    `full`: each key of each replica.
    """
    up = _servers(store, findings)
    if not up:
        return False
    if problem := store.ring_problem():
        findings.add("ring_differs", problem.split(":")[0], problem, repair="see there")
        return False
    damaged = {server.name: problem for server in up if full and (problem := why_broken(server))}
    for name, problem in damaged.items():
        findings.add("table_damaged", name, problem, repair=ALL)
    if damaged or not full:
        return not damaged
    report = check(store)
    for name, found, problem in (
        ("replica_missing", report.missing, "lacks keys that another replica has"),
        ("replica_behind", report.behind, "has keys in a lower state than another replica"),
    ):
        for server, count in found.items():
            findings.add(name, server, problem, repair=ONLY, count=count)
    for server, count in report.misplaced.items():
        findings.add(
            "key_misplaced",
            server,
            "has keys that belong elsewhere",
            repair="run `krake keys reshard` to move the keys",
            severity=Severity.WARNING,
            count=count,
        )
    return True


def _servers(store: ShardedKeyStore, findings: Findings) -> Sequence[KeyServer]:
    """Return the servers that can be asked.

    None can if the note of a place is unreadable: no stage works without.
    """
    up, broken = [], False
    for server, counts in zip(store.servers, store.counts(), strict=True):
        if not counts.up:
            problem = counts.error.partition(": run `krake ")[0]
            findings.add(
                "server_failed", counts.server, problem, repair=f"put it back as it was, or {ALL}"
            )
            continue
        up.append(server)
        try:
            if not server.has_slots():
                findings.add(
                    "slots_missing",
                    server.name,
                    "has no table of turns, which the nodes of a crawl share",
                    repair=ALL,
                    severity=Severity.WARNING,
                )
            read_ring(server)
        except KeyTablesError as error:
            broken = True
            findings.add("ring_note_damaged", server.name, str(error), repair=ONLY)
        except KeyStoreError:
            pass  # what is damaged in the file is seen by a full look
        if other := counts.by_state.get("other"):
            findings.add(
                "keyinfo_unknown",
                counts.server,
                "keys with a keyinfo unknown to Krake count as queued",
                repair=ALL,
                count=other,
                severity=Severity.WARNING,
            )
    return [] if broken else up


def why_broken(server: KeyServer, *, full: bool = True) -> str:
    """Return why a server's tables must be made again.

    "" if not, or if they cannot be made.

    `full`: also what is damaged where no count and no key comes by.
    """
    try:
        if not server.exists():
            return "has no key tables"
        if full:
            return next(server.problems(), "")
        server.counts()
    except _NOT_BROKEN:
        pass
    except KeyStoreError as error:
        return (
            str(error).removeprefix(f"{server.name}: ")
            if isinstance(server, SqliteKeyServer)
            else ""
        )
    return ""


def make_again(server: KeyServer) -> None:
    """Make a server's tables, empty.

    A broken embedded file is kept as `<file>.damaged-<time>`.
    """
    if isinstance(server, SqliteKeyServer):
        server.close()
        set_aside(server.path)
        reached("keys.tables.aside")
    server.create()
    reached("keys.tables.made")


def set_aside(path: Path) -> None:
    """Keep a broken SQLite file, with its log, as `<file>.damaged-<time>`."""
    aside = f".damaged-{time.time_ns()}"  # two of a second keep both
    for suffix in ("-wal", "-shm", ""):
        old = path.with_name(path.name + suffix)
        if old.exists():
            old.rename(path.with_name(f"{path.name}{aside}{suffix}"))
    if path.parent.is_dir():
        fsync_dir(path.parent)
