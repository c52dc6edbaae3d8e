"""The part `crawldb` of `make bench`, on a small crawl."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import crawldb


def test_its_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crawldb, "PAGES", 2000)
    monkeypatch.setattr(crawldb, "LATER", 100)
    rows = crawldb.run(tmp_path)
    assert [row.verdict for row in rows] == ["", "met", "", "met"]
    assert "2,000 pages and 20,000 links" in rows[0].what
