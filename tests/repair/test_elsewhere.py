"""Repairs on a file store without local paths: they stream, and read no WARC file into memory at once."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import BinaryIO

import pytest

from crawl_lib.curate.compact import compact_segment
from crawl_lib.curate.drop import drop_pages
from crawl_lib.curate.importing import import_archives
from crawl_lib.repair.segments.salvage import salvage_segment
from crawl_lib.segment.encoder import RecordEncoder
from crawl_lib.warc import Damage, Whole, scan
from tests.e2e.crawl import Result
from tests.export.test_remote import Elsewhere
from tests.repair.archives import pages_archive, write
from tests.repair.crawled import flip, largest, problems, rows, stores_of, warc_of
from tests.segment.helpers import answered, ids, taken


def test_all_tools_on_a_store_elsewhere(crawl: Result, tmp_path: Path) -> None:
    segment, name = largest(crawl)
    stores = replace(stores_of(crawl.config), storage=Elsewhere(stores_of(crawl.config).storage))
    flip(warc_of(segment))
    (segment / "links.parquet").unlink()
    assert salvage_segment(stores, name).aside
    url = next(row["url"] for row in rows(segment) if row["status"] == 200)
    drop_pages(stores, [url])
    assert compact_segment(stores, name).state == "compacted"
    assert problems(crawl.config, name) == []
    report = import_archives(stores, [str(write(tmp_path / "a.warc.gz", pages_archive(range(3))))])
    assert report.totals["pages"] == 3


class _Endless:
    """A WARC file of records that are made as they are read; knows the largest piece that was asked for."""

    def __init__(self, records: int, damage_every: int) -> None:
        encoder = RecordEncoder(0, ids())
        self._group = encoder.group(answered("http://a.example/", b"x" * 50_000), taken(0)).data
        self._left, self._every, self.largest = records, damage_every, 0

    def read(self, size: int) -> bytes:
        self.largest = max(self.largest, size)
        if not self._left:
            return b""
        self._left -= 1
        return bytes(len(self._group)) if self._left % self._every == 0 else self._group


def test_scanning_holds_no_more_than_a_record(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where most of the file is damaged."""
    file = _Endless(600, 2)
    held = []

    def note(item: Whole | Damage) -> Whole | Damage:
        held.append(len(item.raw) if isinstance(item, Whole) else 0)
        return item

    found = [note(item).__class__ for item in scan(_as_file(file))]
    assert found.count(Whole) == 900  # request, response and metadata of each second group
    assert found.count(Damage) == 300
    assert file.largest <= 1 << 18
    assert max(held) < 60_000


def _as_file(file: _Endless) -> BinaryIO:
    return file  # type: ignore[return-value]
