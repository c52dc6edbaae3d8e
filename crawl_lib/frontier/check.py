"""`krake fsck` of a node's directory: the queue, and open work of a killed task. The caller holds the lock.

An open move, take or intake is no damage: the next task of the node goes on with the work. The check asks whether the
task can. Fast: small files, sizes, numbers of lines. Full: also digests.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from crawl_lib.errors import DamagedFileError, KrakeError, QueueError, os_errors
from crawl_lib.findings import Finding, Findings
from crawl_lib.frontier.directory import META, NodeDirectory
from crawl_lib.frontier.journal import Journal
from crawl_lib.frontier.lost import LostUrls
from crawl_lib.frontier.move import Move, impossible_steps, is_there
from crawl_lib.frontier.queue import Queue, State, count_lines, lines_until
from crawl_lib.frontier.record import Record, digest_of
from crawl_lib.frontier.take import Take
from crawl_lib.stopping import OnProgress
from crawl_lib.urlfiles import ScopeFile, decode_line
from crawl_lib.urls import canonicalize

ROOM = "queue"
_T = TypeVar("_T")


def check_queue(
    directory: Path, node: str, *, full: bool = True, on_progress: OnProgress | None = None
) -> list[Finding]:
    """Check the directory of a node, and change nothing.

    Raises StorageError if the disk fails.
    """
    check = _QueueCheck(
        Queue(directory, node), Findings(ROOM, "run `krake fsck --repair`"), on_progress
    )
    with os_errors(directory):
        check.run(full)
    return check.findings.list()


@dataclass
class _QueueCheck:
    queue: Queue
    findings: Findings
    on_progress: OnProgress | None

    def run(self, full: bool) -> None:
        queue, directory = self.queue, self.queue.directory
        move = self._read("move_damaged", NodeDirectory.move, lambda: Move.read(queue.directory))
        record = self._read("record_damaged", NodeDirectory.record, queue.record)
        take = self._read("take_damaged", NodeDirectory.take, lambda: Take.open(directory))
        journal = self._read(
            "intake_damaged", NodeDirectory.journal, lambda: Journal.read(directory)
        )
        if take is not None:
            self._take(take)
        if move is not None:
            record = Record.from_mapping(move.record)
            for impossible in impossible_steps(queue, move):
                self._add("move_impossible", NodeDirectory.move, impossible)
        else:
            if queue.exists():
                self._state(record, take, full=full)
            self._intake(journal)
        lost = self._read("lost_damaged", NodeDirectory.lost, lambda: LostUrls(directory).count())
        if lost:
            self.findings.add(
                "urls_lost", str(queue.files.lost), "see there", repair=LostUrls.advice(lost)
            )
        self._lines_of_others()
        if full and record is not None and not self.findings.list():
            self._digests(record, move)

    def _add(self, name: str, file: str, problem: object) -> None:
        self.findings.add(name, str(self.queue.directory / file), str(problem))

    def _read(self, name: str, file: str, read: Callable[[], _T]) -> _T | None:
        """Read a small file.

        None: the file is unreadable, which is a finding.
        """
        try:
            return read()
        except (DamagedFileError, UnicodeDecodeError) as error:
            self._add(name, file, error)
            return None

    def _tell(self, file: str) -> None:
        if self.on_progress:
            self.on_progress({"checking": str(self.queue.directory / file)})

    def _state(self, known: Record | None, take: Take | None, *, full: bool) -> None:
        queue, record = self.queue, known or Record()
        try:
            state = queue.unchecked_state()
        except QueueError as error:
            self._add("state_damaged", NodeDirectory.state, error)
            return
        for finding in queue.problems(state, record):
            self._add(*finding)
        for number in queue.own_files(record, state):
            data, meta = queue.files.data(number), queue.files.meta(number)
            self._tell(meta.name)
            if meta.exists() and (lines := count_lines(meta)) != (count := count_lines(data)):
                self._add("meta_differs", meta.name, f"has {lines} lines for {count} URLs")
        if (
            take
            and record.last_move != f"take-{take.take_id}"
            and state != take.header.position_before
        ):
            self._add("take_position", NodeDirectory.take, "begins elsewhere than the queue")
        if full and record.state_sha1 == state.sha1():
            self._offsets(state, record)

    def _offsets(self, state: State, record: Record) -> None:
        """Check the byte offsets of the first unprocessed line.

        The record has them for file 0 and its meta.
        """
        for name, offset in (("0", record.offset), (f"0{META}", record.meta_offset)):
            path = self.queue.directory / name
            if offset and path.exists() and lines_until(path, offset) != state.processed:
                problem = f"says that `{name}` is read to byte {offset}; the file is shorter"
                self._add("record_damaged", NodeDirectory.record, problem)

    def _digests(self, record: Record, move: Move | None) -> None:
        """Compare the files that Krake wrote with the record.

        Files of an open move may have other names.
        """
        queue = self.queue
        begun = {step.target: step for group in move.groups for step in group} if move else {}
        state = queue.unchecked_state() if move is None and queue.files.state.exists() else None
        own = {str(number) for number in queue.own_files(record, state)}
        for name, digest in record.digests().items():
            step = begun.get(name)
            stem, _, meta = name.partition(".")
            if move is None and stem.isdigit() and stem not in own:
                continue  # people's
            self._tell(name)
            path = queue.directory / (step.name if step and is_there(queue, step) else name)
            if digest_of(path) != digest:
                finding = (
                    ("meta_changed" if meta else "data_changed")
                    if stem.isdigit()
                    else f"{name}_damaged"
                )
                self._add(
                    finding, name, "differs from Krake's file: some entries about URLs are wrong"
                )

    def _take(self, take: Take) -> None:
        """Check whether an open take can be fetched."""
        try:
            for _ in take.urls():
                pass
        except KrakeError as error:
            self._add("take_damaged", NodeDirectory.take, error)

    def _intake(self, journal: Journal | None) -> None:
        new = self.queue.files.new
        if journal is not None:
            for name, problem in journal.damaged_files(self.queue.directory):
                self._add("intake_short", name, problem)
        elif not self.queue.files.journal.exists() and new.exists() and new.stat().st_size:
            self._add(
                "intake_missing",
                NodeDirectory.journal,
                f"is not there, and `new` has {count_lines(new)} URLs",
            )

    def _lines_of_others(self) -> None:
        for name in (NodeDirectory.undecided, NodeDirectory.handed_on):
            for line in unreadable_lines(self.queue.directory / name):
                self._add(f"{name}_damaged", name, f"a line cannot be read: {line[:100]!r}")
        scope = self.queue.files.scope_added
        if scope.exists() and not ScopeFile.is_whole(scope.read_bytes()):
            self._add("scope_added_damaged", NodeDirectory.scope_added, "is no list of hosts")


def unreadable_lines(path: Path) -> Iterator[bytes]:
    """Yield the malformed or truncated lines of a file.

    The lines should be outlink lines.
    """
    if path.exists():
        with path.open("rb") as lines:
            yield from (line for line in lines if not is_readable(line))


def is_readable(line: bytes) -> bool:
    """Return whether a line is a complete outlink line.

    A complete line ends with a newline, and its URL is canonical.
    """
    try:
        url = decode_line(line[:-1])[0].url
        return line.endswith(b"\n") and canonicalize(url, max_length_chars=len(line)) == url
    except (KrakeError, ValueError):
        return False
