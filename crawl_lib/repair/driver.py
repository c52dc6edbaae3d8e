"""`krake fsck --repair`: what needs no choice, part by part, until a look finds nothing more to do.

No choice means: nothing that could hold a URL or a page is deleted or hidden, and nothing is marked known that might
not be; it may cost fetches, and how many at most is said first. In this order, since each part is read by the next:

1. key tables that are missing or broken are made, empty, and marked so (`keys.tables`);
2. folders: whose iteration, scope, index, seeds (`folders.folders`);
3. segments, from their WARC files; lost pages that are known by name are queued again (`segments.salvage`);
4. queues of this machine (`queue.node`); one that has to be judged by the key tables waits until these have all pages;
5. key tables, filled from all of it (`keys.fill`).

Then all of it again, at most three times. Locks are held from beginning to end, in one order: repairs of this machine,
then its nodes as the config names them. A node that somebody works on is left out, with its segments, and named. Killed
anywhere, it is run again: each part finds what it had begun. A dry run goes through the parts once and changes nothing.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from crawl_lib.crawldir import SegmentRef, unfilled
from crawl_lib.errors import DamagedFileError, KrakeError, LockedError, StoppedError
from crawl_lib.findings import Severity
from crawl_lib.frontier import NodeDirectory, Queue, finish_open_move, open_take
from crawl_lib.keys import check, open_key_store, repair
from crawl_lib.repair.folders.folders import repair_folder, repair_strays
from crawl_lib.repair.fsck import FsckReport, Look, held_nodes
from crawl_lib.repair.keys.fill import KeysReport, fill_keys
from crawl_lib.repair.keys.tables import make_tables
from crawl_lib.repair.places import repairs_locked
from crawl_lib.repair.queue.node import repair_node
from crawl_lib.repair.segments.lost import lost_and_not_queued, requeue_urls
from crawl_lib.repair.segments.salvage import salvage_segment
from crawl_lib.stores import Stores

ROUNDS = 3
MISMATCH = frozenset({"queue_rolled_back", "crawl_missing"})
"""Findings that make a node's directory one of another time, or another crawl: it is left as it is."""
CHOICES = MISMATCH | {"queue_missing", "take_folder_gone", "urls_lost"}
"""Findings of a node's directory that a repair of it does not cure."""
NOT_SALVAGED = frozenset({"dropped_damaged"})
REPLICAS = frozenset({"replica_missing", "replica_behind"})
FILLED = REPLICAS | {"page_key_unknown", "page_key_behind", "queued_key_unknown", "handed_key_unknown"}
DROPPED = frozenset({"key_without_url", "keyinfo_unknown", "urls_lost"})
INPUTS = {
    "folders": (),
    "segments": ("folders",),
    "queue": ("folders", "segments"),
    "keys": ("folders", "segments", "queue"),
}
"""What each part is made from."""
_LOOKS = {"folders": "folders", "segments": "segments", "queue": "queues"}


@dataclass
class RepairReport:
    """What was done, or would be, a line each, and what a look found after it.

    `fetches`: how many URLs may be fetched again, at most. `keys`: of the first fill of the key tables. `next`: what
    else to run.
    """

    dry_run: bool
    fetches: int = 0
    done: list[str] = field(default_factory=list)
    next: list[str] = field(default_factory=list)
    keys: KeysReport | None = None
    left: FsckReport = field(default_factory=lambda: FsckReport(full=True))

    def to_mapping(self) -> dict[str, Any]:
        """The form for `--json`."""
        return {**vars(self), "keys": vars(self.keys) if self.keys else None, "left": self.left.to_mapping()}


def repair_crawl(
    stores: Stores,
    *,
    only: str | None = None,
    full: bool = True,
    dry_run: bool = False,
    say: Callable[[str], None] = lambda text: None,
) -> RepairReport:
    """Repair what needs no choice. `only`: one of `PARTS`; `full`: every byte is looked at; `say`: told each line.

    Raises DamagedFileError if what `only` is made from is damaged, LockedError while another repair is at work on this
    machine, StorageError, StoppedError.
    """
    report = RepairReport(dry_run)
    with (
        repairs_locked(stores, dry_run=dry_run),
        held_nodes(stores, "krake fsck --repair", make=True, dry_run=dry_run) as (nodes, at_work),
    ):
        driver = _Driver(stores, report, say, Look(stores, full, nodes, at_work))
        driver.run(only)
    report.left = driver.look.report
    report.left.full = full
    return report


class _Driver:
    def __init__(self, stores: Stores, report: RepairReport, say: Callable[[str], None], look: Look) -> None:
        self.stores, self.report, self.look = stores, report, look
        self._say = say
        self._failed: list[str] = []

    def run(self, only: str | None) -> None:
        if only is not None:
            self._require_whole(INPUTS[only])
        for _ in range(ROUNDS):
            before = len(self.report.done)
            self.look.report = FsckReport(self.look.full)
            self._failed = []
            if only in {None, "keys"}:
                self._tables()
            for part, act in (
                ("folders", self._folders),
                ("segments", self._segments),
                ("queue", self._queues),
                ("keys", self._keys),
            ):
                if only in {None, part}:
                    act()
            if len(self.report.done) == before or self.report.dry_run:
                break
        if only is None:
            self.look.others()
            self.look.exports()
        self.look.report.skipped += self._failed

    def _require_whole(self, parts: tuple[str, ...]) -> None:
        for look in [getattr(self.look, _LOOKS[part]) for part in parts]:
            look()
        for finding in self.look.report.findings:
            if finding.severity is Severity.ERROR and finding.name not in CHOICES:
                problem = finding.problem.partition("; run `")[0]
                raise DamagedFileError(f"{finding.where}: {problem}; this comes first: run `krake fsck --repair`")

    def say(self, line: str) -> None:
        """Note something that is done, or would be."""
        self.report.done.append(line)
        self._say(f"would: {line}" if self.report.dry_run else line)

    @contextmanager
    def _left_to_people(self, where: str) -> Iterator[None]:
        """What cannot be repaired without a choice is named, and the rest goes on."""
        try:
            yield
        except StoppedError:
            raise
        except KrakeError as error:
            self._failed.append(f"{where}: {error}")

    def _may_cost(self, fetches: int, what: str) -> None:
        """Say, before something is done, how many URLs may be fetched again for it."""
        if fetches:
            self.report.fetches += fetches
            self._say(f"{what}: at most {fetches:,} URLs are fetched again")

    # Parts

    def _tables(self) -> None:
        with self._left_to_people("key tables"):
            make_tables(self.stores, full=self.look.full, say=self.say, dry_run=self.report.dry_run)

    def _folders(self) -> None:
        if not self.look.folders():
            return
        crawl, dry_run = self.stores.crawl, self.report.dry_run
        for name in [*(f"seeds/{digest}" for digest in crawl.seeds()), *crawl.folders()]:
            with self._left_to_people(crawl.at(name)):
                for line in repair_folder(self.stores, name, dry_run=dry_run).done:
                    self.say(line)
        for line in repair_strays(self.stores, self.look.nodes, dry_run=dry_run):
            self.say(line)

    def _segments(self) -> None:
        for text, found in self.look.segments().items():
            name = self.stores.crawl.segment_named(text)
            with self._left_to_people(name.path):
                if name.node in self.look.at_work:
                    if found:
                        raise LockedError(self.look.at_work[name.node])
                    continue
                if any(one.severity is Severity.ERROR and one.name not in NOT_SALVAGED for one in found):
                    self._salvage(name)
                if lost := lost_and_not_queued(self.stores, name):
                    self._may_cost(len(lost), name.path)
                    if not self.report.dry_run:
                        requeue_urls(self.stores, name, lost)
                    self.say(f"{name.path}: {len(lost)} lost pages are queued again")

    def _salvage(self, name: SegmentRef) -> None:
        planned = salvage_segment(self.stores, name, dry_run=True)
        path = name.path
        if planned.lost:
            self._say(f"{path}: {planned.lost:,} pages are lost, {planned.lost_named:,} of them are known by name")
        if self.report.dry_run:
            self._may_cost(planned.lost_named, path)
            self.say(f"{path}: made again from its WARC files: {planned.pages} pages")
            return
        done = salvage_segment(self.stores, name)
        self.say(f"{path}: made again from its WARC files: {done.pages} pages; the damaged one is {done.aside}")

    def _queues(self) -> None:
        for node, found in self.look.queues().items():
            names, directory = {one.name for one in found}, self.stores.node_dir(node)
            if names <= CHOICES or names & MISMATCH:
                continue
            with self._left_to_people(str(directory)):
                self._may_cost(self._taken(node), str(directory))
                for line in repair_node(self.stores, node, dry_run=self.report.dry_run).done:
                    self.say(f"{directory}: {line}")

    def _taken(self, node: str) -> int:
        """URLs of an open take, whose fetches may be lost."""
        try:
            take = open_take(self.stores.node_dir(node))
        except DamagedFileError:
            return 0
        return take.count if take is not None else 0

    def _keys(self) -> None:
        for node in () if self.report.dry_run else self.look.nodes:
            with suppress(KrakeError):  # a finding of the queue
                finish_open_move(Queue(self.stores.node_dir(node), node))  # else its URLs have no keys to be looked for
        found = {one.name for one in self.look.tables()}
        lost = [node for node in self.look.nodes if NodeDirectory(self.stores.node_dir(node)).lost.exists()]
        drop = bool(found & DROPPED or lost)
        if not (drop or found & FILLED or unfilled(self.stores.crawl)):
            return
        with self._left_to_people("key tables"):
            done = fill_keys(self.stores, self.look.nodes, drop_queued=drop, dry_run=self.report.dry_run)
            if self.report.keys is None:
                self.report.keys = done
            if done.changes or done.filled:
                self.say(f"key tables: {done.to_text()}")
            for text in done.unknown:
                self._failed.append(f"key tables: keys that nothing holds were left: {text}")
            for text in done.unread:
                self._failed.append(f"key tables: not filled from what cannot be read: {text}")
            if found & REPLICAS:
                self._replicas()
            self._tell_next(done)

    def _replicas(self) -> None:
        """What only some replicas know, and no page or queue says."""
        config, password = self.stores.config.key_storage, self.stores.secrets.key_storage_password
        with open_key_store(config, password) as store:
            done = (check if self.report.dry_run else repair)(store, work=self.stores)
        count = done.missing.total() + done.behind.total()
        if count:
            self.say(f"key tables: {count:,} keys were copied to replicas that lacked them")

    def _tell_next(self, done: KeysReport) -> None:
        """What else to run, as the last fill says."""
        if done.anew:
            nodes = ", ".join(done.anew)
            self.report.next.append(f"run `krake settle`: these nodes take in every segment again: {nodes}")
        if done.elsewhere and done.changes:
            words = "`krake settle --all-again`" if done.dropped else "`krake fsck --repair`"
            self.report.next.append(f"run {words} where these nodes are: {', '.join(done.elsewhere)}")
