"""Fetching processes are forked from a server, which comes and goes without notice; see `walls.forkserver`."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from crawl_lib import stages
from crawl_lib.errors import KrakeError, StorageError
from crawl_lib.rounds import start_iteration
from crawl_lib.stores import open_stores
from crawl_lib.walls import Forked, fork_server
from crawl_lib.walls.forkserver import ForkServer
from crawl_lib.worker.workers import WorkerEnd, run_workers
from demo import Serving, SynthWeb, TruthOptions
from tests.e2e.crawl import Result, make_config, run_iteration
from tests.torture.children import children_of

ROOT = Path(__file__).resolve().parents[2]
WEB = SynthWeb(seed=5, sites=1, pages_per_site=8, specials=False)
SERVER = """\
import json, os, sys
from crawl_lib.walls import forkserver
def echo():
    line = sys.stdin.readline()
    os.write(1, line.encode())
    print("logged", file=sys.stderr)
    return 3
def wait():
    os.write(1, b"up")
    os.read(0, 1 << 16)
    os.read(forkserver.os.pipe()[0], 1)
def ask():
    os.write(1, b'{{"ask": "ip 1", "turns": 2, "start_s": 0.5}}\\n')
    told = b'{{"turn": %d}}' % json.loads(os.read(1, 1 << 16))["turn"]
    counts = b'"stopped": 0, "paused": 0, "kept": 0, "bytes": 0'
    os.write(1, b'{{"final": true, %s, "outcomes": %s}}\\n' % (counts, told))
    return 0
def says():
    os.write(1, {said!r} + b"\\n")
    return 0
def flood():
    for _ in range(100_000):
        os.write(1, b'{{"ask": "ip 1", "turns": 2, "start_s": 0.5}}\\n')
{prepare}
forkserver.serve(int(sys.argv[-2]), int(sys.argv[-1]), {run})
"""


@pytest.fixture
def python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Have servers run a program of the test's, given what it runs first and what it forks."""
    yield lambda prepare="", run="echo", said=b"": _python(
        tmp_path, monkeypatch, SERVER.format(prepare=prepare, run=run, said=said)
    )
    fork_server.__globals__["_here"].__dict__.clear()


def _python(directory: Path, monkeypatch: pytest.MonkeyPatch, program: str) -> None:
    (directory / "program.py").write_text(program)
    script = directory / "python"
    script.write_text(f'#!/bin/sh\nexec {sys.executable} {directory}/program.py "$@"\n')
    script.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(script))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))


def run(directory: Path, count: int = 1, **more: Any) -> list[WorkerEnd]:
    """`run_workers` with `count` tasks."""
    given: dict[str, Any] = {"stop": lambda: False, "on_progress": lambda progress: None} | more
    end = WorkerEnd({}, 0, 0, stopped=False, paused=False)
    tasks = [vars(replace(end, kept=number)) for number in range(count)]
    with (directory / "lock").open("w") as lock:
        return run_workers(tasks, log_dir=directory, lock_descriptor=lock.fileno(), **given)


def fork(server: ForkServer, directory: Path, task: bytes = b"") -> Any:
    with (directory / "log").open("wb") as log, (directory / "lock").open("wb") as lock:
        return server.fork(task, log.fileno(), lock.fileno())


def test_takes_of_a_thread_share_a_server(tmp_path: Path) -> None:
    config = make_config(tmp_path, nodes=1, fetch={"host_delay_s": 0.0})
    seen: list[ForkServer] = []
    with Serving(WEB) as serving:
        stages.inject(open_stores(config), run_id="run", seeds=serving.seeds[0])
        for number in (1, 2):
            run_iteration(config, "run", number)
            seen.append(fork_server())
        truth = serving.truth(options=TruthOptions(rounds=2))
    assert seen[0] is seen[1]
    assert set(Result(config).visited()) == set(truth.visits)


def test_each_process_has_its_own_streams_and_code(python: Any, tmp_path: Path) -> None:
    python()
    server = ForkServer()
    found = [fork(server, tmp_path, f"{number}\n".encode()) for number in range(3)]
    for number, forked in enumerate(found):
        with os.fdopen(forked.stdout, closefd=False) as said:
            assert said.read() == f"{number}\n"
        assert forked.wait() == 3
    assert (tmp_path / "log").read_text() == "logged\n"


def test_a_task_may_be_longer_than_a_pipe_holds(python: Any, tmp_path: Path) -> None:
    python()
    forked = fork(ForkServer(), tmp_path, b"x" * (1 << 20) + b"\n")
    with os.fdopen(forked.stdout, closefd=False) as said:
        assert len(said.read()) == (1 << 20) + 1
    assert forked.wait() == 3


def test_a_process_holds_the_lock_until_it_is_dead_and_the_server_does_not(
    python: Any, tmp_path: Path
) -> None:
    python(run="wait")
    server = ForkServer()
    forked = fork(server, tmp_path)
    assert os.read(forked.stdout, 2) == b"up"

    def holders() -> list[int]:
        lock = (tmp_path / "lock").resolve()
        pids = [server.process.pid, forked.pid]
        return [
            pid
            for pid in pids
            if lock in [entry.resolve() for entry in Path(f"/proc/{pid}/fd").iterdir()]
        ]

    assert holders() == [forked.pid]
    assert forked.wait(timeout_s=0) is None
    forked.send_signal(signal.SIGTERM)
    assert forked.wait() == -signal.SIGTERM
    forked.send_signal(signal.SIGTERM)  # which reaches no one


class Turns:
    """Answers each question with an answer of that many bytes, and notes it."""

    def __init__(self, size: int = 1) -> None:
        self.size = size
        self.heard: list[tuple[int, Mapping[str, Any]]] = []
        self.told: list[tuple[int, dict[str, Any]]] = []
        self.ready = os.eventfd(0)

    def fileno(self) -> int:
        return self.ready

    def hear(self, who: int, message: Mapping[str, Any]) -> None:
        self.heard.append((who, message))
        self.told.append((who, {"turn": who, "filled": "x" * self.size}))

    def answers(self) -> list[tuple[int, dict[str, Any]]]:
        told, self.told = self.told, []
        return told


def test_a_process_is_told_what_it_asks_for(python: Any, tmp_path: Path) -> None:
    """By the socket that is its output: it has no other way to its task, and none to anybody else."""
    python(run="ask")
    turns = Turns()
    finals = run(tmp_path, count=2, turns=turns)
    assert [final.outcomes for final in finals] == [{"turn": number} for number in (0, 1)]
    assert sorted(who for who, _ in turns.heard) == [0, 1]
    assert turns.heard[0][1] == {"ask": "ip 1", "turns": 2, "start_s": 0.5}


def test_a_process_that_does_not_read_what_it_is_told_holds_up_no_other(
    python: Any, tmp_path: Path
) -> None:
    """Nor does it fill the memory of its task: it ends, and the others with it."""
    python(run="flood")
    with pytest.raises(
        KrakeError, match=r"does not read the answer to its request; see .*worker-0\.log"
    ):
        run(tmp_path, turns=Turns(size=1000))
    assert children_of(fork_server().process.pid) == []


@pytest.mark.parametrize(
    "said",
    [
        b"no JSON",
        b"\xff",
        b"[" * 100_000,
        b"[1]",
        b'{"final": true}',
        b"{}",
        b'{"outcomes": [], "kept": 0, "bytes": 0}',
        b'{"outcomes": {"ok": "1"}, "kept": 0, "bytes": 0}',
        b'{"final": true, "outcomes": {}, "kept": 0, "bytes": 0, "stopped": 0, "paused": 0, "more": 1}',
    ],
    ids=["text", "octets", "deep", "list", "bare", "empty", "outcomes", "count", "more"],
)
def test_a_process_that_says_rubbish_is_an_error_that_names_its_log(
    python: Any, tmp_path: Path, said: bytes
) -> None:
    """A page may have taken the process over; its task ends with an error of ours."""
    python(run="says", said=said)
    with pytest.raises(KrakeError, match=r"a fetching process says .*; see .*worker-0\.log"):
        run(tmp_path)
    assert children_of(fork_server().process.pid) == []


def test_what_is_said_to_a_dead_process_is_no_error(python: Any, tmp_path: Path) -> None:
    python(run="wait")
    forked = fork(ForkServer(), tmp_path)
    assert os.read(forked.stdout, 2) == b"up"
    assert forked.write(b"x" * 1000) == b""
    assert 0 < len(forked.write(b"x" * (8 << 20))) < 8 << 20, "as far as there is room"
    forked.send_signal(signal.SIGKILL)
    assert forked.wait() == -signal.SIGKILL
    assert forked.write(b"x" * 1000) == forked.read() == b""


def test_a_ctrl_c_that_reaches_all_processes_is_left_to_the_task(
    python: Any, tmp_path: Path
) -> None:
    """Else a fetching process would end with a traceback, in the middle of what the task may still want to have."""
    python(run="wait")
    server = ForkServer()
    forked = fork(server, tmp_path)
    assert os.read(forked.stdout, 2) == b"up"
    for pid in (server.process.pid, forked.pid):
        os.kill(pid, signal.SIGINT)
    os.kill(server.process.pid, signal.SIGTERM)
    assert forked.wait(timeout_s=0.2) is None
    forked.send_signal(signal.SIGTERM)
    assert forked.wait() == -signal.SIGTERM, "its own one reaches it, by a server that still obeys"


def test_a_server_that_ended_is_replaced(tmp_path: Path) -> None:
    config = make_config(tmp_path, nodes=1, fetch={"host_delay_s": 0.0})
    with Serving(WEB) as serving:
        stages.inject(open_stores(config), run_id="run", seeds=serving.seeds[0])
        run_iteration(config, "run", 1)
        first = fork_server()
        os.kill(first.process.pid, signal.SIGKILL)
        run_iteration(config, "run", 2)
        assert set(serving.log().counts().values()) == {1}
    assert fork_server() is not first


def test_a_server_that_dies_while_its_processes_run_ends_the_task(tmp_path: Path) -> None:
    """Its processes die with it, and the next attempt does the rest."""
    config = make_config(tmp_path, nodes=1, fetch={"host_delay_s": 0.7})

    def on_progress(progress: Mapping[str, Any]) -> None:
        if progress["phase"] == "fetch" and progress["fetched"]:
            os.kill(fork_server().process.pid, signal.SIGKILL)

    with Serving(WEB) as serving:
        stages.inject(open_stores(config), run_id="run", seeds=serving.seeds[0])
        run_iteration(config, "run", 1)
        start_iteration(open_stores(config), run_id="run", iteration=2)
        with pytest.raises(KrakeError, match=r"died \(signal 9\).*run the task again"):
            stages.crawl_node(
                open_stores(config, on_progress=on_progress),
                run_id="run",
                iteration=2,
                node="node-0",
            )
        counts = run_iteration(config, "run", 2)
        truth = serving.truth(options=TruthOptions(rounds=2))
    assert counts["deferred"] == 0
    assert set(Result(config).visited()) == set(truth.visits)


def test_another_environment_gets_another_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a process would not see, say, the certificates that its task sees."""
    first = fork_server()
    assert fork_server() is first
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path))
    second = fork_server()
    assert second is not first


def test_a_process_that_closes_its_output_is_ended(python: Any, tmp_path: Path) -> None:
    """That is how its task sees that it is dead; a page that took it over could go on hidden."""
    python(run="lambda: os.close(1) or os.read(os.pipe()[0], 1)")
    assert fork(ForkServer(), tmp_path).wait() == -signal.SIGKILL


def test_a_process_that_says_more_and_more_is_not_waited_for_longer() -> None:
    """Else a page that took it over could hold up every stop."""
    with Path("/dev/zero").open("rb") as endless:
        assert Forked(cast("ForkServer", None), 0, endless.fileno()).wait(timeout_s=0.1) is None


def test_a_server_that_was_killed_before_it_could_fork_is_named_with_what_killed_it(
    tmp_path: Path,
) -> None:
    server = ForkServer()
    os.kill(server.process.pid, signal.SIGKILL)
    with pytest.raises(
        KrakeError, match=r"cannot be started: .* died \(signal 9\); run the task again"
    ):
        fork(server, tmp_path)


def test_servers_that_cannot_start_are_an_error_with_the_reason(
    python: Any, tmp_path: Path
) -> None:
    python(prepare='sys.exit("no room for modules")')
    with pytest.raises(
        KrakeError, match="fetching processes cannot be started: no room for modules"
    ):
        run(tmp_path)


def test_a_program_that_is_not_there_is_an_error_with_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "gone"))
    with pytest.raises(StorageError, match=r"gone: No such file"):
        run(tmp_path)


def test_a_process_that_cannot_be_forked_ends_the_others(python: Any, tmp_path: Path) -> None:
    """An orphan would hold the node's lock, and write to the spool."""
    refuse = """
times, real = [], os.fork
def refuse():
    times.append(1)
    if len(times) == 2:
        raise OSError(11, "")
    return real()
os.fork = refuse
"""
    python(prepare=refuse, run="wait")
    with pytest.raises(StorageError, match="fetching processes: Resource temporarily unavailable"):
        run(tmp_path, count=2)
    assert children_of(fork_server().process.pid) == []


def test_a_server_goes_with_its_thread(python: Any, tmp_path: Path) -> None:
    python(run="wait")
    servers: list[ForkServer] = []

    def take() -> None:
        servers.append(fork_server())
        assert os.read(fork(servers[0], tmp_path).stdout, 2) == b"up"

    thread = threading.Thread(target=take)
    thread.start()
    thread.join()
    assert servers[0].process.wait(timeout=300) == -signal.SIGKILL


def test_a_fork_of_the_task_has_a_server_of_its_own() -> None:
    """And leaves that of its parent alone, also when it ends."""
    code = """
import json, os
from crawl_lib.walls.forkserver import fork_server
first = fork_server()
pid = os.fork()
own = fork_server().process.pid
if pid == 0:
    print(json.dumps(own), flush=True)
else:
    os.waitpid(pid, 0)
    print(json.dumps([first.process.pid, own, first.process.poll()]))
"""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    of_child, (first, of_parent, ended) = map(json.loads, done.stdout.splitlines())
    assert of_child != first == of_parent
    assert ended is None
    assert not Path(f"/proc/{of_child}").exists()
    assert not Path(f"/proc/{first}").exists()
