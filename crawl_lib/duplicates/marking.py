"""Marks all but the best of equal pages as `duplicate` in the CrawlDb.

A page that has changed or has become the best gets the status of its visits back. The order of pages is Nutch's order,
and then the key: the highest score, the newest visit, https before http, the shortest URL after decoding, the smallest
key.
"""

from collections.abc import Iterable, Iterator
from datetime import datetime
from hashlib import sha256
from urllib.parse import unquote

import pyarrow as pa

from crawl_lib.crawldb import newest_version, revise
from crawl_lib.duplicates.near import DUPLICATES
from crawl_lib.errors import InputError
from crawl_lib.stores import Stores
from crawl_lib.versions import GROUP_ROWS, Version, Versions, VersionWork, columns

_EQUALS = columns(
    "key bytes, kind int32, content bytes, part text, score score, fetched_time time, is_https int32, "
    "length_chars int32"
)


def mark_duplicates(stores: Stores, *, now: datetime) -> Version:
    """Make or find the CrawlDb version with statuses `duplicate`.

    `now`: for the manifest. With `duplicates.near`, pages of one group of near duplicates are equal, too. Raises
    InputError before the first version, or without groups; and the errors of `crawldb.update`.
    """
    config, versions = stores.config.duplicates, Versions(stores, DUPLICATES)
    groups = versions.newest() if config.near else None
    if config.near and groups is None:
        raise InputError(
            f"{versions.folder}: duplicates.near needs some; run `krake duplicates near` first"
        )

    def prepare(work: VersionWork) -> None:
        versions.give(groups, work.engine, "near")
        work.engine.values("options", pa.table({"among": [config.among]}))
        rows = work.engine.stream("duplicates/equals", GROUP_ROWS, "duplicates.equals")
        work.keep("equals", _EQUALS, _judged(rows))

    parent = newest_version(stores)
    scores = parent.manifest.get("revised", {}).get("score", "") if parent else ""
    seed = f"{config.among} {groups.manifest['of'] if groups else ''} {scores}"
    of = sha256(seed.encode()).hexdigest()
    return revise(
        stores, what="duplicates", of=of, query="duplicates/marked", prepare=prepare, now=now
    )


def _judged(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Equal pages with how long their URLs are."""
    for batch in batches:
        lengths = pa.array(
            [len(unquote(str(url))) for url in batch.column("url").to_pylist()], pa.int32()
        )
        yield pa.Table.from_batches([batch.append_column("length_chars", lengths)]).select(
            _EQUALS.names
        )
