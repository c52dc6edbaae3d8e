"""`krake fsck` of the key tables: do servers answer, are they those the keys were written for, and do they know enough?

Fast: servers, their ring, their counts. Full: replicas against each other, and every page and every queued URL of this
machine against the tables: a page that the tables do not know would be fetched twice.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import closing
from hashlib import sha1
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from crawl_lib.config.load import is_sqlite_server
from crawl_lib.crawl.places import list_folders, segments_of
from crawl_lib.errors import DamagedFileError, KeyStoreError, KeyTablesError, KrakeError
from crawl_lib.frontier import Queue, open_take, read_handed_on
from crawl_lib.frontier.journal import INSERT, NEW_FILE, read_journal
from crawl_lib.frontier.move import read_move
from crawl_lib.frontier.queue import QueueReader
from crawl_lib.keys import KeyStore, ShardedKeyStore, check, open_key_store
from crawl_lib.keys.rings import read_ring
from crawl_lib.repair.findings import Finding, Findings, OnProgress, Severity
from crawl_lib.repair.forgotten import Forgotten
from crawl_lib.segment import SegmentReader
from crawl_lib.states import KEY_STATE_OF_OUTCOME, KeyState, Outcome
from crawl_lib.stores import Stores

ROOM = "keys"
ASKED = 50_000
REBUILD = "run `krake keys rebuild`"


def check_keys(
    stores: Stores, nodes: Collection[str], *, full: bool = True, on_progress: OnProgress | None = None
) -> list[Finding]:
    """What is wrong with the key tables; nothing is changed, and no table is made.

    `nodes`: whose queues may be read: they lie on this machine, and nobody works on them.
    """
    findings = Findings(ROOM, REBUILD)
    config = stores.config.key_storage
    with open_key_store(config, stores.secrets.key_storage_password) as store:
        if not _servers(store, findings):
            return findings.list()
        if _notes(store, findings):
            return findings.list()
        problem = store.ring_problem()
        if problem:
            findings.add("ring_differs", problem.split(":")[0], problem, repair="see there")
        elif full:
            _files(store, findings)
            _replicas(store, findings)
            _Known(stores, store, findings, on_progress).run(nodes)
    return findings.list()


def _notes(store: ShardedKeyStore, findings: Findings) -> bool:
    """Whether a server's note of its place cannot be read: no stage asks such tables."""
    found = False
    for server in store.servers:
        try:
            read_ring(server)
        except KeyTablesError as error:
            findings.add("ring_note_damaged", server.name, str(error), repair="do so")
            found = True
        except KeyStoreError:
            continue  # `server_failed` says so
    return found


_SERVER_FAILED = (
    "do what it says; if its tables are lost or cannot be used, delete them and run `krake keys create --missing`, then"
    " `krake keys repair` (or `krake keys rebuild` where no replica has its keys)"
)


def _servers(store: ShardedKeyStore, findings: Findings) -> bool:
    """Whether any server can be asked."""
    up = False
    for counts in store.counts():
        up = up or counts.up
        if not counts.up:
            findings.add("server_failed", counts.server, counts.error, repair=_SERVER_FAILED)
        elif counts.by_state.get("other"):
            findings.add(
                "keyinfo_unknown",
                counts.server,
                "keys with a keyinfo that is none of Krake's count as queued",
                repair="run `krake keys rebuild --drop-queued`, then `krake keys rebuild` on the other nodes' machines",
                count=counts.by_state["other"],
                severity=Severity.WARNING,
            )
    return up


def _files(store: ShardedKeyStore, findings: Findings) -> None:
    """A damaged page of an embedded table may lie where no count and no key comes by."""
    for server in store.servers:
        if is_sqlite_server(server.name):
            try:
                uri = f"{Path(server.name).absolute().as_uri()}?mode=ro"
                with closing(sqlite3.connect(uri, uri=True, timeout=1.0)) as base:
                    answer = str(base.execute("PRAGMA integrity_check(1)").fetchone()[0])
            except sqlite3.Error as error:
                answer = str(error)
            if answer != "ok":
                repair = "delete it, then run `krake keys create --missing` and `krake keys rebuild`"
                findings.add("table_damaged", server.name, answer, repair=repair)


def _replicas(store: ShardedKeyStore, findings: Findings) -> None:
    report = check(store)
    repair = "run `krake keys repair`"
    for name, found, problem in (
        ("replica_missing", report.missing, "lacks keys that another replica has"),
        ("replica_behind", report.behind, "has keys in a lower state than another replica"),
    ):
        for server, count in found.items():
            findings.add(name, server, problem, repair=repair, count=count)
    for server, count in report.misplaced.items():
        findings.add(
            "key_misplaced",
            server,
            f"has keys that belong elsewhere, such as {report.misplaced_samples[server][0]}",
            repair="run `krake keys reshard`, which moves them",
            severity=Severity.WARNING,
            count=count,
        )


class _Known:
    """Asks the tables for every key that they should have."""

    def __init__(self, stores: Stores, store: KeyStore, findings: Findings, on_progress: OnProgress | None) -> None:
        self.stores, self.store, self.findings, self._on_progress = stores, store, findings, on_progress
        self._asked = 0

    def run(self, nodes: Collection[str]) -> None:
        try:
            self._segments(nodes)
            for node in nodes:
                self._queue(node)
        except KeyStoreError:
            return  # `server_failed` says so

    def _ask(self, keys: Sequence[bytes], where: str, name: str, at_least: KeyState) -> None:
        states = self.store.states(keys)
        self._asked += len(keys)
        if self._on_progress:
            self._on_progress({"checking": f"keys of {where}", "done": self._asked, "unit": "keys"})
        missing = [key for key, state in states.items() if state is None]
        behind = [key for key, state in states.items() if state is not None and state < at_least]
        if missing:
            self.findings.add(f"{name}_unknown", where, f"no key server knows {missing[0].hex()}", count=len(missing))
        if behind:
            self.findings.add(
                f"{name}_behind",
                where,
                f"the key servers call {behind[0].hex()} queued, and its page was crawled",
                severity=Severity.WARNING,
                count=len(behind),
            )

    def _segments(self, nodes: Collection[str]) -> None:
        stores = self.stores
        try:
            forgotten = Forgotten(stores.storage, stores.crawl_dir)
        except DamagedFileError as error:
            self.findings.add("forgotten_damaged", str(error).split(":")[0], str(error), repair="delete the file")
            return
        for decision in forgotten.decisions:
            if decision.is_open:
                where = f"{forgotten.folder}/{decision.name}"
                self.findings.add("forget_open", where, "was not carried out to its end", repair="run `krake forget`")
        open_segments = {_open_segment(stores, node) for node in nodes}
        for folder in list_folders(stores.storage, stores.crawl_dir):
            for node in segments_of(stores.storage, stores.crawl_dir, folder):
                path = f"{stores.crawl_dir}/{folder}/{node}"
                # The task of an open take marks its keys before it ends.
                state = KeyState.QUEUED if path in open_segments else KeyState.CRAWLED
                try:
                    for by_state in page_states(stores, path, forgotten):
                        keys = [key for found in by_state.values() for key in found]
                        self._ask(keys, path, "page_key", state)
                except KeyStoreError:
                    raise
                except KrakeError:
                    continue  # a finding of the segment

    def _queue(self, node: str) -> None:
        try:
            for file, keys in queued_keys(self.stores, node):
                self._ask(keys, str(self.stores.node_dir(node) / file), "queued_key", KeyState.QUEUED)
        except KeyStoreError:
            raise
        except KrakeError:
            return  # a finding of the queue


def _open_segment(stores: Stores, node: str) -> str | None:
    try:
        take = open_take(stores.node_dir(node))
    except KrakeError:
        return None
    return f"{stores.crawl_dir}/{take.header.folder}/{node}" if take else None


def page_states(stores: Stores, path: str, forgotten: Forgotten) -> Iterator[dict[KeyState, list[bytes]]]:
    """Keys of a segment's pages by the state that they leave, some at a time.

    Those of pages that were taken out too: they stay known. None that was forgotten since.
    """
    reader = SegmentReader(stores.storage, path)
    for batch in reader.pages(["key", "time", "outcome"], with_dropped=True):
        times = batch.column(1).cast(pa.int64()).to_numpy(zero_copy_only=False)
        gone = forgotten.of_page(np.array(batch.column(0).to_pylist(), "S20"), times).tolist()
        found: dict[KeyState, list[bytes]] = {}
        rows: list[list[Any]] = [batch.column(0).to_pylist(), batch.column(2).to_pylist()]
        for key, outcome, is_gone in zip(*rows, gone, strict=True):
            if not is_gone:
                found.setdefault(KEY_STATE_OF_OUTCOME[Outcome(outcome)], []).append(key)
        yield found
    taken_out = sorted(reader.taken_out - reader.dropped)
    if taken_out:
        gone = forgotten.of_page(np.array(taken_out, "S20"), np.zeros(len(taken_out), np.int64)).tolist()
        yield {KeyState.CRAWLED: [key for key, is_gone in zip(taken_out, gone, strict=True) if not is_gone]}


def queued_keys(stores: Stores, node: str) -> Iterator[tuple[str, list[bytes]]]:
    """Keys that a node's queue has made known, with the file they are of; some at a time.

    The queue itself, URLs handed on, and those that an open intake has decided upon and sent. Not the file
    `undecided`, nor the end of `new`: whoever made those known would have the next intake drop their URLs.
    A queue that has yet to be adopted, or has an open move, gives nothing: the next task inserts its keys.
    """
    queue = Queue(stores.node_dir(node), node)
    if not queue.directory.is_dir() or read_move(queue) is not None or not queue.path("state").exists():
        return
    state = queue.state()
    if not queue.is_ours(state):
        return
    urls = (url for url, _ in QueueReader(queue, state).lines())
    yield from (("state", keys) for keys in _keys_of(urls))
    handed_on = (line[: line.find(b"\t")] for line in read_handed_on(queue))
    yield from (("handed_on", keys) for keys in _keys_of(handed_on))
    journal = read_journal(queue.directory)
    if journal is not None:
        sent = journal.chunk_bytes if journal.phase == INSERT else journal.new_bytes
        yield from ((NEW_FILE, keys) for keys in _keys_of(_first_lines(queue.path(NEW_FILE), sent)))


def _first_lines(path: Path, size: int) -> Iterator[bytes]:
    with path.open("rb") as file:
        while file.tell() < size and (line := file.readline()):
            yield line.rstrip(b"\n")


def _keys_of(urls: Iterable[bytes]) -> Iterator[list[bytes]]:
    source = iter(urls)
    while some := [sha1(url).digest() for url in islice(source, ASKED)]:
        yield some
