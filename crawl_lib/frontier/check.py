"""`krake fsck` of a node's directory: its queue, and what a killed task left open beside it. The caller holds the lock.

An open move, take or intake is no damage: the next task of the node goes on with it. What is checked is whether it
can. Fast: small files, sizes, numbers of lines. Full: also each line, and the records of a spool.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from crawl_lib.durable import reached, write_durable
from crawl_lib.errors import DamagedFileError, KrakeError, QueueError, UrlError, os_errors
from crawl_lib.findings import Finding, Findings, sqlite_problem
from crawl_lib.frontier.directory import NodeDirectory
from crawl_lib.frontier.hostcounts import COUNTS_TABLES
from crawl_lib.frontier.journal import Journal, read_journal
from crawl_lib.frontier.move import Move, impossible_steps, read_move
from crawl_lib.frontier.outlinks import decode_line, decode_meta
from crawl_lib.frontier.queue import NOT_BELIEVED, Queue, State, count_lines, half_line_problem
from crawl_lib.frontier.record import Record, digest_of
from crawl_lib.frontier.take import Take, differing_line, open_take, read_leftover
from crawl_lib.stopping import OnProgress
from crawl_lib.urls import canonicalize, is_list_of_hosts

ROOM = "queue"
_T = TypeVar("_T")


def check_queue(
    directory: Path,
    node: str,
    *,
    full: bool = True,
    max_length_chars: int = 2000,
    on_progress: OnProgress | None = None,
) -> list[Finding]:
    """What is wrong with the directory of a node; nothing is changed.

    `max_length_chars`: `urls.max_length_chars`.

    Raises StorageError where the disk fails.
    """
    check = _Check(Queue(directory, node), Findings(ROOM, "run `krake fsck --repair`"), on_progress)
    with os_errors(directory):
        check.run(full, max_length_chars)
    return check.findings.list()


@dataclass
class _Check:
    queue: Queue
    findings: Findings
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
        self._host_counts()
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
        if record is not None and not state.is_believed(record):
            self._add("state_damaged", NodeDirectory.state, NOT_BELIEVED)
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
            said = record.datas[number] if number < len(record.datas) else ""
            if said and not self.findings.list() and digest_of(self.queue.files.data(number)) != said:
                self._add("data_changed", name, "is not what Krake wrote: a URL of it is another one")
            meta = f"{number}.meta"
            if (self.queue.directory / meta).exists():
                self._each_line("line_damaged", meta, lambda line: decode_meta(b"", line, ""))
            digest = record.metas[number] if number < len(record.metas) else ""
            if digest and not self.findings.list() and digest_of(self.queue.directory / meta) != digest:
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
        self._read("leftover_damaged", NodeDirectory.leftover, lambda: read_leftover(take))

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

    def _host_counts(self) -> None:
        path = self.queue.files.host_counts
        if path.exists() and (problem := sqlite_problem(path, COUNTS_TABLES)):
            self._add("hostcounts_damaged", path.name, problem)


def lines_until(path: Path, offset: int) -> int | None:
    """How many lines end before a byte of a file; None if it lies beyond the end, or within a line."""
    count, last, left = 0, b"\n", offset
    with path.open("rb") as file:
        while left and (block := file.read(min(left, 1 << 20))):
            count, last, left = count + block.count(b"\n"), block[-1:], left - len(block)
    return count if not left and last == b"\n" else None


def _is_canonical(line: bytes, max_length_chars: int) -> bool:
    try:
        text = line.decode("ascii")
        return canonicalize(text, max_length_chars=max_length_chars) == text
    except (UnicodeDecodeError, UrlError):
        return False


def lost_advice(count: int) -> str:
    """What to do about URLs that are gone."""
    return (
        f"{count} URLs are in no file of this node any more, and their keys may be known: run"
        " `krake fsck --repair` (where queues are on several machines, after `krake fsck --node NODE` on"
        " each), then `krake settle`: they are found again in the segments, all of which are taken in anew"
    )


def read_lost(directory: Path) -> int:
    """How many URLs an earlier repair found gone, and nobody has looked for yet. Raises DamagedFileError."""
    path = NodeDirectory(directory).lost
    try:
        return int(path.read_bytes()) if path.exists() else 0
    except ValueError as error:
        raise DamagedFileError(f"{path}: is no number: {error}") from error


def note_lost(queue: Queue, count: int) -> None:
    """Write down that more URLs are gone."""
    try:
        before = read_lost(queue.directory)
    except DamagedFileError:
        before = 0
    write_durable(queue.files.lost, b"%d\n" % (before + count))
    reached("repair.queue.lost")


def whole_line(line: bytes) -> bytes:
    """A line of a file that Krake wrote, without its newline. Raises ValueError if it has none: it was cut."""
    if not line.endswith(b"\n"):
        raise ValueError("was cut")
    return line[:-1]
