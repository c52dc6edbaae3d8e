"""Writing a version: rows in order of keys into parts, a sealed manifest, and one rename.

The same rows give the same bytes, whichever engine they come from: this is the only writer.
"""

import hashlib
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from crawl_lib.crawldb.table import CRAWLDB_SCHEMA
from crawl_lib.crawldb.version import CRAWLDB_FOLDER, Version, read_version, version_numbers, version_path
from crawl_lib.crawldir import write_json_bytes
from crawl_lib.durable import reached
from crawl_lib.errors import StorageError
from crawl_lib.sealed import MANIFEST_FILE, SEALED_VERSION
from crawl_lib.stores import Stores

GROUP_ROWS = 1 << 16
"""Of a row group."""
PART_ROWS = 1 << 20
"""Of a part: what is read to look at one URL is a row group of one part."""
DICTIONARY = ["host", "domain", "status", "fetch_status", "capture_segment", "capture_file", "metadata"]


def write_version(
    stores: Stores, number: int, batches: Iterable[pa.RecordBatch], facts: dict[str, Any]
) -> Version | None:
    """Write a version, make it visible by one rename, and delete those beyond `crawldb.keep_versions`.

    `batches`: rows in ascending order of keys, in batches of `GROUP_ROWS`. `facts`: what the manifest says besides
    counts and parts. Returns None, and leaves nothing, if another update has made a version of that number meanwhile.
    Raises StorageError.
    """
    crawl, folder = stores.crawl, version_path(stores.crawl, number)
    hidden = crawl.at(CRAWLDB_FOLDER, f".{number}-{uuid.uuid4().hex}")
    try:
        parts = _Parts(stores, hidden)
        parts.write(batches)
        manifest = {
            **facts,
            "format_version": SEALED_VERSION,
            "version": number,
            "rows": sum(parts.statuses.values()),
            "statuses": dict(sorted(parts.statuses.items())),
            "parts": parts.entries,
        }
        stores.storage.write_bytes(f"{hidden}/{MANIFEST_FILE}", write_json_bytes(manifest))
        reached("crawldb.update.written")
        stores.storage.rename(hidden, folder)
    except BaseException as error:
        with suppress(StorageError):
            stores.storage.delete(hidden)
        if isinstance(error, StorageError) and stores.storage.exists(folder):
            return None
        raise
    reached("crawldb.update.renamed")
    version = read_version(crawl, number)
    remove_older(stores)
    return version


def remove_older(stores: Stores) -> None:
    """Delete versions beyond the newest `crawldb.keep_versions`, and what killed updates left of these numbers."""
    numbers = version_numbers(stores.crawl)
    for number in numbers[stores.config.crawldb.keep_versions :]:
        stores.storage.delete(version_path(stores.crawl, number))
    for entry in stores.storage.list(stores.crawl.at(CRAWLDB_FOLDER)):
        left = entry.name.removeprefix(".").partition("-")[0]
        if entry.name.startswith(".") and left.isdecimal() and int(left) <= numbers[0]:
            stores.storage.delete(stores.crawl.at(CRAWLDB_FOLDER, entry.name))


@dataclass
class _Parts:
    """The parts of a version that is being written. `entries`: of the manifest."""

    stores: Stores
    hidden: str
    entries: list[dict[str, Any]] = field(default_factory=list)
    statuses: "Counter[str]" = field(default_factory=Counter)

    def write(self, batches: Iterable[pa.RecordBatch]) -> None:
        """All rows; without any there is one part with none."""
        waiting = iter(self.stores.until_stopped(batches))
        first = next(waiting, None)
        while first is not None or not self.entries:
            first = self._part(first, waiting)

    def _part(self, first: pa.RecordBatch | None, rest: Iterator[pa.RecordBatch]) -> pa.RecordBatch | None:
        """One part; returns the batch that begins the next one."""
        name, rows, keys = f"part-{len(self.entries):05d}.parquet", 0, [b"", b""]
        with self.stores.storage.open_write(f"{self.hidden}/{name}") as file:
            hashed = Hashed(file)
            with pq.ParquetWriter(
                hashed,  # type: ignore[arg-type]
                CRAWLDB_SCHEMA,
                compression="zstd",
                use_dictionary=DICTIONARY,  # type: ignore[arg-type]
                write_page_checksum=True,
            ) as writer:
                while first is not None and rows < PART_ROWS:
                    table = pa.Table.from_batches([first]).cast(CRAWLDB_SCHEMA)
                    writer.write_table(table, row_group_size=len(table))
                    keys = [keys[0] or table["key"][0].as_py(), table["key"][-1].as_py()]
                    rows += len(table)
                    self._count(table)
                    first = next(rest, None)
        entry = {"name": name, "rows": rows, "first_key": keys[0].hex(), "last_key": keys[1].hex()}
        self.entries.append({**entry, "size_bytes": hashed.size_bytes, "sha256": hashed.digest.hexdigest()})
        return first

    def _count(self, table: pa.Table) -> None:
        self.statuses.update(map(str, table["status"].to_pylist()))


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
        """How many bytes were written."""
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
