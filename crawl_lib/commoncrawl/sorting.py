"""Rows sorted on the disk of this machine, in memory that is bounded in bytes however long the rows are.

How data flows: rows are collected up to `RUN_BYTES`, sorted, and written as a run, a file of small batches. The runs
are then merged batch by batch. The least of the last keys of all current batches is a bound: no row that is still on
the disk comes before the bound, so all current rows up to the bound are sorted and handed out.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from crawl_lib.errors import NoRoomError, ScratchError, os_errors
from crawl_lib.stores import Stores

RUN_BYTES = 16 << 20
PIECE_BYTES = 256 << 10
"""The part of a run that is read at a time while runs are merged."""
MOST_RUNS = 64
"""Merged at a time; more runs become one run first."""
_Row = tuple[Any, ...]


def in_pieces(
    rows: pa.RecordBatch, most_bytes: int, most_rows: int = 1 << 31
) -> Iterator[pa.RecordBatch]:
    """Halve rows until pieces fit limits of bytes and rows.

    A longer row is a piece of its own.
    """
    if len(rows) < 2 or (rows.nbytes <= most_bytes and len(rows) <= most_rows):
        yield rows
        return
    half = len(rows) // 2
    for part in (rows.slice(0, half), rows.slice(half)):
        yield from in_pieces(part, most_bytes, most_rows)


def joined(
    batches: Iterable[pa.RecordBatch], most_bytes: int, most_rows: int = 1 << 31
) -> Iterator[pa.RecordBatch]:
    """Join and cut batches to limits of bytes and rows.

    A longer row is a group of its own.
    """
    held: list[pa.RecordBatch] = []
    rows = size_bytes = 0
    for batch in batches:
        for piece in in_pieces(batch, most_bytes, most_rows):
            if rows and (size_bytes + piece.nbytes > most_bytes or rows + len(piece) > most_rows):
                group, held, rows, size_bytes = _whole(held), [], 0, 0
                yield group
            held.append(piece)
            rows, size_bytes = rows + len(piece), size_bytes + piece.nbytes
    if rows:
        yield _whole(held)


def _whole(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """Put batches with rows together."""
    [whole] = pa.Table.from_batches(batches).combine_chunks().to_batches()
    return whole


@dataclass
class DiskSort:
    """Sorts rows by columns without nulls. `scratch`: a folder of this machine for the runs."""

    stores: Stores
    scratch: Path
    by: Sequence[str]
    _numbers: Iterator[int] = field(default_factory=count)
    _used_bytes: int = 0

    def sorted(self, tables: Iterable[pa.Table]) -> Iterator[pa.RecordBatch]:
        """Sort rows.

        A batch of the answer has at most 16 MB, or one row of each run. Raises NoRoomError beyond `scratch.max_bytes`,
        ScratchError, StoppedError, and what `tables` raises.
        """
        batches = (batch for table in tables for batch in table.to_batches())
        runs = [self._write([self._in_order(rows)]) for rows in joined(batches, RUN_BYTES)]
        while len(runs) > MOST_RUNS:
            runs = [*runs[MOST_RUNS:], self._write(self._merged(runs[:MOST_RUNS]))]
        yield from self._merged(runs)

    def _in_order(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        return rows.take(pc.sort_indices(rows, sort_keys=[(name, "ascending") for name in self.by]))

    def _write(self, batches: Iterable[pa.RecordBatch]) -> Path:
        """Write sorted rows as a run."""
        path, writer = self.scratch / f"run-{next(self._numbers)}.arrow", None
        packed = pa.ipc.IpcWriteOptions(compression="lz4")
        with os_errors(path, "cannot be written", ScratchError), pa.OSFile(str(path), "wb") as file:
            for batch in self.stores.until_stopped(batches):
                writer = writer or pa.ipc.new_stream(file, batch.schema, options=packed)
                for piece in in_pieces(batch, PIECE_BYTES):
                    writer.write_batch(piece)
                    self._require_room(path, file.tell())
            if writer:
                writer.close()
        self._used_bytes += path.stat().st_size
        return path

    def _require_room(self, path: Path, size_bytes: int) -> None:
        most = self.stores.config.scratch.max_bytes
        if most is not None and self._used_bytes + size_bytes > most:
            raise NoRoomError(
                f"{path}: sorting needs more room than scratch.max_bytes gives; raise it, and run this again"
            )

    def _merged(self, runs: Sequence[Path]) -> Iterator[pa.RecordBatch]:
        """Merge runs, whose files are deleted once they are read."""
        heads = [head for path in runs if (head := _RunHead(self.by, self._read(path))).go_on()]
        while heads:
            bound = min(head.last for head in heads)
            found = [head.taken(bound) for head in heads if head.first <= bound]
            yield self._in_order(_whole(found))
            heads = [head for head in heads if len(head.rows) or head.go_on()]

    def _read(self, path: Path) -> Iterator[pa.RecordBatch]:
        with os_errors(path, "cannot be read", ScratchError):
            options = pa.ipc.IpcReadOptions(use_threads=False)
            with (
                pa.OSFile(str(path), "rb") as file,
                pa.ipc.open_stream(file, options=options) as stream,
            ):
                yield from self.stores.until_stopped(stream)
            self._used_bytes -= path.stat().st_size
            path.unlink()


@dataclass
class _RunHead:
    """The current batch of a run: its rows that are not handed out, the first and the last key."""

    by: Sequence[str]
    batches: Iterator[pa.RecordBatch]

    def go_on(self) -> bool:
        """Read the next batch; return whether there is one."""
        batch = next(self.batches, None)
        if batch is not None:
            self.rows = batch
            self.first, self.last = self._key(0), self._key(len(batch) - 1)
        return batch is not None

    def taken(self, bound: _Row) -> pa.RecordBatch:
        """Hand out the rows up to a key."""
        end = bisect_right(range(len(self.rows)), bound, key=self._key)
        some, self.rows = self.rows.slice(0, end), self.rows.slice(end)
        if len(self.rows):
            self.first = self._key(0)
        return some

    def _key(self, number: int) -> _Row:
        return tuple(self.rows[name][number].as_py() for name in self.by)
