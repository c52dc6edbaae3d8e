"""A crawl task that is killed in the middle of its fetches and run again: the truth all the same, and as polite."""

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from crawl_lib import stages
from crawl_lib.rounds import start_iteration
from crawl_lib.stores import open_stores
from crawl_lib.urls import Owners
from demo import Serving, SynthWeb
from tests.e2e.crawl import (
    Result,
    check_cdxj,
    check_counts,
    check_warcs,
    make_config,
    run_crawl,
    write_config,
)

WEB = SynthWeb(seed=30, sites=4, pages_per_site=30, specials=False)
HOST_DELAY_S = 0.05
RUN = "import sys; from crawl_lib import load_config, open_stores, stages\n"
RUN += "stores = open_stores(load_config(sys.argv[1]))\n"
RUN += "stages.crawl_node(stores, run_id='run-1', iteration=int(sys.argv[2]), node=sys.argv[3])"


def crawl_and_kill(path: Path, iteration: int, node: str, when: Callable[[], bool]) -> None:
    """Start a node's task as a process and kill it (its children die with it) as soon as `when` says so."""
    command = [sys.executable, "-c", RUN, str(path), str(iteration), node]
    with subprocess.Popen(command, start_new_session=True) as process:
        deadline = time.monotonic() + 240
        while process.poll() is None and not when():
            assert time.monotonic() < deadline, (
                "the task neither ended nor came to the point of its death"
            )
            time.sleep(0.02)
        assert process.poll() is None, "the task ended before it could be killed"
        os.kill(process.pid, signal.SIGKILL)


def test_killed_task_runs_again_to_the_truth(tmp_path: Path) -> None:
    config = make_config(tmp_path, nodes=2, fetch={"host_delay_s": HOST_DELAY_S, "processes": 1})
    path = write_config(config, tmp_path)
    owned = Counter(Owners(config.servers).owner(address) for address in WEB.addresses())
    busiest = owned.most_common(1)[0][0]
    with Serving(WEB) as serving:
        stages.inject(open_stores(config), run_id="run-1", seeds="\n".join(serving.seeds))
        for iteration in (1, 2, 3):
            start_iteration(open_stores(config), run_id="run-1", iteration=iteration)
            if iteration > 1:
                seen = len(serving.log().requests)
                crawl_and_kill(
                    path,
                    iteration,
                    busiest,
                    lambda seen=seen: len(serving.log().requests) > seen + 8,
                )
            for node in config.servers:
                stages.crawl_node(
                    open_stores(config), run_id="run-1", iteration=iteration, node=node
                )
            stages.commit_iteration(open_stores(config), run_id="run-1", iteration=iteration)
        result = run_crawl(config, serving.seeds, run_id="run-2", result=Result(config))
        truth, log = serving.truth(), serving.log()
    assert result.outcomes() == {url: str(outcome) for url, outcome in truth.outcomes().items()}
    assert set(result.visited().values()) == {1}
    assert result.arcs() == truth.arcs
    assert result.contents() == truth.contents()
    twice = {url: count for url, count in log.counts().items() if count > 1}
    # what was in flight at the two deaths: at most one request a host each
    assert len(twice) <= 2 * WEB.sites
    assert max(twice.values(), default=1) <= 3
    for host in log.hosts():
        assert log.closest_gap_s(host) >= HOST_DELAY_S, host
    check_warcs(result)
    check_cdxj(result)
    check_counts(result)
