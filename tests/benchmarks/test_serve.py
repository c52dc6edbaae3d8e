"""The part `serve` of `make bench`: what its figures say."""

from __future__ import annotations

import math
from pathlib import Path

from benchmarks.serve import _rows, write_segment
from tests.index.made import Made


def test_the_loaded_server_is_compared_with_one_query_at_a_time() -> None:
    alone, loaded, meanwhile = (
        [10.0] * 200,
        [*[20.0] * 1000, *[80.0] * 200],
        [*[20.0] * 1000, *[300.0] * 200],
    )
    rows = _rows(1000, alone, loaded, meanwhile)
    assert [row.verdict for row in rows] == ["", "met", "MISSED"]
    assert "p99 80.0 ms, 8.0 times, 0 refused" in rows[1].value


def test_queries_that_are_refused_count() -> None:
    rows = _rows(1000, [10.0] * 200, [*[20.0] * 1000, *[math.inf] * 20], [20.0] * 1000)
    assert rows[1].verdict == "MISSED"
    assert "20 refused" in rows[1].value


def test_an_index_is_made_of_texts_without_records(tmp_path: Path) -> None:
    made = Made.below(tmp_path / "crawl")
    write_segment(made, ["first words", "second words"], 0)
    made.update()
    write_segment(made, ["third words"], 2)
    version = made.update()
    assert made.find(version, "words") == {
        f"http://h{number}.example/{number}" for number in range(3)
    }
    assert (version.number, version.manifest["added"], version.manifest["is_anew"]) == (2, 1, False)
