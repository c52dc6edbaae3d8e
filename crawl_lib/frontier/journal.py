"""The journal of an intake: how far it got, so that a kill anywhere loses nothing and doubles nothing."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from crawl_lib.durable import write_durable
from crawl_lib.frontier.directory import NodeDirectory
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
    def from_mapping(cls, value: dict[str, Any]) -> IntakeReport:
        """The report of a mapping; what is missing is 0."""
        known = {item.name for item in fields(cls)}
        return cls(**{name: item for name, item in value.items() if name in known})

    def plus(self, other: IntakeReport) -> IntakeReport:
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
