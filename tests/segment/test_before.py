"""A segment that was made before `pages` had `error` and `parse_error`: `before/`, of `helpers.fetches()`."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from crawl_lib.errors import DamagedFileError
from crawl_lib.parquet import LATER_FIELDS
from crawl_lib.segment import PAGES_SCHEMA, SegmentReader
from crawl_lib.segment.tables import read_blocks, write_parquet
from crawl_lib.storage import LocalStorage
from tests.segment.helpers import fetches

HERE = Path(__file__).parent


@pytest.fixture
def reader() -> SegmentReader:
    return SegmentReader(LocalStorage(HERE), "before")


def test_its_pages_have_all_columns_and_the_later_ones_are_null(reader: SegmentReader) -> None:
    assert set(LATER_FIELDS).isdisjoint(pq.read_schema(HERE / "before" / "pages.parquet").names)
    table = pa.Table.from_batches(reader.pages())
    assert table.schema.equals(PAGES_SCHEMA)
    assert set(table.column("url").to_pylist()) == {fetched.url for _, fetched in fetches()}
    for name in LATER_FIELDS:
        assert table.column(name).null_count == len(table) == len(fetches())


def test_a_later_column_may_be_asked_for_and_one_that_never_was_may_not(
    reader: SegmentReader,
) -> None:
    [batch] = reader.pages(["parse_error", "url"])
    assert set(batch.schema.names) == {"url", "parse_error"}
    assert batch.column("parse_error").null_count == len(fetches())
    with pytest.raises(KeyError, match="colour"):
        list(reader.pages(["colour"]))


def test_rows_of_an_older_spool_get_the_columns_where_the_segment_is_built(
    reader: SegmentReader, tmp_path: Path
) -> None:
    rows = pq.read_table(HERE / "before" / "pages.parquet")
    with pa.ipc.new_stream(str(tmp_path / "older.arrow"), rows.schema) as stream:
        stream.write_table(rows)
    assert write_parquet(
        tmp_path / "pages.parquet", PAGES_SCHEMA, read_blocks(tmp_path / "older.arrow")
    ) == len(fetches())
    assert pq.read_table(tmp_path / "pages.parquet").equals(pa.Table.from_batches(reader.pages()))


def test_rows_of_a_spool_that_this_version_does_not_know_are_named(tmp_path: Path) -> None:
    """Arrow's own errors for them ended a task with no word of the file."""
    rows = pq.read_table(HERE / "before" / "pages.parquet")
    with pytest.raises(DamagedFileError, match=r"pages\.parquet: .*other columns"):
        write_parquet(
            tmp_path / "pages.parquet", PAGES_SCHEMA, rows.drop_columns(["etag"]).to_batches()
        )
