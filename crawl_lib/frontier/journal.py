"""An intake under way: the files that are to join the queue, and the journal that says how far it got.

Each method of `Draft` that changes something is durable when it returns. The order of the steps is `intake`'s.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields, replace
from hashlib import sha1
from pathlib import Path
from typing import Any

from crawl_lib.durable import fsync_file, reached, write_durable
from crawl_lib.errors import StorageError, os_errors
from crawl_lib.frontier.directory import NodeDirectory
from crawl_lib.frontier.hostcounts import host_of_line
from crawl_lib.frontier.outlinks import file_lines, split_line
from crawl_lib.frontier.queue import Queue
from crawl_lib.frontier.record import Record
from crawl_lib.sealed import own_file, sealed_json, unsealed

READ = "read"
CLAIM = "claim"
INSERT = "insert"


@dataclass
class IntakeReport:
    """What intakes and adoptions did with the URLs they saw.

    `seen` = `new` + `known` + `duplicates` + `undecided` + the sum of `rejected`. `new` includes `past_check` (handed
    on by another node, the key store not asked) and `unsure` (local routing: kept though another node may have it).
    `handed_on`: queued URLs that went to the nodes that own them now.
    `adopted*`: lines of a queue made by hand: kept, repeated, refused by reason, handed on to their owners.
    `missed`: keys that a key server should hold and did not get, by server. `examples`: the first refusals in words.
    """

    seen: int = 0
    new: int = 0
    known: int = 0
    duplicates: int = 0
    undecided: int = 0
    unsure: int = 0
    past_check: int = 0
    rejected: dict[str, int] = field(default_factory=dict)
    handed_on: int = 0
    adopted: int = 0
    adopted_duplicates: int = 0
    adopted_handed_on: int = 0
    adopted_refused: dict[str, int] = field(default_factory=dict)
    missed: dict[str, int] = field(default_factory=dict)
    examples: list[str] = field(default_factory=list)

    def to_mapping(self) -> dict[str, Any]:
        """The form for manifests and task results."""
        return asdict(self)

    @classmethod
    def from_mapping(cls, value: dict[str, Any]) -> "IntakeReport":
        """The report of a mapping; what is missing is 0."""
        known = {item.name for item in fields(cls)}
        return cls(**{name: item for name, item in value.items() if name in known})

    def plus(self, other: "IntakeReport") -> "IntakeReport":
        """Both together; at most 20 examples."""
        total = IntakeReport()
        for item in fields(self):
            mine, more = getattr(self, item.name), getattr(other, item.name)
            if isinstance(mine, dict):
                setattr(total, item.name, {key: mine.get(key, 0) + more.get(key, 0) for key in sorted({*mine, *more})})
            elif isinstance(mine, list):
                setattr(total, item.name, [*mine, *more][:20])
            else:
                setattr(total, item.name, mine + more)
        return total

    def added_to(self, record: Record) -> Record:
        """The record with these counts among those that the next segment reports."""
        return replace(record, pending=IntakeReport.from_mapping(record.pending).plus(self).to_mapping())

    def add_missed(self, missed: Mapping[str, int]) -> None:
        """Count keys that a server should hold and did not get."""
        for server, count in missed.items():
            self.missed[server] = self.missed.get(server, 0) + count


@dataclass
class Journal:
    """The content of the file `intake`.

    `plan`: (folder, node) of each source, in order; ("", "") is the file `undecided`. `at`, `line`: the source and its
    line where the next chunk begins. `*_count`, `*_bytes`: how much of `new`, `new.meta` and `new.undecided` is
    decided; what lies beyond is cut off. `phase`: `read`: nothing is under way. `claim`: the candidates in `new.claim`
    may have been claimed; they are decided upon next, and are kept if this is not their first sending. `insert`: the
    keys of `new` from `chunk_bytes` on are (perhaps again) to be inserted.
    """

    plan: list[tuple[str, str]]
    at: int = 0
    line: int = 0
    new_count: int = 0
    new_bytes: int = 0
    meta_bytes: int = 0
    undecided_count: int = 0
    undecided_bytes: int = 0
    phase: str = READ
    chunk_bytes: int = 0
    report: dict[str, Any] = field(default_factory=dict)

    def write(self, directory: Path) -> None:
        """Make it durable."""
        write_durable(NodeDirectory(directory).journal, sealed_json(asdict(self)))

    def short_files(self, directory: Path) -> list[tuple[str, str]]:
        """Files that hold less than the journal promises, each with what is wrong, in words."""
        promised = {
            NodeDirectory.new: self.new_bytes,
            NodeDirectory.new_meta: self.meta_bytes,
            NodeDirectory.new_undecided: self.undecided_bytes,
        }
        problems = []
        for name, size in promised.items():
            path = directory / name
            found = path.stat().st_size if path.exists() else 0
            if found < size or not path.exists():
                problems.append((name, f"has {found} bytes, and the intake's journal promises {size}"))
        if self.phase == CLAIM and not NodeDirectory(directory).new_claim.exists():
            problems.append(
                (NodeDirectory.new_claim, "is not there, and the intake's journal says that it was claimed")
            )
        return problems


def read_journal(directory: Path) -> Journal | None:
    """The journal of an intake that is not finished, None if there is none.

    Raises DamagedFileError naming it and the command that repairs it, StorageError if the disk refuses it.
    """
    path = NodeDirectory(directory).journal
    with suppress(FileNotFoundError), own_file(path, "is not the journal of an intake"):
        value = unsealed(path.read_bytes())
        value["plan"] = [(folder, node) for folder, node in value["plan"]]
        return Journal(**value)
    return None


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
    def open(cls, queue: Queue, waiting: Sequence[Pair]) -> "Draft":
        """Go on where the journal says, or begin."""
        journal = read_journal(queue.directory)
        if journal is None:
            return cls.begin(queue, waiting)
        draft = cls.go_on(queue, journal)
        draft.replan({*waiting, UNDECIDED}, waiting)
        return draft

    @classmethod
    def begin(cls, queue: Queue, waiting: Sequence[Pair]) -> "Draft":
        """Begin anew, with empty files, and plan what is to be taken in: what was undecided first."""
        for name in (NodeDirectory.new, NodeDirectory.new_meta, NodeDirectory.new_undecided):
            write_durable((queue.directory / name), b"")
        plan = [UNDECIDED] if queue.files.undecided.exists() else []
        draft = cls(queue, Journal([*plan, *waiting]))
        draft.journal.write(queue.directory)
        reached("intake.planned")
        return draft

    @classmethod
    def go_on(cls, queue: Queue, journal: Journal) -> "Draft":
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
