"""1,000 hosts of which one in twenty hangs or drips, with sockets: the rule of `tests/fetch/test_lane.py` in a crawl.

    make test-cluster PYTEST_ARGS="tests/cluster/test_slow_hosts.py -q -s"

takes six minutes, with SLOW_HOSTS=10000 half an hour.
"""

from __future__ import annotations

import os
from itertools import cycle
from pathlib import Path
from statistics import median

import pytest

from tests.e2e.crawl import make_config, run_crawl
from tests.e2e.hostile import other_ports
from tests.web.catalogue import GOOD, HOSTILE, address_of
from tests.web.crowd import CrowdServing

HOSTS = int(os.environ.get("SLOW_HOSTS", "1000"))
PAGES = 4
PAIRS = int(os.environ.get("SLOW_PAIRS", "3"))
DELAY_S = 4.0 * HOSTS / 1000
"""So good pages, half a second each, take five of six slots at a time."""
BAD_PATHS = ("/hang", "/drip-body", "/deaf", "/hang-in-body", "/drip-head", "/hang-in-head")


def seconds_of_good_pages(directory: Path, crowd: CrowdServing, seeds: list[str]) -> float:
    """Crawl these pages; returns the time from the first request of all until the last one for a good page."""
    before = len(crowd.log().requests)
    directory.mkdir()
    config = make_config(
        directory,
        nodes=1,
        urls={"max_depth": 0},
        fetch={"processes": 2, "host_delay_s": DELAY_S, "ip_delay_s": 0.25, "time_limit_s": 10.0, "min_speed_s": 5.0},
    )
    outcomes = run_crawl(config, seeds, 1, process=False).outcomes()
    is_good = {url: f"//{GOOD}." in url for url in outcomes}
    assert {outcome for url, outcome in outcomes.items() if is_good[url]} == {"ok"}
    assert {outcome for url, outcome in outcomes.items() if not is_good[url]} <= {"too_slow", "timeout", "host_gave_up"}
    requests = crowd.log().requests[before:]
    return max(request.start for request in requests if request.path.startswith("/good/")) - requests[0].start


@pytest.mark.timeout(1800)
def test_the_last_good_page_comes_as_soon_as_without_slow_hosts(tmp_path: Path) -> None:
    bad = HOSTS // 20
    with CrowdServing(seed=1, hostile=0, urls=0) as crowd, other_ports() as others:
        ports = {"/deaf": others["deaf"]}
        good = [
            f"http://{address_of(GOOD, number)}:{crowd.port}/good/{page}"
            for page in range(PAGES)
            for number in range(HOSTS - bad)
        ]
        slow = [
            f"http://{address_of(HOSTILE, number)}:{ports.get(path, crowd.port)}{path}?{page}"
            for page in range(PAGES)
            for number, path in zip(range(bad), cycle(BAD_PATHS))
        ]
        ratios = []
        for pair in range(PAIRS):
            times = [0.0, 0.0]
            for side in (pair % 2, 1 - pair % 2):
                seeds = slow + good if side else good
                times[side] = seconds_of_good_pages(tmp_path / f"{pair}-{side}", crowd, seeds)
            ratios.append(times[1] / times[0])
            print(f"pair {pair}: {times[1]:.1f} s, without slow hosts {times[0]:.1f} s, {ratios[-1]:.3f}")
    assert median(ratios) <= 1.11, ratios
