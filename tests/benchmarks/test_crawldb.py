"""The part `crawldb` of `make bench`, on a small crawl."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import crawldb


def test_its_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, size in (("ROWS", 2000), ("LATER", 100)):
        monkeypatch.setattr(crawldb, name, size)
    rows = crawldb.run(tmp_path)
    assert [row.verdict for row in rows] == ["met"] * 6
    assert "update, 1,000 pages and 20,000 links (2,000 rows then)" in rows[0].what
    assert rows[2].what.endswith("(1,000 URLs)")
    assert "update, 100 pages and 2,000 links (2,000 rows then)" in rows[4].what
