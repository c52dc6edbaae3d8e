"""Making versions: of an hour from its segments, and of a day from its hours."""

from collections.abc import Callable, Iterator, Set
from dataclasses import dataclass, field
from datetime import datetime

import pyarrow as pa

from crawl_lib.errors import InputError
from crawl_lib.segment import PAGES_SCHEMA, SUBMISSIONS_SCHEMA, Manifest, SegmentReader
from crawl_lib.statistics.files import HOUR, STATISTICS_SCHEMA, Period, StatisticsFiles
from crawl_lib.statistics.inputs import LiveSegments, has_table
from crawl_lib.stores import Stores
from crawl_lib.urls import budget_domain_of
from crawl_lib.versions import GROUP_ROWS, VersionWork, columns, table_of

_HOUR = columns("begins time!, ends time!")
_DOMAINS = columns("host text!, domain text!")


@dataclass
class StatisticsReport:
    """The result of an update. `hour`: the hour that was asked for. `made`: paths of new versions."""

    hour: str
    made: list[str] = field(default_factory=list)


def update_statistics(stores: Stores, *, hour: datetime, now: datetime) -> StatisticsReport:
    """Make the missing statistics of an hour.

    Hours with later rows in newer segments, and the days of all these hours, are made, too. An hour with a version gets
    a new one only for a segment that the version lacks. A day is made once it is over.

    `hour`: any moment of the hour. `now`: an hour or day that ends later is not made. Raises InputError for an hour
    that is not over, DamagedFileError naming a segment or version, StorageError, NoRoomError, StoppedError,
    ConfigError.
    """
    wanted = Period.hour(hour)
    if wanted.ends > now:
        raise InputError(
            f"{wanted}: the hour ends at {wanted.ends:%H:%M} UTC; make its statistics then"
        )
    return _StatisticsUpdate(stores, now, StatisticsReport(str(wanted))).run(wanted)


def last_hour(now: datetime) -> datetime:
    """Return the beginning of the last hour that is over."""
    return Period.hour(now - HOUR).begins


@dataclass
class _StatisticsUpdate:
    stores: Stores
    now: datetime
    report: StatisticsReport

    def __post_init__(self) -> None:
        self.files, self.segments = StatisticsFiles(self.stores), LiveSegments(self.stores)

    def run(self, wanted: Period) -> StatisticsReport:
        touched = {
            hour for one in self.segments.since(wanted.begins) for hour in self.segments.hours(one)
        }
        hours = sorted(hour for hour in {wanted, *touched} if hour.ends <= self.now)
        for hour in self.stores.until_stopped(hours):
            self.make_hour(hour)
        for day in sorted({Period.day(hour.begins) for hour in hours}):
            if day.ends <= self.now:
                self.make_day(day)
        return self.report

    def make_hour(self, hour: Period) -> None:
        """Make a version of an hour, unless nothing is new.

        The newest version may know all segments.
        """
        names = self.segments.inputs(hour)
        if not self._lacks(hour, names.keys()):
            return
        readers = {
            name: SegmentReader(self.stores.storage, one.path) for name, one in names.items()
        }
        inputs = {name: reader.digest for name, reader in readers.items()}

        def count(work: VersionWork) -> Iterator[pa.RecordBatch]:
            self._give(work, hour, readers)
            yield from work.engine.stream("statistics/hour", GROUP_ROWS, "statistics.hour")

        self._write(hour, inputs, count)

    def make_day(self, day: Period) -> None:
        """Make a day's version from its hours, unless it exists."""
        hours = self.files.newest_of(day.date)
        inputs = {one.path.rpartition("/")[2]: self.files.verified(one) for one in hours}
        if not self._lacks(day, inputs.keys()):
            return

        def add_up(work: VersionWork) -> Iterator[pa.RecordBatch]:
            work.engine.tables("hours", [one.path for one in hours], STATISTICS_SCHEMA)
            yield from work.engine.stream("statistics/day", GROUP_ROWS, "statistics.day")

        self._write(day, inputs, add_up)

    def _lacks(self, period: Period, names: Set[str]) -> bool:
        """Return whether a period's newest version lacks an input.

        A period without a version lacks all.
        """
        newest = self.files.newest(period)
        return newest is None or not names <= self.files.inputs(newest).keys()

    def _write(
        self,
        period: Period,
        inputs: dict[str, str],
        rows: Callable[[VersionWork], Iterator[pa.RecordBatch]],
    ) -> None:
        with VersionWork.to_read(self.stores) as work:
            if path := self.files.write(period, inputs, rows(work)):
                self.report.made.append(path)

    def _give(self, work: VersionWork, hour: Period, readers: dict[str, SegmentReader]) -> None:
        """Give the engine the tables of segments, counted by host."""
        engine = work.engine
        pages = [reader.verified(Manifest.PAGES_NAME, self.stores) for reader in readers.values()]
        submissions = [
            reader.verified(Manifest.SUBMISSIONS_NAME, self.stores)
            if has_table(reader, Manifest.SUBMISSIONS_NAME)
            else None
            for reader in readers.values()
        ]
        engine.values("hour", table_of([{"begins": hour.begins, "ends": hour.ends}], _HOUR))
        engine.tables("pages", pages, PAGES_SCHEMA)
        engine.tables("submissions", submissions, SUBMISSIONS_SCHEMA)
        engine.keep("fetches", "statistics/fetches")
        engine.keep("submitted", "statistics/submitted")
        hosts = [
            {"host": host, "domain": budget_domain_of(host)}
            for host in engine.column("statistics/hosts")
        ]
        engine.values("domains", table_of(hosts, _DOMAINS))
        engine.view("of_domains", "statistics/of_domains")
