"""Versions of a table: which there are, and which one counts.

A version is whole if its manifest is as written, and all parts are there with their sizes. One that is not is passed
over, and named by `krake fsck`; the last whole one counts.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from crawl_lib.crawldir import read_json
from crawl_lib.errors import DamagedFileError, PathNotFoundError
from crawl_lib.findings import Finding, Findings, Severity
from crawl_lib.sealed import MANIFEST_FILE
from crawl_lib.segment import parquet_batches
from crawl_lib.stores import Stores

GROUP_ROWS = 1 << 16
"""Of a row group."""
log = logging.getLogger(__name__)
_BLOCK_BYTES = 1 << 20


@dataclass(frozen=True)
class Family:
    """Tables of one kind, in a folder of the crawl directory.

    `name`: in messages. `schema`: the columns; rows are in ascending order of the first one, `key`. `remedy`: what to
    do about a damaged version; `rebuilt`: and if no version is whole. `dictionary`: columns with few values. `counted`:
    the columns whose values the manifest counts, each with the name that the counts have there.
    """

    folder: str
    name: str
    schema: pa.Schema
    remedy: str
    rebuilt: str = "do so with all of them"
    dictionary: tuple[str, ...] = ()
    counted: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Version:
    """A whole version. `paths`: its parts in order of keys, relative to the storage's root.

    `manifest`: `version`, what its maker says of it, `rows`, counts by the family's columns, and `parts` (name, rows,
    first and last key in hex, size_bytes, sha256).
    """

    number: int
    path: str
    manifest: dict[str, Any]
    paths: tuple[str, ...]

    @property
    def digest(self) -> str:
        """Of its rows: SHA-256 in hex."""
        return sha256("\n".join(part["sha256"] for part in self.manifest["parts"]).encode()).hexdigest()


@dataclass(frozen=True)
class Versions:
    """The versions of a family in a crawl directory."""

    stores: Stores
    family: Family

    @property
    def folder(self) -> str:
        """Where they are, relative to the storage's root."""
        return self.stores.crawl.at(self.family.folder)

    def path(self, number: int) -> str:
        """The folder of a version, whether it is there or not."""
        return f"{self.folder}/{number}"

    def numbers(self) -> list[int]:
        """The versions that are there, whole or not, newest first."""
        names = self.stores.crawl.names(self.family.folder)
        return sorted((int(name) for name in names if name.isdecimal()), reverse=True)

    def next_number(self) -> int:
        """Of the version that is made next: above all that are there, whole or not."""
        return max(self.numbers(), default=0) + 1

    def read(self, number: int) -> Version:
        """A version. Raises DamagedFileError if it is not whole, naming what it lacks, or StorageError."""
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
                raise DamagedFileError(f"{folder}/{name}: is not there, or has not the size that was written; {remedy}")
        return Version(number, folder, manifest, tuple(f"{folder}/{name}" for name, _ in parts))

    def newest(self) -> Version | None:
        """The newest whole version, None before the first. Raises StorageError.

        Those that are newer and damaged are named in the log. Raises DamagedFileError if there are versions, and none
        is whole: what is made next would begin with nothing.
        """
        damaged: DamagedFileError | None = None
        for number in self.numbers():
            try:
                return self.read(number)
            except DamagedFileError as error:
                damaged = damaged or error
                log.warning("%s", error)
        if damaged is not None:
            raise DamagedFileError(f"{damaged}; no version is whole: {self.family.rebuilt}") from damaged
        return None

    def batches(
        self, version: Version, columns: Sequence[str], paths: Sequence[str] | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Columns of a version, or of some of its parts, in order of keys. Raises DamagedFileError, StoppedError."""
        for path in version.paths if paths is None else paths:
            remedy, storage = f"; {self.family.remedy}", self.stores.storage
            batches = parquet_batches(storage, path, self.family.schema, columns, remedy)
            yield from self.stores.until_stopped(batches)

    def rows_of(self, version: Version, key: bytes) -> Iterator[pa.RecordBatch]:
        """The rows of a key, of which only the parts are read that may have some. Raises as `batches` does."""
        wanted = pa.scalar(key, pa.binary(20))
        for part, path in zip(version.manifest["parts"], version.paths, strict=True):
            if part["first_key"] <= key.hex() <= part["last_key"]:
                for batch in self.batches(version, self.family.schema.names, [path]):
                    if len(found := batch.filter(pc.equal(batch.column("key"), wanted))):
                        yield found

    def check(self, *, full: bool = True) -> list[Finding]:
        """Versions that are not whole. `full`: every byte is read. Raises StorageError, StoppedError."""
        findings = Findings(self.family.folder, self.family.remedy)
        for number in self.numbers():
            try:
                version = self.read(number)
                if full:
                    self._require_bytes(version)
            except DamagedFileError as error:
                name, path = f"{self.family.folder}_damaged", self.path(number)
                problem = str(error).removesuffix(f"; {self.family.remedy}")
                repair = self.family.remedy.replace("its folder", f"the folder {path}")
                findings.add(name, path, problem, repair=repair, severity=Severity.WARNING)
        return findings.list()

    def _require_bytes(self, version: Version) -> None:
        for path, part in zip(version.paths, version.manifest["parts"], strict=True):
            digest = sha256()
            with self.stores.storage.open_read(path) as file:
                while block := file.read(_BLOCK_BYTES):
                    self.stores.go_on()
                    digest.update(block)
            if digest.hexdigest() != part["sha256"]:
                raise DamagedFileError(f"{path}: is not what was written (SHA-256)")
