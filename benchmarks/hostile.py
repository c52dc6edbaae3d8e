"""Whether hosts that hang, drip or attack delay the good ones: two crawls by the clock, about ten minutes.

`SLOW_HOSTS=10000` makes the first of ten times the size, `HOSTILE_SEED=N` the second of other pages of the same kinds.
Raises AssertionError where a page ends otherwise than it should.
"""

from __future__ import annotations

import os
from itertools import cycle
from pathlib import Path
from statistics import median

from benchmarks.report import Row, ahead
from tests.e2e.crawl import make_config, run_crawl
from tests.e2e.hostile import Shape, crawl_both, other_ports
from tests.web.catalogue import GOOD, HOSTILE, address_of
from tests.web.crowd import CrowdServing

HOSTS = int(os.environ.get("SLOW_HOSTS", "1000"))
PAGES = 4
PAIRS = 3
DELAY_S = 4.0 * HOSTS / 1000
"""So good pages, half a second each, take five of six slots at a time."""
MOST_RATIO = 1.11
BAD_PATHS = ("/hang", "/drip-body", "/deaf", "/hang-in-body", "/drip-head", "/hang-in-head")
SHAPE = Shape(
    good=500, pages=12, hostile=500, urls=2, delay_s=5.0, time_limit_s=8.0, connections=1000
)


def seconds_of_good_pages(directory: Path, crowd: CrowdServing, seeds: list[str]) -> float:
    """Crawl these pages; returns the time from the first request of all until the last one for a good page."""
    before = len(crowd.log().requests)
    directory.mkdir()
    config = make_config(
        directory,
        nodes=1,
        urls={"max_depth": 0},
        fetch={
            "processes": 2,
            "host_delay_s": DELAY_S,
            "ip_delay_s": 0.25,
            "time_limit_s": 10.0,
            "min_speed_s": 5.0,
        },
    )
    outcomes = run_crawl(config, seeds, 1, process=False).outcomes()
    is_good = {url: f"//{GOOD}." in url for url in outcomes}
    assert {outcome for url, outcome in outcomes.items() if is_good[url]} == {"ok"}
    assert {outcome for url, outcome in outcomes.items() if not is_good[url]} <= {
        "too_slow",
        "timeout",
        "host_gave_up",
    }
    requests = crowd.log().requests[before:]
    return (
        max(request.start for request in requests if request.path.startswith("/good/"))
        - requests[0].start
    )


def slow_ratios(directory: Path) -> list[float]:
    """How long good pages took next to slow hosts, against the same ones alone, in pairs of crawls in turn."""
    bad, ratios = HOSTS // 20, []
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
        for pair in range(PAIRS):
            times = [0.0, 0.0]
            for side in (pair % 2, 1 - pair % 2):
                seeds = slow + good if side else good
                times[side] = seconds_of_good_pages(directory / f"{pair}-{side}", crowd, seeds)
            ratios.append(times[1] / times[0])
    return ratios


def run(directory: Path) -> list[Row]:
    """Both crawls."""
    with ahead():
        ratios = slow_ratios(directory)
        late, measured = crawl_both(directory, int(os.environ.get("HOSTILE_SEED", "1")), SHAPE)
    return [
        Row(
            f"hostile: time to the last good page, {HOSTS:,} hosts of which 5 % hang or drip",
            f"{median(ratios):.2f} of that without them ({min(ratios):.2f} to {max(ratios):.2f})",
            f"at most {MOST_RATIO}",
            median(ratios) <= MOST_RATIO,
        ),
        Row(
            f"hostile: the same, {SHAPE.good} hosts next to {SHAPE.hostile} hostile ones",
            f"{measured['together_s']:.0f} s, alone {measured['alone_s']:.0f} s, {measured['peak_mb']:.0f} MB",
            "1.2 of that alone",
            not late,
        ),
    ]
