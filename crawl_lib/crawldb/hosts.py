"""Statistics of each host in the CrawlDb and in the visits. Nothing is kept: a query computes the answer."""

from collections.abc import Generator
from dataclasses import dataclass
from datetime import datetime

import pyarrow as pa

from crawl_lib.crawldb.table import CRAWLDB, TIME
from crawl_lib.segment import PAGES_SCHEMA, Manifest, SegmentReader
from crawl_lib.stores import Stores
from crawl_lib.versions import Version, Versions, VersionWork


@dataclass(frozen=True)
class HostStatistics:
    """One host: how many `urls` the CrawlDb has of it, of which so many are in each state, `failing` (their last visit
    failed in a way that passes) and `due`; how many `visits` and `answers` the segments have of it. `mean_ms`: of an
    answer, from the request on; `mean_bytes`: of contents; rounded down, None where there are none."""

    host: str
    urls: int
    unfetched: int
    fetched: int
    redirected: int
    gone: int
    duplicates: int
    failing: int
    due: int
    visits: int
    answers: int
    mean_ms: int | None
    mean_bytes: int | None


def host_statistics(
    stores: Stores, version: Version, *, now: datetime
) -> Generator[HostStatistics]:
    """Yield the statistics of each host, most URLs first, then by name.

    `now`: decides which URLs are due. A visit counts if the version has the visit and the segment still exists.
    Raises StorageError, NoRoomError, StoppedError.
    """
    segments = [stores.crawl.segment(*name.split("/")) for name in version.manifest["segments"]]
    with VersionWork.to_read(stores) as work:
        Versions(stores, CRAWLDB).give(version, work.engine, "crawldb")
        readers = (
            SegmentReader(stores.storage, segment.path) for segment in segments if segment.exists()
        )
        there = [reader.verified(Manifest.PAGES_NAME, stores) for reader in readers]
        work.engine.tables("pages", there, PAGES_SCHEMA)
        work.engine.values("settings", pa.table({"now": pa.array([now], TIME)}))
        for row in work.engine.rows("crawldb/host_statistics", "hosts"):
            yield HostStatistics(**row)
