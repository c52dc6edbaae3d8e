"""Compare the key tables with pages and queues: `krake fsck` checks, `krake fsck --repair` fills in missing keys.

Check and fill read the same sources in the same order. First come the pages of all committed segments, oldest first, so
the newest capture of a key decides between CRAWLED and GONE. Then come the nodes of this machine: the URLs in the
queue, an open take, URLs handed on (here or on the way), and the choices of an open intake. Links never give keys, nor
do seeds and undecided URLs before an intake has chosen (intake would drop known URLs), nor pages that were forgotten.

The last search is for queued keys whose URLs no node holds. A fill with `drop_queued` deletes these keys, so the URLs
are new at the next find. Before the deletion, the nodes of this machine forget the record of segments taken in, so the
next intake finds the URLs in the segments. The search needs every queue on this machine. Otherwise the search is left
out, and `again` finds the lost URLs of each node.

Every statement may be repeated, and states only rise: after a kill anywhere, the fill starts again.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import islice

import numpy as np

from crawl_lib.config import KeyStorageConfig
from crawl_lib.crawldir import Forgotten, SettledNotes, Unfilled
from crawl_lib.durable import delete_durable, reached
from crawl_lib.engine import Ints
from crawl_lib.errors import (
    DamagedFileError,
    KeyServerDownError,
    KeyStoreError,
    LockedError,
    PathNotFoundError,
    QueueError,
)
from crawl_lib.findings import Finding, Findings, Severity
from crawl_lib.frontier import NodeDirectory, NodeHome, Take
from crawl_lib.keyarrays import Keys, key_bytes, key_list
from crawl_lib.keys import (
    KEY_BYTES,
    STATEMENT_KEYS,
    KeyHeap,
    ShardedKeyStore,
    check_tables,
    unheld_keys,
)
from crawl_lib.repair.keys.again import take_all_in_again
from crawl_lib.repair.keys.held import (
    hold_all,
    keys_of,
    open_folder,
    page_states,
    queued_urls,
    unseen_nodes,
    urls_on_their_way,
)
from crawl_lib.scratch import scratch_folder
from crawl_lib.states import KeyState
from crawl_lib.stores import Stores, has_tables

REPAIR = "run `krake fsck --repair`"
EXAMPLES = 3
COMPARED_KEYS = 500_000
"""Keys that are compared at once: about 300 bytes of memory each."""
_ALL = bytes(KEY_BYTES), b"\xff" * KEY_BYTES
_NOT_COMPARED = "keys that are queued were not compared with the URLs that nodes hold"


@dataclass
class KeysReport:
    """Counts of pages and queues, and of missing keys: filled in, unless a check or a dry run.

    `pages`, `queued`: keys read. `added`: keys among these that no server knew; `raised`: queued keys whose page was
    crawled. `dropped`: queued keys whose URLs no node holds; `reread`: nodes that take in every segment again after the
    drop. `elsewhere`: nodes with queues on other machines, where the fill has to run too. `unread`: unreadable sources.
    `filled`: sources whose keys the tables lacked before. `unknown`: why queued keys were not compared. `servers`: the
    number of servers checked.
    """

    dry_run: bool = True
    pages: int = 0
    queued: int = 0
    added: int = 0
    raised: int = 0
    dropped: int = 0
    reread: list[str] = field(default_factory=list)
    elsewhere: list[str] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)
    filled: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)
    servers: int = 0

    @property
    def changes(self) -> int:
        """How many keys were changed, or would be."""
        return self.added + self.raised + self.dropped

    def to_text(self) -> str:
        """Return the report for people."""
        return (
            f"{self.added:,} keys of {self.pages:,} pages and {self.queued:,} queued URLs were missing,"
            f" {self.raised:,} in a lower state; {self.dropped:,} that nothing holds were taken out"
        )


def check_keys(
    stores: Stores, nodes: Mapping[str, NodeHome], *, full: bool = True
) -> tuple[list[Finding], KeysReport]:
    """Check the key tables, and change nothing.

    No table is made. Fast: servers, their ring, their counts. `full`: replicas against each other, and every key that
    should be known; with a CrawlDb no key should be. `nodes`: homes of this machine's idle nodes, whose queues may be
    read.
    """
    findings, report = Findings("keys", REPAIR), KeysReport()
    with ExitStack() as stack:
        store = stack.enter_context(stores.key_servers())
        if not nodes and _are_to_be_made(stores, store):
            names = ", ".join(server.name for server in store.servers)
            report.unknown.append(
                f"key servers: nothing was crawled yet, and the first task makes {names}"
            )
            return [], report
        report.servers = len(store.servers)
        for name in Unfilled(stores.crawl).names():
            source = (
                "the pages of all segments"
                if name == Unfilled.PAGES
                else f"the queue of node {name}"
            )
            again = REPAIR + ("" if name == Unfilled.PAGES else " on its machine")
            findings.add(
                "keys_unfilled",
                name,
                f"tables were made again, and lack the keys of {source}",
                repair=again,
            )
        if check_tables(store, findings, full=full) and full and stores.config.order.keeps_keys:
            heap = KeyHeap(
                lambda: stack.enter_context(scratch_folder(stores.config, "repair-fsck"))
            )
            unseen = unseen_nodes(stores, nodes)
            # After a repair that found URLs gone: the finding says what to do about the keys.
            lost = [node for node in nodes if NodeDirectory(stores.node_dir(node)).lost.exists()]
            why = [f"node {node} {text}" for node, text in unseen.items()]
            why += [f"a repair found URLs gone that {node} held" for node in lost]
            report.unknown = [f"{_NOT_COMPARED}: {text}" for text in why]
            try:
                _Walk(stores, store, nodes, unseen, report, None if why else heap, findings).run()
            except (KeyStoreError, LockedError) as error:
                report.unknown.append(f"{_NOT_COMPARED}: {error}")
    return findings.list(), report


def _are_to_be_made(stores: Stores, store: ShardedKeyStore) -> bool:
    """Return whether no task has used the embedded tables.

    No server has tables; there is no segment, and no note about a lost queue.
    """
    return (
        all(
            KeyStorageConfig.is_sqlite(server.name) and not has_tables(server)
            for server in store.servers
        )
        and not any(
            SettledNotes(stores.crawl, node).urls_of_lost_queue() is not None
            for node in stores.config.servers
        )
        and not stores.crawl.segments()
    )


def fill_keys(
    stores: Stores,
    nodes: Mapping[str, NodeHome],
    *,
    dry_run: bool = False,
    drop_queued: bool = False,
) -> KeysReport:
    """Fill the key tables.

    `drop_queued`: deletes queued keys whose URLs no node holds; the URLs are new when a page links to the URLs again.
    `dry_run`: counts only.

    `nodes`: the homes of this machine's nodes, by name. An unreadable segment or queue is left out and named; then no
    queued key is deleted. Raises KeyStoreError.
    """
    with ExitStack() as stack:
        report = KeysReport(dry_run)
        report.elsewhere = [
            node for node in stores.config.servers if not stores.node_dir(node).is_dir()
        ]
        unseen, heap = unseen_nodes(stores, nodes), None
        if drop_queued and unseen:
            report.unknown = [f"node {node} {text}" for node, text in unseen.items()]
        elif drop_queued:
            heap = KeyHeap(
                lambda: stack.enter_context(scratch_folder(stores.config, "repair-keys"))
            )
        store = stack.enter_context(stores.key_servers())
        walk = _Walk(stores, store, nodes, unseen, report, heap)
        if not dry_run:
            store.require_ring()
        elif not store.exists():
            walk.heap, walk.is_empty = None, True
        if drop_queued and not walk.is_empty:
            walk.drop_foreign()
        walk.run()
        for node in nodes if walk.heap is not None and not report.unread else ():
            lost = NodeDirectory(stores.node_dir(node)).lost
            report.filled += [node] if lost.exists() else []
            if not dry_run:
                delete_durable(lost)
    return report


@dataclass(frozen=True)
class _Asked:
    """Keys that the tables should have in `states`; `name`: of the finding if not, at `where`.

    `urls`: of the keys, if known. `is_marked`: a lower state is a finding.
    """

    keys: Keys
    states: Ints
    name: str
    where: str
    urls: Sequence[bytes] = ()
    is_marked: bool = True

    def name_of(self, row: int) -> str:
        """Name a key by its URL, if known, or in hex."""
        if self.urls:
            return f"of {self.urls[row].decode('utf-8', 'replace')}"
        return key_bytes(self.keys[row]).hex()


@dataclass
class _Walk:
    """A walk over every key that the tables should have; without a dry run, missing keys are written.

    `unseen`: nodes whose queues are not read. `heap`: empty; None: no search for queued keys without URLs. `is_empty`:
    the tables are missing and a dry run makes none, so every key counts as missing. `asked`: what is compared next.
    """

    stores: Stores
    store: ShardedKeyStore
    nodes: Mapping[str, NodeHome]
    unseen: Mapping[str, str]
    report: KeysReport
    heap: KeyHeap | None
    findings: Findings = field(default_factory=lambda: Findings("keys", REPAIR))
    is_empty: bool = False
    asked: "list[_Asked]" = field(default_factory=list)

    @property
    def write(self) -> bool:
        return not self.report.dry_run

    def run(self) -> None:
        self._pages()
        for node in dict.fromkeys([*self.stores.config.servers, *self.nodes]):
            if node not in self.unseen:
                self._waiting(node)
        if self.heap is not None and not self.report.unread:
            self._unheld(self.heap)

    def drop_foreign(self) -> None:
        """Delete the keys whose keyinfo Krake does not write.

        Keys that should be known are written afterwards.
        """
        ours = set(KeyState)
        for server in self.store.servers:
            rows = (key for key, keyinfo in server.scan(*_ALL) if keyinfo not in ours)
            while keys := list(islice(rows, STATEMENT_KEYS)):
                self.report.dropped += len(keys)
                if self.write:
                    server.delete(keys)
        reached("repair.rebuild.dropped")

    @contextmanager
    def _if_readable(self, source: str = "") -> Iterator[None]:
        """Fill from a source, or note an unreadable source.

        Without an error, `source` is no longer among the sources to fill. Keys that were read are filled in any case.
        """
        before = len(self.report.unread)
        try:
            yield
        except (DamagedFileError, QueueError, PathNotFoundError) as error:
            self.report.unread.append(str(error))
        if source:
            self._compare()
        if (
            source
            and len(self.report.unread) == before
            and source in Unfilled(self.stores.crawl).names()
        ):
            self.report.filled.append(source)
            if self.write:
                Unfilled(self.stores.crawl).remove(source)

    def _pages(self) -> None:
        crawl = self.stores.crawl
        # The task of an open take marks its keys before it ends.
        takes = {f"{crawl.path}/{open_folder(self.stores, node)}/{node}" for node in self.nodes}
        with self._if_readable(Unfilled.PAGES):
            forgotten = self._forgotten()
            for segment in crawl.segments():
                with self._if_readable():
                    is_marked = segment.path not in takes
                    for keys, states in page_states(self.stores, segment.path, forgotten):
                        self.report.pages += len(keys)
                        name, where = "page_key_unknown", segment.path
                        self._ask(_Asked(keys, states, name, where, is_marked=is_marked))
                if self.write:
                    reached("repair.rebuild.folder")

    def _forgotten(self) -> Forgotten:
        try:
            forgotten = Forgotten(self.stores.crawl)
        except DamagedFileError as error:
            again = "move it away, and `krake forget` its pages again"
            self.findings.add(
                "forgotten_damaged", str(error).split(":")[0], str(error), repair=again
            )
            raise
        for decision in forgotten.decisions:
            if decision.is_open:
                where = f"{forgotten.folder}/{decision.name}"
                self.findings.add(
                    "forget_open",
                    where,
                    "was not carried out to its end",
                    repair="run `krake forget`",
                )
        return forgotten

    def _waiting(self, node: str) -> None:
        """Fill in keys of URLs that wait for a node, in its queue or on the way.

        Without the key, a URL would be fetched again at the next find.
        """
        stores, directory = self.stores, self.stores.node_dir(node)
        with self._if_readable(node):
            if node in self.nodes:
                if self.write:
                    self.nodes[node].queue.finish_open_move()
                for file, urls in queued_urls(stores, node):
                    self._ask_of(urls, "queued_key_unknown", f"{directory}/{file}")
                if (take := Take.open(directory)) is not None:
                    keys = [url.key for url in take.urls()]
                    self._ask_queued(keys, "queued_key_unknown", str(take.path))
                if self.write:
                    reached("repair.rebuild.node")
            for urls in urls_on_their_way(stores, node):
                self._ask_of(
                    urls, "handed_key_unknown", f"{stores.crawl.path}: handed on to {node}"
                )

    def _ask_of(self, urls: Sequence[bytes], name: str, where: str) -> None:
        self.report.queued += len(urls)
        self._ask_queued(keys_of(urls), name, where, urls)

    def _ask_queued(
        self, keys: Sequence[bytes], name: str, where: str, urls: Sequence[bytes] = ()
    ) -> None:
        found = np.frombuffer(b"".join(keys), f"S{KEY_BYTES}")
        states = np.full(len(keys), KeyState.QUEUED, np.int8)
        self._ask(_Asked(found, states, name, where, urls))

    def _ask(self, asked: "_Asked") -> None:
        """Collect keys that should be known, and compare many at once."""
        if len(asked.keys):
            self.asked.append(asked)
        done = self.report.pages + self.report.queued
        self.stores.report(checking=f"keys of {asked.where}", done=done, unit="keys")
        if sum(len(one.keys) for one in self.asked) >= COMPARED_KEYS:
            self._compare()

    def _compare(self) -> None:
        """Compare the collected keys with the tables.

        Missing keys, and keys still queued after the crawl of their page, are counted and written.
        """
        asked, self.asked = self.asked, []
        if not asked:
            return
        keys = np.concatenate([one.keys for one in asked])
        order = np.argsort(keys, kind="stable")  # tables take ascending keys fastest
        keys = keys[order]
        is_first = np.append(True, keys[1:] != keys[:-1])
        is_last = np.append(is_first[1:], True)
        states = np.concatenate([one.states for one in asked])[order[is_last]]
        keys, order = keys[is_first], order[is_first]
        before = np.zeros(len(keys), np.int8)
        if not self.is_empty:
            known = self.store.states(key_list(keys))
            before[:] = [state or 0 for state in known.values()]
        missing = before == 0
        behind = (before == KeyState.QUEUED) & (states != KeyState.QUEUED)
        self.report.added += int(missing.sum())
        self.report.raised += int(behind.sum())
        if self.write:
            for state in KeyState:
                if missed := self.store.set_state(key_list(keys[states == state]), state):
                    raise KeyServerDownError(
                        f"{', '.join(missed)}: does not answer: run again when it is back"
                    )
            return
        if self.heap is not None:
            self.heap.add(key_list(keys[behind]))
        end = 0
        for one in asked:
            begin, end = end, end + len(one.keys)
            its = (begin <= order) & (order < end)
            if len(rows := order[its & missing]):
                examples = ", ".join(one.name_of(row - begin) for row in rows[:EXAMPLES].tolist())
                problem = f"no key server knows the key {examples}"
                self.findings.add(one.name, one.where, problem, count=len(rows))
            if one.is_marked and len(rows := order[its & behind]):
                key = one.name_of(int(rows[0]) - begin)
                problem = f"the key servers call {key} queued, and its page was crawled"
                self.findings.add(
                    "page_key_behind",
                    one.where,
                    problem,
                    severity=Severity.WARNING,
                    count=len(rows),
                )

    def _unheld(self, heap: KeyHeap) -> None:
        """Drop, or in a dry run count, the queued keys whose URLs no node holds."""
        with self._if_readable():
            hold_all(self.stores, self.nodes, heap)
        if self.report.unread:
            return
        scans = [server.scan(*_ALL) for server in self.store.servers]
        for keys in unheld_keys(scans, heap):
            if not self.report.reread:
                # Before any key is dropped: after a kill in between, the next walk finds the same keys.
                self.report.reread = list(self.nodes)
                if self.write:
                    for home in self.nodes.values():
                        take_all_in_again(self.stores, home)
                    reached("repair.rebuild.reread")
            self.report.dropped += self.store.forget(keys) if self.write else len(keys)
            examples = ", ".join(key.hex() for key in keys[:EXAMPLES])
            self.findings.add(
                "key_without_url",
                "key tables",
                f"{examples} is queued, but no queue, take or segment has the URL: links to the URL are dropped",
                repair=f"{REPAIR}, then `krake settle` to find the links of segments again",
                count=len(keys),
            )
        if self.write:
            reached("repair.rebuild.unheld")
