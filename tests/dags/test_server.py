"""`krake_airflow.server`: what became of the processes of a part of Airflow that died."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
import uvicorn
from airflow.utils.serve_logs.core import serve_logs
from krake_airflow import loopback, server
from krake_airflow.__main__ import main
from krake_airflow.server import _Part
from krake_airflow.settings import server_environment

PARENT = "import subprocess, sys; subprocess.Popen(['sleep', '600']); print('up', flush=True); sys.stdin.read()"
"""Starts a child, and lives until its standard input ends, or a signal."""


@pytest.fixture
def started() -> Iterator[Callable[[], subprocess.Popen[bytes]]]:
    """Starts processes in sessions of their own; none is left."""
    made: list[subprocess.Popen[bytes]] = []

    def start() -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            [sys.executable, "-c", PARENT],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
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
def part(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, started: Callable[[], subprocess.Popen[bytes]]
) -> _Part:
    monkeypatch.setattr(server, "_spawn", lambda *arguments: started())
    return _Part("scheduler", tmp_path, tmp_path, {})


def test_what_a_part_left_behind_is_ended_before_it_starts_again(part: _Part) -> None:
    assert part.tend() is None
    [child] = psutil.Process(part.process.pid).children()
    os.kill(part.process.pid, signal.SIGKILL)
    os.waitid(os.P_PID, part.process.pid, os.WEXITED | os.WNOWAIT)
    assert child.is_running()
    assert "scheduler ended by itself (-9)" in (part.tend() or "")
    assert not server._lives(child)


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


TASK = "import signal, time; signal.signal(signal.SIGTERM, signal.{}); print('up', flush=True); time.sleep(600)"
WORKER = "import subprocess, sys; subprocess.run([sys.executable, '-c', sys.argv[1]])"
SCHEDULER = f"""
import subprocess, sys
idle = subprocess.Popen(['sleep', '600'])
subprocess.run([sys.executable, '-c', {WORKER!r}, sys.argv[1]])
"""
"""A scheduler with a worker that has nothing to do, and one that runs a task."""


@pytest.mark.parametrize(
    ("on_term", "least_s", "most_s"), [("SIG_DFL", 0.0, 3.0), ("SIG_IGN", 3.0, 5.0)]
)
def test_stop_ends_tasks_and_kills_what_does_not_stop(
    on_term: str, least_s: float, most_s: float, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    command = [sys.executable, "-c", SCHEDULER, TASK.format(on_term)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True)
    monkeypatch.setattr(server, "_spawn", lambda *arguments: process)
    airflow = server.AirflowServer(tmp_path, tmp_path)
    airflow._parts = [_Part("scheduler", tmp_path, tmp_path, {})]
    assert process.stdout is not None
    process.stdout.readline()
    family = psutil.Process(process.pid).children(recursive=True)
    assert len(family) == 3
    began_s = time.monotonic()
    airflow.stop()
    assert least_s <= time.monotonic() - began_s < most_s
    assert not any(server._lives(one) for one in family)
    assert process.returncode == -signal.SIGKILL
    process.stdout.close()


def test_what_an_earlier_version_left_open_is_made_private(tmp_path: Path) -> None:
    """Passwords, the logs that have them, the database; a link to elsewhere keeps its target's rights."""
    home, elsewhere = tmp_path / "home", tmp_path / "elsewhere"
    (home / "logs" / "dag_id=x").mkdir(parents=True)
    files = [
        home / server.PASSWORDS_FILE,
        home / server.DATABASE_FILE,
        home / "logs" / "api-server.log",
        elsewhere,
    ]
    for path in files:
        path.write_text("secret")
        path.chmod(0o644)
    (home / "config.yml").symlink_to(elsewhere)
    for path in (home, home / "logs"):
        path.chmod(0o755)
    with server.AirflowServer(home, home / "config.yml"):
        pass
    rights = {
        path.name: path.stat().st_mode & 0o777
        for path in [*files, home, home / "logs", home / "jwt-secret"]
    }
    assert rights.pop("elsewhere") == 0o644
    assert set(rights.values()) == {0o600, 0o700}


def test_what_make_ui_and_make_crawl_make_is_private(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Whatever the umask was; what Airflow gives rights to by itself too."""
    before = os.umask(0o022)
    try:
        monkeypatch.setattr("krake_airflow.__main__.PROGRAMS", {"crawl": "made"})
        monkeypatch.setattr(
            "krake_airflow.__main__.import_module",
            lambda name: SimpleNamespace(main=lambda words: (tmp_path / words[0]).mkdir() or 0),
        )
        main(["crawl", "data"])
    finally:
        os.umask(before)
    assert (tmp_path / "data").stat().st_mode & 0o777 == 0o700
    made = server_environment(tmp_path, port=1, worker_log_port=2, trigger_log_port=3)
    assert {value for name, value in made.items() if name.endswith("PERMISSIONS")} == {
        "0o700",
        "0o600",
    }


def test_a_log_server_listens_on_loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    """Airflow's own function, which names no address."""
    asked: dict[str, object] = {}
    monkeypatch.setattr(loopback, "_run", lambda app, **options: asked.update(options))
    monkeypatch.setattr(uvicorn, "run", loopback.run_on_loopback)
    monkeypatch.setattr("setproctitle.setproctitle", lambda title: None)
    serve_logs(8793)
    assert (asked["host"], asked["port"]) == ("127.0.0.1", 8793)
    loopback.run_on_loopback("app", host="::1")
    assert asked["host"] == "::1"


HEALTH = {part: {"status": "healthy"} for part in ("metadatabase", "scheduler", "dag_processor")}


@pytest.mark.parametrize("ready", [[], ["/api/v2/monitor/health"], ["/execution/health"]])
def test_airflow_is_not_ready_before_what_answers_tasks_is_made(
    ready: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The API server makes it with the first question, which takes 2 s: the first task would wait for it."""
    airflow = server.AirflowServer(tmp_path, tmp_path)
    answers = dict.fromkeys(ready, HEALTH)
    monkeypatch.setattr(airflow, "_asked", answers.get)
    assert not airflow._healthy()
    answers.update(dict.fromkeys(("/api/v2/monitor/health", "/execution/health"), HEALTH))
    assert airflow._healthy()
