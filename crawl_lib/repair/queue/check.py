"""`krake fsck` of a node's directory: its queue, and what a killed task left open beside it. The caller holds the lock.

An open move, take or intake is no damage: the next task of the node goes on with it. What is checked is whether it
can. Fast: small files, sizes, numbers of lines. Full: also each line, and the records of a spool.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import TypeVar

from crawl_lib.crawldir import is_list_of_hosts
from crawl_lib.errors import DamagedFileError, KrakeError, QueueError, UrlError, os_errors
from crawl_lib.fetch import FILE_NAME as HOSTS_FILE
from crawl_lib.fetch import host_stores
from crawl_lib.frontier import (
    Journal,
    Move,
    NodeDirectory,
    Queue,
    Record,
    State,
    Take,
    count_lines,
    decode_line,
    decode_meta,
    differing_line,
    half_line_problem,
    impossible_steps,
    meta_digest,
    open_take,
    read_journal,
    read_leftover,
    read_move,
)
from crawl_lib.repair.findings import Finding, Findings
from crawl_lib.repair.queue.queue import lost_advice
from crawl_lib.repair.queue.rescue import read_lost, whole_line
from crawl_lib.segment import (
    MANIFEST_NAME,
    POSITIONS_SUFFIX,
    Manifest,
    Part,
    file_entry,
    list_parts,
    read_positions,
    walk,
)
from crawl_lib.stopping import OnProgress, until_stopped
from crawl_lib.urls import canonicalize

ROOM = "queue"
_T = TypeVar("_T")


def check_queue(
    directory: Path,
    node: str,
    *,
    full: bool = True,
    max_length_chars: int = 2000,
    spool: bool = True,
    on_progress: OnProgress | None = None,
) -> list[Finding]:
    """What is wrong with the directory of a node; nothing is changed.

    `max_length_chars`: `urls.max_length_chars`. `spool`: False if the segment of the open take stands already.

    Raises StorageError where the disk fails.
    """
    check = _Check(
        Queue(directory, node), Findings(ROOM, f"run `krake queue repair --node {node}`"), spool, on_progress
    )
    with os_errors(directory):
        check.run(full, max_length_chars)
    return check.findings.list()


@dataclass
class _Check:
    queue: Queue
    findings: Findings
    spool: bool
    on_progress: OnProgress | None

    def run(self, full: bool, max_length_chars: int) -> None:
        move = self._read("move_damaged", NodeDirectory.move, lambda: read_move(self.queue))
        record = self._read("record_damaged", NodeDirectory.record, self.queue.record)
        take = self._read("take_damaged", NodeDirectory.take, lambda: open_take(self.queue.directory))
        journal = self._read("intake_damaged", NodeDirectory.journal, lambda: read_journal(self.queue.directory))
        if move is not None:
            self._move(move)
        else:
            state = self._state(record)
            if take is not None and state is not None and record is not None:
                self._position(take, state, record, full=full)
            if state is not None and record is not None and full:
                self._offsets(state, record)
            self._intake(journal)
        if take is not None:
            self._take(take, max_length_chars if full else None)
        lost = self._read("lost_damaged", NodeDirectory.lost, lambda: read_lost(self.queue.directory))
        if lost:
            self.findings.add("urls_lost", str(self.queue.files.lost), "see there", repair=lost_advice(lost))
        self._lines_of_others()
        self._data_bases()
        if full and move is None and record is not None and not self.findings.list() and self.queue.is_ours():
            self._data_lines(record, max_length_chars)

    def _add(self, name: str, file: str, problem: object, count: int = 1) -> None:
        self.findings.add(name, str(self.queue.directory / file), str(problem), count=count)

    def _read(self, name: str, file: str, read: Callable[[], _T]) -> _T | None:
        """What a small file says; None, and a finding, if it cannot be read."""
        try:
            return read()
        except (DamagedFileError, QueueError, UnicodeDecodeError) as error:
            self._add(name, file, error)
            return None

    def _tell(self, file: str, done: int) -> None:
        if self.on_progress:
            self.on_progress({"checking": str(self.queue.directory / file), "done": done, "unit": "lines"})

    # Moves and state

    def _move(self, move: Move) -> None:
        """Each step can be done, or has been."""
        for problem in impossible_steps(self.queue, move):
            self._add("move_impossible", NodeDirectory.move, problem)

    def _state(self, record: Record | None) -> State | None:
        files = self.queue.data_files()
        if not self.queue.files.state.exists() and not any(self.queue.files.data(n).stat().st_size for n in files):
            return State()  # a node that has not been used yet
        try:
            state = self.queue.unchecked_state()
        except QueueError as error:
            self._add("state_damaged", NodeDirectory.state, error)
            return None
        if files != list(range(len(state.totals))):
            self._add("data_files", NodeDirectory.state, f"lists {len(state.totals)} data files, and there are {files}")
            return None
        metas = self.queue.own_metas() if record is not None else frozenset()
        for number, total in enumerate(state.totals):
            half = self.queue.half_line(number, record) if record is not None else None
            if half is not None:
                self._add("line_cut", str(number), half_line_problem(number, half))
            count = count_lines(self.queue.files.data(number))
            self._tell(str(number), count)
            if count != total:
                self._add("state_differs", str(number), f"has {count} URLs, and `state` says {total}")
            meta = self.queue.files.meta(number)
            if number in metas and meta.exists() and count_lines(meta) != count:
                self._add("meta_differs", meta.name, f"has {count_lines(meta)} lines for {count} URLs")
        return state

    def _offsets(self, state: State, record: Record) -> None:
        """The record says at which bytes of file 0 and of its meta the first line lies that is not processed."""
        if record.state_sha1 != state.sha1():
            return  # nobody looks at it
        for name, offset in (("0", record.offset), ("0.meta", record.meta_offset)):
            path = self.queue.directory / name
            if offset and path.exists() and lines_until(path, offset) != state.processed:
                self._add(
                    "record_damaged",
                    NodeDirectory.record,
                    f"says that `{name}` is read to byte {offset}; so many are not",
                )

    def _data_lines(self, record: Record, max_length_chars: int) -> None:
        """Lines of a queue that Krake wrote: canonical URLs, and their meta. One made by hand may say anything."""
        for number in sorted(self.queue.own_metas()):
            name, seen = str(number), 0
            with (self.queue.directory / name).open("rb") as file:
                for line in file:
                    seen += 1
                    if not _is_canonical(line[:-1], max_length_chars):
                        self._add("line_damaged", name, f"line {seen} is no canonical URL: {line[:100]!r}")
                    if seen % 10_000 == 0:
                        self._tell(name, seen)
            meta = f"{number}.meta"
            if (self.queue.directory / meta).exists():
                self._each_line("line_damaged", meta, lambda line: decode_meta(b"", line, ""))
            digest = record.metas[number] if number < len(record.metas) else ""
            if digest and not self.findings.list() and meta_digest(self.queue.directory / meta) != digest:
                self._add("meta_changed", meta, "is not what Krake wrote: what it says of some URLs is not so")

    def _each_line(self, name: str, file: str, read: Callable[[bytes], object]) -> None:
        path = self.queue.directory / file
        if not path.exists():
            return
        with path.open("rb") as lines:
            for number, line in enumerate(lines, 1):
                try:
                    read(whole_line(line))
                except (KrakeError, ValueError):
                    self._add(name, file, f"line {number} cannot be read: {line[:100]!r}")
                if number % 10_000 == 0:
                    self._tell(file, number)

    # Takes

    def _position(self, take: Take, state: State, record: Record, *, full: bool) -> None:
        if record.last_move == f"take-{take.take_id}":
            return
        if state != take.header.position_before:
            self._add("take_position", NodeDirectory.take, "begins where the queue does not stand")
        elif full:
            place = self._read("take_damaged", NodeDirectory.take, lambda: differing_line(take, self.queue, state))
            if place is not None:
                self._add(
                    "take_damaged", NodeDirectory.take, f"line {place + 2} has not the URL that the queue has there"
                )

    def _take(self, take: Take, max_length_chars: int | None) -> None:
        """Whether an open take can be fetched. `max_length_chars`: None for a fast check."""
        count = 0
        try:
            for count, taken in enumerate(take.urls(), 1):
                url = taken.queued.url.encode()
                if max_length_chars is not None and not _is_canonical(url, max_length_chars):
                    self._add(
                        "take_damaged", NodeDirectory.take, f"line {count + 1} has no canonical URL: {url[:100]!r}"
                    )
        except KrakeError as error:
            self._add("take_damaged", NodeDirectory.take, error)
            return
        leftover = self._read("leftover_damaged", NodeDirectory.leftover, lambda: read_leftover(take))
        if leftover and (leftover[-1] >= count or leftover[0] < 0):
            self._add("leftover_damaged", NodeDirectory.leftover, f"names position {leftover[-1]} of {count}")
        if self.spool:
            self._spool(count, max_length_chars is not None)

    def _spool(self, count: int, full: bool) -> None:
        """Closed parts are trusted when a segment is built, so they are whole; the open one is made again."""
        seen: Counter[int] = Counter()
        parts = list_parts(self.queue.files.spool)
        for part in parts:
            if part.is_closed:
                file = f"{NodeDirectory.spool}/{part.warc.name}"
                for problem in part_problems(part, full=full):
                    self._add("spool_damaged", file, problem)
                with suppress(KrakeError):
                    seen.update(read_positions(part.path(POSITIONS_SUFFIX)))
        for name, problem in spool_problems(self.queue.files, full=full):
            self._add("spool_damaged", f"{NodeDirectory.spool}/{name}", problem)
        wrong = [position for position, times in seen.items() if times > 1 or position >= count]
        if wrong:
            self._add(
                "spool_damaged", NodeDirectory.spool, f"position {wrong[0]} of {count} comes twice or late", len(wrong)
            )

    # Intakes, and what waits beside the queue

    def _intake(self, journal: Journal | None) -> None:
        new = self.queue.files.new
        if journal is None:
            if not self.queue.files.journal.exists() and new.exists() and new.stat().st_size:
                self._add(
                    "intake_missing", NodeDirectory.journal, f"is not there, and `new` has {count_lines(new)} URLs"
                )
            return
        for name, problem in journal.short_files(self.queue.directory):
            self._add("intake_short", name, problem)

    def _lines_of_others(self) -> None:
        for name, file in (
            ("undecided_damaged", NodeDirectory.undecided),
            ("handed_on_damaged", NodeDirectory.handed_on),
        ):
            self._each_line(name, file, decode_line)

        scope = self.queue.files.scope_added
        if scope.exists() and not is_list_of_hosts(scope.read_bytes()):
            self._add("scope_added_damaged", NodeDirectory.scope_added, "is no list of hosts")

    def _data_bases(self) -> None:
        found = [("hostcounts_damaged", path) for path in [self.queue.files.host_counts] if path.exists()]
        found += [("hosts_damaged", path) for path in host_stores(self.queue.directory)]
        for name, path in found:
            if problem := sqlite_problem(path):
                self._add(name, str(path.relative_to(self.queue.directory)), problem)


def spool_problems(files: NodeDirectory, *, full: bool) -> list[tuple[str, str]]:
    """What is wrong in a spool beside its parts, by name: both are made again once they are gone.

    The list of hosts that its workers follow links to; the segment that is built, and waits to be sent.
    """
    scope, built = files.spool_scope, files.spool_segment
    problems = []
    if scope.exists() and not is_list_of_hosts(scope.read_bytes()):
        problems.append((scope.name, "is no list of hosts"))
    if problem := _built_problem(built, full=full):
        problems.append((built.name, problem))
    return problems


def _built_problem(folder: Path, *, full: bool) -> str | None:
    """Why a segment that was built cannot be sent; None if it can, or is not built to its end."""
    path = folder / MANIFEST_NAME
    if not path.exists():
        return None
    try:
        manifest = Manifest.from_bytes(path.read_bytes(), str(path))
    except DamagedFileError as error:
        return str(error)
    for entry in manifest.files:
        file = folder / entry["name"]
        if not file.exists():  # sealed
            continue
        if file.stat().st_size != entry["size_bytes"] or (full and file_entry(file) != entry):
            return f"`{file.name}` is not what was built"
    return None


def part_problems(part: Part, *, full: bool, stop: Event | None = None) -> list[str]:
    """What is wrong with a closed part of a spool, in words; `full` reads all its files, unless `stop` is set."""
    problems = []
    try:
        pages = part.counts().pages
        positions = len(read_positions(part.path(POSITIONS_SUFFIX)))
        if pages != positions:
            problems.append(f"its part says {pages} pages, and names {positions} positions")
        if full:
            part.require_whole()
    except KrakeError as error:
        problems.append(str(error))
    if not part.warc.exists():
        if not part.is_freed:
            problems.append("its WARC file is gone")
    elif full:
        damage: Counter[str] = Counter()
        with part.warc.open("rb") as file:
            for _ in until_stopped(walk(file, damage), stop):
                pass
        problems += [f"its records end with {reason}" for reason in damage]
    return problems


def lines_until(path: Path, offset: int) -> int | None:
    """How many lines end before a byte of a file; None if it lies beyond the end, or within a line."""
    count, last, left = 0, b"\n", offset
    with path.open("rb") as file:
        while left and (block := file.read(min(left, 1 << 20))):
            count, last, left = count + block.count(b"\n"), block[-1:], left - len(block)
    return count if not left and last == b"\n" else None


_TABLES = {
    NodeDirectory.host_counts: {"hosts": "host, admitted", "applied": "move_id"},
    HOSTS_FILE: {
        "hosts": "host, last_end, delay_s",
        "robots": "authority, verdict, body, error, fetched, expires",
        "marks": "name, value",
    },
}
"""By file: its tables with their columns. A table that is not there is made by whoever writes first."""


def sqlite_problem(path: Path) -> str | None:
    """Why a SQLite file of a node's directory cannot be used, None if it can.

    The node's lock is held, so nobody writes; without a journal beside it, SQLite is to make none either.
    """
    how = "mode=ro" if path.with_name(f"{path.name}-wal").exists() else "immutable=1"
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?{how}", uri=True, timeout=1.0)) as base:
            answer = str(base.execute("PRAGMA quick_check(1)").fetchone()[0])
            standing = {name for (name,) in base.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
            for table in standing & _TABLES[path.name].keys():
                base.execute(f"SELECT {_TABLES[path.name][table]} FROM {table} LIMIT 1")
    except sqlite3.Error as error:
        return str(error)
    return None if answer == "ok" else answer


def _is_canonical(line: bytes, max_length_chars: int) -> bool:
    try:
        text = line.decode("ascii")
        return canonicalize(text, max_length_chars=max_length_chars) == text
    except (UnicodeDecodeError, UrlError):
        return False
