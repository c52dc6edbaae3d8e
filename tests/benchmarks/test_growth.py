"""The growth part takes what it says: hosts of one page each, that many in one batch."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq

from benchmarks import growth
from tests.web.onepage import OnePageServing


def test_a_batch_is_that_many_hosts_of_one_page(tmp_path: Path) -> None:
    with OnePageServing() as sites:
        assert len({sites.url(host) for host in range(growth.MOST_HOSTS)}) == growth.MOST_HOSTS
        assert growth.cost_s(tmp_path, sites, 12) > 0
    found = [
        row for path in tmp_path.rglob("pages.parquet") for row in pq.read_table(path).to_pylist()
    ]
    assert len(found) == 13
    assert {row["outcome"] for row in found} == {"ok"}
    assert len({row["host"] for row in found}) == 13
