"""An intake under way: the report, and the journal with the progress of the intake and the sizes of its files."""

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
"""In a plan: the file `undecided`."""
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

    `plan`: (folder, node) of each source, in order; ("", "") is the file `undecided`. `at`, `line`: the source and the
    line where the next chunk begins. `*_count`, `*_bytes`: the decided part of `new`, `new.meta` and `new.undecided`;
    the rest is cut off. `phase`: `read`: nothing is under way. `claim`: the candidates in `new.claim` may have been
    claimed; they are decided on next, and kept if sent before. `insert`: the keys of `new` from `chunk_bytes` on have
    to be inserted, perhaps again. `sums`: CRC-32 of these bytes of each file (fit to be continued). `report`:
    the counts of earlier lines.
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

        The keys of these candidates may have been claimed.
        """
        return self.phase == CLAIM

    @property
    def sent_bytes(self) -> int:
        """The number of bytes of `new` with URLs whose keys are inserted."""
        return self.chunk_bytes if self.phase == INSERT else self.new_bytes

    def write(self, directory: Path) -> None:
        """Write the journal durably."""
        write_durable(NodeDirectory(directory).journal, sealed_json(asdict(self)))

    def append(self, directory: Path, name: str, lines: Sequence[bytes]) -> None:
        """Append lines to a file, durably.

        The lines count once the journal is written.
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
        """Write the lines of the next claim durably."""
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
        """Cut off lines without a decision.

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

        Planned sources that are no longer offered are dropped and stay untaken; new sources are added. Returns whether
        the plan has changed.
        """
        done = self.plan[: self.at]
        ahead = [pair for pair in self.plan[self.at :] if pair in offered]
        plan = [*done, *ahead, *(pair for pair in waiting if pair not in {*done, *ahead})]
        changed, self.plan = plan != self.plan, plan
        return changed


def open_journal(queue: Queue, waiting: Sequence[Pair]) -> Journal:
    """Return the journal of the intake under way, or begin a journal.

    The files are cut to the sizes of the journal. `waiting`: sources to be planned. Raises QueueError for damaged
    files, StorageError naming a missing source that is half taken in.
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
