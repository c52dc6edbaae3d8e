"""What `krake import` says of each archive: nothing in it disappears uncounted."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from crawl_lib.repair import EXAMPLES


@dataclass
class FileReport:
    """What became of one archive.

    `state`: `imported`, `nothing` (read, and no page of it is to be imported: the counts say why), `already_imported`,
    `refused` (no record of it can be read), or `readable` (dry run). `records`: all that could be read. `pages`: those
    that were imported; `waiting`: those of them whose URL waits in a queue, where it stays; `known`: pages that the
    crawl has already; `repeated`: pages of these archives that came before. `robots`: captures of robots.txt.
    `skipped`: records that are no pages, by type, also requests without their responses; `rejected`: responses and
    damaged places by reason; `first`: the first of these with their offsets.
    """

    name: str
    sha256: str
    size_bytes: int
    state: str = "imported"
    records: int = 0
    pages: int = 0
    robots: int = 0
    waiting: int = 0
    known: int = 0
    repeated: int = 0
    skipped: dict[str, int] = field(default_factory=dict)
    rejected: dict[str, int] = field(default_factory=dict)
    first: list[str] = field(default_factory=list)

    def skip(self, kind: str) -> None:
        """Count a record that is no page."""
        self.skipped[kind] = self.skipped.get(kind, 0) + 1

    def reject(self, reason: str, offset: int, what: str = "") -> None:
        """Count a record or a damaged place, with the byte it begins at."""
        self.rejected[reason] = self.rejected.get(reason, 0) + 1
        if len(self.first) < EXAMPLES:
            self.first.append(f"{self.name}: byte {offset}: {reason}{f': {what[:200]}' if what else ''}")


@dataclass
class ImportReport:
    """What an import did. `folder`: the iteration's, "" if nothing was imported. `files`: one each."""

    folder: str = ""
    files: list[FileReport] = field(default_factory=list)
    dry_run: bool = False

    @property
    def refused(self) -> list[FileReport]:
        """The archives nothing could be read of."""
        return [file for file in self.files if file.state == "refused"]

    def totals(self) -> dict[str, int]:
        """Sums over all files."""
        names = ("records", "pages", "robots", "waiting", "known", "repeated")
        sums = {name: sum(getattr(file, name) for file in self.files) for name in names}
        sums["skipped"] = sum(sum(file.skipped.values()) for file in self.files)
        sums["rejected"] = sum(sum(file.rejected.values()) for file in self.files)
        return sums

    def to_mapping(self) -> dict[str, Any]:
        """The same as plain values."""
        files = [asdict(file) for file in self.files]
        return {"folder": self.folder, "dry_run": self.dry_run, "totals": self.totals(), "files": files}
