"""Clocks that jump: by ten hours, backwards and forwards, between tasks and in the middle of one.

Folders stay in order, the crawl equals the truth, no host waits for hours, and delays hold (I4, I6).
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from demo import Serving, SynthWeb
from tests.e2e.crawl import Result, check_counts, check_warcs, make_config, write_config

ROOT = Path(__file__).resolve().parents[2]
WEB = SynthWeb(seed=4, sites=2, pages_per_site=10, specials=False)
DELAY_S = 0.05
TEN_HOURS_S = 36_000
JUMP = """\
import os, time
_real, _clock = time.time, os.open({clock!r}, os.O_RDONLY)  # a fetching process may not open it later
def _time():
    return _real() + float(os.pread(_clock, 100, 0) or 0)
time.time = _time
"""
CRAWL = """\
import sys
from pathlib import Path
from crawl_lib import open_stores, stages
from crawl_lib.config import load_config
from crawl_lib.rounds import start_iteration
config = load_config(Path(sys.argv[1]))
clock, jumps = Path(sys.argv[2]), [float(word) for word in sys.argv[3].split(",")]
stages.inject(open_stores(config), run_id="run", seeds=sys.argv[4])
for number, jump in enumerate(jumps, start=1):
    seen = []
    def on_progress(progress):
        if progress["phase"] == "fetch" and not seen:
            seen.append(clock.write_text(str(jump)))
    start_iteration(open_stores(config), run_id="run", iteration=number)
    stages.crawl_node(open_stores(config, on_progress=on_progress), run_id="run", iteration=number, node="node-0")
    stages.commit_iteration(open_stores(config), run_id="run", iteration=number)
"""


@pytest.mark.parametrize(
    "jumps",
    [
        pytest.param(
            (0, -TEN_HOURS_S, -TEN_HOURS_S, -TEN_HOURS_S, -TEN_HOURS_S, -TEN_HOURS_S), id="set back"
        ),
        pytest.param(
            (0, TEN_HOURS_S, TEN_HOURS_S, TEN_HOURS_S, TEN_HOURS_S, TEN_HOURS_S), id="set forward"
        ),
        pytest.param((TEN_HOURS_S, 0, -TEN_HOURS_S, TEN_HOURS_S, -TEN_HOURS_S, 0), id="to and fro"),
    ],
)
def test_a_clock_that_jumps_while_pages_are_fetched(jumps: tuple[int, ...], tmp_path: Path) -> None:
    """Each number is how far the clock is off from the middle of that iteration's fetching on."""
    clock = tmp_path / "clock"
    (tmp_path / "sitecustomize.py").write_text(JUMP.format(clock=str(clock)))
    clock.write_text("0")
    config = make_config(tmp_path, nodes=1, fetch={"host_delay_s": DELAY_S})
    variables = {**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"}
    with Serving(WEB) as serving:
        arguments = [str(write_config(config, tmp_path)), str(clock), ",".join(map(str, jumps))]
        command = [sys.executable, "-c", CRAWL, *arguments, "\n".join(serving.seeds)]
        done = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=600)
        assert done.returncode == 0, done.stderr
        truth, log = serving.truth(), serving.log()
    result = Result(config)
    assert set(result.visited()) == set(truth.visits)
    assert set(result.visited().values()) == {1}
    assert [manifest["iteration"] for manifest in result.manifests()] == list(
        range(1, len(jumps) + 1)
    )
    check_counts(result)
    check_warcs(result)
    assert set(log.counts().values()) == {1}
    assert all(log.closest_gap_s(host) >= DELAY_S for host in log.hosts())
