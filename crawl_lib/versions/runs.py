"""Runs of rows that have something in common, in rows that come in order, batch by batch."""

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc


def first_of_each(batches: Iterable[pa.RecordBatch], names: Sequence[str], most: int) -> Iterator[pa.RecordBatch]:
    """The first `most` of each run of rows that have the same in these columns; it may go on in the next batch."""
    last, before = None, 0  # rows of the run that the batch goes on with
    for batch in filter(len, batches):
        begins, values = np.zeros(len(batch), bool), [batch.column(name) for name in names]
        begins[0] = [value[0] for value in values] != last
        for value in values:
            begins[1:] |= pc.not_equal(value[1:], value[:-1]).to_numpy(zero_copy_only=False)
        numbers, last = np.arange(len(batch)), [value[-1] for value in values]
        starts = np.maximum.accumulate(np.where(begins, numbers, -before))
        before = len(batch) - int(starts[-1])
        yield batch.filter(pa.array(numbers - starts < most))
