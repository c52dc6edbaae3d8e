"""Rows in order, cut by runs of equal values; a run may go on in the next batch."""

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc


def each_once(batches: Iterable[pa.RecordBatch], columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """The first row of each run of rows that have the same in these columns."""
    last: tuple[object, ...] | None = None
    for batch in batches:
        if len(batch):
            begins, last = _begins(batch, columns, last)
            yield batch.filter(pa.array(begins))


def first_of_each(batches: Iterable[pa.RecordBatch], column: str, most: int) -> Iterator[pa.RecordBatch]:
    """Of each run of rows that have the same in this column the first `most`."""
    last: tuple[object, ...] | None = None
    before = 0  # rows of the run that the batch goes on with
    for batch in batches:
        if not len(batch):
            continue
        begins, last = _begins(batch, [column], last)
        numbers = np.arange(len(batch))
        starts = np.maximum.accumulate(np.where(begins, numbers, -before))
        before = len(batch) - int(starts[-1])
        yield batch.filter(pa.array(numbers - starts < most))


def _begins(
    batch: pa.RecordBatch, columns: Sequence[str], last: tuple[object, ...] | None
) -> tuple[npt.NDArray[np.bool_], tuple[object, ...]]:
    """Which rows differ from the one before in one of these columns, which have no nulls, and what the last row has."""
    values = [batch.column(name) for name in columns]
    begins = np.zeros(len(batch), bool)
    begins[0] = tuple(value[0].as_py() for value in values) != last
    for value in values:
        begins[1:] |= pc.not_equal(value[1:], value[:-1]).to_numpy(zero_copy_only=False)
    return begins, tuple(value[-1].as_py() for value in values)
