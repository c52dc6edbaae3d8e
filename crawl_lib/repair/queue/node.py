"""`krake fsck --repair`: a node's directory, with what its segments on the store know of it.

1. The queue itself (`repair.queue.queue`).
2. The open take. Where its file cannot be read and its segment stands, it is made again from the queue and the
   segment; where none stands, its URLs are still in the queue and are fetched again.
3. `leftover`. Where the segment stands, the URLs that have no row in it; else fetching goes on, and decides anew.
4. The spool: a closed part that cannot be trusted is made again from its WARC file, or set aside.
5. What is known of hosts, if it cannot be read: set aside. The counts of `urls.max_pages_per_host`: counted again
   from segments and queue.

A queue that is lost with its disk begins anew, empty and with nothing taken in: every URL that was ever sent to the
node still stands in the folders it was sent in, and the keys of those that are only queued are dropped by `krake keys
rebuild --drop-queued`. What only the disk held is gone: URLs that people put into the queue by hand.

Before all that, the node's mark on the store, which says that it is settled, and the note of its keys are taken away.
Each step may be done again, and the command may be stopped anywhere (`Stores.stop`). `--dry-run` does all of it to a
copy, made of hard links: nothing is written in place.
"""

import os
import shutil
import sqlite3
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from threading import Event

import numpy as np

from crawl_lib.crawldir import PAGES, delete_settled, read_settled, take_note_away, unfilled, urls_of_lost_queue
from crawl_lib.durable import delete_durable, reached, rename_durable
from crawl_lib.errors import ConfigError, DamagedFileError, KeyStoreError, KeyTablesError, PathNotFoundError, os_errors
from crawl_lib.fetch import HOSTS_TABLES, HostStore, host_stores
from crawl_lib.findings import sqlite_problem
from crawl_lib.frontier import (
    COUNTS_TABLES,
    HostCounts,
    NodeDirectory,
    NodeLock,
    Queue,
    QueueReader,
    Take,
    TakeHeader,
    TakenIn,
    host_of_line,
    note_lost,
    open_node_dir,
    open_take,
    read_leftover,
    read_lost,
    write_leftover,
    write_take,
)
from crawl_lib.keys import open_key_store
from crawl_lib.repair.keys.forgotten import Keys, is_among, key_array
from crawl_lib.repair.keys.held import keys_of
from crawl_lib.repair.queue.check import spool_problems
from crawl_lib.repair.queue.queue import RepairReport, repair_queue
from crawl_lib.repair.queue.rescue import BROKEN
from crawl_lib.rounds import SEEDS_NODE
from crawl_lib.segment import (
    CLOSED_SUFFIX,
    SEALED_SUFFIX,
    Manifest,
    Part,
    SegmentReader,
    damaged_parts,
    hidden_folder,
    list_parts,
)
from crawl_lib.states import KeyState
from crawl_lib.stopping import go_on, until_stopped
from crawl_lib.stores import Stores


def repair_node(stores: Stores, node: str, *, dry_run: bool = False) -> RepairReport:
    """Repair a node's directory, whose lock the caller holds. `dry_run`: say what would be done.

    Raises KeyTablesError where the key tables have to say what was crawled, and lack keys; StorageError; StoppedError
    once `stores.stop` is set.
    """
    stores.go_on()
    directory = stores.node_dir(node)
    with os_errors(directory):
        if not dry_run:
            _take_mark_away(stores, node)
            return _Repair(stores, node, directory).run()
        shadow = directory.with_name(f".{node}.dry-run")
        shutil.rmtree(shadow, ignore_errors=True)
        try:
            _link_tree(directory, shadow, stores.stop)
            report = _Repair(stores, node, shadow).run()
            report.done = [line.replace(str(shadow), str(directory)) for line in report.done]
            return report
        finally:
            shutil.rmtree(shadow, ignore_errors=True)


def restart_node(
    stores: Stores, node: str, *, dry_run: bool = False, on_wait: Callable[[str], None] | None = None
) -> RepairReport:
    """Begin an empty queue for a node whose own is gone with its disk: every URL that it was sent is found again.

    One that was begun so may be begun again. Raises ConfigError if a queue is there, LockedError naming the holder.
    """
    directory = stores.node_dir(node)
    waited, lost = urls_of_lost_queue(stores.crawl, node) or 0, NodeDirectory(directory).lost
    if directory.is_dir() and Queue(directory, node).stands() and not lost.exists():
        raise ConfigError(f"{directory}: holds a queue, and this begins an empty one: move the directory away first")
    if dry_run:
        return RepairReport([f"queue: begins empty; {waited} URLs waited when it settled last"], lost=max(waited, 1))
    open_node_dir(directory.parent, node)
    with NodeLock(directory, node, stores.config.queue.lock_timeout_s, what="krake nodes restart", on_wait=on_wait):
        if not lost.exists():
            note_lost(Queue(directory, node), max(waited, 1))
        report = repair_node(stores, node)
        report.lost = read_lost(directory)
    return report


def _taken_in_before(stores: Stores, node: str) -> TakenIn:
    """What a node had taken in, as its newest segment shows: all that stood before that iteration."""
    storage, crawl = stores.storage, stores.crawl
    folders = crawl.folders()
    own = next((folder for folder in reversed(folders) if storage.exists(f"{crawl.path}/{folder}/{node}")), None)
    if own is None:
        return TakenIn()
    older = [folder for folder in folders if int(folder) < int(own)]
    pairs = [(folder, found_by) for folder in older for found_by in crawl.folder(folder).segments()]
    with suppress(DamagedFileError, PathNotFoundError):
        pairs += [(digest, SEEDS_NODE) for digest in crawl.folder(own).iteration().seeds]
    return TakenIn().with_sources(pairs)


def _take_mark_away(stores: Stores, node: str) -> None:
    """The mark of a settled node says what its queue holds, which a repair may change. The next `settle` writes it.

    So does the note of the keys that it holds.
    """
    try:
        mark = read_settled(stores.crawl, node)
    except DamagedFileError:
        mark = None
    if mark is None or not mark.retired:
        delete_settled(stores.crawl, node)
    take_note_away(stores.crawl, node)


def _link_tree(source: Path, target: Path, stop: Event) -> None:
    """A copy of a directory whose files are the same files, but for data bases, which are written in place."""
    target.mkdir()
    for path in until_stopped(source.iterdir(), stop):
        if path.is_dir():
            _link_tree(path, target / path.name, stop)
        elif ".sqlite" in path.name:
            shutil.copyfile(path, target / path.name)
        else:
            os.link(path, target / path.name)


class _Repair:
    def __init__(self, stores: Stores, node: str, directory: Path) -> None:
        self.stores, self.node, self.directory = stores, node, directory
        self.queue = Queue(directory, node)
        self.report = RepairReport()

    def run(self) -> RepairReport:
        had_take = NodeDirectory(self.directory).take.exists()
        self.report = repair_queue(
            self.queue, self._crawled, again=lambda: _taken_in_before(self.stores, self.node), stop=self.stores.stop
        )
        take = open_take(self.directory)
        if take is None and (had_take or (self.directory / f"{NodeDirectory.take}{BROKEN}").exists()):
            take = self._take_of_segment()
        if take is None:
            self._drop_spool(had_take)
        else:
            self._leftover(take)
            if self._segment_of(take) is None:
                self._spool(take)
        go_on(self.stores.stop)
        self._hosts()
        self._host_counts()
        return self.report

    def _say(self, text: str) -> None:
        self.report.done.append(text)

    def _crawled(self, keys: Sequence[bytes]) -> set[bytes]:
        """Which keys the tables call crawled or gone; none where they cannot be asked. Raises KeyTablesError."""
        if PAGES in unfilled(self.stores.crawl):
            raise KeyTablesError(f"{self.directory}: is repaired once the key tables have the keys of all pages")
        config, password = self.stores.config.key_storage, self.stores.secrets.key_storage_password
        try:
            with open_key_store(config, password) as store:
                states = store.states(keys)
        except KeyStoreError as error:
            self._say(f"the key tables cannot be asked what was crawled: {error}")
            return set()
        return {key for key, state in states.items() if state is not None and state is not KeyState.QUEUED}

    # Takes

    def _manifest(self, folder: str) -> Manifest | None:
        try:
            return SegmentReader(self.stores.storage, self.stores.crawl.segment(folder, self.node).path).manifest
        except (PathNotFoundError, DamagedFileError):
            return None

    def _segment_of(self, take: Take) -> SegmentReader | None:
        """The committed segment of a take."""
        manifest = self._manifest(take.header.folder)
        if manifest is None or manifest.take_id != take.take_id:
            return None
        return SegmentReader(self.stores.storage, self.stores.crawl.segment(take.header.folder, self.node).path)

    def _take_of_segment(self) -> Take | None:
        """The take of this node's newest segment, if the queue has not moved on past it: its URLs are the next ones."""
        folders = self.stores.crawl.folders()
        for folder in until_stopped(reversed(folders), self.stores.stop):
            manifest = self._manifest(folder)
            if manifest is not None:
                return self._take_of(manifest)
        return None

    def _take_of(self, manifest: Manifest) -> Take | None:
        state, count = self.report.state, int(manifest.counts["taken"])
        if self.queue.record().last_move == f"take-{manifest.take_id}" or state.length < count:
            return None
        path = self.stores.crawl.segment(manifest.folder, self.node).path
        rows = self._page_keys(SegmentReader(self.stores.storage, path))
        header = TakeHeader(
            manifest.take_id,
            manifest.run_id,
            manifest.iteration,
            manifest.folder,
            self.node,
            1,
            state,
            state.after(count)[0],
            count,
        )
        lines, stop = QueueReader(self.queue, state).lines, self.stores.stop
        keys = key_array(b"".join(keys_of(url for url, _ in until_stopped(lines(count), stop))))
        if not len(rows) or not is_among(rows, keys).all():
            return None
        take = write_take(self.directory, header, until_stopped(lines(count), stop))
        self._say(f"take {take.take_id}: made again from the queue and its segment {path}")
        return take

    def _leftover(self, take: Take) -> None:
        try:
            leftover = read_leftover(take)
            problem = "is not there" if leftover is None else ""
        except DamagedFileError as error:
            problem = str(error)
        segment = self._segment_of(take)
        if segment is not None and problem:
            rows = self._page_keys(segment)
            urls = until_stopped(take.urls(), self.stores.stop)
            missing = [url.position for url in urls if not len(rows) or not _holds(rows, url.key)]
            write_leftover(take, missing)
            self._say(f"leftover: {len(missing)} URLs of the take have no row in its segment")
        elif problem and NodeDirectory(self.directory).leftover.exists():
            self._set_aside(NodeDirectory.leftover)
            self._say(f"leftover: {problem}; fetching goes on, and decides anew")

    def _page_keys(self, segment: SegmentReader) -> Keys:
        keys = bytearray()
        for batch in until_stopped(segment.pages(["key"], with_dropped=True), self.stores.stop):
            keys += b"".join(batch.column(0).to_pylist())  # type: ignore[arg-type]
        return key_array(keys)

    def _set_aside(self, name: str) -> None:
        rename_durable(self.directory / name, self.directory / (name + BROKEN))
        reached("repair.queue.aside")

    # Spools

    def _drop_spool(self, had_take: bool) -> None:
        """A spool without its take: its records are fetched again; they are kept for whoever wants to import them."""
        spool = NodeDirectory(self.directory).spool
        if spool.exists() and had_take:
            shutil.rmtree(self.directory / (NodeDirectory.spool + BROKEN), ignore_errors=True)
            self._set_aside(NodeDirectory.spool)
            self._say(
                f"{NodeDirectory.spool}: set aside as {NodeDirectory.spool}{BROKEN}; what it holds is fetched again"
            )

    def _spool(self, take: Take) -> None:
        spool, storage = NodeDirectory(self.directory).spool, self.stores.storage
        hidden = hidden_folder(self.stores.crawl.at(take.header.folder), self.node, take.take_id)
        damaged = [part for part, _, _ in damaged_parts(spool, storage, hidden, full=True, work=self.stores)]
        for name, problem in spool_problems(self.queue.files, full=True):
            self._delete_made(spool / name)
            self._say(f"{NodeDirectory.spool}/{name}: {problem}; it is made again")
        if not damaged:
            return
        self._delete_made(NodeDirectory(self.directory).spool_segment)
        # Fetching is not over any more: what these parts held is looked for again.
        delete_durable(NodeDirectory(self.directory).leftover)
        reached("repair.queue.leftover")
        for part in self.stores.until_stopped(damaged):
            self._part(part, spool)

    def _delete_made(self, path: Path) -> None:
        """Delete what the next task makes again."""
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)
        reached("repair.queue.made")

    def _part(self, part: Part, spool: Path) -> None:
        worker = part.stem.name.rpartition("-")[0]
        others_open = any(not other.is_closed for other in list_parts(spool, worker))
        if part.warc.exists() and not others_open:
            delete_durable(part.path(CLOSED_SUFFIX))  # first: what says that the rows are whole
            reached("repair.queue.reopened")
            part.discard_rows()
            self._say(f"{part.warc.name}: its whole records are read again, what is missing is fetched again")
            return
        for suffix in (CLOSED_SUFFIX, SEALED_SUFFIX):
            delete_durable(part.path(suffix))
        if part.warc.exists():
            rename_durable(part.warc, part.warc.with_name(part.warc.name + BROKEN))
        part.discard_rows()
        self._say(f"{part.warc.name}: cannot be trusted; all of it is fetched again")

    # Data bases

    def _useless_base(self, name: str, columns: Mapping[str, str]) -> str | None:
        """Set a data base that cannot be used aside; returns why."""
        path = self.directory / name
        problem = sqlite_problem(path, columns) if path.exists() else None
        if problem is not None:
            for suffix in ("-journal", "-wal", "-shm"):
                delete_durable(path.with_name(path.name + suffix))
            self._set_aside(name)
        return problem

    def _hosts(self) -> None:
        """When hosts were asked last, and their robots.txt: asked for again; each host waits one delay first."""
        for path in host_stores(self.directory):
            name = str(path.relative_to(self.directory))
            problem = self._useless_base(name, HOSTS_TABLES)
            if problem is not None:
                with HostStore(path.parent) as hosts:
                    hosts.begin()  # and no end: the next task finds an unclean stop
                self._say(f"{name}: {problem}; robots.txt is asked for again")

    def _host_counts(self) -> None:
        problem = self._useless_base(NodeDirectory.host_counts, COUNTS_TABLES)
        if problem is None:
            return
        counts = self._counted_hosts()
        HostCounts(self.directory).add("repair", counts.items)
        self._say(
            f"{NodeDirectory.host_counts}: {problem}; {sum(counts.values())} URLs of {len(counts)} hosts were counted"
            " again"
        )

    def _counted_hosts(self) -> Counter[bytes]:
        counts: Counter[bytes] = Counter()
        stop = self.stores.stop
        for folder in until_stopped(self.stores.crawl.folders(), stop):
            if self._manifest(folder) is not None:
                reader = SegmentReader(self.stores.storage, self.stores.crawl.segment(folder, self.node).path)
                for batch in until_stopped(reader.pages(["url"], with_dropped=True), stop):
                    counts.update(host_of_line(str(url).encode()) for url in batch.column(0).to_pylist())
        with suppress(IndexError, sqlite3.Error):
            lines = until_stopped(QueueReader(self.queue, self.report.state).lines(), stop)
            counts.update(host_of_line(url) for url, _ in lines)
        return counts


def _holds(keys: Keys, key: bytes) -> bool:
    wanted = np.frombuffer(key, "S20")[0]
    place = int(np.searchsorted(keys, wanted))
    return place < len(keys) and bool(keys[place] == wanted)
