"""The files of an export by name, and its tables: their columns, how they are read, and what cures their damage."""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from typing import ClassVar

import pyarrow as pa

from crawl_lib.export.choice import REMEDY
from crawl_lib.parquet import NO_COLUMNS, ParquetTable, open_parquet, parquet_batches
from crawl_lib.segment import PAGES_SCHEMA
from crawl_lib.storage import Storage
from crawl_lib.stores import Stores

PAGES = "pages.parquet"
URL_MAPPING = "urlmapping"
OFFSETS = "offsets"
CONTENT = "content"
ARCS_OUT = "arcs-out.parquet"
ARCS_IN = "arcs-in.parquet"
GRAPH_INDEX = "webgraph-index"
WEB_GRAPH = "webgraph"
NOT_EXPORTED = frozenset({"retry_at", "refers_to", "payload_digest", "hop"})
"""Columns of `pages` that would say nothing: what is exported is final, a full capture, and a page."""
EXPORT_SCHEMA = pa.schema(
    [
        pa.field("node_id", pa.int32(), nullable=False),
        *(field for field in PAGES_SCHEMA if field.name not in NOT_EXPORTED),
        pa.field("segment", pa.int32(), nullable=False),
        pa.field("segment_path", pa.string(), nullable=False),
    ]
)
"""`pages.parquet` of an export, in NodeID order: the row of `pages` that was chosen, with its NodeID, the place of its
segment in `inputs` and that segment's path below the storage's root."""
_ENDS = [pa.field(name, pa.int32(), nullable=False) for name in ("source", "target")]
_ARC_SCHEMAS = {ARCS_OUT: pa.schema(_ENDS), ARCS_IN: pa.schema(_ENDS[::-1])}
_RANK = pa.field("rank", pa.float64(), nullable=False)
_KEY, _URL, _HOST, _DOMAIN = (
    pa.field(name, kind, nullable=False)
    for name, kind in (
        ("key", pa.binary(20)),
        ("url", pa.string()),
        ("host", pa.string()),
        ("domain", pa.string()),
    )
)
_RANK_SCHEMAS = {
    "pagerank-pages.parquet": pa.schema([_KEY, _URL, _RANK]),
    "pagerank-hosts.parquet": pa.schema([_HOST, _RANK]),
    "pagerank-domains.parquet": pa.schema([_DOMAIN, _RANK]),
}
"""Columns of an export with ranks, from `crawl_lib.ranks`."""


class ExportTable:
    """A Parquet file of an export, by its path on the store. `SCHEMAS`: the columns of each by its name."""

    SCHEMAS: ClassVar[dict[str, pa.Schema]] = {
        PAGES: EXPORT_SCHEMA,
        **_ARC_SCHEMAS,
        **_RANK_SCHEMAS,
    }

    def __init__(self, storage: Storage, path: str) -> None:
        self._storage, self.path, self.name = storage, path, path.rpartition("/")[2]

    @property
    def remedy(self) -> str:
        """How errors about the table end: the remedy if it is damaged."""
        if self.name in _ARC_SCHEMAS:
            return "; move it away and run `krake graph link`"
        return (
            "; move it away, and run `krake graph rank`"
            if self.name in _RANK_SCHEMAS
            else f"; {REMEDY}"
        )

    @property
    def rows(self) -> int:
        """Its number of rows, from its end."""
        with self.open(NO_COLUMNS) as table:
            return table.rows

    def open(self, schema: pa.Schema | None = None) -> AbstractContextManager[ParquetTable]:
        """Open the table, read in place. Raises what `open_parquet` does.

        `schema`: the columns to compare; None: all.
        """
        schema = self.SCHEMAS[self.name] if schema is None else schema
        return open_parquet(self._storage, self.path, schema, self.remedy)

    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield some columns. Raises what `open_parquet` does."""
        return parquet_batches(
            self._storage, self.path, self.SCHEMAS[self.name], columns, self.remedy
        )

    def checked(self, stores: Stores, columns: Sequence[str]) -> str:
        """Check the checksums of some columns, as `checked_table` does; return the path."""
        return checked_table(stores, self.path, self.SCHEMAS[self.name], columns)


def checked_table(
    stores: Stores, path: str, schema: pa.Schema, columns: Sequence[str], remedy: str = REMEDY
) -> str:
    """Check the pages' checksums of a table; return its path.

    An export keeps no digests of its tables, and engines compare no checksums. Raises DamagedFileError, StorageError,
    StoppedError.
    """
    for _ in stores.until_stopped(
        parquet_batches(stores.storage, path, schema, columns, f"; {remedy}")
    ):
        pass
    return path
