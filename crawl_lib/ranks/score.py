"""`krake score update`: ranks become the scores of the CrawlDb's rows.

A score is a decimal with 9 digits behind the point, and PageRanks of many pages are smaller than that. So the score of
a page is its PageRank times the number of pages; a LinkRank is of that size as it is. 1 is the mean, (1 - damping)
about the least, and 9 digits tell pages apart whose ranks differ by a billionth of the mean, whatever the size of the
graph.
"""

import hashlib
import json
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import numpy as np
import pyarrow as pa

from crawl_lib.crawldb import CRAWLDB_SCHEMA, revise
from crawl_lib.export import RANK_SCHEMAS, ExportFolder
from crawl_lib.ranks.exported import BATCH_ROWS, rank_export, rank_table, read_said
from crawl_lib.ranks.kernel import Floats
from crawl_lib.ranks.linkrank import LINKRANK, update_linkrank
from crawl_lib.segment import open_parquet
from crawl_lib.stores import Stores
from crawl_lib.versions import Version, Versions, Work

SCORES_SCHEMA = pa.schema([CRAWLDB_SCHEMA.field(name) for name in ("key", "score")])
_DIGITS = 10**9
_MOST = 10**18 - 1
"""A score with its digits behind the point, as an integer of the column's 18 digits."""


def update_score(stores: Stores, *, export: str, now: datetime) -> Version:
    """Make a version of the CrawlDb whose scores are the PageRanks of an export's pages, 0 for URLs it lacks.

    Pages are ranked first, where they are not yet. Where the newest version has these scores, that is the one. `now`:
    noted in the version. Raises what `rank_export` does, and InputError before the CrawlDb's first version.
    """
    rank_export(stores, name=export)
    folder = ExportFolder(stores, export)
    said = read_said(folder)
    digest = hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()

    def prepare(work: Work) -> None:
        work.keep("ranks", SCORES_SCHEMA, _scores(folder, int(said["nodes"])))

    return revise(stores, what="score", of=f"pagerank {digest}", query="crawldb/scored", prepare=prepare, now=now)


def update_score_by_links(stores: Stores, *, now: datetime) -> Version:
    """The same with the LinkRanks of all ends of links. Raises what `update_linkrank` does, and InputError as above."""
    ranks = update_linkrank(stores, now=now)

    def prepare(work: Work) -> None:
        batches = Versions(stores, LINKRANK).batches(ranks, ["key", "rank"])
        work.keep("ranks", SCORES_SCHEMA, (_table(batch, 1) for batch in batches))

    return revise(stores, what="score", of=f"linkrank {ranks.digest}", query="crawldb/scored", prepare=prepare, now=now)


def _scores(folder: ExportFolder, pages: int) -> Iterator[pa.Table]:
    name = rank_table("pages")
    with open_parquet(folder.storage, folder.file(name), RANK_SCHEMAS[name]) as table:
        for batch in folder.stores.until_stopped(table.batches(BATCH_ROWS, ["key", "rank"])):
            yield _table(batch, pages)


def _table(batch: pa.RecordBatch, times: int) -> pa.Table:
    """Keys with their scores, of keys with their ranks."""
    ranks = np.from_dlpack(batch.column(1)).astype(np.float64)
    return pa.Table.from_arrays([batch.column(0), scores_of(ranks * times)], ["key", "score"])


def scores_of(values: Floats) -> "pa.Array[Any]":
    """Numbers as the column `score` has them, each rounded to its last digit, and none larger than it may be."""
    words = np.zeros((len(values), 2), np.int64)  # decimals of 128 bits, the lower half first; none is negative
    words[:, 0] = np.minimum(np.rint(values * _DIGITS), float(_MOST)).astype(np.int64)
    words[:, 0] = np.minimum(words[:, 0], _MOST)  # as a float it was rounded
    return pa.Array.from_buffers(SCORES_SCHEMA.field("score").type, len(values), [None, pa.py_buffer(words.data)])
