"""`krake keys rebuild`: key tables from what is known for certain, never from links.

Sources, in this order: the pages of all committed segments, oldest first, so that the newest capture of a key decides
between CRAWLED and GONE; then, of the nodes of this machine, what their queues hold, an open take, URLs handed on, and
what an open intake has decided upon. Not known become: links, seeds and undecided URLs that no intake has decided
upon (they would be dropped as known), and pages that `krake forget` forgot.

Every statement may be repeated, and states only rise: killed anywhere, it is run again from the start.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from itertools import islice
from typing import Any

from crawl_lib.crawl.places import list_folders, segments_of
from crawl_lib.durable import delete_durable, reached
from crawl_lib.errors import KeyServerDownError
from crawl_lib.frontier import NodeLock, open_take
from crawl_lib.frontier.lock import held_without_trace
from crawl_lib.frontier.rescue import LOST_FILE
from crawl_lib.keys import STATEMENT_KEYS, KeyServer, ShardedKeyStore, open_key_store
from crawl_lib.repair.findings import OnProgress
from crawl_lib.repair.forgotten import Forgotten
from crawl_lib.repair.fsck_keys import page_states, queued_keys
from crawl_lib.states import KeyState
from crawl_lib.stores import Stores

LOWEST, HIGHEST = bytes(20), b"\xff" * 20


@dataclass
class RebuildReport:
    """What a rebuild read and wrote.

    `pages`, `queued`: keys that were read. `added`: those of them that no server knew; `raised`: those whose state was
    lower. `created`: servers whose tables were made. `dropped`: keys that were queued, and were taken out first
    (`--drop-queued`). `elsewhere`: nodes whose queues are not on this machine: run it there too.
    """

    dry_run: bool
    pages: int = 0
    queued: int = 0
    added: int = 0
    raised: int = 0
    dropped: int = 0
    created: list[str] = field(default_factory=list)
    elsewhere: list[str] = field(default_factory=list)

    def to_mapping(self) -> dict[str, Any]:
        """The report as plain values."""
        return asdict(self)


def rebuild_keys(
    stores: Stores, *, dry_run: bool = False, drop_queued: bool = False, on_progress: OnProgress | None = None
) -> RebuildReport:
    """Fill the key tables, empty or not. `drop_queued`: forget first what is only queued, so that URLs that are in no
    queue any more are new when they are found again. `dry_run`: count only.

    The nodes of this machine are held meanwhile. Raises LockedError naming who works on one, KeyStoreError,
    DamagedFileError naming a segment or queue that cannot be read (`krake fsck` says what repairs it).
    """
    config = stores.config.key_storage
    with ExitStack() as stack:
        report = RebuildReport(dry_run)
        nodes = []
        for node in stores.config.servers:
            if not stores.node_dir(node).is_dir():
                report.elsewhere.append(node)
                continue
            directory = stores.node_dir(node)
            stack.enter_context(
                held_without_trace(directory, node)
                if dry_run
                else NodeLock(directory, node, 0.0, what="krake keys rebuild")
            )
            nodes.append(node)
        store = stack.enter_context(open_key_store(config, stores.secrets.key_storage_password))
        _Rebuild(stores, store, report, on_progress).run(nodes, drop_queued=drop_queued)
    return report


class _Rebuild:
    def __init__(
        self, stores: Stores, store: ShardedKeyStore, report: RebuildReport, on_progress: OnProgress | None
    ) -> None:
        self.stores, self.store, self.report, self._on_progress = stores, store, report, on_progress
        self._empty = False

    def run(self, nodes: Sequence[str], *, drop_queued: bool) -> None:
        standing = self.store.exists()
        if not self.report.dry_run:
            self.report.created = [] if standing else self.store.create_missing()
            self.store.require_ring()
        self._empty = not standing and self.report.dry_run
        if drop_queued and not self._empty:
            for server in self.store.servers:
                self.report.dropped += self._drop_queued(server)
            reached("repair.rebuild.dropped")
        self._pages()
        for node in nodes:
            self._queue(node)
        if drop_queued and not self.report.dry_run:
            for node in nodes:
                delete_durable(self.stores.node_dir(node) / LOST_FILE)

    def _drop_queued(self, server: KeyServer) -> int:
        """Delete the keys that are queued and nothing more."""
        found = 0
        rows = (
            key for key, keyinfo in server.scan(LOWEST, HIGHEST) if keyinfo not in {KeyState.CRAWLED, KeyState.GONE}
        )
        while keys := list(islice(rows, STATEMENT_KEYS)):
            found += len(keys)
            if not self.report.dry_run:
                server.delete(keys)
        return found

    def _pages(self) -> None:
        stores = self.stores
        forgotten = Forgotten(stores.storage, stores.crawl_dir)
        for folder in list_folders(stores.storage, stores.crawl_dir):
            for node in segments_of(stores.storage, stores.crawl_dir, folder):
                path = f"{stores.crawl_dir}/{folder}/{node}"
                for by_state in page_states(stores, path, forgotten):
                    for state, keys in by_state.items():
                        self.report.pages += len(keys)
                        self._write(keys, state, path)
            reached("repair.rebuild.folder")

    def _queue(self, node: str) -> None:
        directory = self.stores.node_dir(node)
        for file, keys in queued_keys(self.stores, node):
            self.report.queued += len(keys)
            self._write(keys, KeyState.QUEUED, f"{directory}/{file}")
        take = open_take(directory)
        if take is not None:
            keys = [url.key for url in take.urls()]
            self._write(keys, KeyState.QUEUED, str(take.path))
        reached("repair.rebuild.node")

    def _write(self, keys: Sequence[bytes], state: KeyState, where: str) -> None:
        """Add keys, or raise them; count how many needed it."""
        known = dict.fromkeys(keys) if self._empty else self.store.states(keys)
        self.report.added += sum(1 for before in known.values() if before is None)
        self.report.raised += sum(1 for before in known.values() if before is not None and before < state)
        if not self.report.dry_run:
            missed = self.store.mark(keys, state).missed
            if missed:
                raise KeyServerDownError(f"{', '.join(missed)}: does not answer: run again when it is back")
        if self._on_progress:
            done = self.report.pages + self.report.queued
            self._on_progress({"checking": f"keys of {where}", "done": done, "unit": "keys"})
