"""The segments with rows of an hour: those of real time, by the times of fetches and submissions."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import numpy as np
import pyarrow as pa

from crawl_lib.crawldir import Kind, SegmentRef
from crawl_lib.parquet import parquet_batches
from crawl_lib.segment import PAGES_SCHEMA, SUBMISSIONS_SCHEMA, Manifest, SegmentReader
from crawl_lib.statistics.files import HOUR, Period
from crawl_lib.stores import Stores

SLACK = timedelta(days=1)
"""How far a fetcher's clock may be ahead of the clock that names folders."""
_HOUR_US = HOUR // timedelta(microseconds=1)


@dataclass
class LiveSegments:
    """The segments of real time, with the hours that they have rows of. Raises StorageError, DamagedFileError."""

    stores: Stores
    _hours: dict[str, frozenset[Period]] = field(default_factory=dict)
    _is_live: dict[str, bool] = field(default_factory=dict)

    def since(self, moment: datetime) -> Iterator[SegmentRef]:
        """Yield the segments that may have rows of a moment and later."""
        least = (moment - SLACK).timestamp()
        segments = (one for one in self.stores.crawl.segments() if int(one.folder) >= least)
        yield from (
            one for one in self.stores.until_stopped(segments) if self._has_live(one.folder)
        )

    def inputs(self, hour: Period) -> dict[str, SegmentRef]:
        """Return the segments with rows of an hour, by name.

        They are in the order of names.
        """
        found = {str(one): one for one in self.since(hour.begins) if hour in self.hours(one)}
        return dict(sorted(found.items()))

    def _has_live(self, folder: str) -> bool:
        if folder not in self._is_live:
            self._is_live[folder] = self.stores.crawl.iteration(folder).kind is Kind.LIVE
        return self._is_live[folder]

    def hours(self, segment: SegmentRef) -> frozenset[Period]:
        """Return the hours of all fetches and submissions of a segment."""
        name = str(segment)
        if name not in self._hours:
            numbers = {int(number) for number in self._numbers(segment)}
            moments = (datetime.fromtimestamp(3600 * number, UTC) for number in numbers)
            self._hours[name] = frozenset(map(Period.hour, moments))
        return self._hours[name]

    def _numbers(self, segment: SegmentRef) -> Iterator[np.int64]:
        """Yield the hours since 1970 of rows."""
        reader = SegmentReader(self.stores.storage, segment.path)
        for name, schema in (
            (Manifest.PAGES_NAME, PAGES_SCHEMA),
            (Manifest.SUBMISSIONS_NAME, SUBMISSIONS_SCHEMA),
        ):
            if has_table(reader, name):
                for batch in parquet_batches(
                    self.stores.storage, f"{segment.path}/{name}", schema, ["time"]
                ):
                    times = np.from_dlpack(
                        batch.column(0).cast(pa.int64())
                    )  # `to_numpy` imports pandas
                    yield from np.unique(times // _HOUR_US)


def has_table(reader: SegmentReader, name: str) -> bool:
    """Say whether a segment has a table. Raises StorageError, DamagedFileError."""
    return any(entry.name == name for entry in reader.manifest.files)
