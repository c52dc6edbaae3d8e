"""The part `captures` of `make bench`, on a small crawl."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import captures


def test_its_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(captures, "ROWS", 1000)
    update, *look_ups = captures.run(tmp_path)
    assert update.what == "captures: update, 1,000 pages"
    assert len(look_ups) == 2
    assert not any("0.00 MB" in row.value for row in look_ups)
