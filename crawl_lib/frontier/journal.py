"""An intake under way: its report, and the journal that says how far it got and what its files hold."""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, field, replace
from pathlib import Path
from typing import Any
from zlib import crc32

from crawl_lib.dataclass import dataclass
from crawl_lib.durable import fsync_file, reached, write_durable
from crawl_lib.errors import StorageError, os_errors
from crawl_lib.frontier.directory import NodeDirectory
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
    `over_budget`: of `rejected`, how many URLs budgets refused, by rule and host or domain (`urls.budget_key`), the
    largest numbers alone.
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
    over_budget: dict[str, int] = field(default_factory=dict)

    def to_mapping(self) -> dict[str, Any]:
        """The form for manifests and task results."""
        return asdict(self)

    @classmethod
    def from_mapping(cls, value: dict[str, Any]) -> "IntakeReport":
        """The report of a mapping; what is missing is 0."""
        return cls(**{name: item for name, item in value.items() if name in cls.__dataclass_fields__})

    def plus(self, other: "IntakeReport") -> "IntakeReport":
        """Both together; at most 20 examples, and 20 names of `over_budget`."""
        total: dict[str, Any] = {}
        for name, mine in vars(self).items():
            more = getattr(other, name)
            if isinstance(mine, dict):
                total[name] = dict(sorted((Counter(mine) + Counter(more)).items()))
            else:
                total[name] = [*mine, *more][:20] if isinstance(mine, list) else mine + more
        total["over_budget"] = largest(self.over_budget, other.over_budget)
        return IntakeReport(**total)

    def added_to(self, record: Record) -> Record:
        """The record with these counts among those that the next segment reports."""
        return replace(record, pending=IntakeReport.from_mapping(record.pending).plus(self).to_mapping())

    def add_missed(self, missed: Mapping[str, int]) -> None:
        """Count keys that a server should hold and did not get."""
        self.missed = dict(Counter(self.missed) + Counter(missed))


def largest(*counts: Mapping[str, int]) -> dict[str, int]:
    """Add counts up, and return the 20 largest ones: a stranger's page chooses how many names there are."""
    total: Counter[str] = Counter()
    for one in counts:
        total.update(one)
    return dict(total.most_common(20))


Pair = tuple[str, str]
UNDECIDED: Pair = ("", "")
"""Means in a plan: the file `undecided`."""
_SIZES = {
    NodeDirectory.new: "new_bytes",
    NodeDirectory.new_meta: "meta_bytes",
    NodeDirectory.new_undecided: "undecided_bytes",
    NodeDirectory.new_claim: "claim_bytes",
}
_BLOCK_BYTES = 1 << 20


@dataclass
class Journal:
    """The content of the file `intake`.

    `plan`: (folder, node) of each source, in order; ("", "") is the file `undecided`. `at`, `line`: the source and its
    line where the next chunk begins. `*_count`, `*_bytes`: how much of `new`, `new.meta` and `new.undecided` is
    decided; what lies beyond is cut off. `phase`: `read`: nothing is under way. `claim`: the candidates in `new.claim`
    may have been claimed; they are decided on next, and are kept if this is not their first sending. `insert`: the
    keys of `new` from `chunk_bytes` on are (perhaps again) to be inserted. `sums`: CRC-32 of these bytes of each file
    (they can be continued); none in a journal of an older version. `report`: what was done with the lines before.
    """

    plan: list[Pair]
    at: int = 0
    line: int = 0
    new_count: int = 0
    new_bytes: int = 0
    meta_bytes: int = 0
    undecided_count: int = 0
    undecided_bytes: int = 0
    claim_bytes: int = 0
    phase: str = READ
    chunk_bytes: int = 0
    report: IntakeReport = field(default_factory=IntakeReport)
    sums: dict[str, int] = field(default_factory=dict)

    def write(self, directory: Path) -> None:
        """Make it durable."""
        write_durable(NodeDirectory(directory).journal, sealed_json(asdict(self)))

    def append(self, directory: Path, name: str, lines: Sequence[bytes]) -> None:
        """Append lines to one of the files, durably; they count once the journal is written."""
        if not lines:
            return
        data, path = b"\n".join([*lines, b""]), directory / name
        with os_errors(path, "cannot be written"), path.open("ab") as file:
            file.write(data)
            fsync_file(file)
        vars(self)[_SIZES[name]] += len(data)
        if name in self.sums:
            self.sums[name] = crc32(data, self.sums[name])

    def write_candidates(self, directory: Path, lines: Sequence[bytes]) -> None:
        """Make the lines that will be claimed durable."""
        data = b"\n".join([*lines, b""])
        write_durable(NodeDirectory(directory).new_claim, data)
        self.claim_bytes, self.sums[NodeDirectory.new_claim] = len(data), crc32(data)

    def damaged_files(self, directory: Path) -> Iterator[tuple[str, str]]:
        """Files that do not hold what the journal says, each with what is wrong, in words."""
        for name, size in _SIZES.items():
            if name == NodeDirectory.new_claim and self.phase != CLAIM:
                continue
            promised, path, seen, crc = getattr(self, size), directory / name, 0, 0
            if path.exists():
                with path.open("rb") as file:
                    while block := file.read(min(promised - seen, _BLOCK_BYTES)):
                        seen, crc = seen + len(block), crc32(block, crc)
            if seen < promised or not path.exists():
                yield name, f"has {seen} bytes, and the intake's journal promises {promised}"
            elif promised and self.sums.get(name, crc) != crc:
                yield name, "has other bytes than the intake's journal says"

    def cut(self, directory: Path) -> None:
        """Cut off what was written and not decided. Files that are not there are made, for a journal that begins.

        An empty file has no bytes to sync. Its name becomes durable together with the journal.
        """
        for name in (NodeDirectory.new, NodeDirectory.new_meta, NodeDirectory.new_undecided):
            with os_errors(directory / name, "cannot be written"), (directory / name).open("ab") as file:
                if file.tell():
                    file.truncate(getattr(self, _SIZES[name]))
                    fsync_file(file)

    def replan(self, offered: Collection[Pair], waiting: Sequence[Pair]) -> bool:
        """Drop planned sources that are not offered any more (they stay untaken), add those that wait and are new.

        Returns whether the plan has changed.
        """
        done = self.plan[: self.at]
        ahead = [pair for pair in self.plan[self.at :] if pair in offered]
        plan = [*done, *ahead, *(pair for pair in waiting if pair not in {*done, *ahead})]
        changed, self.plan = plan != self.plan, plan
        return changed


def read_journal(directory: Path) -> Journal | None:
    """The journal of an intake that is not finished, None if there is none.

    Raises DamagedFileError naming it and the command that repairs it, StorageError if the disk refuses it.
    """
    path = NodeDirectory(directory).journal
    with suppress(FileNotFoundError), own_file(path, "is not the journal of an intake"):
        value = unsealed(path.read_bytes())
        value["plan"] = [(folder, node) for folder, node in value["plan"]]
        value["report"] = IntakeReport.from_mapping(value["report"])
        return Journal(**value)
    return None


def open_journal(queue: Queue, waiting: Sequence[Pair]) -> Journal:
    """The journal of the intake under way, or a new one, with its files as it says. `waiting`: sources to be planned.

    Raises QueueError where files are damaged, StorageError naming a source that is gone, and half taken in.
    """
    directory, journal, offered = queue.directory, read_journal(queue.directory), {*waiting, UNDECIDED}
    if begins := journal is None:
        if queue.files.new.exists() and queue.files.new.stat().st_size:
            raise queue.error(f"`{NodeDirectory.new}` has URLs of an intake, and `{NodeDirectory.journal}` is gone")
        journal = Journal([UNDECIDED] if queue.files.undecided.exists() else [], sums=dict.fromkeys(_SIZES, 0))
    for name, problem in () if begins else journal.damaged_files(directory):
        raise queue.error(f"`{name}` {problem}")
    journal.cut(directory)
    if journal.line and (half := journal.plan[journal.at]) not in offered:
        name = "/".join(half)
        raise StorageError(f"{directory}: half of {name} was taken in, and it is not there now; put it back")
    if journal.replan(offered, waiting) or begins:
        journal.write(directory)
    if begins:
        reached("intake.planned")
    return journal
