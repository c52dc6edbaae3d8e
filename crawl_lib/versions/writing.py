"""Writing a version: files in a hidden folder, a sealed manifest of them, and one rename.

Files are the parts of a table (`write_version`), or whatever else fills the folder (`seal_version`). The same rows give
the same bytes of parts, whichever engine they come from: `write_version` is the only writer of tables.
"""

import hashlib
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from crawl_lib.dfsfiles import stored_digest, write_json_bytes
from crawl_lib.durable import reached
from crawl_lib.errors import StorageError
from crawl_lib.sealed import MANIFEST_FILE, SEALED_VERSION
from crawl_lib.stores import Stores
from crawl_lib.versions.version import Version, Versions
from crawl_lib.versions.work import VersionWork

PART_ROWS = 1 << 20
"""Of a part: what is read to look at one URL is a row group of one part."""


def write_version(
    versions: Versions, number: int, batches: Iterable[pa.RecordBatch], facts: dict[str, Any]
) -> Version | None:
    """Write a version of a table's rows.

    `batches`: rows in ascending order of keys, in batches of `GROUP_ROWS`. `facts`: what the manifest says besides
    counts and parts. Returns and raises what `seal_version` does.
    """

    def fill(hidden: str) -> Filled:
        parts = _Parts(versions, hidden)
        parts.write(batches)
        counted = versions.family.counted.items()
        counts = {name: dict(sorted(parts.counts[column].items())) for column, name in counted}
        return Filled({"rows": parts.rows, **counts}, parts.entries)

    return seal_version(versions, number, fill, facts)


@dataclass(frozen=True)
class Filled:
    """Content of a hidden folder. `facts`: for the manifest. `parts`: entries of files that were hashed."""

    facts: dict[str, Any]
    parts: Sequence[dict[str, Any]] = ()


def seal_version(
    versions: Versions, number: int, fill: Callable[[str], Filled], facts: dict[str, Any]
) -> Version | None:
    """Make a version of a folder, visible by one rename.

    Versions beyond `crawldb.keep_versions` are deleted.

    `fill`: writes files to a hidden folder, whose path it gets. Files that it has not hashed are read and hashed here:
    the manifest names each with its size and SHA-256. `facts`: what the manifest says besides. Returns None, and leaves
    nothing, if another task has made a version of that number meanwhile. Raises StorageError, StoppedError.
    """
    storage, folder = versions.stores.storage, versions.path(number)
    hidden = versions.hidden(number)
    try:
        filled = fill(hidden)
        parts = [
            *filled.parts,
            *_unhashed(versions.stores, hidden, {part["name"] for part in filled.parts}),
        ]
        manifest = {
            **facts,
            "format_version": SEALED_VERSION,
            "version": number,
            **filled.facts,
            "parts": parts,
        }
        storage.write_bytes(f"{hidden}/{MANIFEST_FILE}", write_json_bytes(manifest))
        reached("versions.written")
        storage.rename(hidden, folder)
    except BaseException as error:
        with suppress(StorageError):
            storage.delete(hidden)
        if isinstance(error, StorageError) and storage.exists(folder):
            return None
        raise
    reached("versions.renamed")
    version = versions.read(number)
    _remove_older(versions)
    return version


def _unhashed(stores: Stores, hidden: str, hashed: Collection[str]) -> Iterator[dict[str, Any]]:
    """Return manifest entries of unhashed files, once durable."""
    for entry in stores.until_stopped(stores.storage.list(hidden)):
        if entry.name not in hashed:
            path = f"{hidden}/{entry.name}"
            stores.storage.secure(path)
            digest = stored_digest(stores.storage, path, stores)
            yield {"name": entry.name, "size_bytes": entry.size_bytes, "sha256": digest}


def make_version(
    versions: Versions,
    rows: Callable[[VersionWork], Iterator[pa.RecordBatch]],
    facts: dict[str, Any],
) -> Version | None:
    """Write the next version.

    `rows`: made with an engine. Returns and raises what `write_version` and `VersionWork.of` do.
    """
    number = versions.next_number()
    with VersionWork.of(versions, number) as work:
        return write_version(versions, number, rows(work), facts)


def _remove_older(versions: Versions) -> None:
    """Delete versions beyond the newest `crawldb.keep_versions`.

    What killed tasks left of those before the newest goes too: of its own number another task may still be at work.
    """
    storage, numbers = versions.stores.storage, versions.numbers()
    for number in numbers[versions.stores.config.crawldb.keep_versions :]:
        storage.delete(versions.path(number))
    for entry in storage.list(versions.folder):
        left = entry.name.removeprefix(".").partition("-")[0]
        if entry.name.startswith(".") and left.isdecimal() and int(left) < numbers[0]:
            storage.delete(f"{versions.folder}/{entry.name}")


@dataclass
class _Parts:
    """The parts of a version that is being written. `entries`: of the manifest."""

    versions: Versions
    hidden: str
    entries: list[dict[str, Any]] = field(default_factory=list)
    rows: int = 0
    counts: "dict[str, Counter[str]]" = field(default_factory=lambda: defaultdict(Counter))

    def write(self, batches: Iterable[pa.RecordBatch]) -> None:
        """Write all rows.

        Without any there is one part with none.
        """
        waiting = iter(self.versions.stores.until_stopped(batches))
        first = next(waiting, None)
        while first is not None or not self.entries:
            first = self._part(first, waiting)

    def _part(
        self, first: pa.RecordBatch | None, rest: Iterator[pa.RecordBatch]
    ) -> pa.RecordBatch | None:
        """Write one part; return the next one's first batch."""
        stores, family = self.versions.stores, self.versions.family
        name, rows, keys = f"part-{len(self.entries):05d}.parquet", 0, [b"", b""]
        with stores.storage.open_write(f"{self.hidden}/{name}") as file:
            hashed = Hashed(file)
            with pq.ParquetWriter(
                hashed,  # type: ignore[arg-type]
                family.schema,
                compression="zstd",
                use_dictionary=list(family.dictionary),  # type: ignore[arg-type]
                write_page_checksum=True,
            ) as writer:
                while first is not None and rows < PART_ROWS:
                    table = pa.Table.from_batches([first]).cast(family.schema)
                    writer.write_table(table, row_group_size=len(table))
                    keys = [keys[0] or table["key"][0].as_py(), table["key"][-1].as_py()]
                    rows += len(table)
                    for column in family.counted:
                        values, counts = pc.value_counts(table[column]).flatten()
                        found = zip(map(str, values.to_pylist()), counts.to_pylist(), strict=True)
                        self.counts[column].update(dict(found))
                    first = next(rest, None)
        entry = {"name": name, "rows": rows, "first_key": keys[0].hex(), "last_key": keys[1].hex()}
        self.rows += rows
        self.entries.append(
            {**entry, "size_bytes": hashed.size_bytes, "sha256": hashed.digest.hexdigest()}
        )
        return first


class Hashed:
    """A file that is written from start to end, and hashed on its way."""

    closed = False

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.digest = hashlib.sha256()
        self.size_bytes = 0

    def write(self, data: Any) -> int:
        """Append bytes."""
        self.digest.update(data)
        self._file.write(data)
        self.size_bytes += len(data)
        return len(data)

    def tell(self) -> int:
        """Return the number of bytes written."""
        return self.size_bytes

    def flush(self) -> None:
        """Nothing: it is the caller's file."""

    def writable(self) -> bool:
        """It is."""
        return True

    def readable(self) -> bool:
        """It is not."""
        return False

    def seekable(self) -> bool:
        """It is not."""
        return False

    def close(self) -> None:
        """Nothing: it is the caller's file."""
