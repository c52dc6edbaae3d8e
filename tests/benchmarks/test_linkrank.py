"""The part `linkrank` of `make bench`, on a small table of links."""

from __future__ import annotations

from pathlib import Path

from benchmarks import linkrank


def test_its_rows(tmp_path: Path) -> None:
    """Also where the tables were ranked before."""
    for _ in range(2):
        rows = linkrank.run(tmp_path, 2000)
        assert [row.verdict for row in rows] == ["met", "met", "met"]
    assert "LinkRank, 2,000 pages, 19,965 links" in rows[0].what
