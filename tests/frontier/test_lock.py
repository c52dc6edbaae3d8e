"""The node's lock: one holder, inherited by children, freed by death."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from crawl_lib.errors import LockedError, StorageError
from crawl_lib.frontier import Change, NodeHome, NodeLock, Record, State, Take, TakeHeader
from tests.harms import files_of


def lock(path: Path, timeout_s: float = 0.0, **options) -> NodeLock:
    return NodeLock(path, "node-a", timeout_s, **options)


def test_a_second_holder_is_refused_and_told_who_has_it(tmp_path: Path) -> None:
    with lock(tmp_path, what="crawl of iteration 3"):
        told: list[str] = []
        with pytest.raises(
            LockedError, match=f"node node-a is locked by process {os.getpid()} on .*iteration 3"
        ):
            lock(tmp_path, 0.35, on_wait=told.append, report_interval_s=0.1).__enter__()
        assert told
        assert str(os.getpid()) in told[0]
        assert "crawl of iteration 3" in told[0]
    with lock(tmp_path):
        pass


TAKE = Take(Path("take"), TakeHeader(take_id="t", run_id="r", iteration=1, folder="1", processes=1))
CHANGES: dict[str, Callable[[NodeHome], object]] = {
    "create": lambda home: home.queue.create(),
    "write_record": lambda home: home.queue.write_record(Record()),
    "write_lines": lambda home: home.queue.write_lines("new", []),
    "finish_open_move": lambda home: home.queue.finish_open_move(),
    "change": lambda home: home.queue.change(
        Change(move_id="m", state=State(), record=Record(), ours=True)
    ),
    "take": lambda home: home.takes.write(TAKE.header, []),
    "leave_over": lambda home: home.takes.leave_over(TAKE, [0]),
    "write_scope": lambda home: home.takes.write_scope(TAKE, ["h.example"]),
    "close": lambda home: home.takes.close(),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_home_whose_lock_is_released_refuses_changes(tmp_path: Path, name: str) -> None:
    with lock(tmp_path) as home:
        home.queue.create()
    before = files_of(tmp_path)
    with pytest.raises(LockedError, match="without the lock"):
        CHANGES[name](home)
    assert files_of(tmp_path) == before


def test_waiting_ends_when_the_holder_does(tmp_path: Path) -> None:
    first = lock(tmp_path)
    first.__enter__()
    ends = lock(
        tmp_path, 60, on_wait=lambda text: first.__exit__(None, None, None), report_interval_s=0.0
    )
    with ends, pytest.raises(LockedError):
        lock(tmp_path).__enter__()


def test_children_that_inherit_the_descriptor_keep_the_lock(tmp_path: Path) -> None:
    with lock(tmp_path) as home:
        child = subprocess.Popen(
            [sys.executable, "-c", "import sys; sys.stdin.read()"],
            stdin=subprocess.PIPE,
            pass_fds=[home.lock.fileno()],
        )
    try:
        with pytest.raises(LockedError):
            lock(tmp_path).__enter__()
    finally:
        child.send_signal(signal.SIGKILL)
        child.communicate()
    with lock(tmp_path):
        pass


def test_other_children_do_not_keep_it(tmp_path: Path) -> None:
    with lock(tmp_path):
        child = subprocess.Popen(
            [sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE
        )
    with lock(tmp_path):
        child.communicate()


def test_a_path_that_cannot_be_is_named(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="no/lock"):
        lock(tmp_path / "no").__enter__()


def test_a_file_system_that_cannot_lock_is_an_error_of_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(descriptor: int, kind: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", refuse)
    with pytest.raises(StorageError, match="lock: cannot be locked: No locks available"):
        lock(tmp_path).__enter__()
