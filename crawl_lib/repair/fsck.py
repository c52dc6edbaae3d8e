"""`krake fsck`: everything of a crawl that this machine can see, room by room. It changes nothing of the crawl.

Queues are those of the nodes on this machine; a node that somebody works on is skipped, and said to be. A node's queue
that is gone is missed where it has to be: where keys lie in files (there is no other machine), where the node's
directory is, on the machine of the node's name, and where the caller says so. Elsewhere it is skipped.

Where the queues of a crawl stand on several machines, a check that is told which of its nodes are here leaves a note of
the keys that they hold (`held.note_held`). Once every other node has one, the check compares the queued keys of the
whole crawl, wherever it runs.
"""

from __future__ import annotations

import socket
from collections.abc import Collection
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from crawl_lib.config import is_sqlite_server
from crawl_lib.crawldir import marked_nodes, read_mark, urls_of_lost_queue
from crawl_lib.errors import DamagedFileError, KrakeError, LockedError
from crawl_lib.export import check_export, list_exports
from crawl_lib.findings import Finding, Findings, Severity
from crawl_lib.frontier import NodeDirectory, Queue, held_without_trace
from crawl_lib.repair.folders.check import check_iteration, check_kept_scope, check_seeds, check_started
from crawl_lib.repair.folders.nodes import check_leftovers, check_lost, check_nodes
from crawl_lib.repair.keys.check import check_keys
from crawl_lib.repair.keys.held import nodes_unseen, note_held
from crawl_lib.repair.places import held_quietly
from crawl_lib.repair.queue.check import check_node
from crawl_lib.segment import check_segment
from crawl_lib.stopping import OnProgress
from crawl_lib.stores import Stores


@dataclass
class FsckReport:
    """What a check found. `checked`: how many of each room; `skipped`: what was not looked at, and why.

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
        return {
            "full": self.full,
            "clean": self.clean,
            "checked": self.checked,
            "skipped": self.skipped,
            "noted": self.noted,
            "findings": [finding.to_mapping() for finding in self.findings],
        }

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


def fsck(
    stores: Stores,
    *,
    full: bool = True,
    here: Collection[str] = (),
    dry_run: bool = False,
    on_progress: OnProgress | None = None,
) -> FsckReport:
    """Check a whole crawl. `full`: see the `fsck_*` modules. `here`: nodes whose queues have to be on this machine.

    Where there are other machines, a full check leaves a note of the keys that the nodes `here` hold.

    `dry_run`: nothing is noted; locks are held without a trace, so whoever waits for one is not told that this holds
    it.
    Raises StorageError where the file store itself fails.
    """
    host = socket.gethostname()
    check = _Fsck(stores, FsckReport(full), {*here, host, host.partition(".")[0]}, dry_run, on_progress)
    return check.run(() if dry_run or not full else here)


@dataclass
class _Fsck:
    stores: Stores
    report: FsckReport
    here: Collection[str]
    dry_run: bool
    on_progress: OnProgress | None

    def run(self, noting: Collection[str]) -> FsckReport:
        """Check everything. `noting`: nodes whose keys are noted."""
        full, told = self.report.full, self.on_progress
        with ExitStack() as locks:
            nodes = [node for node in self.stores.config.servers if self._hold(node, locks)]
            for node in nodes:
                self._add("queues", check_node(self.stores, node, full=full, on_progress=told))
            self._crawl_directory()
            self._add("queues", check_nodes(self.stores), 0)
            self._add("segments", check_lost(self.stores), 0)
            self._add("segments", check_leftovers(self.stores, nodes), 0)
            try:
                self._note(noting, nodes)
                found_of_keys = check_keys(self.stores, nodes, full=full, on_progress=told)
                self._add("key servers", found_of_keys.findings, found_of_keys.servers)
                self._add("queues noted elsewhere", [], found_of_keys.noted)
                self.report.skipped += found_of_keys.skipped
            except KrakeError as error:
                findings = Findings("keys", "do what it says, then run `krake fsck` again")
                findings.add("not_checked", "key_storage", str(error))
                self._add("key servers", findings.list(), 0)
        for name in list_exports(self.stores):
            self._add("exports", check_export(self.stores, name, full=full, on_progress=told))
        return self.report

    def _note(self, noting: Collection[str], nodes: Collection[str]) -> None:
        """Note the keys of nodes that the caller named, where checks on other machines may ask for them."""
        for node in noting if nodes_unseen(self.stores, nodes) else ():
            if node not in nodes:
                continue  # skipped already, or a finding
            if not NodeDirectory(self.stores.node_dir(node)).lock.exists():
                first = f"run `krake settle --node {node}` first"
                self.report.skipped.append(f"node {node}: its keys were not noted, since no task has used it: {first}")
                continue
            note_held(self.stores, node)
            self.report.noted.append(node)

    def _add(self, room: str, found: list[Finding], count: int = 1) -> None:
        self.report.findings += found
        if count:
            self.report.checked[room] = self.report.checked.get(room, 0) + count

    def _hold(self, node: str, locks: ExitStack) -> bool:
        """Take a node's lock, without waiting; False if its queue is not here, or somebody works on it."""
        directory = self.stores.node_dir(node)
        if not (directory.is_dir() and Queue(directory, node).stands()):
            self._missing_queue(node, directory)
            return False
        try:
            locks.enter_context(
                held_without_trace(directory, node) if self.dry_run else held_quietly(directory, node, "krake fsck")
            )
        except LockedError as error:
            self.report.skipped.append(f"node {node}: {error}")
            return False
        return True

    def _missing_queue(self, node: str, directory: Path) -> None:
        """A queue that was there is lost, or on another machine."""
        embedded = all(map(is_sqlite_server, self.stores.config.key_storage.servers))
        waited = urls_of_lost_queue(self.stores.crawl, node)
        if waited is None:
            used = f"; if that is here, run `krake settle --node {node}` first" if node in self.here else ""
            self.report.skipped.append(f"node {node}: its queue is not on this machine, or was not used yet{used}")
        elif embedded or directory.is_dir() or node in self.here:
            repair = (
                "put the directory, or queue.local_dir, back as it was; if it is lost, run"
                f" `krake queue repair --node {node} --lost`"
            )
            findings = Findings("queue", repair)
            findings.add("queue_missing", str(directory), f"holds no queue, and node {node} had one in this crawl")
            self._add("queues", findings.list())
        else:
            said = f" ({waited} URLs waited in it when it settled last)" if waited else ""
            self.report.skipped.append(
                f"node {node}: its queue{said} is not on this machine; run `krake fsck --node {node}` where it has to"
                " be"
            )

    def _crawl_directory(self) -> None:
        stores, full = self.stores, self.report.full
        for digest in stores.crawl.seeds():
            self._add("seeds", check_seeds(stores, digest, full=full))
        for node in marked_nodes(stores.crawl):
            try:
                read_mark(stores.crawl, node)
            except DamagedFileError as error:
                findings = Findings("queue", f"delete it, and run `krake settle --node {node}`")
                findings.add("mark_damaged", str(error).split(":")[0], str(error))
                self._add("queues", findings.list(), 0)
        self._add("iterations", check_kept_scope(stores), 0)
        self._add("iterations", check_started(stores), 0)
        for folder in stores.crawl.folders():
            self._add("iterations", check_iteration(stores, folder))
            for node in stores.crawl.folder(folder).segments():
                path = stores.crawl.segment(folder, node).path
                found = check_segment(stores.storage, path, full=full, on_progress=self.on_progress)
                self._add("segments", found)
