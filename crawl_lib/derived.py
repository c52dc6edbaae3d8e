"""Outputs: kinds of data that are derived from segments, and what checks, sweeps and drops ask of each of them.

A room that derives data makes an `Output` for it; `crawl_lib.outputs` is the list of all.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING

from crawl_lib.findings import Finding
from crawl_lib.storage import DELETED
from crawl_lib.stores import Stores

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Pages = Mapping[bytes, Collection[str]]
"""Keys of pages, each with the names (`<folder>/<node>`) of all segments that have, or had, the page."""
SEGMENTS = "segments"
"""The input of outputs that are made of committed segments."""
_NEXT_TO = re.compile(r"\.(.+)\.[0-9a-f]{32}")


@dataclass(frozen=True)
class PagePlace:
    """A file or folder that still has a page. `until`: what takes the page out of it."""

    path: str
    until: str


@dataclass
class SetAside:
    """Damaged data that a repair set aside. `paths`: may be deleted; `skipped`: a line for each that may not."""

    paths: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Output(ABC):
    """Data of one kind that is derived from segments, from other outputs, or from both.

    `name`: unique in the list; of an output that a task makes, as in `outputs.tasks`. `inputs`: names of outputs, or
    `SEGMENTS`. What a kind does not have, such as data that was set aside, its class leaves out.
    """

    name: str
    inputs: tuple[str, ...]

    @abstractmethod
    def paths(self, stores: Stores) -> list[str]:
        """Name all existing files and folders of the output.

        Names are relative to the storage's root. Raises StorageError.
        """

    def make(self, stores: Stores, *, now: datetime) -> "DataclassInstance":
        """Make the missing parts of the output; return a report.

        The output's task does the same, and its result has the report's fields. `now`: for manifests. Raises
        KrakeError, and NotImplementedError for an output that no task makes, which has no such method of its own.
        """
        raise NotImplementedError(f"no task makes the output {self.name}")

    def count(self, stores: Stores) -> int:
        """Count what `krake fsck` reports as checked.

        0: nothing is reported.
        """
        return 0

    def check(self, stores: Stores, *, full: bool) -> list[Finding]:
        """Find damage.

        `full`: every byte is read, else sizes and counts. Raises StorageError, StoppedError.
        """
        return []

    def set_aside(self, stores: Stores, finding: Finding, *, dry_run: bool) -> str | None:
        """Set damaged data aside where that loses nothing.

        Returns what was done. None: people have to decide.

        `finding`: one of `check`. Raises StorageError.
        """
        return None

    def aside(self, stores: Stores) -> SetAside:
        """Find what was set aside. Raises StorageError."""
        return SetAside()

    def leftovers(self, stores: Stores) -> Iterator[tuple[str, str]]:
        """Find leftovers of killed attempts: paths, each with its cause.

        No attempt goes on with them. Raises StorageError, StoppedError.
        """
        return iter(())

    def places_of(self, stores: Stores, pages: Pages) -> Iterator[PagePlace]:
        """Find files and folders that still have one of these pages.

        Raises StorageError, StoppedError.
        """
        return iter(())

    def delete(self, stores: Stores) -> None:
        """Delete all of the output.

        The output is made again when it is needed. Raises StorageError.
        """
        for path in self.paths(stores):
            stores.storage.delete(path)


def existing(stores: Stores, *paths: str) -> list[str]:
    """Return those of the paths that exist. Raises StorageError."""
    return [path for path in paths if stores.storage.exists(path)]


def replaced(stores: Stores, folder: str, name: str) -> str:
    """Say why a hidden name of a folder is left over.

    Its target exists, or it was being deleted; else "". Raises StorageError.
    """
    found = _NEXT_TO.fullmatch(name)
    if found is None:
        return ""
    if found[1] == DELETED:
        return "was being deleted"
    exists = stores.storage.exists(f"{folder}/{found[1]}")
    return f"is of an attempt to write {found[1]}, which is there" if exists else ""


def replaced_in(stores: Stores, folder: str) -> Iterator[tuple[str, str]]:
    """Find leftover hidden names of a folder.

    They are paths, each with its cause. Raises StorageError.
    """
    for entry in stores.storage.list(folder) if stores.storage.exists(folder) else ():
        if problem := replaced(stores, folder, entry.name):
            yield f"{folder}/{entry.name}", problem
