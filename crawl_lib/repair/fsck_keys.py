"""`krake fsck` of the key tables: do servers answer, are they those the keys were written for, and do they know enough?

Fast: servers, their ring, their counts. Full: replicas against each other, and every page and every queued URL of this
machine against the tables: a page that the tables do not know would be fetched twice. And, where all queues of the
crawl can be read, every key that is queued against the files that may hold its URL (`held`).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterable, Sequence
from contextlib import ExitStack, closing
from hashlib import sha1
from itertools import islice
from pathlib import Path

from crawl_lib.config.load import is_sqlite_server
from crawl_lib.crawl.places import list_folders, segments_of
from crawl_lib.errors import DamagedFileError, KeyStoreError, KeyTablesError, KrakeError
from crawl_lib.frontier import open_take
from crawl_lib.frontier.rescue import LOST_FILE
from crawl_lib.keys import KeyServer, ShardedKeyStore, check, open_key_store
from crawl_lib.keys.rings import read_ring
from crawl_lib.repair.findings import Finding, Findings, OnProgress, Severity
from crawl_lib.repair.forgotten import Forgotten
from crawl_lib.repair.held import (
    hold_all,
    keys_of,
    nodes_unseen,
    page_states,
    queued_urls,
    unheld_keys,
    urls_on_their_way,
)
from crawl_lib.repair.keyheap import KeyHeap
from crawl_lib.repair.places import scratch_room
from crawl_lib.states import KeyState
from crawl_lib.stores import Stores

ROOM = "keys"
EXAMPLES = 3
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
        up = _servers(store, findings)
        if not up:
            return findings.list()
        if _notes(store, findings):
            return findings.list()
        problem = store.ring_problem()
        if problem:
            findings.add("ring_differs", problem.split(":")[0], problem, repair="see there")
        elif full:
            _files(up, findings)
            _replicas(store, findings)
            unseen = nodes_unseen(stores, nodes)
            compared = not unseen and not _any_lost(stores)
            with ExitStack() as stack:
                heap = KeyHeap(lambda: stack.enter_context(scratch_room(stores, "fsck"))) if compared else None
                _Known(stores, store, findings, heap, on_progress).run(nodes, unseen)
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


def _servers(store: ShardedKeyStore, findings: Findings) -> list[KeyServer]:
    """The servers that can be asked."""
    up = []
    for server, counts in zip(store.servers, store.counts(), strict=True):
        up += [server] if counts.up else []
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


def _files(servers: Sequence[KeyServer], findings: Findings) -> None:
    """A damaged page of an embedded table may lie where no count and no key comes by."""
    for server in servers:
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
    """Asks the tables for every key that they should have, and looks for the URLs of those that are queued."""

    def __init__(
        self,
        stores: Stores,
        store: ShardedKeyStore,
        findings: Findings,
        heap: KeyHeap | None,
        on_progress: OnProgress | None,
    ) -> None:
        """`heap`: gets the keys of pages that are queued; None if it is not asked for."""
        self.stores, self.store, self.findings, self._on_progress = stores, store, findings, on_progress
        self._heap = heap
        self._asked = 0

    def run(self, nodes: Collection[str], unseen: Collection[str]) -> None:
        try:
            self._segments(nodes)
            for node in self.stores.config.servers:
                if node not in unseen:
                    self._queue(node)
            if self._heap is not None:
                self._unheld(self._heap)
        except KeyStoreError:
            return  # `server_failed` says so

    def _ask(self, keys: Sequence[bytes], where: str) -> dict[bytes, KeyState | None]:
        states = self.store.states(keys)
        self._asked += len(keys)
        if self._on_progress:
            self._on_progress({"checking": f"keys of {where}", "done": self._asked, "unit": "keys"})
        return states

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
                try:
                    for by_state in page_states(stores, path, forgotten):
                        keys = [key for found in by_state.values() for key in found]
                        # The task of an open take marks its keys before it ends.
                        self._pages(keys, path, marked=path not in open_segments)
                except KeyStoreError:
                    raise
                except KrakeError:
                    continue  # a finding of the segment

    def _pages(self, keys: Sequence[bytes], path: str, *, marked: bool) -> None:
        states = self._ask(keys, path)
        missing = [key for key, state in states.items() if state is None]
        queued = [key for key, state in states.items() if state is KeyState.QUEUED]
        if missing:
            problem = f"no key server knows {missing[0].hex()}"
            self.findings.add("page_key_unknown", path, problem, count=len(missing))
        if queued and marked:
            problem = f"the key servers call {queued[0].hex()} queued, and its page was crawled"
            self.findings.add("page_key_behind", path, problem, severity=Severity.WARNING, count=len(queued))
        if self._heap is not None:
            self._heap.add(queued)

    def _queue(self, node: str) -> None:
        """URLs that wait for a node, here or on their way; an unknown one is fetched again when it is found again."""
        try:
            for file, urls in queued_urls(self.stores, node):
                self._waiting(urls, str(self.stores.node_dir(node) / file), "queued_key_unknown")
            for urls in urls_on_their_way(self.stores, node):
                self._waiting(urls, f"{self.stores.crawl_dir}: handed on to {node}", "handed_key_unknown")
        except KeyStoreError:
            raise
        except KrakeError:
            return  # a finding of the queue

    def _waiting(self, urls: Sequence[bytes], where: str, name: str) -> None:
        states = self._ask(keys_of(urls), where)
        missing = [url for url in urls if states[sha1(url).digest()] is None]
        if missing:
            problem = f"no key server knows the key of {_examples(url.decode('utf-8', 'replace') for url in missing)}"
            self.findings.add(name, where, problem, count=len(missing))

    def _unheld(self, heap: KeyHeap) -> None:
        """Keys that are queued, and whose URLs are nowhere. The servers that answer are read, all at once."""
        try:
            hold_all(self.stores, self.stores.config.servers, heap)
        except KrakeError:
            return  # a finding of the segment: its lines may be what is looked for
        up = {counts.server for counts in self.store.counts() if counts.up}
        for keys in unheld_keys([server for server in self.store.servers if server.name in up], heap):
            self.findings.add(
                "key_without_url",
                "key tables",
                f"{_examples(key.hex() for key in keys)} is queued, and no queue, take or segment has its URL: links to"
                " it are dropped as known",
                repair="run `krake keys rebuild --drop-queued`, then `krake settle`, which finds what segments link to",
                count=len(keys),
            )


def _examples(names: Iterable[str]) -> str:
    """The first few of them."""
    return ", ".join(islice(names, EXAMPLES))


def _open_segment(stores: Stores, node: str) -> str | None:
    try:
        take = open_take(stores.node_dir(node))
    except KrakeError:
        return None
    return f"{stores.crawl_dir}/{take.header.folder}/{node}" if take else None


def _any_lost(stores: Stores) -> bool:
    """Whether a repair noted that URLs are gone: that says what to do about their keys."""
    return any((stores.node_dir(node) / LOST_FILE).exists() for node in stores.config.servers)
