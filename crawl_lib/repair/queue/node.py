"""A node's directory, together with the node's segments on the DFS: all damage and its repair, in one place.

1. The queue itself, by `frontier.check_queue` and `repair.queue.queue`.
2. The open take. An unreadable file is made again from the queue and the segment of the take; without a segment, the
   URLs are still in the queue and are fetched again.
3. `_Node.damages`: `leftover`, the spool, data bases.

A queue that is lost with its disk begins again, empty and without sources taken in: every URL that was ever sent to the
node is still in the folders of the senders, and queued keys without URLs are dropped (`keys.fill`, `keys.again`). URLs
that people put into the queue by hand are gone with the disk.

First of all, the node's note of being settled is deleted. Each step is repeatable, and the command may be stopped
anywhere (`Stores.stop`). `--dry-run` works on a copy, made of hard links: no file is written in place.
"""

import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from hashlib import sha1
from pathlib import Path
from typing import NamedTuple

import numpy as np

from crawl_lib.crawldir import SettledNotes, Unfilled
from crawl_lib.durable import delete_durable, reached, rename_durable
from crawl_lib.errors import (
    ConfigError,
    DamagedFileError,
    KeyStoreError,
    KeyTablesError,
    PathNotFoundError,
    os_errors,
)
from crawl_lib.fetch import HOSTS_TABLES, HostStore, host_store_file
from crawl_lib.findings import Finding, Findings, sqlite_problem
from crawl_lib.frontier import (
    NodeDirectory,
    NodeHome,
    NodeLock,
    Queue,
    Take,
    TakeHeader,
    check_queue,
    host_of_line,
)
from crawl_lib.keyarrays import Keys, is_among, key_array
from crawl_lib.node import mismatch, read_decision, taken_in_before
from crawl_lib.repair.queue.queue import ASKED, BROKEN, RepairReport, aside, repair_queue
from crawl_lib.segment import (
    HiddenFolder,
    Part,
    SegmentReader,
    Spool,
    built_problem,
)
from crawl_lib.states import KeyState
from crawl_lib.stores import Stores
from crawl_lib.urlfiles import some_lines

Cure = Callable[[str], None]
"""Repairs a damage, given the problem."""


def check_node(stores: Stores, home: NodeHome, *, full: bool = True) -> list[Finding]:
    """Return the damage of a node's directory; nothing is changed."""
    node, directory = home.node, home.directory
    found = check_queue(directory, node, full=full, on_progress=stores.on_progress)
    findings = Findings("queue", "run `krake fsck --repair`")
    if (older := mismatch(stores, home.queue)) is not None:
        findings.add(older.name, str(directory), older.problem, repair=older.remedy)
    try:
        read_decision(directory)
    except DamagedFileError as error:
        again = "delete it; a node that is to be retired is retired again"
        findings.add("retire_damaged", str(home.files.retire), str(error), repair=again)
    take = Take.readable(directory)
    if take is not None and not stores.storage.exists(
        folder := stores.crawl.at(take.header.folder)
    ):
        again = f"put the folder back, or move {take.path} and its spool away: its URLs are fetched again"
        problem = f"the folder of its iteration, {folder}, is gone"
        findings.add("take_folder_gone", str(take.path), problem, repair=again)
    for name, path, problem, _ in _Node(stores, home).damages(take, full=full):
        findings.add(name, str(path), problem)
    return found + findings.list()


def repair_node(stores: Stores, home: NodeHome, *, dry_run: bool = False) -> RepairReport:
    """Repair a node's directory. `dry_run`: only say the steps.

    Raises KeyTablesError if the key tables have to say which pages were crawled, and lack keys; StorageError;
    StoppedError once `stores.stop` is set.
    """
    stores.go_on()
    node, directory = home.node, home.directory
    with os_errors(directory):
        if not dry_run:
            SettledNotes(stores.crawl, node).unsettle()  # the next `settle` writes the note again
            return _Node(stores, home).repair()

        def link(source: str, target: str) -> None:
            """Link a file, or copy a data base, whose content changes in place."""
            stores.go_on()
            (shutil.copyfile if ".sqlite" in source else os.link)(source, target)

        shadow = directory.with_name(f".{node}.dry-run")
        shutil.rmtree(shadow, ignore_errors=True)
        try:
            shutil.copytree(directory, shadow, copy_function=link)
            report = _Node(stores, NodeHome(shadow, node, home.lock)).repair()
            report.done = [line.replace(str(shadow), str(directory)) for line in report.done]
            return report
        finally:
            shutil.rmtree(shadow, ignore_errors=True)


def restart_node(
    stores: Stores,
    node: str,
    *,
    dry_run: bool = False,
    on_wait: Callable[[str], None] | None = None,
) -> RepairReport:
    """Begin an empty queue for a node that lost its disk.

    Every URL sent to the node is found again. A restarted queue may be restarted again. Raises ConfigError if a queue
    is there, LockedError naming the holder.
    """
    directory = stores.node_dir(node)
    waited, lost = (
        SettledNotes(stores.crawl, node).urls_of_lost_queue() or 0,
        NodeDirectory(directory).lost,
    )
    if directory.is_dir() and Queue(directory, node).exists() and not lost.exists():
        raise ConfigError(
            f"{directory}: holds a queue, and this begins an empty one: move the directory away first"
        )
    if dry_run:
        return RepairReport(
            [f"queue: begins empty; {waited} URLs waited when it settled last"], lost=max(waited, 1)
        )
    NodeDirectory.make(directory.parent, node)
    timeout_s = stores.config.queue.lock_timeout_s
    with NodeLock(directory, node, timeout_s, what="krake nodes restart", on_wait=on_wait) as home:
        if not lost.exists():
            home.lost.note(max(waited, 1))
        report = repair_node(stores, home)
        report.lost = home.lost.count()
    return report


class QueueDamage(NamedTuple):
    """A damaged file. `name`: of the finding; `problem`: for people; `cure`: repairs the damage."""

    name: str
    path: Path
    problem: str
    cure: Cure


class _Node:
    """A node's directory. `report`: the work of its repair."""

    def __init__(self, stores: Stores, home: NodeHome) -> None:
        self.stores, self.home, self.node, self.directory = stores, home, home.node, home.directory
        self.queue, self.files = home.queue, home.files
        self.report = RepairReport()

    def repair(self) -> RepairReport:
        files = self.files
        had_take = files.take.exists() or any(self.directory.glob(f"{NodeDirectory.take}{BROKEN}*"))
        self.report = repair_queue(
            self.home,
            self._crawled,
            again=lambda: taken_in_before(self.stores, self.node),
            stop=self.stores.stop,
        )
        take = Take.open(self.directory) or (self._take_of_segment() if had_take else None)
        if (
            take is None and files.spool.exists() and had_take
        ):  # kept: somebody may want to import the records
            self._set_aside(files.spool, "has no take any more, and what it holds is fetched again")
        for damage in self.stores.until_stopped([*self.damages(take, full=True)]):
            damage.cure(damage.problem)
        return self.report

    def damages(self, take: Take | None, *, full: bool) -> Iterator[QueueDamage]:
        """Yield the damage of the directory."""
        files = self.files
        hosts = host_store_file(self.directory)
        if hosts.exists() and (problem := sqlite_problem(hosts, HOSTS_TABLES)):
            yield QueueDamage("hosts_damaged", hosts, problem, partial(self._begin_hosts, hosts))
        if problem := self.home.counts.problem():
            yield QueueDamage("hostcounts_damaged", files.host_counts, problem, self._count_hosts)
        if take is None:
            return
        segment = self._segment_of(take)
        try:
            if take.leftover() is None and segment is not None:
                problem = "is not there, and the segment of the take is"
                yield QueueDamage(
                    "leftover_damaged",
                    files.leftover,
                    problem,
                    partial(self._leftover, take, segment),
                )
        except DamagedFileError as error:
            yield QueueDamage(
                "leftover_damaged",
                files.leftover,
                str(error),
                partial(self._leftover, take, segment),
            )
        # Once the segment exists, no task reads the spool.
        if not self.stores.crawl.segment(take.header.folder, self.node).exists():
            yield from self._spool_damages(take, full=full)

    def _spool_damages(self, take: Take, *, full: bool) -> Iterator[QueueDamage]:
        files = self.files
        hidden = HiddenFolder.of_take(
            self.stores.storage,
            self.stores.crawl.at(take.header.folder),
            self.node,
            take.take_id,
        )
        for part, name, problem in hidden.damaged_parts(files.spool, full=full, work=self.stores):
            yield QueueDamage(name, part.warc, problem, partial(self._part, part))
        try:
            with suppress(FileNotFoundError):
                take.scope()
        except DamagedFileError as error:
            yield self._made_damage(files.spool_scope, str(error))
        if problem := built_problem(files.spool_segment, full=full):
            yield self._made_damage(files.spool_segment, problem)

    def _made_damage(self, path: Path, problem: str) -> QueueDamage:
        """Describe the damage of a spool's file that the next task makes again.

        The cure deletes the file.
        """
        return QueueDamage("spool_damaged", path, problem, partial(self._delete_made, path))

    def _say(self, text: str) -> None:
        self.report.done.append(text)

    def _set_aside(self, path: Path, problem: str) -> None:
        place = aside(path)
        rename_durable(path, place)
        reached("repair.queue.aside")
        self._say(
            f"{path.relative_to(self.directory)}: {problem}; it was set aside as {place.name}"
        )

    def _crawled(self, keys: Sequence[bytes]) -> set[bytes]:
        """Return which keys the tables call crawled or gone.

        If the tables do not answer, no key is returned. Raises KeyTablesError. A crawl with a CrawlDb returns no keys,
        since its tables have none.
        """
        if not self.stores.config.order.keeps_keys:
            return set()
        if Unfilled.PAGES in Unfilled(self.stores.crawl).names():
            raise KeyTablesError(
                f"{self.directory}: is repaired once the key tables have the keys of all pages"
            )
        try:
            with self.stores.key_servers() as store:
                states = store.states(keys)
        except KeyStoreError as error:
            self._say(f"the key tables cannot be asked what was crawled: {error}")
            return set()
        return {
            key
            for key, state in states.items()
            if state is not None and state is not KeyState.QUEUED
        }

    # Takes

    def _segments(self, folders: Sequence[str]) -> Iterator[SegmentReader]:
        """Yield the node's segments with readable manifests, in some folders."""
        for folder in self.stores.until_stopped(folders):
            reader = SegmentReader(
                self.stores.storage, self.stores.crawl.segment(folder, self.node).path
            )
            with suppress(PathNotFoundError, DamagedFileError):
                if reader.manifest:
                    yield reader

    def _segment_of(self, take: Take) -> SegmentReader | None:
        """Return the committed segment of a take."""
        segments = self._segments([take.header.folder])
        return next((one for one in segments if one.manifest.take_id == take.take_id), None)

    def _take_of_segment(self) -> Take | None:
        """Return the take of this node's newest segment.

        None: the queue has moved on. The URLs of the take are the next URLs of the queue.
        """
        segment = next(self._segments(self.stores.crawl.folders()[::-1]), None)
        if segment is None:
            return None
        manifest, rows = segment.manifest, self._page_keys(segment)
        record = self.queue.record()
        is_past = record.last_move == f"take-{manifest.take_id}" or int(record.took or 0) >= int(
            manifest.folder
        )
        if is_past or not len(rows):  # passing failures are in the queue again
            return None
        urls = (url for url, _ in self.stores.until_stopped(self.queue.lines(self.report.state)))
        taken, left = bytearray(), len(rows)
        for some in some_lines(urls, ASKED):
            keys = b"".join(sha1(url).digest() for url in some)
            found = is_among(np.frombuffer(keys, "S20"), rows)
            taken += found.tobytes()
            left -= int(found.sum())
            if left <= 0:
                break
        if left > 0:
            return None
        self._say(
            f"take {manifest.take_id}: made again from the queue and its segment {segment.path}"
        )
        delete_durable(self.files.leftover)  # with positions in the old take
        header = TakeHeader(
            manifest.take_id,
            manifest.run_id,
            manifest.iteration,
            manifest.folder,
            1,
            node=self.node,
        )
        return self.home.takes.take_lines(taken.rstrip(b"\0"), header)

    def _leftover(self, take: Take, segment: SegmentReader | None, problem: str) -> None:
        """Repair the leftover: URLs without a row in the take's segment."""
        if segment is None:
            self._set_aside(self.files.leftover, f"{problem}; fetching goes on, and decides again")
            return
        keys = b"".join(url.key for url in self.stores.until_stopped(take.urls()))
        missing = np.flatnonzero(
            ~is_among(np.frombuffer(keys, "S20"), self._page_keys(segment))
        ).tolist()
        self.home.takes.leave_over(take, missing)
        self._say(f"leftover: {len(missing)} URLs of the take have no row in its segment")

    def _page_keys(self, segment: SegmentReader) -> Keys:
        keys = bytearray()
        for batch in self.stores.until_stopped(segment.pages(["key"], with_dropped=True)):
            keys += b"".join(batch.column(0).to_pylist())  # type: ignore[arg-type]
        return key_array(keys)

    # Spools

    def _delete_made(self, path: Path, problem: str) -> None:
        """Delete a file or folder that the next task makes again."""
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)
        reached("repair.queue.made")
        self._say(f"{path.relative_to(self.directory)}: {problem}; it is made again")

    def _part(self, part: Part, problem: str) -> None:
        """Read a closed part again from its WARC file.

        If that fails, the part is set aside.
        """
        if self.files.spool_segment.exists():
            self._delete_made(self.files.spool_segment, "was made of a damaged part")
        # Fetching is not over any more: URLs of these parts are looked for again.
        delete_durable(self.files.leftover)
        reached("repair.queue.leftover")
        others = Spool(self.files.spool, part.stem.name.rpartition("-")[0]).parts()
        again = part.warc.exists() and all(other.is_closed for other in others)
        delete_durable(
            part.path(Part.CLOSED_SUFFIX)
        )  # first: the mark says that the rows are whole
        reached("repair.queue.reopened")
        if not again:
            delete_durable(part.path(Part.SEALED_SUFFIX))
            if part.warc.exists():
                rename_durable(
                    part.warc, aside(self.directory / part.warc.name)
                )  # the spool goes with its take
        part.discard_rows()
        what = (
            "its whole records are read again, what is missing"
            if again
            else "cannot be trusted; all of it"
        )
        self._say(f"{part.warc.name}: {what} is fetched again")

    # Data bases

    def _set_base_aside(self, path: Path, problem: str) -> None:
        for suffix in ("-journal", "-wal", "-shm"):
            delete_durable(path.with_name(path.name + suffix))
        self._set_aside(path, problem)

    def _begin_hosts(self, path: Path, problem: str) -> None:
        """Begin an empty host store.

        Times of requests and robots.txt are lost, so each host waits one delay first.
        """
        self._set_base_aside(path, problem)
        with HostStore(path.parent) as hosts:
            hosts.begin()  # without an end: the next task finds an unclean stop

    def _count_hosts(self, problem: str) -> None:
        """Count URLs by host again, from segments and queue.

        `urls.max_pages_per_host` needs these counts.
        """
        self._set_base_aside(self.files.host_counts, problem)
        counts: Counter[bytes] = Counter()
        for segment in self._segments(self.stores.crawl.folders()):
            for batch in self.stores.until_stopped(
                segment.pages(["url", "retry_at"], with_dropped=True)
            ):
                final = batch.filter(
                    batch.column(1).is_null()
                )  # other URLs wait in the queue, or have come again
                counts.update(
                    host_of_line(str(url).encode()) for url in final.column(0).to_pylist()
                )
        urls = (url for url, _ in self.stores.until_stopped(self.queue.lines(self.report.state)))
        counts.update(host_of_line(url) for url in urls if b"://" in url and url.isascii())
        self.home.counts.add("repair", counts.items)
        self._say(f"{counts.total()} URLs of {len(counts)} hosts were counted again")
