"""Reading a committed segment: manifest, tables, single records, whole WARC files, outlinks."""

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import AbstractContextManager
from functools import cached_property
from hashlib import sha256
from typing import Any

import pyarrow as pa

from crawl_lib.dfsfiles import stored_digest
from crawl_lib.errors import DamagedFileError, PathNotFoundError
from crawl_lib.parquet import ParquetTable, open_parquet, parquet_errors
from crawl_lib.sealed import MANIFEST_FILE
from crawl_lib.segment.manifest import DroppedLists, Manifest
from crawl_lib.segment.parts import REPAIR, Part
from crawl_lib.segment.schema import LINKS_SCHEMA, PAGES_SCHEMA, with_later_fields
from crawl_lib.stopping import Work
from crawl_lib.storage import Storage
from crawl_lib.urlfiles import OUTLINKS_NAME, part_mapping, read_outlinks
from crawl_lib.warc import WarcRecord, read_one, walk

BATCH_ROWS = 10_000
SCHEMAS = {Manifest.PAGES_NAME: PAGES_SCHEMA, Manifest.LINKS_NAME: LINKS_SCHEMA}


class SegmentReader:
    """One segment. `path`: its folder on the store. Everything streams; raises StorageError and DamagedFileError."""

    def __init__(self, storage: Storage, path: str) -> None:
        self._storage, self.path = storage, path
        self._lists = DroppedLists(storage, path)

    @cached_property
    def _manifest_bytes(self) -> bytes:
        where = f"{self.path}/{MANIFEST_FILE}"
        try:
            return self._storage.read_bytes(where)
        except PathNotFoundError as error:
            raise PathNotFoundError(f"{where}: is not there; {REPAIR}") from error

    @cached_property
    def manifest(self) -> Manifest:
        """Its manifest."""
        return Manifest.from_bytes(
            self._manifest_bytes, f"{self.path}/{MANIFEST_FILE}", f"; {REPAIR}"
        )

    def lacks(self, name: str) -> bool:
        """Return whether a table is missing since no URL was taken.

        A manifest that cannot be read says nothing of it: repairs read the tables without one.
        """
        try:
            return self.manifest.lacks(name)
        except (PathNotFoundError, DamagedFileError):
            return False

    @property
    def digest(self) -> str:
        """The segment's content as one SHA-256, in hex.

        The digest covers the manifest and the lists of dropped pages. Two equal digests mean equal rows. Raises
        PathNotFoundError naming the segment.
        """
        try:
            manifest = sha256(self._manifest_bytes).hexdigest()
            names = self._lists.names()
        except PathNotFoundError as error:
            raise PathNotFoundError(
                f"{self.path}: the segment is gone, or has no {MANIFEST_FILE}: {error}"
            ) from error
        return sha256("\n".join([manifest, *names]).encode()).hexdigest() if names else manifest

    @property
    def warc_files(self) -> list[str]:
        """Names of its WARC files."""
        return [
            entry.name for entry in self.manifest.files if entry.name.endswith(Part.WARC_SUFFIX)
        ]

    @cached_property
    def dropped(self) -> frozenset[bytes]:
        """Keys of dropped pages in the segment's files.

        See `manifest`.
        """
        listed = {entry.name for entry in self.manifest.files}
        names = [name for name in self._lists.names() if name not in listed]
        return frozenset(self._lists.read(names))

    @cached_property
    def taken_out(self) -> frozenset[bytes]:
        """Keys of all pages that were ever taken out; they stay known."""
        return frozenset(self._lists.read())

    def pages(
        self, columns: Sequence[str] | None = None, *, with_dropped: bool = False
    ) -> Iterator[pa.RecordBatch]:
        """Yield rows of `pages` in batches, with all `columns` or some.

        Rows of dropped pages come only if asked for. Raises PathNotFoundError, DamagedFileError or StorageError naming
        the file.
        """
        return self._table(Manifest.PAGES_NAME, columns, None if with_dropped else "key")

    def find(self, keys: Collection[bytes], group: int | None = None) -> Iterator[dict[str, Any]]:
        """Yield the rows of `pages` of some keys, without dropped pages.

        Only row groups with such rows are read whole.

        `group`: look in this row group alone; None: in all. Raises what `pages` does.
        """
        import pyarrow.compute as pc  # noqa: PLC0415 - not for fetching processes

        if self.lacks(Manifest.PAGES_NAME):
            return
        wanted = pa.array(sorted({*keys} - self.dropped), pa.binary(20))
        with self._open(Manifest.PAGES_NAME) as table, parquet_errors(table.where, table.remedy):
            for number in [n for n in range(table.groups) if group in {None, n}]:
                its_keys = table.group(number, ["key"])
                chosen = pc.is_in(its_keys.column(0), value_set=wanted)
                if pc.any(chosen).as_py():
                    others = table.group(number, [name for name in table.names if name != "key"])
                    found = (part.filter(chosen).to_pylist() for part in (its_keys, others))
                    for key, row in zip(*found, strict=True):
                        yield {**dict.fromkeys(PAGES_SCHEMA.names), **key, **row}

    def row_groups(self, columns: Sequence[str]) -> Iterator[tuple[int, pa.Table]]:
        """Yield the row groups of `pages` with their numbers.

        Dropped pages are left out.

        `columns`: `key` has to be among them. Raises what `pages` does.
        """
        import pyarrow.compute as pc  # noqa: PLC0415 - not for fetching processes

        if self.lacks(Manifest.PAGES_NAME):
            return
        dropped = pa.array(sorted(self.dropped), pa.binary(20))
        with self._open(Manifest.PAGES_NAME) as table, parquet_errors(table.where, table.remedy):
            for number in range(table.groups):
                rows = table.group(number, columns)
                yield (
                    number,
                    rows.filter(pc.invert(pc.is_in(rows["key"], value_set=dropped)))
                    if dropped
                    else rows,
                )

    def links(
        self, columns: Sequence[str] | None = None, *, with_dropped: bool = False
    ) -> Iterator[pa.RecordBatch]:
        """Yield rows of `links`, with all columns or some.

        Links on dropped pages come only if asked for.
        """
        return self._table(Manifest.LINKS_NAME, columns, None if with_dropped else "source")

    def verified(self, name: str, work: Work) -> str | None:
        """Compare a table with its digest in the manifest; return its path.

        None: the segment lacks the table. An engine does not notice changed bytes, so every table of a segment that one
        reads passes through here. `work`: is told how far it is. Raises PathNotFoundError, DamagedFileError naming the
        repair, StorageError, StoppedError.
        """
        if self.lacks(name):
            return None
        where = f"{self.path}/{name}"
        for entry in self.manifest.files:
            if entry.name != name:
                continue
            if stored_digest(self._storage, where, work, entry.size_bytes) != entry.sha256:
                raise DamagedFileError(
                    f"{where}: differs from the written file (SHA-256); {REPAIR}"
                )
        return where

    def rows(self, name: str) -> int:
        """Count the rows of a table by its footer alone.

        Raises as `pages` does.
        """
        if self.lacks(name):
            return 0
        with self._open(name) as table:
            return table.rows

    def read_record(self, warc_file: str, offset: int, length: int) -> WarcRecord:
        """Read the record at an offset of a WARC file.

        A row of `pages` or a CDXJ line has the `offset` and the `length` in bytes. Raises PathNotFoundError or
        StorageError; DamagedFileError if no whole record is there.
        """
        where = f"{self.path}/{warc_file}"
        with self._storage.open_read(where, offset, length) as file:
            return read_one(file.read(), offset, where)

    def records(self, warc_file: str) -> Iterator[WarcRecord]:
        """Yield all records of a WARC file in file order.

        Raises DamagedFileError after the last readable record.
        """
        found: Counter[str] = Counter()
        with self._storage.open_read(f"{self.path}/{warc_file}") as file:
            yield from walk(file, found)
        if found:
            raise DamagedFileError(
                f"{self.path}/{warc_file}: cannot be read to its end ({', '.join(found)}); {REPAIR}"
            )

    def outlinks(self, owner: str) -> Iterator[bytes]:
        """Yield the outlink lines for the node `owner`, in intake's order.

        There are none if the node owns none.
        """
        mapping = self.manifest.outlinks.get(owner)
        if mapping is None:
            return iter(())
        where = f"{self.path}/{OUTLINKS_NAME}"
        part = part_mapping(mapping, where)
        return read_outlinks(
            self._storage.open_read(where, part.offset, part.length), where, part.count
        )

    def _table(
        self, name: str, columns: Sequence[str] | None, key_column: str | None
    ) -> Iterator[pa.RecordBatch]:
        dropped = self.dropped if key_column else frozenset[bytes]()
        if not key_column or not dropped:
            yield from self._batches(name, columns)
            return
        import pyarrow.compute as pc  # noqa: PLC0415 - not for fetching processes

        keys = pa.array(sorted(dropped), pa.binary(20))
        read = None if columns is None else list(dict.fromkeys([*columns, key_column]))
        for batch in self._batches(name, read):
            kept = batch.filter(pc.invert(pc.is_in(batch.column(key_column), value_set=keys)))
            yield kept if columns is None else kept.select(list(columns))

    def _batches(self, name: str, columns: Sequence[str] | None) -> Iterator[pa.RecordBatch]:
        if self.lacks(name):
            return
        schema = SCHEMAS[name]
        wanted = [
            schema.field(column).name for column in (schema.names if columns is None else columns)
        ]
        with self._open(name) as table:
            for batch in table.batches(
                BATCH_ROWS, [column for column in wanted if column in table.names]
            ):
                yield with_later_fields(batch, wanted)

    def _open(self, name: str) -> AbstractContextManager[ParquetTable]:
        return open_parquet(self._storage, f"{self.path}/{name}", SCHEMAS[name], f"; {REPAIR}")
