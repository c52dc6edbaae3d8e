"""What an open intake has decided so far: the files that are to join the queue, and the journal that speaks of them.

Each method that changes something is durable when it returns. The order of the steps is `intake`'s.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from hashlib import sha1

from crawl_lib.durable import fsync_file, reached, write_durable
from crawl_lib.errors import StorageError, os_errors
from crawl_lib.frontier.directory import NodeDirectory
from crawl_lib.frontier.hostcounts import host_of_line
from crawl_lib.frontier.journal import (
    CLAIM,
    INSERT,
    IntakeReport,
    Journal,
)
from crawl_lib.frontier.outlinks import split_line
from crawl_lib.frontier.queue import Queue
from crawl_lib.frontier.source import file_lines

Pair = tuple[str, str]
UNDECIDED: Pair = ("", "")
"""Stands in a plan for the file `undecided`."""


class Draft:
    """The files of an intake under way. `hosts`: how many URLs of each host are in `new`; `report`: counts so far."""

    def __init__(self, queue: Queue, journal: Journal) -> None:
        self.queue, self.journal = queue, journal
        self.report = IntakeReport.from_mapping(journal.report)
        self.hosts: Counter[bytes] = Counter()

    @classmethod
    def begin(cls, queue: Queue, waiting: Sequence[Pair]) -> Draft:
        """Begin anew, with empty files, and plan what is to be taken in: what was undecided first."""
        for name in (NodeDirectory.new, NodeDirectory.new_meta, NodeDirectory.new_undecided):
            write_durable((queue.directory / name), b"")
        plan = [UNDECIDED] if queue.files.undecided.exists() else []
        draft = cls(queue, Journal([*plan, *waiting]))
        draft.journal.write(queue.directory)
        reached("intake.planned")
        return draft

    @classmethod
    def go_on(cls, queue: Queue, journal: Journal) -> Draft:
        """Cut off what was written and not decided, and count the hosts of what is kept."""
        draft = cls(queue, journal)
        sizes = (journal.new_bytes, journal.meta_bytes, journal.undecided_bytes)
        for name, size in zip(
            (NodeDirectory.new, NodeDirectory.new_meta, NodeDirectory.new_undecided), sizes, strict=True
        ):
            path = queue.directory / name
            if not path.exists() or path.stat().st_size < size:
                raise queue.error(f"the intake's journal says `{name}` has {size} bytes, and it has fewer")
            with path.open("r+b") as file:
                file.truncate(size)
                fsync_file(file)
        draft.hosts.update(map(host_of_line, file_lines(queue.files.new)))
        return draft

    def replan(self, offered: Collection[Pair], waiting: Sequence[Pair]) -> None:
        """Drop planned sources that are not offered any more (they stay untaken), add those that wait and are new.

        Raises StorageError naming a source that is gone, and half taken in: the operator puts it back.
        """
        journal = self.journal
        begun = journal.plan[journal.at : journal.at + 1] if journal.line else []
        if begun and begun[0] not in offered:
            folder, node = begun[0]
            raise StorageError(
                f"{self.queue.directory}: half of {folder}/{node} was taken in, and it is not there now; put it back"
            )
        done = journal.plan[: journal.at]
        ahead = [pair for pair in journal.plan[journal.at :] if pair in offered]
        more = [pair for pair in waiting if pair not in {*done, *ahead}]
        if more or len(done) + len(ahead) < len(journal.plan):
            journal.plan = [*done, *ahead, *more]
            journal.write(self.queue.directory)

    def append(self, lines: Sequence[bytes]) -> list[bytes]:
        """Append URLs to `new`: once the journal says so, they are decided upon. Returns their keys."""
        pairs = [split_line(line) for line in lines]
        journal = self.journal
        journal.chunk_bytes = journal.new_bytes
        if pairs:
            journal.new_bytes += self._write(NodeDirectory.new, b"".join([b"%b\n" % url for url, _, _ in pairs]))
            journal.meta_bytes += self._write(
                NodeDirectory.new_meta, b"".join([b"%b\n" % meta for _, meta, _ in pairs])
            )
            self.hosts.update([host_of_line(url) for url, _, _ in pairs])
        journal.new_count += len(pairs)
        self.report.new += len(pairs)
        reached("intake.chunk.appended")
        self._note(INSERT)
        reached("intake.chunk.journalled")
        return [sha1(url).digest() for url, _, _ in pairs]

    def keys_of_chunk(self) -> list[bytes]:
        """The keys of what was appended last."""
        return [sha1(url).digest() for url in file_lines(self.queue.files.new, self.journal.chunk_bytes)]

    def add_undecided(self, lines: Sequence[bytes]) -> None:
        """Lines that the next intake asks about again; the journal of the chunk speaks of them."""
        if lines:
            self.journal.undecided_count += len(lines)
            self.journal.undecided_bytes += self._write(NodeDirectory.new_undecided, b"\n".join(lines) + b"\n")
            self.report.undecided += len(lines)

    def write_candidates(self, lines: Sequence[bytes]) -> None:
        """The candidates are durable, and the journal says that they may have been claimed, before they are."""
        write_durable(self.queue.files.new_claim, b"\n".join(lines) + b"\n")
        reached("intake.claim.written")
        self._note(CLAIM)
        reached("intake.claim.journalled")

    def candidates(self) -> list[bytes]:
        """What `write_candidates` wrote."""
        return [*file_lines(self.queue.files.new_claim)]

    def _note(self, phase: str) -> None:
        self.journal.phase = phase
        self.journal.report = self.report.to_mapping()
        self.journal.write(self.queue.directory)

    def _write(self, name: str, data: bytes) -> int:
        path = self.queue.directory / name
        with os_errors(path, "cannot be written"), path.open("ab") as file:
            file.write(data)
            fsync_file(file)
        return len(data)
