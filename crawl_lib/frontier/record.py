"""`state.krake`: Krake's memory besides `state`. A queue made by hand has no such file, or one that does not fit."""

from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, field, replace
from hashlib import file_digest
from pathlib import Path
from typing import Any

from crawl_lib.dataclass import dataclass
from crawl_lib.frontier.directory import META, NodeDirectory
from crawl_lib.sealed import own_file, unsealed
from crawl_lib.urlfiles import TakenIn

UNKNOWN_SIZE = -1
"""Among `sizes`: a data file made by people; a meta file next to it belongs to another data file."""
NEXT_TO_QUEUE = (NodeDirectory.undecided, NodeDirectory.handed_on, NodeDirectory.scope_added)
"""Files next to the queue, with noted digests."""


@dataclass
class IntakeReport:
    """The results of intakes and adoptions for their URLs.

    `seen` = `new` + `known` + `duplicates` + `undecided` + the sum of `rejected`. `new` includes `past_check` (handed
    on by another node, without a question to the key store) and `unsure` (local routing: kept although another node may
    have the URL).
    `handed_on`: queued URLs that went to their present owners.
    `adopted*`: lines of a queue made by hand: kept, repeated, refused by reason, handed on to their owners.
    `missed`: keys that a key server should hold and did not get, by server. `examples`: the first refusals in words.
    `over_budget`: the part of `rejected` by budgets, by rule and host or domain (`urls.Budgets.key`), the largest
    numbers alone.
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

    @classmethod
    def from_mapping(cls, value: dict[str, Any]) -> "IntakeReport":
        """Make the report from a mapping; missing numbers are 0."""
        return cls(
            **{name: item for name, item in value.items() if name in cls.__dataclass_fields__}
        )

    def plus(self, other: "IntakeReport") -> "IntakeReport":
        """Add two reports.

        There are at most 20 examples, and 20 names of `over_budget`.
        """
        total: dict[str, Any] = {}
        for name, mine in vars(self).items():
            more = getattr(other, name)
            if isinstance(mine, dict):
                total[name] = dict(sorted((Counter(mine) + Counter(more)).items()))
            else:
                total[name] = [*mine, *more][:20] if isinstance(mine, list) else mine + more
        total["over_budget"] = self.largest(self.over_budget, other.over_budget)
        return IntakeReport(**total)

    def added_to(self, record: "Record") -> "Record":
        """Add these counts to the counts for the next segment's report."""
        return replace(record, pending=asdict(record.report().plus(self)))

    def add_missed(self, missed: Mapping[str, int]) -> None:
        """Count keys that a server should hold and did not get."""
        self.missed = dict(Counter(self.missed) + Counter(missed))

    @staticmethod
    def largest(*counts: Mapping[str, int]) -> dict[str, int]:
        """Add counts up; return the 20 largest.

        The pages of strangers decide how many names there are.
        """
        total: Counter[str] = Counter()
        for one in counts:
            total.update(one)
        return dict(total.most_common(20))


@dataclass(frozen=True)
class Record:
    """The content of `state.krake`.

    `state_sha1`: hex digest of the last `state` by Krake, "" before the queue is adopted. `sizes`: bytes of each
    data file; `datas`, `metas`: hex digests of each data file and its meta, "" for a missing meta or an unknown digest.
    `files`: hex digests of `undecided`, `handed_on` and `scope_added` as Krake wrote them. `offset`, `meta_offset`:
    where the first unprocessed line of file 0 (and of its meta) begins, None if unknown. `last_move`: id of the last
    finished move. `again`: sources taken in before a decision to take in everything again (see `Intake.take_in_again`).
    `pending`: counts of intakes (and adoptions) without a report in a committed segment. `nodes`: sorted, the nodes
    among which the queue's hosts were divided when it was filled; empty if unknown, or not divided by host. `took`:
    folder of the newest take that the queue has moved past, None before the first take, and if a repair cannot know.
    `made_due`: names of the notes of `krake retry --now` that the queue has followed.
    """

    state_sha1: str = ""
    sizes: tuple[int, ...] = ()
    metas: tuple[str, ...] = ()
    datas: tuple[str, ...] = ()
    files: dict[str, str] = field(default_factory=dict)
    offset: int | None = None
    meta_offset: int | None = None
    last_move: str = ""
    taken_in: TakenIn = field(default_factory=TakenIn)
    again: TakenIn = field(default_factory=TakenIn)
    pending: dict[str, Any] = field(default_factory=dict)
    nodes: tuple[str, ...] = ()
    took: str | None = None
    made_due: tuple[str, ...] = ()

    def to_mapping(self) -> dict[str, Any]:
        """Return the content of the file as a mapping."""
        return {
            **vars(self),
            "taken_in": self.taken_in.to_mapping(),
            "again": self.again.to_mapping(),
        }

    @classmethod
    def from_mapping(cls, value: dict[str, Any]) -> "Record":
        """Make the record from a mapping.

        Raises KeyError, TypeError.
        """
        lists = {
            name: tuple(value[name]) for name in ("sizes", "metas", "datas", "nodes", "made_due")
        }
        return cls(
            **{**value, **lists, **{name: TakenIn(**value[name]) for name in ("taken_in", "again")}}
        )

    @classmethod
    def read(cls, directory: Path) -> "Record | None":
        """Read `state.krake`, None without the file. Raises DamagedFileError naming the file, StorageError."""
        path = NodeDirectory(directory).record
        with suppress(FileNotFoundError), own_file(path, "cannot be read"):
            return cls.from_mapping(unsealed(path.read_bytes()))
        return None

    def report(self) -> IntakeReport:
        """Return the sum of intakes since the last committed segment.

        The next segment reports this sum.
        """
        return IntakeReport.from_mapping(self.pending)

    def taking_in_again(self) -> "Record":
        """Return the record with nothing taken in.

        Sources taken in earlier are read once more.
        """
        return replace(self, taken_in=TakenIn(), again=self.again | self.taken_in)

    def digests(self) -> dict[str, str]:
        """Return known hex digests of Krake's files, by name."""
        found = {**{str(n): digest for n, digest in enumerate(self.datas)}, **self.files}
        found.update((f"{n}{META}", digest) for n, digest in enumerate(self.metas))
        return {name: digest for name, digest in found.items() if digest}


def digest_of(path: Path) -> str:
    """Return a file's SHA-1 in hex, as in `datas` and `metas`.

    "": the file is missing.
    """
    try:
        with path.open("rb") as file:
            return file_digest(file, "sha1").hexdigest()
    except FileNotFoundError:
        return ""
