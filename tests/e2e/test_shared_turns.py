"""I6 over nodes: many hosts on few addresses, several nodes with several processes, seen from the server's log."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pytest

from crawl_lib.node import take
from demo.log import RequestLog
from tests.e2e.crawl import Result, make_config, run_crawl
from tests.web.lookups import python_of
from tests.web.names import NameServer
from tests.web.tenants import TenantServing, address_of, name_of, says

NODES, PROCESSES = 3, 2
HOSTS, ADDRESSES, PAGES = 200, 20, 3
HOST_DELAY_S, IP_DELAY_S = 0.3, 0.15
LATE_S = 0.05
"""How much later than the one before it a request may be read by the server, whose process shares the processor."""


@dataclass
class Crawled:
    result: Result
    log: RequestLog

    def of_address(self, address: str) -> list[float]:
        return [
            request.start for request in self.log.requests if address_of(request.host) == address
        ]


@pytest.fixture(scope="module", params=["host", "local"])
def crawled(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Crawled]:
    directory: Path = tmp_path_factory.mktemp("shared")
    config = make_config(
        directory,
        nodes=NODES,
        routing=request.param,
        urls={"scope": "any"},
        key_storage={"servers": ["keys/0.sqlite", "keys/1.sqlite"]},
        fetch={
            "contact": "tests@localhost",
            "host_delay_s": HOST_DELAY_S,
            "ip_delay_s": IP_DELAY_S,
            "processes": PROCESSES,
            "time_limit_s": 10,
            "allow_networks": ["127.0.0.0/8"],
        },
    )
    with TenantServing() as web, NameServer(says) as names, pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "executable", python_of(directory / "python", names.address))
        patch.setattr(take, "URLS_OF_A_PROCESS", 1)
        hosts = [name_of(number, ADDRESSES) for number in range(HOSTS)]
        if request.param == "host":
            seeds = [
                f"http://{host}:{web.port}/page/{number}"
                for number in range(PAGES)
                for host in hosts
            ]
            result = run_crawl(config, seeds, 1, process=False)
        else:
            # Every node finds pages of every host, and keeps them.
            seeds = [
                f"http://{hosts[n]}:{web.port}/links/{HOSTS // 2}/{ADDRESSES}/{n}"
                for n in range(2 * NODES)
            ]
            result = run_crawl(config, seeds, 2, process=False)
        yield Crawled(result, web.log())


def test_every_page_came(crawled: Crawled) -> None:
    assert set(crawled.result.outcomes().values()) == {"ok"}
    asked = crawled.log.counts()
    assert set(asked) == set(crawled.result.visited())
    assert set(asked.values()) == {1}
    assert len(asked) >= ADDRESSES * ADDRESSES


def test_several_nodes_asked_each_address(crawled: Crawled) -> None:
    nodes: dict[str, set[str]] = {}
    for segment in crawled.result.segments():
        for row in crawled.result.rows("pages", ["host"], segment):
            nodes.setdefault(address_of(row["host"]), set()).add(segment.name)
    assert len(nodes) == ADDRESSES
    assert min(map(len, nodes.values())) > 1


def test_no_two_requests_to_a_host_are_closer_than_its_delay(crawled: Crawled) -> None:
    """From the end of the one to the start of the next, by the server's log."""
    closest = {host: crawled.log.closest_gap_s(host) for host in crawled.log.hosts()}
    assert min(closest.values()) >= HOST_DELAY_S


def test_no_two_requests_to_an_address_are_closer_than_its_delay(crawled: Crawled) -> None:
    """From start to start, by the server's log."""
    addresses = {address_of(host) for host in crawled.log.hosts()}
    gaps = [
        after - before
        for address in addresses
        for before, after in pairwise(crawled.of_address(address))
    ]
    assert min(gaps) >= IP_DELAY_S - LATE_S
