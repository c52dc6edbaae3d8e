"""An intake under way: its report, and the journal that says how far it got and what its files hold."""

from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, field
from pathlib import Path
from zlib import crc32

from crawl_lib.dataclass import dataclass
from crawl_lib.durable import fsync_file, reached, write_durable
from crawl_lib.errors import StorageError, os_errors
from crawl_lib.frontier.directory import NodeDirectory
from crawl_lib.frontier.queue import Queue
from crawl_lib.frontier.record import IntakeReport
from crawl_lib.sealed import own_file, sealed_json, unsealed

READ = "read"
CLAIM = "claim"
INSERT = "insert"


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
    (they can be continued). `report`: what was done with the lines before.
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
    sums: dict[str, int] = field(default_factory=lambda: dict.fromkeys(_SIZES, 0))

    @classmethod
    def read(cls, directory: Path) -> "Journal | None":
        """Read the journal of an unfinished intake, if any.

        Raises DamagedFileError naming the file and the repair command, StorageError if the disk refuses to read.
        """
        path = NodeDirectory(directory).journal
        with suppress(FileNotFoundError), own_file(path, "is not the journal of an intake"):
            value = unsealed(path.read_bytes())
            value["plan"] = [(folder, node) for folder, node in value["plan"]]
            value["report"] = IntakeReport.from_mapping(value["report"])
            return cls(**value)
        return None

    @classmethod
    def open_plan(cls, directory: Path) -> list[Pair]:
        """Return the sources that an unfinished intake has not read.

        Each is a pair (folder, node).
        """
        journal = cls.read(directory)
        return [pair for pair in journal.plan[journal.at :] if pair != UNDECIDED] if journal else []

    @property
    def is_claiming(self) -> bool:
        """Whether the candidates in `new.claim` are undecided.

        Their keys may have been claimed.
        """
        return self.phase == CLAIM

    @property
    def sent_bytes(self) -> int:
        """How many bytes of `new` hold URLs whose keys have been inserted."""
        return self.chunk_bytes if self.phase == INSERT else self.new_bytes

    def write(self, directory: Path) -> None:
        """Make it durable."""
        write_durable(NodeDirectory(directory).journal, sealed_json(asdict(self)))

    def append(self, directory: Path, name: str, lines: Sequence[bytes]) -> None:
        """Append lines to a file, durably.

        They count once the journal is written.
        """
        if not lines:
            return
        data, path = b"\n".join([*lines, b""]), directory / name
        with os_errors(path, "cannot be written"), path.open("ab") as file:
            file.write(data)
            fsync_file(file)
        vars(self)[_SIZES[name]] += len(data)
        self.sums[name] = crc32(data, self.sums[name])

    def write_candidates(self, directory: Path, lines: Sequence[bytes]) -> None:
        """Make the lines that will be claimed durable."""
        data = b"\n".join([*lines, b""])
        write_durable(NodeDirectory(directory).new_claim, data)
        self.claim_bytes, self.sums[NodeDirectory.new_claim] = len(data), crc32(data)

    def damaged_files(self, directory: Path) -> Iterator[tuple[str, str]]:
        """Yield files that contradict the journal, each with the problem.

        The problem is in words.
        """
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
            elif promised and self.sums[name] != crc:
                yield name, "has other bytes than the intake's journal says"

    def cut(self, directory: Path) -> None:
        """Cut off lines that were written and not decided.

        For a new journal, missing files are made. An empty file has no bytes to sync. Its name becomes durable together
        with the journal.
        """
        for name in (NodeDirectory.new, NodeDirectory.new_meta, NodeDirectory.new_undecided):
            with (
                os_errors(directory / name, "cannot be written"),
                (directory / name).open("ab") as file,
            ):
                if file.tell():
                    file.truncate(getattr(self, _SIZES[name]))
                    fsync_file(file)

    def replan(self, offered: Collection[Pair], waiting: Sequence[Pair]) -> bool:
        """Update the plan by the sources offered and waiting.

        Planned sources that are no longer offered are dropped and stay untaken; new ones are added. Returns whether the
        plan has changed.
        """
        done = self.plan[: self.at]
        ahead = [pair for pair in self.plan[self.at :] if pair in offered]
        plan = [*done, *ahead, *(pair for pair in waiting if pair not in {*done, *ahead})]
        changed, self.plan = plan != self.plan, plan
        return changed


def open_journal(queue: Queue, waiting: Sequence[Pair]) -> Journal:
    """Return the journal of the intake under way, or begin one.

    The files are cut to what the journal says. `waiting`: sources to be planned. Raises QueueError where files are
    damaged, StorageError naming a source that is gone, and half taken in.
    """
    directory, journal, offered = (
        queue.directory,
        Journal.read(queue.directory),
        {*waiting, UNDECIDED},
    )
    if begins := journal is None:
        if queue.files.new.exists() and queue.files.new.stat().st_size:
            raise queue.error(
                f"`{NodeDirectory.new}` has URLs of an intake, and `{NodeDirectory.journal}` is gone"
            )
        journal = Journal([UNDECIDED] if queue.files.undecided.exists() else [])
    for name, problem in () if begins else journal.damaged_files(directory):
        raise queue.error(f"`{name}` {problem}")
    journal.cut(directory)
    if journal.line and (half := journal.plan[journal.at]) not in offered:
        name = "/".join(half)
        raise StorageError(
            f"{directory}: half of {name} was taken in, and it is not there now; put it back"
        )
    if journal.replan(offered, waiting) or begins:
        journal.write(directory)
    if begins:
        reached("intake.planned")
    return journal
