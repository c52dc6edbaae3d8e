"""Another version of the same rows: facts from other sources than visits."""

from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any

import pyarrow as pa

from crawl_lib.crawldb.table import CRAWLDB
from crawl_lib.errors import InputError
from crawl_lib.stores import Stores
from crawl_lib.versions import GROUP_ROWS, Version, Versions, VersionWork, make_version

_CARRIED = ("config_digest", "segments", "seeds", "ranked")


def revise(
    stores: Stores,
    *,
    what: str,
    of: str,
    query: str,
    prepare: Callable[[VersionWork], None],
    now: datetime,
) -> Version:
    """Make a version from the newest one's rows by a query.

    `what`: what is revised, as the manifest's `revised` names it (`score`, `duplicates`); `of`: the source, a digest or
    a name. Where the newest version has been revised so already, that is the one. `query`: of `sql/`, all columns of
    the table in order of keys, from `crawldb` (the rows as they are) and the tables that `prepare` makes. Later facts
    are in newer versions, to be revised again.

    Raises InputError before the first version, and as `update` does.
    """
    versions = Versions(stores, CRAWLDB)
    while True:
        if (parent := versions.newest()) is None:
            raise InputError(f"{versions.folder}: there is no version yet; run an update first")
        before = parent.manifest
        revised = {**before.get("revised", {}), what: of}
        if before.get("revised") == revised:
            return parent
        carried: dict[str, Any] = {name: before[name] for name in _CARRIED if name in before}
        facts = {
            **carried,
            "parent": parent.number,
            "now": int(now.timestamp()),
            "revised": revised,
        }

        def rows(work: VersionWork, parent: Version = parent) -> Iterator[pa.RecordBatch]:
            versions.give(parent, work.engine, "crawldb")
            prepare(work)
            return work.engine.stream(query, GROUP_ROWS, f"crawldb.{what}")

        if version := make_version(versions, rows, facts):
            return version
