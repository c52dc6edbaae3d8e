"""How many URLs of a host fit into a batch."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from crawl_lib.config import Config
from crawl_lib.fetch import HostStore
from crawl_lib.fetch.hoststore import HostRow
from crawl_lib.node.shares import shares_of
from tests.e2e.crawl import make_config

SIZE = 1000


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[HostStore]:
    with HostStore(tmp_path) as store:
        rows = [("slow.test", 1.0, 4.0), ("crawl-delay.test", 9.0, 1.0), ("refuses.test", 1.0, 0.0)]
        store.save_hosts(HostRow(name, 1.0, delay_s, answer_s) for name, delay_s, answer_s in rows)
        yield store


def config(directory: Path, *, host_delay_s: float = 1.0, **sections: dict[str, Any]) -> Config:
    limits = {"size": SIZE, "time_limit_s": 600.0}
    fetch = {"host_delay_s": host_delay_s, **sections.pop("fetch", {})}
    return make_config(
        directory, nodes=1, batch=limits | sections.pop("batch", {}), fetch=fetch, **sections
    )


@pytest.mark.parametrize(
    ("host", "share"),
    [
        ("new.test", 400),  # 600 s / (1 s + half a second)
        ("slow.test", 120),
        ("crawl-delay.test", 60),
        ("refuses.test", 400),
    ],
)
def test_a_share_is_what_the_delay_lets_through(
    host: str, share: int, hosts: HostStore, tmp_path: Path
) -> None:
    assert shares_of(config(tmp_path), hosts, SIZE).of_host(host) == share


def test_a_host_without_a_delay_gets_half_the_batch_and_every_host_one(
    hosts: HostStore, tmp_path: Path
) -> None:
    fast = config(
        tmp_path, fetch={"hosts": [{"kind": "domain", "value": "fast.test", "delay_s": 0}]}
    )
    assert shares_of(fast, hosts, SIZE).of_host("fast.test") == SIZE // 2
    assert shares_of(fast, hosts, 1).of_host("fast.test") == 1
    patient = config(tmp_path, host_delay_s=5000.0)
    assert shares_of(patient, hosts, SIZE).of_host("new.test") == 1


def test_options_overrule_it(hosts: HostStore, tmp_path: Path) -> None:
    found = shares_of(config(tmp_path, batch={"max_per_host": 7, "max_per_domain": 9}), hosts, SIZE)
    assert (found.of_host("slow.test"), found.of_domain) == (7, 9)
    assert shares_of(config(tmp_path), hosts, SIZE).of_domain == SIZE // 4
    assert shares_of(config(tmp_path), hosts, 1).of_domain == 1
    assert shares_of(config(tmp_path, batch={"max_per_host": 7}), hosts, 8).of_domain == 7, (
        "people chose it"
    )


@pytest.mark.parametrize(
    ("delay_s", "answer_s"), [(5e-324, 5e-324), (1.0, float("inf")), (1.0, -9.0), (1.0, -1.0)]
)
def test_times_that_cannot_be_end_no_task(
    delay_s: float, answer_s: float, hosts: HostStore, tmp_path: Path
) -> None:
    """Fetching processes write them."""
    hosts.save_hosts([HostRow("odd.test", 1.0, delay_s, answer_s)])
    for least in (0.0, 1.0):
        found = shares_of(config(tmp_path, host_delay_s=least), hosts, SIZE)
        assert 1 <= found.of_host("odd.test") <= SIZE
