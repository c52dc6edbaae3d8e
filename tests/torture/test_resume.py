"""A crawl task that died late does the rest, not all of it again; and processes that die or stop hold no one up."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from crawl_lib import stages
from crawl_lib.config import Config
from crawl_lib.frontier import NodeDirectory, Take
from crawl_lib.rounds import note_change, start_iteration
from crawl_lib.stores import open_stores
from demo import Serving, SynthWeb, TruthOptions
from tests.e2e.crawl import Result, make_config, run_iteration, write_config
from tests.torture.children import children_of
from tests.torture.faulty import attempt, dying_worker
from tests.torture.tasks import Task

WEB = SynthWeb(seed=3, sites=1, pages_per_site=200, specials=False)
ROUNDS = 3


@pytest.fixture
def serving() -> Iterator[Serving]:
    with Serving(WEB) as found:
        yield found


def begin(serving: Serving, config: Config) -> int:
    """Crawl up to the third iteration and begin it; returns how many URLs it has to fetch."""
    stages.inject(open_stores(config), run_id="run", seeds=serving.seeds[0])
    for number in range(1, ROUNDS):
        run_iteration(config, "run", number)
    start_iteration(open_stores(config), run_id="run", iteration=ROUNDS)
    visits = serving.truth(options=TruthOptions(rounds=ROUNDS)).visits.values()
    return sum(visit.round == ROUNDS for visit in visits)


def test_killed_at_95_percent_does_the_other_5(serving: Serving, tmp_path: Path) -> None:
    config = make_config(tmp_path, nodes=1, fetch={"host_delay_s": 0.0})
    taken = begin(serving, config)
    assert taken >= 40
    done = taken * 95 // 100
    before = serving.log().counts()
    attempt(
        Task("crawl", "run", iteration=ROUNDS, node="node-0"), config, dying_worker, done + 1, 137
    )
    first = serving.log().counts() - before
    assert first.total() == done + 1, "the last one was in flight"
    counts = run_iteration(config, "run", ROUNDS)
    second = serving.log().counts() - before - first
    assert second.total() == taken - done
    assert counts["pages"] == counts["taken"] == taken
    assert set(Result(config).visited()) == set(
        serving.truth(options=TruthOptions(rounds=ROUNDS)).visits
    )


def start_by_hand(config: Config, directory: Path) -> subprocess.Popen[bytes]:
    """The crawl task of the third iteration, as a process that fetches slowly."""
    code = (
        "import sys; from pathlib import Path; from crawl_lib import load_config, open_stores, stages;"
        "stores = open_stores(load_config(Path(sys.argv[1])));"
        f"stages.crawl_node(stores, run_id='run', iteration={ROUNDS}, node='node-0')"
    )
    return subprocess.Popen([sys.executable, "-c", code, str(write_config(config, directory))])


@pytest.mark.parametrize("stopped", ["nobody", "worker", "server"])
def test_a_fetching_process_goes_with_its_parent_even_where_it_was_stopped(
    stopped: str, serving: Serving, tmp_path: Path
) -> None:
    """Else it would hold the node's lock for ever (SIGSTOP: by a debugger or container), or write next to others."""
    quick = make_config(
        tmp_path, nodes=1, fetch={"host_delay_s": 0.0}, queue={"lock_timeout_s": 60}
    )
    begin(serving, quick)
    before = serving.log().counts().total()
    slow = make_config(tmp_path, nodes=1, fetch={"host_delay_s": 0.2}, queue={"lock_timeout_s": 60})
    note_change(open_stores(slow), run_id="run")  # whose config holds
    process = start_by_hand(slow, tmp_path)
    while serving.log().counts().total() < before + 2:
        assert process.poll() is None
        time.sleep(0.05)
    [server] = children_of(process.pid)
    [worker] = children_of(server)
    if stopped != "nobody":
        os.kill(worker if stopped == "worker" else server, signal.SIGSTOP)
    process.kill()
    process.wait()
    directory = NodeDirectory.make(Path(quick.queue.local_dir), "node-0")
    assert Take.open(directory) is not None
    note_change(open_stores(quick), run_id="run")
    counts = run_iteration(quick, "run", ROUNDS)
    assert counts["pages"] == counts["taken"]
    asked = serving.log().counts()
    assert sum(count > 1 for count in asked.values()) <= 1
    assert (
        not Path(f"/proc/{worker}").exists()
        or "Z" in Path(f"/proc/{worker}/stat").read_text().split()[2]
    )
