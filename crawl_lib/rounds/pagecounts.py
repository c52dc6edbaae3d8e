"""Counts of the newest pages: status codes, MIME types and hosts, for people who look at a crawl."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from crawl_lib.rounds.shown import IterationStatus
from crawl_lib.segment import SegmentReader
from crawl_lib.stores import Stores

MOST_ROWS = 200_000
"""Number of rows of `pages` to count, newest iterations first: memory and time have a bound."""
SHOWN = 12
"""The number of values that are returned for a column, the most frequent first."""
_COLUMNS = {"status": "status codes", "mime_detected": "MIME types", "host": "hosts"}


def count_pages(
    stores: Stores, entries: Sequence[IterationStatus]
) -> dict[str, int | dict[str, int]]:
    """Count iterations' tries by status code, MIME type and host.

    `entries`: iterations of `crawl_status`, the oldest first. Returns `rows`, the number of tries that were counted,
    and a mapping for each column. At most `MOST_ROWS` rows are counted. Raises StorageError or DamagedFileError naming
    a segment.
    """
    counts = {name: Counter[str]() for name in _COLUMNS}
    rows = 0
    for batch in _at_most(MOST_ROWS, _batches(stores, entries)):
        rows += batch.num_rows
        for name, counter in counts.items():
            found = pc.value_counts(batch.column(name).drop_null())
            values, numbers = (found.field(part).to_pylist() for part in ("values", "counts"))
            for value, number in zip(values, numbers, strict=True):
                counter[str(value)] += number or 0
    return {
        "rows": rows,
        **{title: dict(counts[name].most_common(SHOWN)) for name, title in _COLUMNS.items()},
    }


def _batches(stores: Stores, entries: Sequence[IterationStatus]) -> Iterator[pa.RecordBatch]:
    for entry in stores.until_stopped(reversed(entries)):
        for node in entry.get("segments", ()):
            yield from SegmentReader(
                stores.storage, stores.crawl.segment(entry["folder"], node).path
            ).pages([*_COLUMNS])


def _at_most(rows: int, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield batches until so many rows are given."""
    for batch in batches:
        if rows <= 0:
            return
        yield batch.slice(0, rows)
        rows -= batch.num_rows
