"""The network is cut for 30 s in the middle of a crawl: two later runs reach the truth, and no page is given up."""

from __future__ import annotations

import os
import subprocess
import threading
from collections import defaultdict
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from crawl_lib.config import Config
from crawl_lib.fetch import RETRIES, costs_a_retry
from crawl_lib.fetch.again import GROWTH
from crawl_lib.fetch.classify import row_of_answer
from crawl_lib.states import Outcome
from demo import RequestLog, Serving, SynthWeb, Truth
from tests.cluster.namespace import apart, set_network
from tests.e2e.crawl import Result, make_config, write_config
from tests.pythons import ROOT, python_of

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root may make a network namespace")
WEB = SynthWeb(seed=8, sites=4, pages_per_site=40, specials=False)
CUT_S = 30.0
CUT_AFTER = 0.4
"""Of the web's pages."""
LATER_S = (0.0, 1200.0, 9000.0)
"""When each run begins: the second finds due what could not be connected to, the third all else."""
ITERATIONS = 10
MOST_TRIES = max(row.max_tries for row in RETRIES.values())
"""Of a URL in one iteration: the last of several failures decides whether there is another try."""
LOOK_S = 0.1
UNTRIED = (Outcome.HOST_GAVE_UP, Outcome.ROBOTS_UNREACHABLE)


def test_two_runs_after_a_cut_reach_the_truth(tmp_path: Path) -> None:
    config = make_config(
        tmp_path, nodes=1, fetch={"host_delay_s": 0.1, "time_limit_s": 2.0}, retry={"max": 4}
    )
    truth, log = apart(lambda: crawl(config, tmp_path))
    result = Result(config)
    assert result.outcomes() == {url: str(outcome) for url, outcome in truth.outcomes().items()}
    assert set(result.visited().values()) == {1}
    assert result.retried().total() > len(truth.visits) // 10, "the cut was felt"
    tries: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in result.rows("pages", ["url", "time", "outcome", "status", "attempts", "retry_at"]):
        tries[row["url"]].append(row)
    for url, rows in tries.items():
        rows.sort(key=lambda row: row["time"])
        explain(rows, config)
        assert 1 <= log.counts()[url] <= sum(row["attempts"] for row in rows), url


def crawl(config: Config, directory: Path) -> tuple[Truth, RequestLog]:
    """The runs, in a namespace; returns what they had to find, and what the web was asked for."""
    file = write_config(config, directory)
    with Serving(WEB) as web:
        truth = web.truth()
        for number, later_s in enumerate(LATER_S):
            python = python_of(
                directory / f"python-{number}", f"import tests.pythons as p; p.be_late({later_s})"
            )
            run(python, file, "inject", "\n".join(web.seeds), "--run-id", f"run-{number}").wait()
            words = ("crawl", "--run-id", f"run-{number}", "--iterations", str(ITERATIONS))
            process = run(python, file, *words)
            if not number:
                cut_once(lambda: len(web.log().requests) >= CUT_AFTER * len(truth.visits), process)
            assert process.wait() == 0
        return truth, web.log()


def run(python: str, file: Path, *words: str) -> subprocess.Popen[bytes]:
    """Begin a command of `krake`."""
    program = "import sys; from crawl_lib.cli import main; sys.exit(main())"
    command = [python, "-c", program, "--config", str(file), *words]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL)


def cut_once(is_time: Any, process: subprocess.Popen[bytes]) -> None:
    """Cut the network, and repair it after `CUT_S`, whether or not the crawl has ended in between."""
    while not is_time():
        with suppress(subprocess.TimeoutExpired):
            process.wait(LOOK_S)
            raise AssertionError("the crawl was over before the network was cut")
    set_network(up=False)
    threading.Event().wait(CUT_S)
    set_network(up=True)


def explain(tries: list[dict[str, Any]], config: Config) -> None:
    """Each of a URL's rows is one that the retry table allows there, with the wait that it names. In order of time."""
    retries = 0
    for row, following in pairwise([*tries, None]):
        assert row is not None
        table = RETRIES[row_of_answer(Outcome(row["outcome"]), row["status"])]
        assert row["attempts"] <= MOST_TRIES, tries
        assert row["attempts"] or Outcome(row["outcome"]) in UNTRIED, tries
        assert (row["retry_at"] is None) == (following is None), tries
        if following is None:
            return
        assert table.passes_s is not None, tries
        wait_s = min(table.passes_s * GROWTH**retries, config.retry.max_wait_s)
        # Rounded up; and where its host was given up, the host's back-off began with the end of the try.
        late_s = (row["retry_at"] - row["time"]).total_seconds() - wait_s
        assert 0 <= late_s <= 1 + config.fetch.time_limit_s, tries
        assert following["time"] >= row["retry_at"], tries
        retries += costs_a_retry(Outcome(row["outcome"]), row["attempts"])
        assert retries <= config.retry.max, tries
