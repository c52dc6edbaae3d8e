"""Files of statistics: `statistics/<date>/<hour>-<version>.parquet` in the crawl directory, and days (`day-<version>`).

A version is a file, written under a hidden name and renamed, and never changed. The newest version counts. The footer
names the version's inputs (`inputs`); the same inputs give the same bytes, with DuckDB and with Spark.
`crawl_lib.versions` has tables of many parts in the order of keys, each version a folder; a version here is one file.
"""

import re
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from crawl_lib.crawldir import FileName
from crawl_lib.dfsfiles import stored_digest
from crawl_lib.durable import reached
from crawl_lib.errors import DamagedFileError, StorageError
from crawl_lib.parquet import open_parquet
from crawl_lib.sealed import sealed_json, unsealed
from crawl_lib.storage import hidden_next_to
from crawl_lib.stores import Stores

FOLDER = "statistics"
HOUR, DAY = timedelta(hours=1), timedelta(days=1)
_NAME = re.compile(r"(\d\d|day)-(\d{1,9})\.parquet")
_DATE = re.compile(r"\d{4}-\d\d-\d\d")
_INPUTS = b"krake.inputs"
_FIELDS: "list[pa.Field[Any]]" = [
    pa.field("domain", pa.string(), nullable=False),
    pa.field("measure", pa.string(), nullable=False),
    pa.field("name", pa.string(), nullable=False),
    pa.field("number", pa.int64(), nullable=False),
]
STATISTICS_SCHEMA = pa.schema(_FIELDS)
"""A row for each number above 0 of a domain, in the order of the first three columns. `domain`: the registrable domain;
"" for malformed URLs. `measure`, `name`: see `Domain`; `name` is "" for a measure that is one number."""


@dataclass(frozen=True, order=True)
class Period:
    """An hour or a day in UTC. `begins`: its first moment. `name`: two digits of an hour, or `day`."""

    begins: datetime
    name: str

    @classmethod
    def hour(cls, moment: datetime) -> "Period":
        """Return the hour of a moment."""
        begins = moment.astimezone(UTC).replace(minute=0, second=0, microsecond=0)
        return cls(begins, f"{begins:%H}")

    @classmethod
    def day(cls, moment: datetime) -> "Period":
        """Return the day of a moment."""
        return cls(moment.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0), "day")

    @property
    def ends(self) -> datetime:
        """The first moment after the period."""
        return self.begins + (DAY if self.name == "day" else HOUR)

    @property
    def date(self) -> str:
        """The name of the folder, such as 2026-11-28."""
        return f"{self.begins:%Y-%m-%d}"

    def __str__(self) -> str:
        return f"{self.date}/{self.name}"


@dataclass(frozen=True)
class StatisticsFile:
    """A version of a period. `path`: relative to the storage's root."""

    period: Period
    version: int
    path: str


@dataclass(frozen=True)
class StatisticsFiles:
    """The files of statistics in a crawl directory. All methods raise StorageError."""

    stores: Stores

    @property
    def folder(self) -> str:
        """The folder of the dates' folders."""
        return self.stores.crawl.at(FOLDER)

    def folder_of(self, period: Period) -> str:
        """Return the folder of a period's date, whether it exists or not."""
        return f"{self.folder}/{period.date}"

    def dates(self) -> list[str]:
        """Return the names of all folders of dates, the oldest first."""
        return sorted(name for name in self.stores.crawl.names(FOLDER) if _DATE.fullmatch(name))

    def all(self) -> Iterator[StatisticsFile]:
        """Yield all versions of all periods."""
        for date in self.dates():
            yield from self._of_date(date)

    def newest_of(self, date: str, *, days: bool = False) -> list[StatisticsFile]:
        """Return a date's newest versions, of hours or the day."""
        newest = {found.period: found for found in self._of_date(date)}
        return [found for period, found in sorted(newest.items()) if (period.name == "day") is days]

    def newest(self, period: Period) -> StatisticsFile | None:
        """Return the newest version of a period; None: there is no version."""
        return next(reversed(self.versions(period)), None)

    def versions(self, period: Period) -> list[StatisticsFile]:
        """Return all versions of a period, the oldest first."""
        return [one for one in self._of_date(period.date) if one.period == period]

    def _of_date(self, date: str) -> list[StatisticsFile]:
        """Return all versions of a date, each period's oldest first."""
        begins, found = datetime.fromisoformat(date).replace(tzinfo=UTC), list[StatisticsFile]()
        for name in self._names(date):
            if match := _NAME.fullmatch(name):
                is_day = match[1] == "day"
                period = Period(begins if is_day else begins + int(match[1]) * HOUR, match[1])
                found.append(StatisticsFile(period, int(match[2]), f"{self.folder}/{date}/{name}"))
        return sorted(found, key=lambda one: (one.period, one.version))

    def _names(self, date: str) -> list[str]:
        storage, folder = self.stores.storage, f"{self.folder}/{date}"
        return [entry.name for entry in storage.list(folder)] if storage.exists(folder) else []

    def next_path(self, period: Period) -> str:
        """Return the path of the next version.

        The number is above all existing numbers, also set aside.
        """
        numbers = [0]
        for name in self._names(period.date):
            found = _NAME.match(name.removeprefix(FileName.DAMAGED_PREFIX))
            if found and found[1] == period.name:
                numbers.append(int(found[2]))
        return f"{self.folder_of(period)}/{period.name}-{max(numbers) + 1}.parquet"

    def inputs(self, file: StatisticsFile) -> dict[str, str]:
        """Return the inputs of a version: names with digests. Raises DamagedFileError."""
        with open_parquet(
            self.stores.storage, file.path, STATISTICS_SCHEMA, f"; {remedy_of(file)}"
        ) as table:
            found = (table.file.metadata.metadata or {}).get(_INPUTS, b"")
            try:
                return {
                    str(name): str(digest) for name, digest in unsealed(found)["inputs"].items()
                }
            except (ValueError, KeyError, AttributeError) as error:
                raise DamagedFileError(
                    f"{file.path}: does not name its inputs; {remedy_of(file)}"
                ) from error

    def rows(self, file: StatisticsFile) -> Iterator[dict[str, Any]]:
        """Yield the rows of a version in order. Raises DamagedFileError."""
        with open_parquet(
            self.stores.storage, file.path, STATISTICS_SCHEMA, f"; {remedy_of(file)}"
        ) as table:
            for batch in self.stores.until_stopped(table.batches(1 << 16, STATISTICS_SCHEMA.names)):
                yield from batch.to_pylist()

    def verified(self, file: StatisticsFile) -> str:
        """Read a whole version; return its SHA-256 in hex.

        Checksums are compared. Raises DamagedFileError.
        """
        deque(self.rows(file), 0)
        return stored_digest(self.stores.storage, file.path, self.stores)

    def write(
        self, period: Period, inputs: Mapping[str, str], batches: Iterable[pa.RecordBatch]
    ) -> str | None:
        """Write the next version of a period; return its path.

        None: another task has written the file meanwhile. Versions beyond the newest `crawldb.keep_versions` are
        deleted.
        """
        storage, target = self.stores.storage, self.next_path(period)
        noted, hidden = (
            sealed_json({"inputs": dict(sorted(inputs.items()))}),
            hidden_next_to(target),
        )
        # No checksum protects a footer: without statistics and a copy of the schema, damage leaves no wrong number.
        with (
            storage.open_write(hidden) as file,
            pq.ParquetWriter(
                file,
                STATISTICS_SCHEMA,
                compression="zstd",
                write_page_checksum=True,
                write_statistics=False,
                store_schema=False,
            ) as writer,
        ):
            writer.add_key_value_metadata({_INPUTS: noted})  # type: ignore[dict-item]
            for batch in self.stores.until_stopped(batches):
                rows = pa.Table.from_batches([batch]).cast(STATISTICS_SCHEMA)
                writer.write_table(rows, row_group_size=len(rows))
        reached("statistics.written")
        try:
            storage.rename(hidden, target)
        except StorageError:
            if not storage.exists(target):
                raise
            storage.delete(hidden)
            return None
        reached("statistics.renamed")
        for older in self.versions(period)[: -self.stores.config.crawldb.keep_versions]:
            storage.delete(older.path)
        return target

    def set_aside(self, path: str) -> str:
        """Set a damaged version aside; return the new path.

        The earlier version counts then.
        """
        folder, _, name = path.rpartition("/")
        aside = f"{folder}/{FileName.DAMAGED_PREFIX}{name}-{time.time_ns()}"
        self.stores.storage.rename(path, aside)
        return aside

    def aside(self) -> list[str]:
        """Return the paths of versions that were set aside."""
        names = [(date, name) for date in self.dates() for name in self._names(date)]
        return [
            f"{self.folder}/{date}/{name}"
            for date, name in names
            if name.startswith(FileName.DAMAGED_PREFIX)
        ]


def remedy_of(file: StatisticsFile) -> str:
    """Return what to do about a damaged version."""
    return f"run `krake fsck --repair`, which sets the file aside; {made_again(file)}"


def made_again(file: StatisticsFile) -> str:
    """Return how a version is made again."""
    hour = f"{file.period.begins:%Y-%m-%dT%H}"
    return f"`krake realtime statistics --hour {hour}` makes it again"
