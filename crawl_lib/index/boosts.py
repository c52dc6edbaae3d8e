"""The weight of each page in the index: by plug-ins of the config, by the newest ranks, or none."""

import math
from collections.abc import Iterable, Iterator
from contextlib import suppress

import pyarrow as pa

from crawl_lib.crawldb import CRAWLDB, newest_version
from crawl_lib.errors import DamagedFileError, NoExportError
from crawl_lib.export import ExportFolder, newest_export
from crawl_lib.ranks import LINKRANK, rank_table
from crawl_lib.scoring import Scoring
from crawl_lib.versions import Versions, VersionWork, columns

BOOSTS = columns("key bytes, boost number")
_RANKED = rank_table("pages")
NONE = "none"


def give_boosts(work: VersionWork) -> str:
    """Make the table `boosts` of an engine.

    A boost is the chain's `index_boost`, else PageRank, else LinkRank; else the table has no rows. Returns the source
    with its version, for the index's manifest. Raises ConfigError if a plug-in cannot judge a URL, DamagedFileError,
    StorageError, StoppedError.
    """
    return _by_plugins(work) or _by_page_rank(work) or _by_link_rank(work) or _without(work)


def _by_plugins(work: VersionWork) -> str:
    stores = work.stores
    version = newest_version(stores) if stores.config.order.has_crawldb else None
    if version is None:
        return ""
    scoring = Scoring.of(stores.config, now=version.manifest["now"], version=version.number)
    plugins = scoring.wanting("index_boost")
    if not plugins:
        return ""

    def tables() -> Iterator[pa.Table]:
        for batch in Versions(stores, CRAWLDB).batches(version, CRAWLDB.schema.names):
            boosts = scoring.values("index_boost", batch)
            yield pa.table(
                {"key": batch.column("key").cast(pa.binary()), "boost": boosts.cast(pa.float64())}
            )

    work.keep("boosts", BOOSTS, tables())
    return f"{' '.join(plugin.name for plugin in plugins)} of CrawlDb {version.digest}"


def _by_page_rank(work: VersionWork) -> str:
    with suppress(NoExportError):
        folder = ExportFolder(work.stores, newest_export(work.stores, having=(_RANKED,)))
        work.engine.table("ranked", folder.file(_RANKED))
        work.engine.define("boosts", "select key, rank as boost from ranked")
        return f"PageRank of export {folder.name}"
    return ""


def _by_link_rank(work: VersionWork) -> str:
    versions = Versions(work.stores, LINKRANK)
    with suppress(DamagedFileError):
        if (version := versions.newest()) is not None:
            versions.give(version, work.engine, "ranked")
            work.engine.define("boosts", "select key, rank as boost from ranked")
            return f"LinkRank {version.digest}"
    return ""


def _without(work: VersionWork) -> str:
    work.engine.values("boosts", BOOSTS.empty_table())
    return NONE


def mean_of(batches: Iterable[pa.RecordBatch]) -> float:
    """Return the mean boost of rows that have one.

    The result is 1 if the mean cannot be a divisor.
    """
    values = [
        float(value)
        for batch in batches
        for value in batch.column("boost").to_pylist()
        if value is not None
    ]
    mean = math.fsum(values) / len(values) if values else 1.0
    return mean if mean > 0 else 1.0
