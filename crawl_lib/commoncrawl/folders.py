"""Folders made once: all files of a folder appear by one rename, and never change.

The file `inputs` of a folder, sealed JSON, lists what the folder was made of, and its files with sizes and SHA-256. An
attempt with the same inputs finds the folder complete; an attempt with other inputs is an error.
"""

import uuid
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, BinaryIO, cast

from crawl_lib.derived import Output, PagePlace, Pages, replaced_in
from crawl_lib.dfsfiles import stored_digest
from crawl_lib.durable import reached
from crawl_lib.errors import DamagedFileError, OutputConflictError, PathNotFoundError, StorageError
from crawl_lib.export import SegmentInput
from crawl_lib.findings import Finding, Findings, Severity
from crawl_lib.sealed import SEALED_VERSION, sealed_json, unsealed
from crawl_lib.stores import Stores
from crawl_lib.versions import Hashed

INPUTS = "inputs"
Said = dict[str, Any]
"""The content of `inputs`: `format_version`, `crawl`, `segments` (`<folder>/<node>` and digest of each), `options`,
`counts`, `files` (name, size_bytes, sha256)."""


@dataclass
class Files:
    """The files of an unfinished folder. `entries`: of the files written so far, for `inputs`."""

    stores: Stores
    folder: str
    entries: list[dict[str, Any]] = field(default_factory=list)

    @contextmanager
    def open(self, name: str) -> Iterator[BinaryIO]:
        """Write a file of the folder, from start to end. Raises StorageError."""
        with self.stores.storage.open_write(f"{self.folder}/{name}") as file:
            hashed = Hashed(file)
            yield cast(BinaryIO, hashed)
        entry = {"name": name, "size_bytes": hashed.size_bytes, "sha256": hashed.digest.hexdigest()}
        self.entries.append(entry)


@dataclass(frozen=True)
class MadeOnce:
    """A folder made once. `path`: relative to the storage's root; `again`: the remedy for a damaged folder."""

    stores: Stores
    path: str
    again: str

    def read(self) -> Said:
        """Read `inputs`. Raises PathNotFoundError, DamagedFileError, StorageError."""
        place = f"{self.path}/{INPUTS}"
        data = self.stores.storage.read_bytes(place)
        try:
            return unsealed(data)
        except (ValueError, KeyError, TypeError) as error:
            raise DamagedFileError(
                f"{place}: does not say what the folder was made of: {error}; {self.again}"
            ) from error

    def make(
        self,
        segments: Sequence[SegmentInput],
        options: Mapping[str, Any],
        fill: Callable[[Files], Said],
    ) -> tuple[Said, bool]:
        """Fill or find the folder; return `inputs`, and whether found complete.

        `inputs`: the file's content.

        `options`: decide the content besides the segments; `fill`: writes the files and returns counts. Leftovers of
        killed attempts are deleted. Raises OutputConflictError for a folder with other inputs, DamagedFileError for
        damaged `inputs`, StorageError, StoppedError, and all errors of `fill`.
        """
        made_of: Said = {
            "crawl": self.stores.config.crawl.name,
            "segments": {f"{one.folder}/{one.node}": one.manifest_sha256 for one in segments},
            "options": dict(options),
        }
        if (said := self._found(made_of)) is not None:
            return said, True
        self._delete_left()
        parent, _, name = self.path.rpartition("/")
        files = Files(self.stores, f"{parent}/.{name}.{uuid.uuid4().hex}")
        storage = self.stores.storage
        try:
            counts = fill(files)
            said = {
                "format_version": SEALED_VERSION,
                **made_of,
                "counts": counts,
                "files": files.entries,
            }
            storage.write_bytes(f"{files.folder}/{INPUTS}", sealed_json(said))
            reached("commoncrawl.written")
            storage.rename(files.folder, self.path)
        except BaseException as error:
            with suppress(StorageError):
                storage.delete(files.folder)
            if isinstance(error, StorageError) and (other := self._found(made_of)) is not None:
                return other, True  # another attempt was faster
            raise
        reached("commoncrawl.renamed")
        return said, False

    def _found(self, made_of: Said) -> Said | None:
        """Find the folder; return None before the folder is made."""
        if not self.stores.storage.exists(self.path):
            return None
        self.stores.storage.secure(self.path)
        try:
            said = self.read()
        except PathNotFoundError:
            said = {}
        differing = [name for name, value in made_of.items() if said.get(name) != value]
        if differing:
            raise OutputConflictError(
                f"{self.path}: is there already, and was made of other {' and '.join(differing)} (see {INPUTS} in it);"
                " move it away to have it made again"
            )
        return said

    def _delete_left(self) -> None:
        storage = self.stores.storage
        parent, _, name = self.path.rpartition("/")
        for entry in storage.list(parent) if storage.exists(parent) else ():
            if entry.name.startswith(f".{name}."):
                storage.delete(f"{parent}/{entry.name}")


@dataclass(frozen=True)
class FolderOutput(Output):
    """Folders made once, as an output. Folders of another crawl do not count."""

    again: str
    """The remedy for a damaged folder, and for a folder with a dropped page."""

    @abstractmethod
    def directories(self, stores: Stores) -> list[str]:
        """Name the directories of the folders, relative to the storage's root."""

    def folders(self, stores: Stores) -> list[MadeOnce]:
        """Return the folders of this crawl, and damaged folders. Raises StorageError."""
        found = []
        for directory in self.directories(stores):
            for entry in stores.storage.list(directory) if stores.storage.exists(directory) else ():
                folder = MadeOnce(stores, f"{directory}/{entry.name}", self.again)
                if entry.is_dir and not entry.name.startswith(".") and _may_be_ours(folder):
                    found.append(folder)
        return found

    def paths(self, stores: Stores) -> list[str]:
        """Name the folders."""
        return [folder.path for folder in self.folders(stores)]

    def check(self, stores: Stores, *, full: bool) -> list[Finding]:
        """Find folders with missing or wrong files.

        Sizes are compared and, if `full`, bytes.
        """
        findings = Findings(self.name, self.again)
        for folder in stores.until_stopped(self.folders(stores)):
            try:
                _require_whole(folder, full=full)
            except (DamagedFileError, PathNotFoundError) as error:
                problem = str(error).removesuffix(f"; {self.again}")
                findings.add(
                    f"{self.name}_damaged", folder.path, problem, severity=Severity.WARNING
                )
        return findings.list()

    def leftovers(self, stores: Stores) -> Iterator[tuple[str, str]]:
        """Find hidden folders next to whole ones."""
        for directory in self.directories(stores):
            yield from replaced_in(stores, directory)

    def places_of(self, stores: Stores, pages: Pages) -> Iterator[PagePlace]:
        """Find folders made of a segment with any of the pages."""
        segments = {name for names in pages.values() for name in names}
        for folder in self.folders(stores):
            with suppress(DamagedFileError, PathNotFoundError):
                if not segments.isdisjoint(folder.read()["segments"]):
                    yield PagePlace(folder.path, self.again)


def _may_be_ours(folder: MadeOnce) -> bool:
    with suppress(DamagedFileError, PathNotFoundError):
        return bool(folder.read()["crawl"] == folder.stores.config.crawl.name)
    return True


def _require_whole(folder: MadeOnce, *, full: bool) -> None:
    """Check a folder's files.

    Raises DamagedFileError or PathNotFoundError naming a file of the folder that is not as written.
    """
    storage = folder.stores.storage
    for entry in folder.read()["files"]:
        path = f"{folder.path}/{entry['name']}"
        there = storage.stat(path)
        if there is None or there.size_bytes != entry["size_bytes"]:
            raise DamagedFileError(
                f"{path}: is missing, or does not have its {entry['size_bytes']} bytes; {folder.again}"
            )
        if full and stored_digest(storage, path, folder.stores) != entry["sha256"]:
            raise DamagedFileError(
                f"{path}: differs from the written file (SHA-256); {folder.again}"
            )
