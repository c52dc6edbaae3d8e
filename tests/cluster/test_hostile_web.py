"""500 good hosts together with 500 hostile ones: the small test of `tests/e2e` at the size of a crawl, for hand and CI.

    make test-cluster PYTEST_ARGS="tests/cluster/test_hostile_web.py -q -s"

takes about three minutes. HOSTILE_SEED=N makes other pages of the same kinds.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.e2e.hostile import Shape, check

LEAST_ALONE_S = 60.0


@pytest.mark.timeout(900)
def test_500_good_hosts_with_500_hostile_ones(tmp_path: Path) -> None:
    shape = Shape(good=500, pages=12, hostile=500, urls=2, delay_s=5.0, time_limit_s=8.0, connections=1000)
    measured = check(tmp_path, int(os.environ.get("HOSTILE_SEED", "1")), shape)
    assert measured["alone_s"] >= LEAST_ALONE_S, "the good pages alone are too quick to tell"
