"""The part `ranks` of `make bench`, on a small export."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from benchmarks import ranks


def test_its_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranks, "COUNT", 3000)
    rows = ranks.run(tmp_path)
    assert [row.verdict for row in rows] == ["met", "met"]
    assert "3,000 pages, 29,983 arcs, 10 rounds" in rows[0].what


def test_both_files_hold_the_same_arcs(tmp_path: Path) -> None:
    ranks.make_export(tmp_path, 500)
    tables = (
        pq.read_table(tmp_path / "dfs/export/x" / name) for name in (ranks.ARCS_OUT, ranks.ARCS_IN)
    )
    out, into = (
        set(zip(*(table[end].to_pylist() for end in ("source", "target")), strict=True))
        for table in tables
    )
    assert len(out) == sum(1 + page % ranks.MOST_LINKS for page in range(500))
    assert out == into
