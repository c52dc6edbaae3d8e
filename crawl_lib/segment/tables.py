"""Rows of `pages` and `links`: in memory until there are enough, then Arrow, Parquet at the end.

A part's rows are an Arrow stream on the disk (cheap, LZ4); `build` reads the streams of all parts and writes each
table as Parquet once. Memory is bounded by one block of rows, whatever the segment's size.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa

from crawl_lib.durable import fsync_file
from crawl_lib.errors import DamagedFileError, os_errors
from crawl_lib.parquet import parquet_errors
from crawl_lib.parse import native_library
from crawl_lib.segment.schema import LINKS_SCHEMA, PAGES_SCHEMA, PageRow, with_later_fields

GROUP_ROWS = 50_000
LINK_BLOCK_ROWS = 16_384
PAGE_BLOCK_ROWS = 4_096
PAGE_GROUP_ROWS = 2 * PAGE_BLOCK_ROWS
"""Of `pages`: who looks up one page reads a row group whole."""
GROUP_BYTES = 32 << 20
"""A row group ends after so many bytes, however few rows it has."""
BLOCK_BYTES = 8 << 20
"""A block ends after so many bytes, however few rows it has."""
_MOST_BYTES_OF_CHAR = 4
KEY_BYTES = 20
_KEY = pa.binary(KEY_BYTES)
PAGE_FIELDS = tuple("time" if field == "time_us" else field for field in PageRow._fields)
DICTIONARY_COLUMNS = {
    "pages": [
        "host",
        "ip",
        "outcome",
        "mime_declared",
        "mime_detected",
        "charset",
        "truncated",
        "warc_file",
        "hop",
    ],
    "links": ["source", "target", "target_url", "anchor", "rel", "element", "rule"],
}


class _Table:
    """An Arrow stream file that grows by blocks, to `size` bytes."""

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        self._path, self._schema = path, schema
        self._written = self.size = 0
        with os_errors(path, "cannot be written"):
            self._file = path.open("wb")
            options = pa.ipc.IpcWriteOptions(compression="lz4")
            self._stream = pa.ipc.new_stream(self._file, schema, options=options)

    def close(self, sync: bool = True) -> None:
        """Write what is left and end the stream; durable if `sync`."""
        self._flush()
        with os_errors(self._path, "cannot be written"):
            self._stream.close()
            if sync:
                fsync_file(self._file)
            self._file.close()

    def write(self, block: pa.RecordBatch) -> None:
        """Write a block. Raises StorageError."""
        with os_errors(self._path, "cannot be written"):
            self._stream.write_batch(block)
            self.size = self._file.tell()
        self._written += block.num_rows

    def _flush(self) -> None:
        """Write the rows that wait."""
        raise NotImplementedError


class PageTable(_Table):
    """Collects rows of `pages`, until there are `PAGE_BLOCK_ROWS` of them, or `BLOCK_BYTES` of text."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, PAGES_SCHEMA)
        self._held: list[PageRow] = []
        self._bytes = 0

    @property
    def rows(self) -> int:
        """How many there are."""
        return self._written + len(self._held)

    def add(self, row: PageRow) -> None:
        """Add one row."""
        self._held.append(row)
        self._bytes += _MOST_BYTES_OF_CHAR * sum(
            [len(value) for value in row if type(value) is str]
        )
        if len(self._held) >= PAGE_BLOCK_ROWS or self._bytes >= BLOCK_BYTES:
            self._flush()

    def _flush(self) -> None:
        if self._held:
            columns = dict(zip(PAGE_FIELDS, zip(*self._held, strict=True), strict=True))
            self._held, self._bytes = [], 0
            arrays = [column(columns[field.name], field) for field in self._schema]
            self.write(pa.RecordBatch.from_arrays(arrays, schema=self._schema))


class _RowBuffer(ctypes.Structure):
    _fields_ = (
        ("at", ctypes.c_void_p),
        ("length", ctypes.c_size_t),
        ("capacity", ctypes.c_size_t),
        ("failed", ctypes.c_bool),
    )


class LinkBlock(ctypes.Structure):
    """Rows of `links` in memory, as Arrow has them: `struct krake_block` of `parse/native/rows.h`."""

    _fields_ = (("buffers", _RowBuffer * 13), ("rows", ctypes.c_uint64))

    def batch(self) -> pa.RecordBatch:
        """Return the rows without a copy.

        The batch is invalid once the block changes.
        """
        buffers = (
            pa.foreign_buffer(one.at, one.length) if one.length else pa.py_buffer(b"")
            for one in self.buffers
        )
        arrays = [
            pa.Array.from_buffers(
                field.type, self.rows, [None, *islice(buffers, field.type.num_buffers - 1)]
            )
            for field in LINKS_SCHEMA
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=LINKS_SCHEMA)

    def clear(self) -> None:
        """Take the rows out. The memory stays for other rows."""
        self.rows = 0
        for one in self.buffers:
            one.length = 0

    def free(self) -> None:
        """Give the memory back."""
        native_library().krake_block_free(ctypes.byref(self))


class LinkTable(_Table):
    """Collects rows of `links` in `block`, until there are `LINK_BLOCK_ROWS` of them, or `BLOCK_BYTES`."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, LINKS_SCHEMA)
        self.block = LinkBlock()

    @property
    def rows(self) -> int:
        """How many there are."""
        return self._written + self.block.rows

    def grown(self, block_bytes: int) -> None:
        """Write the block if it is large enough.

        `block_bytes`: size of the block now.
        """
        if self.block.rows >= LINK_BLOCK_ROWS or block_bytes >= BLOCK_BYTES:
            self._flush()

    def close(self, sync: bool = True) -> None:
        """See `_Table.close`."""
        super().close(sync)
        self.block.free()

    def _flush(self) -> None:
        if self.block.rows:
            self.write(self.block.batch())
            self.block.clear()


def column(values: Sequence[Any], field: pa.Field[Any]) -> pa.Array[Any]:
    """Make an Arrow array.

    A lone surrogate from a page is written as `?`.
    """
    kind: pa.DataType = field.type
    if kind == _KEY and not (
        field.nullable and (None in values or set(map(len, values)) - {KEY_BYTES})
    ):
        # Keys that follow each other: a sixth of the cost of turning each.
        return pa.FixedSizeBinaryArray.from_buffers(
            _KEY, len(values), [None, pa.py_buffer(b"".join(values))]
        )
    try:
        return pa.array(values, kind)
    except UnicodeEncodeError:
        clean = [None if v is None else v.encode("utf-8", "replace").decode() for v in values]
        return pa.array(clean, kind)


def read_blocks(path: Path) -> Iterator[pa.RecordBatch]:
    """Yield the blocks of a part's Arrow stream.

    Raises DamagedFileError naming the file.
    """
    with (
        parquet_errors(str(path)),
        path.open("rb") as file,
        pa.ipc.open_stream(file, memory_pool=pa.system_memory_pool()) as stream,
    ):
        yield from stream


def write_parquet(path: Path, schema: pa.Schema, blocks: Iterable[pa.RecordBatch]) -> int:
    """Write one table of all these rows; durable. Returns their number.

    A row group has about `GROUP_ROWS` rows (of `pages`: `PAGE_GROUP_ROWS`), or `GROUP_BYTES`.
    """
    import pyarrow.parquet as pq  # noqa: PLC0415 - only the process that builds the segment needs it

    rows = 0
    dictionary = DICTIONARY_COLUMNS["links" if schema is LINKS_SCHEMA else "pages"]
    with os_errors(path, "cannot be written"), path.open("wb") as file:
        writer = pq.ParquetWriter(
            file,
            schema,
            compression="zstd",
            use_dictionary=dictionary,  # type: ignore[arg-type]
            memory_pool=pa.system_memory_pool(),
            write_page_checksum=True,
            # Least and largest of keys, which are random, and of texts in no order: no reader could skip rows by them.
            write_statistics=schema is not LINKS_SCHEMA,
        )
        with writer:
            for group in _groups(path, blocks, schema):
                rows += group.num_rows
                writer.write_table(group, row_group_size=group.num_rows)
        fsync_file(file)
    return rows


def _groups(path: Path, blocks: Iterable[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.Table]:
    """Combine blocks into row groups.

    Blocks of an older version's spool have all columns too.
    """
    most = PAGE_GROUP_ROWS if schema is PAGES_SCHEMA else GROUP_ROWS
    held: list[pa.RecordBatch] = []
    rows = size = 0
    for block in blocks:
        held.append(with_later_fields(block, schema.names))
        if not held[-1].schema.equals(schema):
            raise DamagedFileError(
                f"{path}: rows for it have other columns than this version's: {block.schema.names}"
            )
        rows, size = rows + block.num_rows, size + block.nbytes
        if rows >= most or size >= GROUP_BYTES:
            yield pa.Table.from_batches(held)
            held, rows, size = [], 0, 0
    if rows:  # blocks may have none
        yield pa.Table.from_batches(held)
