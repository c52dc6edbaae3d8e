"""Whether a URL costs more where there are more hosts, and the memory of a take of very many: hosts of one page each.

The hosts are loopback addresses. A URL costs two requests, since each host is asked for its robots.txt. What the take
of FEWEST hosts costs is start-up, and taken off the others.
"""

from __future__ import annotations

from pathlib import Path

from benchmarks.crawl import make_config
from benchmarks.memory import MOST_MB, crawl_watched, iterate, queue_by_hand
from benchmarks.report import Row, ahead, measure
from crawl_lib import Config
from tests.web.onepage import OnePageServing

FEWEST = 10
HOSTS = (2_500, 10_000, 40_000)
MOST_HOSTS = 100_000
MOST_GROWTH = 1.2
"""What a URL may cost with many hosts, against the cheapest of the others."""


def _queued(directory: Path, sites: OnePageServing, hosts: int) -> Config:
    """A crawl with the pages of so many hosts in its queue."""
    (directory / str(hosts)).mkdir()
    config = make_config(directory / str(hosts))
    measure(queue_by_hand, config, [sites.url(host) for host in range(hosts + 1)], hosts + 1)
    return config


def cost_s(directory: Path, sites: OnePageServing, hosts: int) -> float:
    """CPU seconds of a take of so many hosts."""
    measured = measure(iterate, _queued(directory, sites, hosts), 2, hosts)
    assert measured.result == hosts
    return measured.cpu_s


def run(directory: Path) -> list[Row]:
    """Take batches of more and more hosts, then the largest one, whose memory is watched."""
    with OnePageServing() as sites:
        with ahead():
            start_s = cost_s(directory, sites, FEWEST)
            costs = [
                (cost_s(directory, sites, hosts) - start_s) / (hosts - FEWEST) for hosts in HOSTS
            ]
        watched = measure(crawl_watched, _queued(directory, sites, MOST_HOSTS), MOST_HOSTS)
    pages, seen = watched.result
    peak_mb = max(seen, default=0.0)
    return [
        Row("growth: a take of 10 hosts of one page", f"{start_s:.2f} s CPU, taken for start-up"),
        Row(
            f"growth: CPU a URL, {', '.join(f'{hosts:,}' for hosts in HOSTS)} hosts of one page",
            f"{', '.join(f'{1000 * cost:.2f}' for cost in costs)} ms",
            "within 20 %",
            max(costs) <= MOST_GROWTH * min(costs),
        ),
        Row(
            f"growth: peak of the fetching process, {pages:,} hosts in one take",
            f"{peak_mb:,.0f} MB ({watched.wall_s:.0f} s, {1000 * watched.cpu_s / max(1, pages):.2f} ms CPU a URL)",
            f"under {MOST_MB}",
            peak_mb < MOST_MB if pages == MOST_HOSTS else None,
        ),
    ]
