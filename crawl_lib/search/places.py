"""The places of captures, read from the table next to an index at each request."""

from dataclasses import dataclass
from pathlib import Path
from threading import Lock

import pyarrow.parquet as pq

from crawl_lib.errors import os_errors
from crawl_lib.index import INDEX
from crawl_lib.parquet import ParquetTable, parquet_errors
from crawl_lib.versions import find_rows


@dataclass(frozen=True)
class CapturePlace:
    """The place of a record. `segment`: `<folder>/<node>`; `offset`, `length`: bytes of its gzip member."""

    segment: str
    warc_file: str
    offset: int
    length: int


class CapturePlaces:
    """The places of the captures of an index's pages. The file stays open, and may be deleted meanwhile."""

    def __init__(self, file: Path) -> None:
        """Open the table. Raises DamagedFileError, StorageError."""
        remedy = f"; {INDEX.remedy}"
        with os_errors(file, "cannot be read"), parquet_errors(str(file), remedy):
            self._table = ParquetTable(
                pq.ParquetFile(file, memory_map=True), str(file), remedy, frozenset()
            )
        self._reading = Lock()

    def of(self, key: bytes) -> CapturePlace | None:
        """Return the place of a page's capture, or None.

        None: the index lacks the page. Raises DamagedFileError.
        """
        with self._reading:  # a reader of Parquet is for one thread at a time
            rows = [row for batch in find_rows(self._table, key) for row in batch.to_pylist()]
        for row in rows:
            return CapturePlace(
                row["segment"], row["warc_file"], row["warc_offset"], row["warc_length"]
            )
        return None
