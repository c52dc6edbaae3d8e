"""Versions of a table: the existing versions, and the version that counts.

A version is whole if its manifest is as written, and all parts exist with their sizes. Any other version is passed
over, and named by `krake fsck`; the last whole version counts.

The bytes of a part are not trusted. Readers of a whole version first compare the digest of each part: `give` for an
engine, `batches` for Arrow. A look-up of a key (`rows_of`) reads single row groups, and Arrow compares the checksums of
their pages. `krake fsck --repair` sets a damaged version aside (`set_aside`).
"""

import logging
import time
import uuid
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from hashlib import sha256
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from crawl_lib.crawldir import FileName
from crawl_lib.dfsfiles import read_json, stored_digest
from crawl_lib.engine import Engine
from crawl_lib.errors import DamagedFileError, PathNotFoundError
from crawl_lib.findings import Finding, Findings, Severity
from crawl_lib.parquet import ParquetTable, open_parquet, parquet_batches
from crawl_lib.sealed import MANIFEST_FILE
from crawl_lib.stores import Stores

GROUP_ROWS = 1 << 16
"""The rows of a row group."""
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Family:
    """Tables of one kind, in a folder of the crawl directory.

    `name`: in messages. `schema`: the columns; rows are in ascending order of the first column, `key`. `made_again`:
    the command, or the event, that brings the rows of a damaged version back. `rebuilt`: the remedy if no version is
    whole; "": `made_again` is enough. `dictionary`: columns with few values. `counted`: the columns with counts of
    values in the manifest, each with the name of its counts.
    """

    folder: str
    name: str
    schema: pa.Schema
    made_again: str
    rebuilt: str = ""
    dictionary: tuple[str, ...] = ()
    counted: Mapping[str, str] = field(default_factory=dict)

    @property
    def remedy(self) -> str:
        """The remedy for a damaged version."""
        return f"run `krake fsck --repair`, which sets the version aside; {self.made_again}"


@dataclass(frozen=True)
class VersionFacts:
    """The result of a task that makes a version: its number, path and rows."""

    version: int
    path: str
    rows: int


@dataclass(frozen=True)
class Version:
    """A whole version. `paths`: its parts in order of keys, relative to the storage's root.

    `manifest`: `version`, the facts of its maker, `rows`, counts by the family's columns, and `parts` (name, rows,
    first and last key in hex, size_bytes, sha256). A version that is no table has parts without rows and keys.
    """

    number: int
    path: str
    manifest: dict[str, Any]
    paths: tuple[str, ...]

    @property
    def facts(self) -> VersionFacts:
        """The result of the task that makes a version."""
        return VersionFacts(self.number, self.path, self.manifest["rows"])

    @property
    def digest(self) -> str:
        """The SHA-256 of the rows in hex, or the maker's digest.

        The maker notes a digest for versions whose bytes differ from run to run.
        """
        if noted := self.manifest.get("digest"):
            return str(noted)
        digests = "\n".join(part["sha256"] for part in self.manifest["parts"])
        return sha256(digests.encode()).hexdigest()


@dataclass(frozen=True)
class Versions:
    """The versions of a family in a crawl directory."""

    stores: Stores
    family: Family

    @property
    def folder(self) -> str:
        """The folder of the versions, relative to the storage's root."""
        return self.stores.crawl.at(self.family.folder)

    def path(self, number: int) -> str:
        """Return the folder of a version, existing or not."""
        return f"{self.folder}/{number}"

    def hidden(self, number: int) -> str:
        """Return a new hidden path for an attempt at a version."""
        return f"{self.folder}/.{number}-{uuid.uuid4().hex}"

    def numbers(self) -> list[int]:
        """Return the existing versions, complete or not, newest first."""
        names = self.stores.crawl.names(self.family.folder)
        return sorted((int(name) for name in names if name.isdecimal()), reverse=True)

    def aside(self) -> list[str]:
        """Return the folders of damaged versions set aside, sorted.

        `.damaged-<number>-<time>`.
        """
        storage = self.stores.storage
        names = (
            [entry.name for entry in storage.list(self.folder)]
            if storage.exists(self.folder)
            else []
        )
        return sorted(name for name in names if name.startswith(FileName.DAMAGED_PREFIX))

    def next_number(self) -> int:
        """Return the number of the next version.

        The number is above all existing numbers: complete, damaged or set aside.
        """
        aside = (
            name.removeprefix(FileName.DAMAGED_PREFIX).partition("-")[0] for name in self.aside()
        )
        return max([0, *self.numbers(), *map(int, aside)]) + 1

    def read(self, number: int) -> Version:
        """Return a version.

        Raises DamagedFileError if the version is incomplete, naming the missing part, or StorageError.
        """
        folder, storage, remedy = self.path(number), self.stores.storage, self.family.remedy
        try:
            manifest = read_json(storage, f"{folder}/{MANIFEST_FILE}")
            there = {entry.name: entry.size_bytes for entry in storage.list(folder)}
            parts = [(str(part["name"]), int(part["size_bytes"])) for part in manifest["parts"]]
        except (PathNotFoundError, DamagedFileError, KeyError, TypeError, ValueError) as error:
            problem = f"is no whole version of {self.family.name}: {error}"
            raise DamagedFileError(f"{folder}: {problem}; {remedy}") from error
        for name, size_bytes in parts:
            if there.get(name) != size_bytes:
                raise DamagedFileError(
                    f"{folder}/{name}: is not there, or has not the size that was written; {remedy}"
                )
        return Version(number, folder, manifest, tuple(f"{folder}/{name}" for name, _ in parts))

    def newest(self) -> Version | None:
        """Return the newest complete version, or None.

        None: before the first. Raises StorageError. Newer damaged versions are named in the log. Raises
        DamagedFileError if all versions are damaged: the next version would begin with nothing.
        """
        damaged: DamagedFileError | None = None
        for number in self.numbers():
            try:
                return self.read(number)
            except DamagedFileError as error:
                damaged = damaged or error
                log.warning("%s", error)
        if damaged is not None:
            rebuilt = self.family.rebuilt or self.family.made_again
            raise DamagedFileError(f"{damaged}; no version is whole: {rebuilt}") from damaged
        return None

    def give(self, version: Version | None, engine: Engine, name: str) -> None:
        """Make an engine's table of a version's checked rows.

        The digest of each part is compared. None: no rows. Raises DamagedFileError naming the part, PathNotFoundError,
        StorageError, StoppedError.
        """
        if version is not None:
            self._require_digests(version)
        engine.tables(name, version.paths if version is not None else (), self.family.schema)

    def batches(
        self, version: Version, columns: Sequence[str], *, is_compared: bool = False
    ) -> Iterator[pa.RecordBatch]:
        """Read columns of a complete version in key order.

        Raises as `give`. The digest of each part is compared first. `is_compared`: this task has compared the digests
        already, by `give`.
        """
        for number, path in enumerate(version.paths):
            if not is_compared:
                self._require_digest(version, number)
            batches = parquet_batches(
                self.stores.storage, path, self.family.schema, columns, f"; {self.family.remedy}"
            )
            yield from self.stores.until_stopped(batches)

    def rows_of(self, version: Version, key: bytes) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a key.

        In each part that may have the key, only the keys of a few row groups are read, and their rows. Raises
        DamagedFileError if the checksum of a read page differs, StorageError, StoppedError.
        """
        storage, schema, remedy = self.stores.storage, self.family.schema, f"; {self.family.remedy}"
        for part, path in zip(version.manifest["parts"], version.paths, strict=True):
            if part["first_key"] <= key.hex() <= part["last_key"]:
                with open_parquet(storage, path, schema, remedy) as table:
                    if (rows := table.rows) != part["rows"]:
                        raise DamagedFileError(
                            f"{path}: has {rows} rows, and {part['rows']} were written{remedy}"
                        )
                    yield from self.stores.until_stopped(find_rows(table, key))

    def check(self, *, full: bool = True) -> list[Finding]:
        """Return the damages of versions.

        `full`: every byte is read. Raises StorageError, StoppedError.
        """
        findings = Findings(self.family.folder, self.family.remedy)
        for number in self.numbers():
            try:
                version = self.read(number)
                if full:
                    self._require_digests(version)
            except DamagedFileError as error:
                name = f"{self.family.folder}_damaged"
                problem = str(error).removesuffix(f"; {self.family.remedy}")
                findings.add(name, self.path(number), problem, severity=Severity.WARNING)
        return findings.list()

    def set_aside(self, number: int) -> str:
        """Rename a damaged version's folder; return the new path.

        The version before then counts. Raises StorageError.
        """
        aside = f"{self.folder}/{FileName.DAMAGED_PREFIX}{number}-{time.time_ns()}"  # two of a second keep both
        self.stores.storage.rename(self.path(number), aside)
        return aside

    def _require_digests(self, version: Version) -> None:
        for number in range(len(version.paths)):
            self._require_digest(version, number)

    def _require_digest(self, version: Version, number: int) -> None:
        """Compare a part with its digest."""
        path = version.paths[number]
        if (
            stored_digest(self.stores.storage, path, self.stores)
            != version.manifest["parts"][number]["sha256"]
        ):
            raise DamagedFileError(
                f"{path}: differs from the written file (SHA-256); {self.family.remedy}"
            )


def find_rows(table: ParquetTable, key: bytes) -> Iterator[pa.RecordBatch]:
    """Yield a key's rows in a table in key order.

    Raises DamagedFileError, StorageError.
    """

    @cache
    def ends(group: int) -> tuple[bytes, bytes]:
        keys = table.group(group, ["key"]).column(0)
        return keys[0].as_py(), keys[-1].as_py()

    for group in range(_first_group(table, key, ends), table.groups):
        if ends(group)[0] > key:
            break
        found = table.group(group)
        wanted = pa.scalar(key, found.schema.field("key").type)
        yield from found.filter(pc.equal(found.column("key"), wanted)).to_batches()


def _first_group(
    table: ParquetTable, key: bytes, ends: Callable[[int], tuple[bytes, bytes]]
) -> int:
    """Find the first row group that may have a key.

    The last key of this row group is not less than the key. `ends`: reads the ends of a group. The footer has the last
    key of each group. No checksum protects the footer, so the keys of two groups are read: if these keys do not agree,
    the keys of further groups are read, by bisection.
    """
    groups = range(table.groups)
    found = bisect_left(groups, key, key=lambda group: table.last_key(group) or ends(group)[1])
    is_after = not found or ends(found - 1)[1] < key
    agrees = is_after and (found == table.groups or ends(found)[1] >= key)
    return found if agrees else bisect_left(groups, key, key=lambda group: ends(group)[1])
