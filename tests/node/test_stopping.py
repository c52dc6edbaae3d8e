"""A task that is asked to stop, at whatever step, stops soon and loses nothing (I1); the next one goes on there."""

import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from crawl_lib import stages
from crawl_lib.errors import ConfigError, KrakeError, QueueError, StoppedError, StorageError
from crawl_lib.frontier import NodeDirectory, NodeLock, Take
from crawl_lib.rounds import agreement, start_iteration
from crawl_lib.signals import LastResort
from crawl_lib.stores import node_dir, open_stores
from demo import Serving, SynthWeb, TruthOptions
from tests.e2e.crawl import Result, make_config, run_crawl, run_iteration
from tests.torture.children import children_of

ROOT = Path(__file__).resolve().parents[2]
WEB = SynthWeb(seed=5, sites=1, pages_per_site=8, specials=False)


def fetching_processes() -> list[int]:
    """Workers of this process: what its fork servers have forked."""
    servers = [
        pid for pid in children_of(os.getpid()) if b"crawl_lib.worker.process" in command_of(pid)
    ]
    return [pid for server in servers for pid in children_of(server)]


def command_of(pid: int) -> bytes:
    return Path(f"/proc/{pid}/cmdline").read_bytes()


def test_worker_that_was_stopped_alone_stops_the_task(tmp_path: Path) -> None:
    """What a worker did not get to is not left over: that is the decision of a time limit, not of a signal."""
    config = make_config(tmp_path, nodes=1, fetch={"host_delay_s": 0.7})

    def on_progress(progress: Mapping[str, Any]) -> None:
        if progress["phase"] == "fetch" and progress["fetched"]:
            for pid in fetching_processes():
                os.kill(pid, signal.SIGTERM)

    with Serving(WEB) as serving:
        stages.inject(open_stores(config), run_id="run", seeds=serving.seeds[0])
        for number in (1, 2):
            if number == 2:
                start_iteration(open_stores(config), run_id="run", iteration=2)
                with pytest.raises(StoppedError, match="run the task again"):
                    stages.crawl_node(
                        open_stores(config, on_progress=on_progress),
                        run_id="run",
                        iteration=2,
                        node="node-0",
                    )
            counts = run_iteration(config, "run", number)
            assert counts["deferred"] == 0
        truth, asked = serving.truth(options=TruthOptions(rounds=2)), serving.log().counts()
    assert set(Result(config).visited()) == set(truth.visits)
    assert set(asked.values()) == {1}


@pytest.mark.parametrize("kind", ["stopped", "killed"])
def test_the_progress_of_the_next_attempt_counts_what_was_kept(kind: str, tmp_path: Path) -> None:
    config = make_config(tmp_path, nodes=1, fetch={"host_delay_s": 0.4})
    seen: list[dict[str, Any]] = []

    def on_progress(progress: Mapping[str, Any]) -> None:
        seen.append(dict(progress))
        if progress["phase"] == "fetch" and progress["fetched"] >= 2 and len(seen) < 1000:
            for pid in fetching_processes():
                os.kill(pid, signal.SIGTERM if kind == "stopped" else signal.SIGKILL)

    with Serving(WEB) as serving:
        stages.inject(open_stores(config), run_id="run", seeds=" ".join(serving.truth().visits))
        with pytest.raises(KrakeError):
            stages.crawl_node(
                open_stores(config, on_progress=on_progress),
                run_id="run",
                iteration=1,
                node="node-0",
            )
        before, seen = seen[-1]["fetched"], [{}] * 1000
        counts = stages.crawl_node(
            open_stores(config, on_progress=on_progress), run_id="run", iteration=1, node="node-0"
        )
    fetched = [
        progress["fetched"] for progress in seen[1000:] if progress["phase"] in ("fetch", "commit")
    ]
    rates = [progress["pages_per_s"] for progress in seen[1000:] if progress["phase"] == "fetch"]
    assert before >= 2
    assert fetched == sorted(fetched)
    assert before <= fetched[-1] <= counts["pages"]
    assert [number for number in fetched if 0 < number < before] == []
    assert max(rates) < 5, "kept pages are no part of the rate"


@pytest.mark.parametrize("phase", ["intake", "fetch", "commit"])
def test_stop_set_in_a_phase(phase: str, tmp_path: Path) -> None:
    config = make_config(tmp_path, nodes=1, fetch={"host_delay_s": 0.0})
    directory = Path(config.queue.local_dir) / "node-0"
    stop = threading.Event()

    def on_progress(progress: Mapping[str, Any]) -> None:
        if progress["phase"] == phase:
            stop.set()

    with Serving(WEB) as serving:
        stages.inject(open_stores(config), run_id="run", seeds=serving.seeds[0])
        start_iteration(open_stores(config), run_id="run", iteration=1)
        with pytest.raises(StoppedError):
            stages.crawl_node(
                open_stores(config, stop=stop, on_progress=on_progress),
                run_id="run",
                iteration=1,
                node="node-0",
            )
        assert not Result(config).segments()
        assert (Take.open(directory) is None) == (phase == "intake")
        counts = run_iteration(config, "run", 1)
        asked = serving.log().counts()
    assert (counts["taken"], counts["pages"], counts["deferred"]) == (1, 1, 0)
    assert set(asked.values()) == {1}


def test_stop_while_another_task_holds_the_node(tmp_path: Path) -> None:
    config = make_config(tmp_path, nodes=1)
    directory = NodeDirectory.make(Path(config.queue.local_dir), "node-0")
    stop, seen = threading.Event(), []

    def on_progress(progress: Mapping[str, Any]) -> None:
        seen.append(progress["phase"])
        if len(seen) == 1:
            threading.Timer(0.1, stop.set).start()

    with (
        NodeLock(directory, "node-0", 1.0, what="the other task"),
        pytest.raises(StoppedError, match="the other task"),
    ):
        stages.settle_node(open_stores(config, stop=stop, on_progress=on_progress), node="node-0")
    assert "the other task" in seen[0]
    assert not (directory / "progress.json").exists(), "the file tells what the holder does"


def test_full_disk_is_an_error_of_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the system refuses, the caller gets a KrakeError that names the path."""
    config = make_config(tmp_path, nodes=1)
    start_iteration(open_stores(config), run_id="run", iteration=1)

    def refuse(path: Path, *args: Any, **kwargs: Any) -> None:
        raise OSError(28, "No space left on device", str(path))

    monkeypatch.setattr("crawl_lib.node.take.shutil.rmtree", refuse)
    (NodeDirectory.make(Path(config.queue.local_dir), "node-0") / "spool").mkdir()
    with pytest.raises(StorageError, match="spool: No space left"):
        stages.crawl_node(open_stores(config), run_id="run", iteration=1, node="node-0")


def test_open_take_whose_folder_was_deleted_says_what_to_do(tmp_path: Path) -> None:
    """Following the message loses no URL: the take's are still in the queue."""
    config = make_config(tmp_path, nodes=1, fetch={"host_delay_s": 0.0})
    stop = threading.Event()
    with Serving(WEB) as serving:
        stages.inject(open_stores(config), run_id="run", seeds=serving.seeds[0])
        folder = start_iteration(open_stores(config), run_id="run", iteration=1).folder
        with pytest.raises(StoppedError):
            stages.crawl_node(
                open_stores(
                    config,
                    stop=stop,
                    on_progress=lambda progress: (
                        stop.set() if progress["phase"] == "fetch" else None
                    ),
                ),
                run_id="run",
                iteration=1,
                node="node-0",
            )
        shutil.rmtree(Result(config).crawl_dir / folder)
        with pytest.raises(
            QueueError, match=f"iteration {folder}.*move the file and its spool away"
        ) as caught:
            run_iteration(config, "later", 1)
        take = Path(config.queue.local_dir) / "node-0" / "take"
        assert str(take) in str(caught.value)
        take.unlink()
        assert run_iteration(config, "later", 1)["pages"] == 1


ENDLESS = """\
import hashlib, sys
from crawl_lib.signals import stop_on_signals
with stop_on_signals():
    sys.stdout.write("begun\\n")
    sys.stdout.flush()
    hashlib.pbkdf2_hmac("sha256", b"", b"", 2**31 - 1)  # a step that looks at nothing, not even at signals
"""
PATIENT = """\
import sys, threading
from crawl_lib import signals
signals.LastResort.__init__.__defaults__ = (3600.0,)
with signals.stop_on_signals() as stop:
    def tell():
        sys.stdout.write("begun\\n")
        sys.stdout.flush()
        stop.wait()
        sys.stdout.write("told\\n")
        sys.stdout.flush()
    threading.Thread(target=tell, daemon=True).start()
    threading.Event().wait()
"""


def begun(program: str) -> subprocess.Popen[str]:
    """A program that has said that it began."""
    process = subprocess.Popen(
        [sys.executable, "-c", program],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "begun\n"
    return process


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_step_that_does_not_look_is_ended(number: signal.Signals) -> None:
    """Within 5 s of the signal a program is gone, whatever it is doing; a kill loses nothing."""
    process = begun(ENDLESS)
    process.send_signal(number)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 128 + number
    assert errors.startswith("stopped")
    assert "run it again" in errors
    assert errors.count("\n") == 1


def test_the_second_signal_ends_a_program_at_once() -> None:
    process = begun(PATIENT)
    process.send_signal(signal.SIGTERM)
    assert process.stdout is not None
    assert process.stdout.readline() == "told\n"
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 128 + signal.SIGINT
    assert errors == ""


def test_a_program_that_stopped_by_itself_is_left_alone() -> None:
    """What would end it waits no more; without waiting here, since a busy machine would have it end the tests."""
    before = set(threading.enumerate())
    with LastResort(seconds=3600) as last_resort:
        last_resort.begin(1)
        [timer] = set(threading.enumerate()) - before
    last_resort.begin(1)
    timer.join()
    assert not set(threading.enumerate()) - before


def test_krake_may_be_upgraded_while_a_take_is_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The old run's iteration keeps its version; a new run finishes what is open, and goes on."""
    config, stop = make_config(tmp_path, nodes=1, fetch={"host_delay_s": 0.7}), threading.Event()

    def on_progress(progress: Mapping[str, Any]) -> None:
        if progress["phase"] == "fetch" and progress["fetched"]:
            stop.set()

    with Serving(WEB) as serving:
        seeds = "\n".join(serving.url(0, f"/p{number}.html") for number in range(1, 8))
        stages.inject(open_stores(config), run_id="run", seeds=seeds)
        stopped = open_stores(config, stop=stop, on_progress=on_progress)
        with pytest.raises(StoppedError):
            stages.crawl_node(stopped, run_id="run", iteration=1, node="node-0")
        assert Take.open(node_dir(config, "node-0")) is not None
        monkeypatch.setattr(agreement, "VERSION", "9.9.9")
        with pytest.raises(ConfigError, match=r"this machine has Krake 9\.9\.9"):
            stages.crawl_node(open_stores(config), run_id="run", iteration=1, node="node-0")
        visited = run_crawl(config, "", run_id="run-2").visited()
        assert set(visited) == set(serving.truth(seeds.splitlines()).visits)
    assert set(visited.values()) == {1}
