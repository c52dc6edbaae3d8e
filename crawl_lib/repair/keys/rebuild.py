"""`krake fsck --repair`: key tables from what is known for certain, never from links.

Sources, in this order: the pages of all committed segments, oldest first, so that the newest capture of a key decides
between CRAWLED and GONE; then, of the nodes of this machine, what their queues hold, an open take, URLs handed on, here
or on their way, and what an open intake has decided upon. Not known become: links, seeds and undecided URLs that no
intake has decided upon (they would be dropped as known), and pages that `krake forget` forgot.

With `drop_queued`, keys that are queued and whose URLs nothing holds are taken out, so that these are new when they are
found again; and, before that, the nodes of this machine forget what they have taken in, so that the next intake finds
them in the segments. What nothing holds is known where each node's queue is on this machine, or its keys are noted by
`krake fsck --node NODE` (`held`); else nothing is done.

Every statement may be repeated, and states only rise: killed anywhere, it is run again from the start.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from itertools import islice

from crawl_lib.crawldir import PAGES, delete_settled, mark_filled, note_command, read_settled, take_note_away, unfilled
from crawl_lib.durable import delete_durable, reached
from crawl_lib.errors import (
    DamagedFileError,
    KeyServerDownError,
    LockedError,
    PathNotFoundError,
    QueueError,
)
from crawl_lib.frontier import NodeDirectory, Queue, finish_open_move, open_take
from crawl_lib.keys import STATEMENT_KEYS, KeyServer, ShardedKeyStore, open_key_store
from crawl_lib.repair.keys.forgotten import Forgotten
from crawl_lib.repair.keys.held import (
    HIGHEST,
    LOWEST,
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
from crawl_lib.repair.queue.again import take_in_anew
from crawl_lib.states import KeyState
from crawl_lib.stores import Stores


@dataclass
class RebuildReport:
    """What a rebuild read and wrote.

    `pages`, `queued`: keys that were read. `added`: those of them that no server knew; `raised`: those whose state was
    lower. `dropped`: keys that were queued, and were taken out. `anew`: nodes that take in every segment again.
    `elsewhere`: nodes whose queues are not on this machine: run it there too. `unread`: what could not be read.
    `filled`: sources whose keys the tables lacked before. `unknown`: why no key was taken out,
    though that was asked for: it is not known which URLs other nodes hold. `has_dropped`: it was done.
    """

    dry_run: bool
    pages: int = 0
    queued: int = 0
    added: int = 0
    raised: int = 0
    dropped: int = 0
    anew: list[str] = field(default_factory=list)
    elsewhere: list[str] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)
    filled: list[str] = field(default_factory=list)
    unknown: str = ""
    has_dropped: bool = False

    @property
    def changes(self) -> int:
        """How many keys were changed, or would be."""
        return self.added + self.raised + self.dropped

    def to_text(self) -> str:
        """For people."""
        return (
            f"{self.added:,} keys of {self.pages:,} pages and {self.queued:,} queued URLs were missing,"
            f" {self.raised:,} in a lower state; {self.dropped:,} that nothing holds were taken out"
        )


def rebuild_keys(
    stores: Stores, nodes: Sequence[str], *, dry_run: bool = False, drop_queued: bool = False
) -> RebuildReport:
    """Fill the key tables. `drop_queued`: take out what is only queued and held by nothing, so that URLs that are in no
    queue any more are new when they are found again. `dry_run`: count only.

    `nodes`: those of this machine, whose locks the caller holds. A segment or a queue that cannot be read is left out,
    and named; then nothing is taken out. Raises LockedError naming which node of another machine somebody began to work
    on; KeyStoreError; DamagedFileError naming a note that cannot be read.
    """
    config = stores.config.key_storage
    with ExitStack() as stack:
        report = RebuildReport(dry_run)
        report.elsewhere = [node for node in stores.config.servers if not stores.node_dir(node).is_dir()]
        sight = look(stores, nodes)
        if drop_queued and sight.unknown:
            report.unknown, drop_queued = sight.refusal(), False
        store = stack.enter_context(open_key_store(config, stores.secrets.key_storage_password))
        heap = KeyHeap(lambda: stack.enter_context(scratch_room(stores, "rebuild"))) if drop_queued else None
        _Rebuild(stores, store, report, nodes, sight, heap=heap).run()
    return report


def take_all_in_again(stores: Stores, node: str) -> None:
    """Have a node's next intake read every segment: for URLs whose keys were taken out. The caller holds its lock."""
    with suppress(DamagedFileError):  # it says no more that the node has settled than none does
        mark = read_settled(stores.crawl, node)
        if mark is None or not mark.retired:
            delete_settled(stores.crawl, node)
    take_note_away(stores.crawl, node)
    take_in_anew(Queue(stores.node_dir(node), node))


class _Rebuild:
    def __init__(
        self,
        stores: Stores,
        store: ShardedKeyStore,
        report: RebuildReport,
        nodes: Sequence[str],
        sight: Sight,
        *,
        heap: KeyHeap | None,
    ) -> None:
        """`nodes`: those of this machine. `heap`: to find what nothing holds; None: not to be dropped."""
        self.stores, self.store, self.report, self.nodes, self._sight = stores, store, report, nodes, sight
        self._heap = heap
        self._empty = False
        self._lacking = unfilled(stores.crawl)

    def run(self) -> None:
        if self._heap is not None:
            self._hold_noted(self._heap)
        self._empty = self.report.dry_run and not self.store.exists()
        if not self.report.dry_run:
            self.store.require_ring()
        if self._heap is not None and not self._empty:
            for server in self.store.servers:
                self.report.dropped += self._drop_unknown(server)
            reached("repair.rebuild.dropped")
        self._pages()
        self._queues()
        if self._heap is not None and not self._empty and not self.report.unread:
            self._drop_unheld(self._heap)
            self.report.has_dropped = True
            if not self.report.dry_run:
                for node in self.nodes:
                    delete_durable(NodeDirectory(self.stores.node_dir(node)).lost)

    def _filled(self, name: str) -> None:
        if name in self._lacking:
            self.report.filled.append(name)
            if not self.report.dry_run:
                mark_filled(self.stores.crawl, name)

    def _take_in_anew(self) -> None:
        """Before any key is dropped: killed between, what nothing holds is found once more."""
        self.report.anew = list(self.nodes)
        for node in () if self.report.dry_run else self.nodes:
            take_all_in_again(self.stores, node)
        reached("repair.rebuild.anew")

    def _drop_unknown(self, server: KeyServer) -> int:
        """Delete the keys whose keyinfo is none of ours."""
        found, kept = 0, set(KeyState)
        rows = (key for key, keyinfo in server.scan(LOWEST, HIGHEST) if keyinfo not in kept)
        while keys := list(islice(rows, STATEMENT_KEYS)):
            found += len(keys)
            if not self.report.dry_run:
                server.delete(keys)
        return found

    def _hold_noted(self, heap: KeyHeap) -> None:
        """First: a note that is damaged is to be found before anything is changed."""
        try:
            hold_noted(self.stores, self._sight.notes, heap)
        except PathNotFoundError:
            self._refuse_if_began()
            raise

    def _refuse_if_began(self) -> None:
        """Raise LockedError if somebody began to work on a node elsewhere: its note does not say what it holds now."""
        if began := self._sight.began(self.stores):
            again = " and ".join(f"`{note_command(node)}`" for node in began)
            raise LockedError(
                f"somebody began to work on {', '.join(began)} meanwhile: when that is over, run {again} there, then"
                " this again"
            )

    def _drop_unheld(self, heap: KeyHeap) -> None:
        """Take out what is queued, and held by nothing."""
        hold_all(self.stores, self._sight.notes, heap)
        for keys in unheld_keys(self.store.servers, heap):
            self._refuse_if_began()  # these were read before: none was sent by a node whose note stands now
            if not self.report.anew:
                self._take_in_anew()
            self.report.dropped += len(keys) if self.report.dry_run else self.store.forget(keys)
        reached("repair.rebuild.unheld")

    def _pages(self) -> None:
        stores = self.stores
        forgotten = Forgotten(stores.storage, stores.crawl.path)
        for folder in stores.crawl.folders():
            for node in stores.crawl.folder(folder).segments():
                path = stores.crawl.segment(folder, node).path
                with self._if_readable():
                    for by_state in page_states(stores, path, forgotten):
                        for state, keys in by_state.items():
                            self.report.pages += len(keys)
                            self._write(keys, state, path)
            reached("repair.rebuild.folder")
        if not self.report.unread:
            self._filled(PAGES)

    @contextmanager
    def _if_readable(self) -> Iterator[None]:
        """What cannot be read is noted: it is repaired first, or people have to choose."""
        try:
            yield
        except (DamagedFileError, QueueError, PathNotFoundError) as error:
            self.report.unread.append(str(error))

    def _queues(self) -> None:
        """What waits: in the queues that are here, and on its way to nodes of which no other machine has more."""
        for node in self.nodes if self._sight.notes or self._sight.unknown else self.stores.config.servers:
            before = len(self.report.unread)
            with self._if_readable():
                if node in self.nodes:
                    self._queue(node)
                for urls in urls_on_their_way(self.stores, node):
                    self._write_queued(urls, f"outlinks for {node}")
            if len(self.report.unread) == before and node in self.nodes:
                self._filled(node)

    def _queue(self, node: str) -> None:
        directory = self.stores.node_dir(node)
        if not self.report.dry_run:
            finish_open_move(Queue(directory, node))
        for file, urls in queued_urls(self.stores, node):
            self._write_queued(urls, f"{directory}/{file}")
        take = open_take(directory)
        if take is not None:
            self._write([url.key for url in take.urls()], KeyState.QUEUED, str(take.path))
        reached("repair.rebuild.node")

    def _write_queued(self, urls: Iterable[bytes], where: str) -> None:
        keys = keys_of(urls)
        self.report.queued += len(keys)
        self._write(keys, KeyState.QUEUED, where)

    def _write(self, keys: Sequence[bytes], state: KeyState, where: str) -> None:
        """Add keys, or raise them; count how many needed it."""
        known = dict.fromkeys(keys) if self._empty else self.store.states(keys)
        self.report.added += sum(1 for before in known.values() if before is None)
        raised = [key for key, before in known.items() if before is not None and before < state]
        self.report.raised += len(raised)
        if not self.report.dry_run:
            missed = self.store.set_state(keys, state).missed
            if missed:
                raise KeyServerDownError(f"{', '.join(missed)}: does not answer: run again when it is back")
        elif self._heap is not None:
            self._heap.add(raised)
        done = self.report.pages + self.report.queued
        self.stores.report(checking=f"keys of {where}", done=done, unit="keys")
