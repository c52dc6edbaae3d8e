"""`krake fsck` of the key tables: do servers answer, are they those the keys were written for, and do they know enough?

Fast: servers, their ring, their counts. Full: replicas against each other, and every page and every queued URL of this
machine against the tables: a page that the tables do not know would be fetched twice. And, where it is known of all
nodes what they hold, every key that is queued against the files that may hold its URL (`held`).
"""

from collections.abc import Collection, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from hashlib import sha1
from itertools import islice

from crawl_lib.config import is_sqlite_server
from crawl_lib.crawldir import PAGES, unfilled, urls_of_lost_queue
from crawl_lib.errors import DamagedFileError, KeyStoreError, KrakeError, PathNotFoundError
from crawl_lib.findings import Finding, Findings, Severity
from crawl_lib.frontier import NodeDirectory, open_take
from crawl_lib.keys import ShardedKeyStore, check_tables, open_key_store
from crawl_lib.repair.keys.forgotten import Forgotten
from crawl_lib.repair.keys.held import (
    Sight,
    hold_all,
    hold_noted,
    keys_of,
    look,
    page_states,
    queued_urls,
    unheld_keys,
    urls_on_their_way,
)
from crawl_lib.repair.keys.keyheap import KeyHeap
from crawl_lib.repair.places import scratch_room
from crawl_lib.states import KeyState
from crawl_lib.stores import Stores, has_tables

ROOM = "keys"
EXAMPLES = 3
REBUILD = "run `krake fsck --repair`"
_NOT_COMPARED = "keys that are queued were not compared with the URLs that nodes hold"


@dataclass
class KeysReport:
    """What a check of the key tables found. `servers`: how many were looked at; `skipped`: what was not, and why;
    `noted`: see `FsckReport`."""

    findings: list[Finding] = field(default_factory=list)
    servers: int = 0
    skipped: list[str] = field(default_factory=list)
    noted: int = 0


def check_keys(stores: Stores, nodes: Collection[str], *, full: bool = True) -> KeysReport:
    """What is wrong with the key tables; nothing is changed, and no table is made.

    `nodes`: whose queues may be read: they lie on this machine, and nobody works on them.
    """
    findings, report = Findings(ROOM, REBUILD), KeysReport()
    _check(stores, nodes, findings, report, full=full)
    report.findings = findings.list()
    return report


def _check(stores: Stores, nodes: Collection[str], findings: Findings, report: KeysReport, *, full: bool) -> None:
    config = stores.config.key_storage
    with open_key_store(config, stores.secrets.key_storage_password) as store:
        if not nodes and _are_to_be_made(stores, store):
            names = ", ".join(server.name for server in store.servers)
            report.skipped = [f"key servers: nothing was crawled yet, and the first task makes {names}"]
            return
        report.servers = len(store.servers)
        for name in unfilled(stores.crawl):
            source = "the pages of all segments" if name == PAGES else f"the queue of node {name}"
            again = "run `krake fsck --repair`" + ("" if name == PAGES else " on its machine")
            findings.add(
                "keys_unfilled", name, f"key tables were made again, and lack the keys of {source}", repair=again
            )
        if check_tables(store, findings, full=full) and full:
            sight = look(stores, nodes)
            report.skipped = _not_comparable(stores, sight, findings)
            with ExitStack() as stack:
                heap = None if report.skipped else KeyHeap(lambda: stack.enter_context(scratch_room(stores, "fsck")))
                _Known(stores, store, findings, report, sight=sight, heap=heap).run(nodes)


def _are_to_be_made(stores: Stores, store: ShardedKeyStore) -> bool:
    """Whether no task of the crawl has come to the embedded tables: no file is there, nor what goes with keys."""
    embedded = all(is_sqlite_server(server.name) for server in store.servers)
    return (
        embedded
        and not any(map(has_tables, store.servers))
        and not any(urls_of_lost_queue(stores.crawl, node) is not None for node in stores.config.servers)
        and not stores.crawl.segments()
    )


def _not_comparable(stores: Stores, sight: Sight, findings: Findings) -> list[str]:
    """Why the queued keys are not compared; nothing if they are. A damaged note is a finding too."""
    for problem in sight.damaged.values():
        _note_damaged(problem, findings)
    # A repair noted that URLs are gone: that says what to do about their keys.
    lost = [node for node in stores.config.servers if NodeDirectory(stores.node_dir(node)).lost.exists()]
    lost += [node for node, note in sight.notes.items() if note.lost]
    if sight.unknown:
        return [f"{_NOT_COMPARED}: {sight.refusal()}"]
    return [f"{_NOT_COMPARED}: a repair found URLs gone that {node} held: see there" for node in lost]


def _note_damaged(problem: str, findings: Findings) -> None:
    findings.add("held_note_damaged", problem.partition(":")[0], problem, repair="do so", severity=Severity.WARNING)


class _Known:
    """Asks the tables for every key that they should have, and looks for the URLs of those that are queued."""

    def __init__(
        self,
        stores: Stores,
        store: ShardedKeyStore,
        findings: Findings,
        report: KeysReport,
        *,
        sight: Sight,
        heap: KeyHeap | None,
    ) -> None:
        """`heap`: gets the keys of pages that are queued; None if it is not asked for."""
        self.stores, self.store, self.findings = stores, store, findings
        self._report, self._sight, self._heap = report, sight, heap
        self._asked = 0

    def run(self, nodes: Collection[str]) -> None:
        try:
            self._segments(nodes)
            for node in self.stores.config.servers:
                if node not in self._sight.notes and node not in self._sight.unknown:
                    self._queue(node)
            if self._heap is not None:
                self._unheld(self._heap)
        except KeyStoreError:
            return  # `server_failed` says so

    def _ask(self, keys: Sequence[bytes], where: str) -> dict[bytes, KeyState | None]:
        states = self.store.states(keys)
        self._asked += len(keys)
        self.stores.report(checking=f"keys of {where}", done=self._asked, unit="keys")
        return states

    def _segments(self, nodes: Collection[str]) -> None:
        stores = self.stores
        try:
            forgotten = Forgotten(stores.storage, stores.crawl.path)
        except DamagedFileError as error:
            self.findings.add("forgotten_damaged", str(error).split(":")[0], str(error), repair="delete the file")
            return
        for decision in forgotten.decisions:
            if decision.is_open:
                where = f"{forgotten.folder}/{decision.name}"
                self.findings.add("forget_open", where, "was not carried out to its end", repair="run `krake forget`")
        open_segments = {_open_segment(stores, node) for node in nodes}
        open_segments |= {f"{stores.crawl.path}/{note.take}/{node}" for node, note in self._sight.notes.items()}
        for folder in stores.crawl.folders():
            for node in stores.crawl.folder(folder).segments():
                path = stores.crawl.segment(folder, node).path
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
                self._waiting(urls, f"{self.stores.crawl.path}: handed on to {node}", "handed_key_unknown")
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
        if not self._held(heap):
            return
        up = {counts.server for counts in self.store.counts() if counts.up}
        found, examples = 0, ""
        for keys in unheld_keys([server for server in self.store.servers if server.name in up], heap):
            found, examples = found + len(keys), examples or _examples(key.hex() for key in keys)
        if began := self._sight.began(self.stores):
            self._began(began)
            return
        self._report.noted = len(self._sight.notes)
        if found:
            self.findings.add(
                "key_without_url",
                "key tables",
                f"{examples} is queued, and no queue, take or segment has its URL: links to it are dropped as known",
                repair="run `krake fsck --repair`, then `krake settle`, which finds what segments link to",
                count=found,
            )

    def _held(self, heap: KeyHeap) -> bool:
        """Fill the heap; False if it is not known what is held."""
        for node, note in self._sight.notes.items():
            try:
                hold_noted(self.stores, {node: note}, heap)
            except DamagedFileError as error:
                _note_damaged(str(error), self.findings)
                self._report.skipped.append(f"{_NOT_COMPARED}: node {node} has a damaged note of its keys")
                return False
            except PathNotFoundError:
                self._began([node])
                return False
        try:
            hold_all(self.stores, self._sight.notes, heap)
        except KrakeError:
            return False  # a finding of the segment: its lines may be what is looked for
        return True

    def _began(self, nodes: Sequence[str]) -> None:
        self._report.skipped.append(f"{_NOT_COMPARED}: somebody began to work on {', '.join(nodes)} meanwhile")


def _examples(names: Iterable[str]) -> str:
    """The first few of them."""
    return ", ".join(islice(names, EXAMPLES))


def _open_segment(stores: Stores, node: str) -> str | None:
    try:
        take = open_take(stores.node_dir(node))
    except KrakeError:
        return None
    return stores.crawl.segment(take.header.folder, node).path if take else None
