"""`krake fsck`: everything of a crawl that this machine can see, part by part. It changes nothing of the crawl.

Queues are those of the nodes on this machine; a node that somebody works on is skipped, and said to be. A node's queue
that is gone is missed where it has to be: where keys lie in files (there is no other machine), where the node's
directory is, on the machine of the node's name, and where the caller says so. Elsewhere it is skipped.

Where the queues of a crawl are on several machines, a check that is told which of its nodes are here leaves a note of
the keys that they hold (`held.note_held`). Once every other node has one, the check compares the queued keys of the
whole crawl, wherever it runs.
"""

import socket
from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

from crawl_lib.config import is_sqlite_server
from crawl_lib.crawldir import read_settled, settled_nodes, urls_of_lost_queue
from crawl_lib.errors import DamagedFileError, KrakeError, LockedError
from crawl_lib.export import check_export, list_exports
from crawl_lib.findings import Finding, Findings, Severity
from crawl_lib.frontier import NodeDirectory, NodeLock, Queue, held_without_trace
from crawl_lib.repair.folders.check import check_iteration, check_kept_scope, check_started
from crawl_lib.repair.folders.nodes import check_leftovers, check_lost, check_nodes
from crawl_lib.repair.keys.fill import check_keys
from crawl_lib.repair.keys.held import nodes_unseen, note_held
from crawl_lib.repair.queue.check import check_node
from crawl_lib.seeds import check_seeds
from crawl_lib.segment import check_segment
from crawl_lib.stores import Stores


@dataclass
class FsckReport:
    """What a check found. `checked`: how many of each kind; `skipped`: what was not looked at, and why.

    `noted`: nodes whose held keys it left a note of.
    """

    full: bool
    findings: list[Finding] = field(default_factory=list)
    checked: dict[str, int] = field(default_factory=dict)
    skipped: list[str] = field(default_factory=list)
    noted: list[str] = field(default_factory=list)

    @property
    def clean(self) -> bool:
        """Whether nothing is inconsistent in what was looked at; there may be notes."""
        return all(finding.severity is Severity.NOTE for finding in self.findings)

    def to_mapping(self) -> dict[str, Any]:
        """The form for `--json`."""
        return {**vars(self), "clean": self.clean, "findings": [finding.to_mapping() for finding in self.findings]}

    def to_text(self) -> str:
        """The report for people: a line a finding, then what was looked at."""
        lines = [finding.to_text() for finding in self.findings]
        lines += [f"skipped: {text}" for text in self.skipped]
        lines += [f"noted the keys of node {node} for checks on other machines" for node in self.noted]
        looked = ", ".join(f"{count} {room}" for room, count in self.checked.items())
        count = sum(finding.severity is not Severity.NOTE for finding in self.findings)
        verdict = "clean" if self.clean else f"{count} findings"
        lines.append(f"{verdict}: {looked}{'' if self.full else ' (sizes and counts only)'}")
        return "\n".join(lines)


def fsck(stores: Stores, *, full: bool = True, here: Collection[str] = (), dry_run: bool = False) -> FsckReport:
    """Check a whole crawl. `full`: every byte, else sizes and counts. `here`: nodes whose queues have to be here.

    Where there are other machines, a full check leaves a note of the keys that the nodes `here` hold.

    `dry_run`: nothing is noted; locks are held without a trace, so whoever waits for one is not told that this holds
    it.
    Raises StorageError where the file store itself fails.
    """
    with held_nodes(stores, "krake fsck", make=False, dry_run=dry_run) as (nodes, at_work):
        look = Look(stores, full, nodes, at_work, here)
        look.queues()
        look.folders()
        look.segments()
        look.others()
        look.tables(() if dry_run or not full else here)
    look.exports()
    return look.report


@contextmanager
def held_nodes(
    stores: Stores, what: str, *, make: bool, dry_run: bool = False
) -> Iterator[tuple[list[str], dict[str, str]]]:
    """Hold the nodes of this machine, in the config's order, without waiting: those, and who works on the others.

    `make`: also the lock of a node that has none; one that only looks leaves it, since such a node is at rest.
    """
    nodes, at_work = [], {}
    with ExitStack() as locks:
        for node in stores.config.servers:
            directory = stores.node_dir(node)
            if directory.is_dir() and Queue(directory, node).stands():
                try:
                    if dry_run:
                        locks.enter_context(held_without_trace(directory, node))
                    elif make or NodeDirectory(directory).lock.exists():
                        locks.enter_context(NodeLock(directory, node, 0.0, what=what))
                    nodes.append(node)
                except LockedError as error:
                    at_work[node] = str(error)
        yield nodes, at_work


class Look:
    """A look at a crawl, part by part; each part returns what it found, which `report` has too.

    `nodes`: of this machine, whose locks are held. `at_work`: those that are not, and why. `here`: see `fsck`.
    """

    def __init__(
        self, stores: Stores, full: bool, nodes: list[str], at_work: dict[str, str], here: Collection[str] = ()
    ) -> None:
        self.stores, self.full, self.nodes, self.at_work = stores, full, nodes, at_work
        host = socket.gethostname()
        self.here = {*here, host, host.partition(".")[0]}
        self.report = FsckReport(full)

    def queues(self) -> dict[str, list[Finding]]:
        """The directories of this machine's nodes, by node."""
        found: dict[str, list[Finding]] = {}
        for node in self.stores.config.servers:
            if node in self.nodes:
                one = check_node(self.stores, node, full=self.full)
                found[node] = self._add("queues", one)
            elif node in self.at_work:
                self.report.skipped.append(f"node {node}: {self.at_work[node]}")
            else:
                found[node] = self._add("queues", self._missing_queue(node), 0)
        return found

    def _missing_queue(self, node: str) -> list[Finding]:
        """A queue that was there is lost, or on another machine."""
        directory = self.stores.node_dir(node)
        embedded = all(map(is_sqlite_server, self.stores.config.key_storage.servers))
        waited = urls_of_lost_queue(self.stores.crawl, node)
        if waited is None:
            used = f"; if that is here, run `krake settle --node {node}` first" if node in self.here else ""
            self.report.skipped.append(f"node {node}: its queue is not on this machine, or was not used yet{used}")
        elif embedded or directory.is_dir() or node in self.here:
            findings = Findings(
                "queue",
                "put the directory, or queue.local_dir, back as it was; if it is lost, run"
                f" `krake nodes restart {node}`",
            )
            findings.add("queue_missing", str(directory), f"holds no queue, and node {node} had one in this crawl")
            return findings.list()
        else:
            said = f" ({waited} URLs waited in it when it settled last)" if waited else ""
            self.report.skipped.append(
                f"node {node}: its queue{said} is not on this machine; run `krake fsck --node {node}` where it has to"
                " be"
            )
        return []

    def folders(self) -> list[Finding]:
        """The small files of the crawl directory: injected seeds, marks, iterations."""
        stores, found = self.stores, []
        for digest in stores.crawl.seeds():
            found += self._add("seeds", check_seeds(stores.crawl, digest, full=self.full))
        for node in settled_nodes(stores.crawl):
            try:
                read_settled(stores.crawl, node)
            except DamagedFileError as error:
                again = f"krake settle --node {node}" if node in stores.config.servers else f"krake nodes retire {node}"
                findings = Findings("folder", f"delete it, and run `{again}`")
                findings.add("mark_damaged", str(error).split(":")[0], str(error))
                found += self._add("queues", findings.list(), 0)
        found += self._add("iterations", check_kept_scope(stores) + check_started(stores), 0)
        for folder in stores.crawl.folders():
            found += self._add("iterations", check_iteration(stores, folder))
        return found

    def segments(self) -> dict[str, list[Finding]]:
        """All segments, by their names."""
        found = {}
        for name in self.stores.crawl.segments():
            one = check_segment(self.stores.storage, name.path, full=self.full, work=self.stores)
            found[str(name)] = self._add("segments", one)
        return found

    def others(self) -> list[Finding]:
        """What no part repairs: nodes that left, lost pages, what killed attempts left."""
        found = check_nodes(self.stores) + check_lost(self.stores) + check_leftovers(self.stores, self.nodes)
        return self._add("queues", found, 0)

    def tables(self, noting: Collection[str] = ()) -> list[Finding]:
        """The key tables. `noting`: nodes whose keys are noted before."""
        try:
            self._note(noting)
            found, report = check_keys(self.stores, self.nodes, full=self.full)
        except KrakeError as error:
            findings = Findings("keys", "do what it says, then run `krake fsck` again")
            findings.add("not_checked", "key_storage", str(error))
            return self._add("key servers", findings.list(), 0)
        self._add("queues noted elsewhere", [], report.noted)
        self.report.skipped += report.unknown
        return self._add("key servers", found, report.servers)

    def exports(self) -> None:
        """All exports."""
        for name in list_exports(self.stores):
            one = check_export(self.stores, name, full=self.full)
            self._add("exports", one)

    def _note(self, noting: Collection[str]) -> None:
        """Note the keys of nodes that the caller named, where checks on other machines may ask for them."""
        for node in noting if nodes_unseen(self.stores, self.nodes) else ():
            if node not in self.nodes:
                continue  # skipped already, or a finding
            if not NodeDirectory(self.stores.node_dir(node)).lock.exists():
                first = f"run `krake settle --node {node}` first"
                self.report.skipped.append(f"node {node}: its keys were not noted, since no task has used it: {first}")
                continue
            note_held(self.stores, node)
            self.report.noted.append(node)

    def _add(self, room: str, found: list[Finding], count: int = 1) -> list[Finding]:
        self.report.findings += found
        if count:
            self.report.checked[room] = self.report.checked.get(room, 0) + count
        return found
