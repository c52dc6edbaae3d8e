"""`krake fsck`: checks all parts of a crawl that this machine can see; `--repair` repairs damage without a choice.

A check changes nothing of the crawl. The queues are those of this machine's nodes; a node at work is skipped and named,
in a repair together with its segments. A missing queue is a finding if it has to be here: if keys lie in files (there
is no other machine), if the node's directory exists, and on the machine of the node's name. The queued keys are
compared with the waiting URLs only if all queues are on this machine.

A repair deletes or hides nothing that could hold a URL or a page, and marks no doubtful URL as known. A repair may cost
fetches, whose greatest number is said first. The order, since each part reads the earlier parts:

1. missing or broken key tables are made, empty, and marked so (`keys.tables`);
2. folders: identity of iterations, scope, index, seeds (`folders.folders`);
3. segments, from their WARC files; lost pages with known names are queued again (`segments.salvage`);
4. queues of this machine (`queue.node`); a queue in need of the key tables waits until these have all pages;
5. key tables, filled from all these parts (`keys.fill`).

At the end damaged versions of outputs are set aside, so that earlier versions count.

Then all parts come again, at most three times. Locks are held from beginning to end, in one order: repairs of this
machine, then its nodes in the order of the config. After a kill anywhere, run the command again: each part finds its
begun work. A dry run goes through the parts once and changes nothing.
"""

import socket
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from crawl_lib.crawldir import SegmentRef, SettledNotes, Unfilled
from crawl_lib.derived import Output
from crawl_lib.durable import delete_durable
from crawl_lib.errors import (
    NOT_ABOUT_FILES,
    DamagedFileError,
    KrakeError,
    LockedError,
    PathNotFoundError,
    StoppedError,
)
from crawl_lib.findings import Finding, Findings, Severity
from crawl_lib.frontier import NodeDirectory, NodeHome, Take
from crawl_lib.keys import check, repair
from crawl_lib.outputs import OUTPUTS
from crawl_lib.repair.folders.folders import SmallFiles
from crawl_lib.repair.folders.identity import check_nodes
from crawl_lib.repair.keys.fill import KeysReport, check_keys, fill_keys
from crawl_lib.repair.keys.tables import make_tables
from crawl_lib.repair.places import nodes_held, repairs_locked
from crawl_lib.repair.queue.node import check_node, repair_node
from crawl_lib.repair.segments.known import lost_and_not_queued, requeue_urls
from crawl_lib.repair.segments.revisits import check_revisits
from crawl_lib.repair.segments.salvage import SalvageReport, salvage_segment
from crawl_lib.repair.sweep import check_leftovers
from crawl_lib.rounds import CrawlName
from crawl_lib.segment import check_segment
from crawl_lib.stores import Stores

ROUNDS = 3
MISMATCH = frozenset({"queue_rolled_back", "crawl_missing"})
"""Findings of a node's directory from another time, or of another crawl: the directory is left alone."""
CHOICES = MISMATCH | {"queue_missing", "retire_damaged", "take_folder_gone", "urls_lost"}
"""Findings of a node's directory that a repair of the directory does not cure."""
REPLICAS = frozenset({"replica_missing", "replica_behind"})
FILLED = REPLICAS | {
    "page_key_unknown",
    "page_key_behind",
    "queued_key_unknown",
    "handed_key_unknown",
}
DROPPED = frozenset({"key_without_url", "keyinfo_unknown", "urls_lost"})
INPUTS = {
    "folders": (),
    "segments": ("folders",),
    "queue": ("folders", "segments"),
    "keys": ("folders", "segments", "queue"),
}
"""The parts of a repair, in order, with the inputs of each part."""


@dataclass
class FsckReport:
    """The findings of a check, or the remaining findings after a repair.

    `checked`: the number of each kind; `skipped`: parts without a check or a repair, with the reason. Of a repair:
    `done`: finished or planned steps, a line each; `fetches`: the most URLs that may be fetched again; `keys`: of the
    first fill of the key tables; `next`: further commands to run.
    """

    full: bool
    findings: list[Finding] = field(default_factory=list)
    checked: dict[str, int] = field(default_factory=dict)
    skipped: list[str] = field(default_factory=list)
    done: list[str] = field(default_factory=list)
    fetches: int = 0
    keys: KeysReport | None = None
    next: list[str] = field(default_factory=list)

    @property
    def clean(self) -> bool:
        """Whether all checked parts are consistent.

        Notes do not count.
        """
        return all(finding.severity is Severity.NOTE for finding in self.findings)

    def to_text(self) -> str:
        """Return the report for people.

        The report has a line for each finding, the checked parts, and further commands.
        """
        lines = [finding.to_text() for finding in self.findings]
        lines += [f"skipped: {text}" for text in self.skipped]
        looked = ", ".join(f"{count} {room}" for room, count in self.checked.items())
        count = sum(finding.severity is not Severity.NOTE for finding in self.findings)
        verdict = "clean" if self.clean else f"{count} findings"
        lines.append(f"{verdict}: {looked}{'' if self.full else ' (sizes and counts only)'}")
        return "\n".join(lines + [f"next: {text}" for text in self.next])


def fsck(stores: Stores, *, full: bool = True, dry_run: bool = False) -> FsckReport:
    """Check a whole crawl.

    `full`: every byte is read, otherwise sizes and counts. `dry_run`: locks are held without a trace, so another
    process that waits for a lock does not see this process. Raises StorageError if the file store itself fails.
    """
    report = FsckReport(full)
    with nodes_held(stores, "krake fsck", dry_run=dry_run) as (nodes, at_work):
        look = _Pass(stores, report, nodes, at_work)
        look.queue()
        look.folders()
        look.segments()
        look.others()
        look.keys()
    look.outputs()
    return report


def repair_crawl(
    stores: Stores,
    *,
    only: str | None = None,
    full: bool = True,
    dry_run: bool = False,
    say: Callable[[str], None] = lambda text: None,
) -> FsckReport:
    """Repair all damage that needs no choice.

    `only`: a name in `PARTS`; `full`: every byte is read; `say`: called with each line. Raises ConfigError if a place
    is of another crawl, DamagedFileError if the inputs of `only` are damaged, LockedError during another repair on this
    machine, StorageError, StoppedError.
    """
    report = FsckReport(full)
    CrawlName(stores).require()
    with (
        repairs_locked(stores, dry_run=dry_run),
        nodes_held(stores, "krake fsck --repair", make=True, dry_run=dry_run) as (nodes, at_work),
    ):
        work = _Pass(stores, report, nodes, at_work)
        for part in INPUTS.get(only or "", ()):
            getattr(work, part)()
        for finding in report.findings:
            if finding.severity is Severity.ERROR and finding.name not in CHOICES:
                problem = finding.problem.partition("; run `")[0]
                raise DamagedFileError(
                    f"{finding.where}: {problem}; this comes first: run `krake fsck --repair`"
                )
        work.say, work.dry_run = say, dry_run
        for _ in range(ROUNDS):
            before = len(report.done)
            report.findings, report.checked, report.skipped = [], {}, []
            if only in {None, "keys"}:
                with work.left_to_people("key tables"):
                    make_tables(stores, full=full, say=work.did, dry_run=dry_run)
            for part in [part for part in INPUTS if only in {None, part}]:
                getattr(work, part)()
            if len(report.done) == before or dry_run:
                break
        if only is None:
            work.others()
            work.outputs()
    return report


class _Pass:
    """One pass through a crawl, part by part, which adds its findings to the report.

    `nodes`: the homes of this machine's nodes, by name. `at_work`: other nodes, with the reason. `say`: told each line
    of a repair; None: nothing is repaired. `dry_run`: of a repair.
    """

    def __init__(
        self,
        stores: Stores,
        report: FsckReport,
        nodes: Mapping[str, NodeHome],
        at_work: dict[str, str],
    ) -> None:
        self.stores, self.report, self.nodes, self.at_work = stores, report, nodes, at_work
        host = socket.gethostname()
        self.here = {host, host.partition(".")[0]}
        self.say: Callable[[str], None] | None = None
        self.dry_run = False

    # Reports

    def _add(self, room: str, found: list[Finding], count: int = 1) -> set[str]:
        """Note the findings of a check; return the names of the findings."""
        self.report.findings += found
        if count:
            self.report.checked[room] = self.report.checked.get(room, 0) + count
        return {one.name for one in found}

    def did(self, line: str) -> None:
        """Note a finished or planned step."""
        self.report.done.append(line)
        if self.say is not None:
            self.say(f"would: {line}" if self.dry_run else line)

    @contextmanager
    def left_to_people(self, where: str) -> Iterator[None]:
        """Report an error that needs a choice, and go on.

        Without a repair the error is raised: a failed check would otherwise call unread parts clean.
        """
        try:
            yield
        except StoppedError:
            raise
        except KrakeError as error:
            if self.say is None:
                raise
            self.report.skipped.append(f"{where}: {error}")

    def _may_cost(self, fetches: int, what: str) -> None:
        """Say, before a repair, how many URLs may be fetched again."""
        self.report.fetches += fetches
        if fetches and self.say is not None:
            self.say(f"{what}: at most {fetches:,} URLs are fetched again")

    # Parts

    def folders(self) -> None:
        """Check the small files of the crawl directory.

        These are injected seeds, lists, iterations, and files that outlive iterations.
        """
        crawl = self.stores.crawl
        files = SmallFiles(self.stores, self.did if self.say else None, dry_run=self.dry_run)
        files.shared(self.nodes)
        for name, kind in crawl.inbox.folders():
            with self.left_to_people(crawl.inbox.path(name, kind)):
                files.seeds(name, kind, full=self.report.full)
            self._add(kind, [])
        for folder in crawl.folders():
            with self.left_to_people(crawl.at(folder)):
                files.iteration(folder)
            self._add("iterations", [])
        self._add("", files.findings.list(), 0)

    def segments(self) -> None:
        """Check all segments, and the pages lost in salvages."""
        for name in self.stores.crawl.segments():
            found = check_segment(
                self.stores.storage, name.path, full=self.report.full, work=self.stores
            )
            if lost := lost_and_not_queued(self.stores, name):
                problem = f"{lost[0].url} was crawled, and a salvage could not bring it back"
                again, note = "run `krake fsck --repair`, and they are crawled again", Severity.NOTE
                found.append(
                    Finding("segment", "pages_lost", name.path, problem, again, note, len(lost))
                )
            self._add("segments", found)
            if self.say is None or not found:
                continue
            with self.left_to_people(name.path):
                if name.node in self.at_work:
                    raise LockedError(self.at_work[name.node])
                if any(
                    one.severity is Severity.ERROR and one.name != "dropped_damaged"
                    for one in found
                ):
                    self._salvage(name)
                if lost := lost_and_not_queued(self.stores, name):
                    self._may_cost(len(lost), name.path)
                    if not self.dry_run:
                        requeue_urls(self.stores, name, lost)
                    self.did(f"{name.path}: {len(lost)} lost pages are queued again")

    def _salvage(self, name: SegmentRef) -> None:
        def tell(plan: SalvageReport) -> None:
            known = len(plan.lost_urls)
            if plan.lost and self.say is not None:
                self.say(
                    f"{name.path}: {plan.lost:,} pages are lost, {known:,} of them are known by name"
                )
            if self.dry_run:
                self._may_cost(known, name.path)

        done = salvage_segment(self.stores, name, dry_run=self.dry_run, planned=tell)
        aside = f"; the damaged one is {done.aside}" if done.aside else ""
        self.did(f"{name.path}: made again from its WARC files: {done.pages} pages{aside}")

    def queue(self) -> None:
        """Check the directories of this machine's nodes."""
        for node in dict.fromkeys([*self.stores.config.servers, *self.nodes, *self.at_work]):
            directory = self.stores.node_dir(node)
            if node in self.at_work:
                self.report.skipped.append(f"node {node}: {self.at_work[node]}")
            elif node not in self.nodes:
                self._missing_queue(node)
            else:
                names = self._add(
                    "queues", check_node(self.stores, self.nodes[node], full=self.report.full)
                )
                if self.say is None or names <= CHOICES or names & MISMATCH:
                    continue
                with self.left_to_people(str(directory)):
                    take = Take.readable(directory)
                    self._may_cost(take.count if take is not None else 0, str(directory))
                    for line in repair_node(
                        self.stores, self.nodes[node], dry_run=self.dry_run
                    ).done:
                        self.did(f"{directory}: {line}")

    def _missing_queue(self, node: str) -> None:
        """Report a lost queue, or a queue on another machine."""
        directory = self.stores.node_dir(node)
        embedded = self.stores.config.key_storage.is_embedded
        waited = SettledNotes(self.stores.crawl, node).urls_of_lost_queue()
        if waited is None:
            used = (
                f"; if that is here, run `krake settle --node {node}` first"
                if node in self.here
                else ""
            )
            self.report.skipped.append(
                f"node {node}: its queue is not on this machine, or was not used yet{used}"
            )
        elif embedded or directory.is_dir() or node in self.here:
            again = (
                "put the directory, or queue.local_dir, back as it was; if it is lost, run"
                f" `krake nodes restart {node}`"
            )
            problem = f"holds no queue, and node {node} had one in this crawl"
            self._add(
                "queues", [Finding("queue", "queue_missing", str(directory), problem, again)], 0
            )
        else:
            said = f" ({waited} URLs waited in it when it settled last)" if waited else ""
            self.report.skipped.append(
                f"node {node}: its queue{said} is not on this machine; `krake settle --node {node}` on"
                " its machine refuses to run if the queue is missing"
            )

    def others(self) -> None:
        """Report nodes that left, and files of killed attempts.

        No part repairs these.
        """
        found = check_nodes(self.stores) + check_leftovers(self.stores, self.nodes)
        self._add("queues", found, 0)
        with suppress(DamagedFileError, PathNotFoundError):  # a finding of the segment
            self._add("segments", check_revisits(self.stores) if self.report.full else [], 0)

    def outputs(self) -> None:
        """Check all derived data.

        A repair sets damaged data aside if the data can be made again.
        """
        for output in OUTPUTS:
            found = output.check(self.stores, full=self.report.full)
            left = [one for one in found if self.say is None or not self._set_aside(output, one)]
            self._add(output.name, left, output.count(self.stores))

    def _set_aside(self, output: Output, finding: Finding) -> bool:
        """Set damaged data aside; return whether this repairs the finding."""
        done = output.set_aside(self.stores, finding, dry_run=self.dry_run)
        if done is not None:
            self.did(done)
        return done is not None and not self.dry_run

    def keys(self) -> None:
        """Check the key tables."""
        for home in self.nodes.values() if self.say and not self.dry_run else ():
            with suppress(KrakeError):  # a finding of the queue
                home.queue.finish_open_move()  # otherwise URLs of the move have no keys to look for
        names = self._look_at_tables()
        lost = [
            node for node in self.nodes if NodeDirectory(self.stores.node_dir(node)).lost.exists()
        ]
        if not self.stores.config.order.keeps_keys:
            self._let_go(lost)
            return
        drop = bool(names & DROPPED or lost)
        if self.say is None or not (drop or names & FILLED or Unfilled(self.stores.crawl).names()):
            return
        with self.left_to_people("key tables"):
            if names & REPLICAS:
                self._replicas()  # first: a fill would write these keys too, without a word
            done = fill_keys(self.stores, self.nodes, drop_queued=drop, dry_run=self.dry_run)
            self.report.keys = self.report.keys or done
            if done.changes or done.filled:
                self.did(f"key tables: {done.to_text()}")
            for text in done.unknown:
                self.report.skipped.append(f"key tables: keys that nothing holds were left: {text}")
            for text in done.unread:
                self.report.skipped.append(
                    f"key tables: not filled from what cannot be read: {text}"
                )
            self._next(done, lost)

    def _next(self, done: KeysReport, lost: Collection[str]) -> None:
        """Say which commands complete a fill. `lost`: nodes that lost URLs."""
        texts = []
        if done.reread:
            nodes = ", ".join(done.reread)
            texts.append(f"run `krake settle`: these nodes take in every segment again: {nodes}")
        if done.elsewhere and done.changes:
            nodes = ", ".join(done.elsewhere)
            texts.append(f"run `krake fsck --repair` where these nodes are: {nodes}")
        if done.unknown:
            texts += [f"run `krake settle --all-again --node {node}`" for node in lost]
        self.report.next += [text for text in texts if text not in self.report.next]

    def _let_go(self, lost: Collection[str]) -> None:
        """Report URLs of damaged queues that the CrawlDb lists again.

        The CrawlDb lists such URLs when their lease is over.
        """
        for node in lost if self.say else ():
            self.did(
                f"{self.stores.node_dir(node)}: what it lost is listed again when its lease is over"
            )
            if not self.dry_run:
                delete_durable(NodeDirectory(self.stores.node_dir(node)).lost)

    def _look_at_tables(self) -> set[str]:
        try:
            found, report = check_keys(self.stores, self.nodes, full=self.report.full)
        except (StoppedError, *NOT_ABOUT_FILES):
            raise
        except KrakeError as error:
            findings = Findings("keys", "do what it says, then run `krake fsck` again")
            findings.add("not_checked", "key_storage", str(error))
            return self._add("key servers", findings.list(), 0)
        self.report.skipped += report.unknown
        return self._add("key servers", found, report.servers)

    def _replicas(self) -> None:
        """Check for keys that only some replicas have."""
        with self.stores.key_servers() as store:
            done = (check if self.dry_run else repair)(store, work=self.stores)
        if count := done.missing.total() + done.behind.total():
            self.did(f"key tables: {count:,} keys were copied to replicas that lacked them")
