"""`krake_airflow.server`: what became of the processes of a part of Airflow that died."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from krake_airflow import server
from krake_airflow.server import _Part

PARENT = "import subprocess, sys; subprocess.Popen(['sleep', '600']); print('up', flush=True); sys.stdin.read()"
"""Starts a child, and lives until its standard input ends, or a signal."""


@pytest.fixture
def started() -> Iterator[Callable[[], subprocess.Popen[bytes]]]:
    """Starts processes in sessions of their own; none is left."""
    made: list[subprocess.Popen[bytes]] = []

    def start() -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            [sys.executable, "-c", PARENT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
        )
        assert process.stdout is not None
        process.stdout.readline()
        made.append(process)
        return process

    yield start
    for process in made:
        for one in server._of_session(process.pid) if psutil.pid_exists(process.pid) else ():
            one.kill()
        process.communicate()


@pytest.fixture
def part(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, started: Callable[[], subprocess.Popen[bytes]]) -> _Part:
    monkeypatch.setattr(server, "_spawn", lambda *arguments: started())
    return _Part("scheduler", tmp_path, tmp_path, {})


def test_what_a_part_left_behind_is_ended_before_it_starts_again(part: _Part) -> None:
    assert part.tend() is None
    [child] = psutil.Process(part.process.pid).children()
    os.kill(part.process.pid, signal.SIGKILL)
    os.waitid(os.P_PID, part.process.pid, os.WEXITED | os.WNOWAIT)
    assert child.is_running()
    assert "scheduler ended by itself (-9)" in (part.tend() or "")
    assert not child.is_running()


def test_who_got_the_process_id_of_a_dead_part_is_left_alone(
    part: _Part, started: Callable[[], subprocess.Popen[bytes]]
) -> None:
    """The other program leads a session, as a part does, and has a child."""
    other = started()
    server._end_all(part.processes())
    part.process.wait()
    part.process.pid = other.pid
    assert part.processes() == []
    assert len(server._with_children(other.pid)) == 2
