"""The files of a spool: a part is one WARC file with its rows, index lines and outlinks; a *closed* part is durable.

A *sealed* part has its WARC file on the store, checked, and the local one goes (see `publish`).

<part>.warc.gz             the log; the rest can be made again from it
<part>.pages.arrow .links.arrow .cdxj.<n> .outlinks.<n> .positions
<part>.closed.json         written last: counts, and that all of the above is whole; the sum of each
<part>.rowless.json        in place of all of the above: the WARC file is whole, and its rows are still to be made
<part>.sealed.json         name, size in bytes and SHA-256 of the WARC file on the store; the local one may be gone
"""

import re
from array import array
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import field
from functools import cached_property
from pathlib import Path
from typing import Any, Self

from isal import isal_zlib

from crawl_lib.dataclass import dataclass
from crawl_lib.durable import write_durable
from crawl_lib.errors import DamagedFileError, os_errors
from crawl_lib.sealed import SEALED_VERSION, own_file, sealed_json, unsealed

INDEX_RUNS, OUTLINK_RUNS = ".cdxj", ".outlinks"
_SEQUENCE = re.compile(r"-\d{5,}$")
REPAIR = "run `krake fsck --repair`"
_SUMS = "sums"
_BLOCK_BYTES = 1 << 18


@dataclass
class PartCounts:
    """The counts of a part's content, and of its outlinks: summed up in the manifest.

    `retried`: rows of URLs that count by another row: of failures that pass, and of what a list asked for; by outcome.
    `requisites`: how many were handed on, with repetitions. `rule_errors`: how often a normaliser or filter raised, by
    its name. `warcinfo_id`: the id that all records of the WARC file carry, "" in a file of an older version.
    """

    pages: int = 0
    links: int = 0
    robots_captures: int = 0
    requisites: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    retried: Counter[str] = field(default_factory=Counter)
    rejections: Counter[str] = field(default_factory=Counter)
    rule_errors: Counter[str] = field(default_factory=Counter)
    scope_hosts: set[str] = field(default_factory=set)
    warcinfo_id: str = field(default="", compare=False)


@dataclass(frozen=True)
class FileEntry:
    """A file of a segment, as its manifest lists it. `sha256`: in hex."""

    name: str
    size_bytes: int
    sha256: str

    @classmethod
    def from_mapping(cls, entry: Mapping[str, Any]) -> Self:
        """Build an entry of a manifest, and ignore names of later versions.

        Raises KeyError.
        """
        return cls(entry["name"], entry["size_bytes"], entry["sha256"])


@dataclass(frozen=True)
class Part:
    """One part of a spool, by its path without suffix; the suffixes of its files."""

    WARC_SUFFIX, CLOSED_SUFFIX, SEALED_SUFFIX = ".warc.gz", ".closed.json", ".sealed.json"
    ROWLESS_SUFFIX = ".rowless.json"
    PAGES_SUFFIX, LINKS_SUFFIX, POSITIONS_SUFFIX = ".pages.arrow", ".links.arrow", ".positions"

    stem: Path

    def path(self, suffix: str) -> Path:
        """Return the path of one of the part's files."""
        return self.stem.with_name(self.stem.name + suffix)

    @cached_property
    def warc(self) -> Path:
        """Its WARC file."""
        return self.path(Part.WARC_SUFFIX)

    @property
    def is_closed(self) -> bool:
        """Whether all its files are whole."""
        return self.path(Part.CLOSED_SUFFIX).exists()

    def close(self, counts: PartCounts, log: list[int]) -> None:
        """Record durably that all files are complete.

        `log`: the sum of the WARC file. Raises StorageError.
        """
        sums = {path.name.removeprefix(self.stem.name): file_sum(path) for path in self._made()} | {
            Part.WARC_SUFFIX: log
        }
        mapping = vars(counts) | {"scope_hosts": sorted(counts.scope_hosts), _SUMS: sums}
        write_durable(self.path(Part.CLOSED_SUFFIX), sealed_json(mapping))

    @property
    def is_rowless(self) -> bool:
        """Whether the WARC file is whole, and was closed without rows."""
        return self.path(Part.ROWLESS_SUFFIX).exists()

    def close_without_rows(self, log: list[int], pages: int) -> None:
        """Record durably that the WARC file is complete.

        `log`: its sum; `pages`: fetches in it. Raises StorageError.
        """
        write_durable(
            self.path(Part.ROWLESS_SUFFIX),
            sealed_json({_SUMS: {Part.WARC_SUFFIX: log}, "pages": pages}),
        )

    def require_log(self) -> None:
        """Compare the WARC file of a part without rows with its sum.

        Raises DamagedFileError with the name of the file and the number of lost fetches.
        """
        path = self.path(Part.ROWLESS_SUFFIX)
        with own_file(path, "not the note of a part without rows"):
            note = unsealed(path.read_bytes())
            size, checksum = note[_SUMS][Part.WARC_SUFFIX]
        if not self.warc.exists() or file_sum(self.warc) != [size, checksum]:
            raise DamagedFileError(
                f"{self.warc}: is not what was written. Put it back, or delete it and {path.name}: then its"
                f" {note['pages']} fetches are lost"
            )

    def counts(self) -> PartCounts:
        """Return the counts of a closed part.

        Raises DamagedFileError or StorageError naming the file.
        """
        return self._note()[0]

    def _note(self) -> tuple[PartCounts, dict[str, list[int]]]:
        """Return a closed part's counts, and its files' sums by suffix."""
        path = self.path(Part.CLOSED_SUFFIX)
        with own_file(path, "not the counts of a closed part"):
            mapping = unsealed(path.read_bytes())
            sums = dict(mapping.pop(_SUMS))
            mapping["outcomes"], mapping["rejections"] = (
                Counter(mapping["outcomes"]),
                Counter(mapping["rejections"]),
            )
            for name in ("retried", "rule_errors"):
                mapping[name] = Counter(mapping[name])
            mapping["scope_hosts"] = set(mapping["scope_hosts"])
            return PartCounts(**mapping), sums

    def require_whole(self, only: str = "", *, full: bool = True) -> None:
        """Compare the files of a closed part with their sums.

        Raises DamagedFileError for a changed file, StorageError if the disk fails.

        `only`: the suffix of one of them; else all, but for the WARC file of a sealed part. `full`: reads them.
        """
        for suffix, (size, checksum) in self._note()[1].items():
            path = self.path(suffix)
            if only not in {"", suffix} or (
                not only and suffix == Part.WARC_SUFFIX and self.path(Part.SEALED_SUFFIX).exists()
            ):
                continue
            if not path.exists():
                raise DamagedFileError(f"{path}: is gone; {REPAIR}")
            if path.stat().st_size != size or (full and file_sum(path) != [size, checksum]):
                raise DamagedFileError(f"{path}: is not what was written; {REPAIR}")

    def positions(self) -> "array[int]":
        """Return the batch positions in a closed part.

        Raises StorageError or DamagedFileError naming the file. They are trusted: a wrong one would be taken for a
        fetch that was done.
        """
        self.require_whole(Part.POSITIONS_SUFFIX)
        positions = array("Q")
        with os_errors(self.path(Part.POSITIONS_SUFFIX), "cannot be read"):
            positions.frombytes(self.path(Part.POSITIONS_SUFFIX).read_bytes())
        return positions

    @property
    def is_freed(self) -> bool:
        """Whether it is sealed, and the local WARC file gone."""
        return self.path(Part.SEALED_SUFFIX).exists() and not self.warc.exists()

    def seal(self, entry: FileEntry) -> None:
        """Record durably that the store has the WARC file."""
        note = {"format_version": SEALED_VERSION, **vars(entry)}
        write_durable(self.path(Part.SEALED_SUFFIX), sealed_json(note))

    def sealed(self) -> FileEntry | None:
        """Return the entry that `seal` wrote.

        None: the part is not sealed. Raises StorageError, DamagedFileError.
        """
        path = self.path(Part.SEALED_SUFFIX)
        with suppress(FileNotFoundError), own_file(path, "not the seal of a part"):
            entry = unsealed(path.read_bytes())
            return FileEntry(str(entry["name"]), int(entry["size_bytes"]), str(entry["sha256"]))
        return None

    def runs(self, kind: str) -> list[Path]:
        """List the runs of a kind in the order of writing.

        `kind`: `INDEX_RUNS` or `OUTLINK_RUNS`.
        """
        start = f"{self.stem.name}{kind}."
        return sorted(path for path in self.stem.parent.iterdir() if path.name.startswith(start))

    def discard_rows(self) -> None:
        """Delete what can be made again from the WARC file."""
        for path in [self.path(Part.CLOSED_SUFFIX), self.path(Part.SEALED_SUFFIX), *self._made()]:
            path.unlink(missing_ok=True)

    def _made(self) -> list[Path]:
        """List the existing files of rows, positions, index lines and outlinks."""
        single = [
            self.path(suffix)
            for suffix in (Part.PAGES_SUFFIX, Part.LINKS_SUFFIX, Part.POSITIONS_SUFFIX)
        ]
        return [
            *(path for path in single if path.exists()),
            *self.runs(INDEX_RUNS),
            *self.runs(OUTLINK_RUNS),
        ]


class Spool:
    """The parts of a spool. `prefix`: of one worker's files only; a missing directory has no parts."""

    def __init__(self, directory: Path, prefix: str | None = None) -> None:
        self._directory, self._prefix = directory, prefix

    @staticmethod
    def prefix_of(folder: str, node: str, worker: int) -> str:
        """Return the prefix of the names of a worker's files.

        `PartWriter` adds the number of the part.
        """
        return f"krake-{folder}-{node}-{worker}"

    @staticmethod
    def prefix_in(name: str) -> str:
        """Return the prefix in the name of a part, or of its WARC file.

        "": the file is of no part.
        """
        prefix, found = _SEQUENCE.subn("", name.removesuffix(Part.WARC_SUFFIX))
        return prefix if found else ""

    def parts(self) -> list[Part]:
        """List the parts by name.

        A part is seen by its WARC file, or by the note of a closed part, which stays when the WARC file goes: a listing
        that is read while another process seals parts misses none.
        """
        if not self._directory.is_dir():
            return []
        names = [path.name for path in self._directory.iterdir()]
        stems = {
            name.removesuffix(suffix)
            for suffix in (Part.WARC_SUFFIX, Part.CLOSED_SUFFIX, Part.ROWLESS_SUFFIX)
            for name in names
            if name.endswith(suffix)
        }
        return [
            Part(self._directory / stem)
            for stem in sorted(stems)
            if (found := self.prefix_in(stem)) and self._prefix in {None, found}
        ]

    def finished_positions(self) -> set[int]:
        """Return the batch positions in closed parts.

        Raises StorageError or DamagedFileError naming the file.
        """
        finished: set[int] = set()
        for part in self.parts():
            if part.is_closed:
                finished.update(part.positions())
        return finished

    def outcomes(self) -> Counter[str]:
        """Count fetches in closed parts by outcome.

        Raises as `finished_positions` does.
        """
        return sum(
            (part.counts().outcomes for part in self.parts() if part.is_closed), Counter[str]()
        )


def file_sum(path: Path) -> list[int]:
    """Return size and CRC-32 of a file.

    The sum finds any damage within four bytes, at a hundredth of a digest's cost.
    """
    size = checksum = 0
    with os_errors(path, "cannot be read"), path.open("rb") as file:
        while block := file.read(_BLOCK_BYTES):
            size, checksum = size + len(block), isal_zlib.crc32(block, checksum)
    return [size, checksum]
