"""Servers as child processes that outlive nothing: they end with the thread that started them, and when told to."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import psutil

from tests.ports import free_port

PR_SET_PDEATHSIG = 1


def spawn(
    command: Sequence[str],
    log: Path,
    *,
    env: dict[str, str] | None = None,
    user: str | None = None,
    death: signal.Signals = signal.SIGTERM,
) -> subprocess.Popen[bytes]:
    """Start a server whose output goes to a file.

    `user`: who it runs as, if not as we do. `death`: the signal that it gets when the calling thread ends. A Ctrl-C at
    the terminal does not reach it by itself, since it has a session of its own.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    rights = {} if user is None else {"user": user, "group": _group_of(user), "extra_groups": []}

    def prepare() -> None:
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, death)
        signal.signal(signal.SIGINT, signal.default_int_handler)

    with log.open("ab") as file:
        return subprocess.Popen(
            list(command),
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            env=env,
            start_new_session=True,
            preexec_fn=prepare,  # noqa: PLW1509 - it sets a flag and a signal, and takes no lock
            **rights,
        )


def _group_of(user: str) -> int:
    import pwd  # noqa: PLC0415 - not on every system

    return pwd.getpwnam(user).pw_gid


def family(pid: int) -> list[psutil.Process]:
    """A process and all that it started, whatever groups and sessions they made."""
    try:
        root = psutil.Process(pid)
        return [root, *root.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def kill_family(pid: int) -> int:
    """SIGKILL to a process and all its descendants at one moment, as when the machine loses power; returns how many.

    They are stopped first, until no more appear, so that none starts another one or reports the death of a child.
    """
    seen: dict[int, psutil.Process] = {}
    while new := [process for process in family(pid) if process.pid not in seen]:
        for process in new:
            seen[process.pid] = process
            _send(process, signal.SIGSTOP)
    for process in seen.values():
        _send(process, signal.SIGKILL)
    psutil.wait_procs([process for process in seen.values() if process.pid != pid], timeout=20)
    return len(seen)


def end_all(
    processes: Iterable[subprocess.Popen[bytes]], number: signal.Signals, patience_s: float
) -> None:
    """End servers by a signal, and what is left of them and their children after `patience_s` by force."""
    servers = list(processes)
    own = {server.pid for server in servers}
    started = {process for server in servers for process in family(server.pid)}
    for server in servers:
        if server.poll() is None:
            server.send_signal(number)
    until_s = time.monotonic() + patience_s
    for server in servers:
        try:
            server.wait(max(0.0, until_s - time.monotonic()))
        except subprocess.TimeoutExpired:
            started |= set(family(server.pid))
    for left in started:
        if left.is_running():
            _send(left, signal.SIGKILL)
    psutil.wait_procs([left for left in started if left.pid not in own], timeout=20)
    for server in servers:
        server.wait()


def _send(process: psutil.Process, number: signal.Signals) -> None:
    try:
        process.send_signal(number)
    except psutil.NoSuchProcess:
        return


def wait_until(what: str, ready: Callable[[], bool], limit_s: float, pause_s: float = 0.1) -> None:
    """Ask until the answer is yes. Raises AssertionError naming what did not come."""
    until_s = time.monotonic() + limit_s
    while not ready():
        assert time.monotonic() < until_s, f"{what}: not within {limit_s:.0f} s"
        time.sleep(pause_s)


def is_free(port: int, address: str = "127.0.0.1") -> bool:
    """Whether no one listens on a port of an address of the loopback."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, port))
        except OSError:
            return False
    return True


class Ports:
    """Free ports of the loopback by name, kept in a file: servers that start again have those that they had.

    `running`: the servers run, so that their ports are not free.
    """

    def __init__(self, path: Path, *, running: bool = False) -> None:
        self._path = path
        self._running = running
        self._ports: dict[str, int] = json.loads(path.read_text()) if path.exists() else {}
        self._counts: dict[str, int] = {}

    def take(self, name: str) -> int:
        """The port of that name. Raises AssertionError if it was taken by another program since."""
        kept = self._ports.get(name, 0)
        if kept and (self._running or is_free(kept)):
            return kept
        assert not kept, (
            f"port {kept}, which {name} had, is taken by another program; end that one, or delete"
            f" {self._path.parent} (and the crawl in it)"
        )
        port = free_port()
        if port in self._ports.values():
            return self.take(name)
        self._ports[name] = port
        beside = self._path.with_suffix(f".{os.getpid()}")
        beside.write_text(json.dumps(self._ports))
        beside.replace(self._path)
        return port

    def series(self, prefix: str) -> Callable[[], int]:
        """A function that returns `prefix-1`, `prefix-2` and so on."""

        def following() -> int:
            self._counts[prefix] = self._counts.get(prefix, 0) + 1
            return self.take(f"{prefix}-{self._counts[prefix]}")

        return following
