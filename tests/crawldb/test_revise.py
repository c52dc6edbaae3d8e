"""A version that revises the one before: the same rows with other scores, once for each thing it follows from."""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from crawl_lib.crawldb import newest_version, revise
from crawl_lib.errors import InputError
from crawl_lib.stores import Stores
from crawl_lib.versions import SCORE, Version, VersionWork
from tests.crawldb.tables import NOW, at, leave_version, row_of

A, B = "http://a.example/", "http://b.example/"


def scored(stores: Stores, of: str, score: str) -> Version:
    """The version in which A has this score."""

    def prepare(work: VersionWork) -> None:
        rows = {"key": [row_of(A)["key"]], "score": [Decimal(score)]}
        work.engine.values(
            "ranks", pa.table(rows, pa.schema([("key", pa.binary()), ("score", SCORE)]))
        )

    return revise(stores, what="score", of=of, query="crawldb/scored", prepare=prepare, now=at(NOW))


def scores(stores: Stores, version: Version) -> dict[str, Decimal]:
    found = {}
    for path in version.paths:
        with stores.storage.open_read(path) as file:
            found |= {row["url"]: row["score"] for row in pq.read_table(file).to_pylist()}
    return found


def test_a_row_that_the_rank_lacks_has_none_and_all_else_is_as_it_was(stores: Stores) -> None:
    before = leave_version(stores, 1, [row_of(A), row_of(B, score=Decimal("0.5"))])
    version = scored(stores, "first", "0.25")
    assert version == newest_version(stores)
    assert scores(stores, version) == {A: Decimal("0.25"), B: Decimal(0)}
    assert version.manifest["statuses"] == before.manifest["statuses"]
    assert version.manifest["segments"] == before.manifest["segments"]
    assert version.manifest["parent"] == 1
    assert version.manifest["revised"] == {"score": "first"}


def test_what_has_been_done_is_not_done_again(stores: Stores) -> None:
    leave_version(stores, 1, [row_of(A)])
    assert [scored(stores, of, "1").number for of in ("first", "first", "second", "second")] == [
        2,
        2,
        3,
        3,
    ]


def test_without_a_version_it_says_what_to_do(stores: Stores) -> None:
    with pytest.raises(InputError, match="there is no version yet; run an update first"):
        scored(stores, "first", "1")
