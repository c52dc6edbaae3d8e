"""`krake fsck`: everything of a crawl that this machine can see, room by room. It changes nothing.

Queues are those of the nodes on this machine; a node that somebody works on is skipped, and said to be.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from crawl_lib.crawl.commit import sum_counts
from crawl_lib.crawl.exports import list_exports
from crawl_lib.crawl.marks import marked_nodes, read_mark
from crawl_lib.crawl.places import (
    INDEX_FILE,
    MANIFEST_FILE,
    SCOPE_FILE,
    SEEDS_FOLDER,
    Iteration,
    list_folders,
    list_seeds,
    read_iteration,
    read_json,
    read_manifest,
    segments_of,
)
from crawl_lib.crawl.sources import OUTLINKS_FILE
from crawl_lib.errors import DamagedFileError, KrakeError, LockedError, PathNotFoundError, StorageError
from crawl_lib.frontier import NodeLock, part_mapping, read_outlinks, split_line
from crawl_lib.frontier.lock import LOCK_FILE
from crawl_lib.frontier.take import LEFTOVER_FILE, open_take, read_leftover
from crawl_lib.repair.findings import Finding, Findings, OnProgress, Severity
from crawl_lib.repair.fsck_export import check_export
from crawl_lib.repair.fsck_keys import check_keys
from crawl_lib.repair.fsck_queue import check_queue
from crawl_lib.repair.fsck_segment import check_segment
from crawl_lib.repair.swap import DAMAGED_PREFIX, open_swaps
from crawl_lib.stores import Stores

_HOST_LINE = re.compile(rb"[!-~]+\n")
_SCOPE_PARTS = (
    "all of `scope` in the iteration before, of `scope` in its seeds, of `scope_added` in the manifests since, and of"
    " the files in the crawl directory's `scope`"
)


@dataclass
class FsckReport:
    """What a check found. `checked`: how many of each room; `skipped`: what was not looked at, and why."""

    full: bool
    findings: list[Finding] = field(default_factory=list)
    checked: dict[str, int] = field(default_factory=dict)
    skipped: list[str] = field(default_factory=list)

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
            "findings": [finding.to_mapping() for finding in self.findings],
        }

    def to_text(self) -> str:
        """The report for people: a line a finding, then what was looked at."""
        lines = [finding.to_text() for finding in self.findings]
        lines += [f"skipped: {text}" for text in self.skipped]
        looked = ", ".join(f"{count} {room}" for room, count in self.checked.items())
        count = sum(finding.severity is not Severity.NOTE for finding in self.findings)
        verdict = "clean" if self.clean else f"{count} findings"
        lines.append(f"{verdict}: {looked}{'' if self.full else ' (sizes and counts only)'}")
        return "\n".join(lines)


def fsck(stores: Stores, *, full: bool = True, on_progress: OnProgress | None = None) -> FsckReport:
    """Check a whole crawl. `full`: see the `fsck_*` modules. Raises StorageError where the file store itself fails."""
    return _Fsck(stores, FsckReport(full), on_progress).run()


@dataclass
class _Fsck:
    stores: Stores
    report: FsckReport
    on_progress: OnProgress | None

    def run(self) -> FsckReport:
        full, told = self.report.full, self.on_progress
        with ExitStack() as locks:
            nodes = [node for node in self.stores.config.servers if self._hold(node, locks)]
            for node in nodes:
                longest = self.stores.config.urls.max_length_chars
                found = check_queue(
                    self.stores.node_dir(node),
                    node,
                    full=full,
                    max_length_chars=longest,
                    spool=not self._is_committed(node),
                    on_progress=told,
                )
                self._add("queues", found)
                self._add("queues", self._open_take(node), 0)
            self._crawl_directory()
            try:
                servers = len(self.stores.config.key_storage.servers)
                self._add("key servers", check_keys(self.stores, nodes, full=full, on_progress=told), servers)
            except KrakeError as error:
                findings = Findings("keys", "do what it says, then run `krake fsck` again")
                findings.add("not_checked", "key_storage", str(error))
                self._add("key servers", findings.list(), 0)
        for name in list_exports(self.stores):
            self._add("exports", check_export(self.stores, name, full=full, on_progress=told))
        return self.report

    def _add(self, room: str, found: list[Finding], count: int = 1) -> None:
        self.report.findings += found
        self.report.checked[room] = self.report.checked.get(room, 0) + count

    def _hold(self, node: str, locks: ExitStack) -> bool:
        """Take a node's lock, without waiting; False if its queue is not here, or somebody works on it."""
        directory = self.stores.node_dir(node)
        if not directory.is_dir():
            self.report.skipped.append(f"node {node}: its queue is not on this machine, or was not used yet")
            return False
        try:
            locks.enter_context(held_quietly(directory, node, "krake fsck"))
        except LockedError as error:
            self.report.skipped.append(f"node {node}: {error}")
            return False
        return True

    def _is_committed(self, node: str) -> bool:
        """Whether the segment of the open take stands, so that nobody reads its spool any more."""
        try:
            take = open_take(self.stores.node_dir(node))
        except DamagedFileError:
            return False
        return take is not None and self.stores.storage.exists(
            f"{self.stores.crawl_dir}/{take.header.folder}/{node}/{MANIFEST_FILE}"
        )

    def _open_take(self, node: str) -> list[Finding]:
        """An open take goes on only in the folder of its iteration; where its segment stands, `leftover` does too."""
        stores, directory = self.stores, self.stores.node_dir(node)
        findings = Findings("queue", f"run `krake queue repair --node {node}`")
        try:
            take = open_take(directory)
            if take is None:
                return []
            folder = f"{stores.crawl_dir}/{take.header.folder}"
            if not stores.storage.exists(folder):
                again = f"put the folder back, or delete {take.path}: its URLs are fetched again"
                findings.add(
                    "take_folder_gone", str(take.path), f"the folder of its iteration, {folder}, is gone", repair=again
                )
            elif read_leftover(take) is None and stores.storage.exists(f"{folder}/{node}"):
                problem = "is not there, and the segment of the take stands"
                findings.add("leftover_damaged", str(directory / LEFTOVER_FILE), problem)
        except DamagedFileError:
            return []  # a finding of the queue
        return findings.list()

    def _crawl_directory(self) -> None:
        stores, full = self.stores, self.report.full
        for digest in list_seeds(stores.storage, stores.crawl_dir):
            self._add("seeds", check_seeds(stores, digest, full=full))
        for node in marked_nodes(stores):
            try:
                read_mark(stores, node)
            except DamagedFileError as error:
                findings = Findings("queue", f"delete it, and run `krake settle --node {node}`")
                findings.add("mark_damaged", str(error).split(":")[0], str(error))
                self._add("queues", findings.list(), 0)
        self._add("iterations", check_scopes(stores), 0)
        for folder in list_folders(stores.storage, stores.crawl_dir):
            self._add("iterations", check_iteration(stores, folder))
            for node in segments_of(stores.storage, stores.crawl_dir, folder):
                path = f"{stores.crawl_dir}/{folder}/{node}"
                found = check_segment(stores.storage, path, full=full, on_progress=self.on_progress)
                self._add("segments", found)


@contextmanager
def held_quietly(directory: Path, node: str, what: str) -> Iterator[None]:
    """Hold a node's lock without waiting for it, and without making its file: a node that has none is at rest.

    Raises LockedError naming the holder.
    """
    if not (directory / LOCK_FILE).exists():
        yield
        return
    with NodeLock(directory, node, 0.0, what=what):
        yield


def check_seeds(stores: Stores, digest: str, *, full: bool = True) -> list[Finding]:
    """What is wrong with a folder of injected seeds."""
    path = f"{stores.crawl_dir}/{SEEDS_FOLDER}/{digest}"
    findings = Findings("segment", f"delete {path}, and inject the same seeds with the same --run-id again")
    try:
        manifest = read_json(stores.storage, f"{path}/{MANIFEST_FILE}")
        parts = {node: part_mapping(value, path) for node, value in manifest["outlinks"].items()}
        entry = stores.storage.stat(f"{path}/{OUTLINKS_FILE}")
        size = entry.size_bytes if entry else -1
        if size != sum(part.length for part in parts.values()):
            findings.add("seeds_damaged", f"{path}/{OUTLINKS_FILE}", f"has {size} bytes, its manifest says otherwise")
        elif full:
            _read_seeds(stores, path, parts)
        _read_scope(stores, path)
    except StorageError as error:
        if not isinstance(error, PathNotFoundError):
            raise
        findings.add("seeds_damaged", path, str(error))
    except (DamagedFileError, KeyError, AttributeError) as error:
        findings.add("seeds_damaged", path, str(error))
    return findings.list()


def _read_seeds(stores: Stores, path: str, parts: dict[str, Any]) -> None:
    where = f"{path}/{OUTLINKS_FILE}"
    for part in parts.values():
        for line in read_outlinks(stores.storage.open_read(where, part.offset, part.length), where, part.count):
            split_line(line, where)


def _read_scope(stores: Stores, path: str) -> set[str]:
    """The hosts of a folder's `scope`. Raises PathNotFoundError or DamagedFileError."""
    data = stores.storage.read_bytes(f"{path}/{SCOPE_FILE}")
    lines = data.splitlines(keepends=True)
    wrong = [line for line in lines if not _HOST_LINE.fullmatch(line)]
    if wrong:
        raise DamagedFileError(f"{path}/{SCOPE_FILE}: {wrong[0][:100]!r} is no line with a host")
    return {line[:-1].decode("ascii") for line in lines}


def check_scopes(stores: Stores) -> list[Finding]:
    """Whether each iteration's `scope` has the hosts of its seeds, and of the iteration before.

    What it lacks is out of the crawl for good: the next iteration takes its scope from there.
    """
    findings = Findings("segment", "")
    of_seeds: dict[str, set[str]] = {}
    for digest in list_seeds(stores.storage, stores.crawl_dir):
        with suppress(DamagedFileError, PathNotFoundError):  # findings of the seeds
            of_seeds[digest] = _read_scope(stores, f"{stores.crawl_dir}/{SEEDS_FOLDER}/{digest}")
    before: tuple[Iteration, set[str]] | None = None
    for folder in list_folders(stores.storage, stores.crawl_dir):
        path = f"{stores.crawl_dir}/{folder}"
        where = f"{path}/{SCOPE_FILE}"
        again = f"bring {where} back from a copy, or write it anew, a line a host and sorted: {_SCOPE_PARTS}"
        try:
            iteration = read_iteration(stores.storage, stores.crawl_dir, folder)
        except (DamagedFileError, PathNotFoundError):
            continue  # a finding of the iteration
        wanted = set[str]().union(*(of_seeds.get(digest, ()) for digest in iteration.seeds))
        if before is not None and _follows(iteration, before[0]):
            wanted |= before[1]
        try:
            hosts = _read_scope(stores, path)
        except (DamagedFileError, PathNotFoundError) as error:
            findings.add("scope_damaged", where, str(error), repair=again)
            hosts = set()
        else:
            lacks = sorted(wanted - hosts)
            if lacks:
                findings.add("scope_damaged", where, f"lacks {lacks[0]}", repair=again, count=len(lacks))
        before = iteration, hosts | wanted
    return findings.list()


def _follows(iteration: Iteration, before: Iteration) -> bool:
    """Whether an iteration was started when the one before stood; of two that raced, neither knew of the other."""
    return set(before.seeds) <= set(iteration.seeds) and set(before.summed) <= set(iteration.summed)


def check_iteration(stores: Stores, folder: str) -> list[Finding]:
    """What is wrong with the small files of an iteration's folder, and whether its index says what its segments say."""
    path = f"{stores.crawl_dir}/{folder}"
    findings = Findings("segment", f"bring {path}/iteration.json back from a copy, or move the folder away")
    try:
        read_iteration(stores.storage, stores.crawl_dir, folder)
    except (DamagedFileError, PathNotFoundError) as error:
        findings.add("iteration_damaged", f"{path}/iteration.json", str(error))
        return findings.list()
    for entry in stores.storage.list(path):
        if entry.name.startswith("agreed-"):
            try:
                read_json(stores.storage, f"{path}/{entry.name}")
            except DamagedFileError as error:
                findings.add("agreed_damaged", f"{path}/{entry.name}", str(error), repair="delete it")
    if _check_repairs(stores, path, folder, findings):
        return findings.list()  # the index and the segment in question may be anything meanwhile
    if not stores.storage.exists(f"{path}/{INDEX_FILE}"):
        return findings.list()  # not committed yet
    _check_index(stores, path, folder, findings)
    return findings.list()


def _check_repairs(stores: Stores, path: str, folder: str, findings: Findings) -> bool:
    """Whether a repair of a segment was stopped while it put the new one in place; damaged ones that are still kept."""
    aside = [entry.name for entry in stores.storage.list(path) if entry.name.startswith(DAMAGED_PREFIX)]
    try:
        swaps = open_swaps(stores.storage, path)
    except DamagedFileError as error:
        again = "delete it, and run `krake segment salvage` of that segment"
        findings.add("repair_damaged", path, str(error), repair=again)
        return True
    for swap in swaps:
        again = f"run `krake segment salvage {folder}/{swap.node}`, which goes on"
        findings.add("repair_open", f"{path}/{swap.node}", "a repair of it was stopped half-way", repair=again)
    for name in aside if not swaps else ():
        node = name.removeprefix(DAMAGED_PREFIX).rpartition("-")[0]
        if not stores.storage.exists(f"{path}/{node}"):
            again = f"rename it to {path}/{node}, and run `krake segment salvage {folder}/{node}`"
            findings.add(
                "segment_missing", f"{path}/{name}", "is a damaged segment, and no new one stands", repair=again
            )
    return bool(swaps)


def _check_index(stores: Stores, path: str, folder: str, findings: Findings) -> None:
    where = f"{path}/{INDEX_FILE}"
    again = f"delete {where}, and run the iteration's commit again (`krake crawl` with the run's --run-id)"
    try:
        index = read_json(stores.storage, where)
        counts, outlinks = index["counts"], index["outlinks"]
    except (DamagedFileError, KeyError) as error:
        findings.add("index_damaged", where, f"cannot be used: {error!r}", repair=again)
        return
    manifests = {}
    for node in segments_of(stores.storage, stores.crawl_dir, folder):
        try:
            manifests[node] = read_manifest(stores.storage, stores.crawl_dir, folder, node)
        except KrakeError:
            return  # a finding of the segment
    missing = sorted(outlinks.keys() - manifests.keys())
    if missing:
        # Deleting a settled folder by hand is allowed; half of one too, but it may have been an accident.
        findings.add(
            "segment_missing",
            path,
            f"the index names segments that are not there: {', '.join(missing)}",
            repair="bring them back from a copy; if they were deleted on purpose, delete the whole folder",
            severity=Severity.WARNING,
        )
        return
    try:
        ours = {node: manifests[node] for node in outlinks}
        sums = sum_counts([manifest["counts"] for manifest in ours.values()])
        differs = any(manifest["outlinks"] != outlinks[node] for node, manifest in ours.items())
    except TypeError as error:
        findings.add("index_damaged", where, f"cannot be compared: {error!r}", repair=again)
        return
    if differs or sums != counts:
        findings.add("index_differs", where, "does not say what the manifests of its segments say", repair=again)
