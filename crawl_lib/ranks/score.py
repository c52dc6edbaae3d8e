"""`krake score update`: ranks become the scores of the CrawlDb's rows.

A score has 9 decimals, and PageRanks in a large graph are smaller. So a score is the PageRank times the number of
pages, or the plain LinkRank. The mean is then 1 for a graph of any size.
"""

from collections.abc import Callable, Iterator
from datetime import datetime
from functools import partial
from hashlib import sha256
from typing import Any

import numpy as np
import pyarrow as pa

from crawl_lib.crawldb import CRAWLDB_SCHEMA, revise
from crawl_lib.export import ExportFolder
from crawl_lib.ranks.exported import rank_export, rank_table, read_said
from crawl_lib.ranks.kernel import Floats
from crawl_lib.ranks.linkrank import LINKRANK, update_linkrank
from crawl_lib.stores import Stores
from crawl_lib.versions import SCORE, Version, Versions, VersionWork

_SCORES = pa.schema([CRAWLDB_SCHEMA.field(name) for name in ("key", "score")])
_MOST = 10**18 - 1
"""The highest score as an integer with the column's 18 digits, decimals included."""


def update_score(stores: Stores, *, export: str, now: datetime) -> Version:
    """Make or find a CrawlDb whose scores are PageRanks.

    The pages of the export get their ranks; other URLs get 0. The export is ranked first if necessary. `now`: for the
    manifest. Raises the errors of `rank_export`, and InputError before the CrawlDb's first version.
    """
    rank_export(stores, name=export)
    folder = ExportFolder(stores, export)
    said = read_said(folder)
    digest = sha256(said.to_text().encode()).hexdigest()
    ranks = folder.table(rank_table("pages"))
    read = partial(ranks.batches, ["key", "rank"])
    # No checksum covers the number of rows in the metadata, so the rows themselves are counted.
    return _scored(stores, f"pagerank {digest}", read, ranks.rows, now)


def update_score_by_links(stores: Stores, *, now: datetime) -> Version:
    """Make or find a CrawlDb whose scores are LinkRanks.

    All ends of links are ranked. Raises the errors of `update_linkrank`, and InputError as `update_score`.
    """
    ranks = update_linkrank(stores, now=now)
    read = partial(Versions(stores, LINKRANK).batches, ranks, ["key", "rank"])
    return _scored(stores, f"linkrank {ranks.digest}", read, 1, now)


def _scored(
    stores: Stores, of: str, read: Callable[[], Iterator[pa.RecordBatch]], times: int, now: datetime
) -> Version:
    """Return the version whose scores are given ranks.

    `read` gives (key, rank); a score is the rank times `times`.
    """

    def prepare(work: VersionWork) -> None:
        pairs = (batch.columns for batch in stores.until_stopped(read()))
        columns = (
            [keys, scores_of(np.from_dlpack(ranks).astype(np.float64) * times)]
            for keys, ranks in pairs
        )
        work.keep(
            "ranks", _SCORES, (pa.Table.from_arrays(some, schema=_SCORES) for some in columns)
        )

    return revise(stores, what="score", of=of, query="crawldb/scored", prepare=prepare, now=now)


def scores_of(values: Floats) -> "pa.Array[Any]":
    """Round numbers to the column `score`.

    Each number is rounded to its last digit, and limited to the column's range.
    """
    words = np.zeros(
        (len(values), 2), np.int64
    )  # decimals of 128 bits, the lower half first; all are positive or 0
    words[:, 0] = np.minimum(np.rint(values * 1e9), float(_MOST)).astype(np.int64)
    words[:, 0] = np.minimum(words[:, 0], _MOST)  # the conversion to a float rounds the limit
    return pa.Array.from_buffers(SCORE, len(values), [None, pa.py_buffer(words.data)])
