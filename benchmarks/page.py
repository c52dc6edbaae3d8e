"""The page in Airflow's UI: what an open tab costs the API server while a crawl runs."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple
from urllib.request import Request, urlopen

import psutil

from benchmarks.airflow import SECTIONS, running
from benchmarks.report import Row
from demo import Serving, SynthWeb
from tests.dags.api import Api

WEB = SynthWeb(seed=8, sites=4, pages_per_site=80, specials=False)
DELAY_S = 1.0
"""The crawl lasts longer than the tab is open."""
REFRESH_S, REFRESHES = 2.0, 30
MOST_PERCENT, MOST_MB = 3, 100
PATH = "/krake/crawl/krake"


class Cost(NamedTuple):
    """CPU in seconds, and resident memory in megabytes, of all processes of the API server."""

    cpu_s: float
    megabytes: float


def run(directory: Path) -> list[Row]:
    """Return the rows of this part."""
    delays = {**SECTIONS, "fetch": {**SECTIONS["fetch"], "host_delay_s": DELAY_S}}
    with Serving(WEB) as serving, running(directory / "airflow", delays) as api:
        api.trigger(seeds="\n".join(serving.seeds), iterations=3)
        api.wait(lambda: b"crawls on" in _asked(api), "the crawl on the page")
        idle = _cost_of(lambda: b"")
        open_tab = _cost_of(lambda: _asked(api))
    percent = 100 * (open_tab.cpu_s - idle.cpu_s) / (REFRESHES * REFRESH_S)
    more_mb = open_tab.megabytes - idle.megabytes
    return [
        Row(
            "page: CPU of an open tab",
            f"{percent:.1f} % of a core",
            f"under {MOST_PERCENT} %",
            percent < MOST_PERCENT,
        ),
        Row(
            "page: memory of an open tab",
            f"{more_mb:.0f} MB",
            f"under {MOST_MB} MB",
            more_mb < MOST_MB,
        ),
    ]


def _asked(api: Api) -> bytes:
    """Ask for what changes of the page, as the script of an open tab does."""
    headers = {"Authorization": f"Bearer {api.token}", "part": "1"}
    with urlopen(Request(f"{api.url}{PATH}", headers=headers), timeout=120) as answer:
        return bytes(answer.read())


def _cost_of(refresh: Callable[[], bytes]) -> Cost:
    """Return the CPU that the API server takes for some refreshes, and its memory then."""
    before = _cost()
    for _ in range(REFRESHES):
        refresh()
        time.sleep(REFRESH_S)
    after = _cost()
    return Cost(after.cpu_s - before.cpu_s, after.megabytes)


def _cost() -> Cost:
    cpu_s = rss = 0.0
    for one in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):  # a process of a task has ended
            if re.search("api.server", " ".join(one.cmdline())):
                cpu_s, rss = cpu_s + sum(one.cpu_times()[:2]), rss + one.memory_info().rss
    return Cost(cpu_s, rss / 1e6)
