"""The part `serve` of `make bench`: what its figures say."""

from __future__ import annotations

import math

from benchmarks.serve import _rows


def test_the_loaded_server_is_compared_with_one_query_at_a_time() -> None:
    alone, loaded, meanwhile = [10.0] * 200, [*[20.0] * 1000, *[80.0] * 200], [*[20.0] * 1000, *[300.0] * 200]
    rows = _rows(1000, alone, loaded, meanwhile)
    assert [row.verdict for row in rows] == ["", "met", "MISSED"]
    assert "p99 80.0 ms, 8.0 times, 0 refused" in rows[1].value


def test_queries_that_are_refused_count() -> None:
    rows = _rows(1000, [10.0] * 200, [*[20.0] * 1000, *[math.inf] * 20], [20.0] * 1000)
    assert rows[1].verdict == "MISSED"
    assert "20 refused" in rows[1].value
