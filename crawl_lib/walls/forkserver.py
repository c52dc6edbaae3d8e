"""Fetching processes are forked from a process with all modules loaded: that costs it 0.2 s of CPU once.

Otherwise each process would load these modules again, and a small take, or a take of many processes, would pay more for
modules than for pages. Forking the task itself would be cheaper still, and wrong: it has threads, whose locks a fork
leaves held, and it has secrets. The server is started by exec, with an environment of its own (`sandbox`), so its
memory never held a secret. The fork server of `multiprocessing` keeps the environment of its process and a tracker, and
its children may outlive the server.

`ForkServer` is the task's side, `serve` the other process: no thread but an allocator's, which knows of forks, and no
open file but the socket (SOCK_SEQPACKET, so a message stays whole). The task says `fork`, with four descriptors
(standard input, output, error, and the node's lock). Only the server, as the parent, knows how a process ended, and
until it was waited for its id is not somebody else's; so signals go that way too. Each process dies with its parent
(`die_with_parent`), so no process outlives the task.
"""

import ctypes
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial

from crawl_lib.dataclass import dataclass
from crawl_lib.errors import KrakeError, printable
from crawl_lib.walls import clean_environment

_PR_SET_PDEATHSIG = 1
_FORK_DESCRIPTORS = 4
_MAX_MESSAGE_BYTES = 64
_HELD_BACK = (signal.SIGINT, signal.SIGTERM)
_WEEK_S = 7 * 86400.0
_ENDING_S = 1.0
_here = threading.local()
_SERVER = "crawl_lib.worker.process"
WORKER = "crawl_lib.worker.worker"
"""The program of fetching processes of a take."""


def die_with_parent(parent: int) -> None:
    """Have the kernel kill this process when its parent dies.

    This is for Linux. If the parent is dead already, the process ends now.
    """
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def fork_child(run: Callable[[], int]) -> int:
    """Fork a process that dies with this process; return its id.

    The process exits with the result of `run`.
    """
    parent = os.getpid()
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        die_with_parent(parent)
        code = run()
    except BaseException:
        sys.stderr.writelines(
            f"{printable(line)}\n" for line in traceback.format_exc().splitlines()
        )
    finally:
        sys.stderr.flush()
        os._exit(code)


@dataclass
class Forked:
    """A forked process, from the task's view.

    `stdout`: our end of a socket that is its standard output, from which it may read too. `returncode`: as that of
    `subprocess.Popen`, None until it was waited for.
    """

    server: "ForkServer"
    pid: int
    stdout: int
    returncode: int | None = None

    def read(self) -> bytes:
        """Read output of the process.

        The result is empty at the end, when the process is dead.
        """
        try:
            return os.read(self.stdout, 1 << 16)
        except ConnectionResetError:  # the process did not read all messages
            return b""

    def write(self, data: bytes) -> bytes:
        """Write input to the process, and return the rest.

        The system may have no room for the rest. If the process is dead, nothing is left.
        """
        with socket.socket(fileno=os.dup(self.stdout)) as stdout, suppress(BlockingIOError):
            try:
                return data[stdout.send(data, socket.MSG_DONTWAIT) :]
            except ConnectionError:
                return b""
        return data

    def send_signal(self, number: int) -> None:
        """Send a signal; nothing if the process is dead."""
        if self.returncode is None:
            self.server.ask(f"kill {self.pid} {number:d}")

    def wait(self, timeout_s: float = _WEEK_S) -> int | None:
        """Wait for the end of the process, or for `timeout_s`.

        Returns its `returncode`. Further output is dropped.
        """
        left_s, end_s = timeout_s, time.monotonic() + timeout_s
        poll = select.poll()
        poll.register(self.stdout, select.POLLIN)
        while self.returncode is None and left_s >= 0 and poll.poll(1000 * left_s):
            if not self.read():
                code = self.server.ask(f"wait {self.pid}")
                self.returncode = (
                    -signal.SIGKILL if code is None else code
                )  # the process dies with the server
            left_s = end_s - time.monotonic()
        return self.returncode


class ForkServer:
    """A server of this thread, which dies with the thread. The server gets the current environment as far as
    `environment` allows.

    `program`: the module whose `main` the forked processes run.
    """

    def __init__(self, program: str = WORKER) -> None:
        self.made_of = _surroundings()
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        other = [] if program == WORKER else [program]
        # Held back in the server for good: a Ctrl-C reaches all processes, and the task decides who stops when.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, _HELD_BACK)
        try:
            self.process = subprocess.Popen(
                [
                    sys.executable,
                    "-P",
                    "-m",
                    _SERVER,
                    str(os.getpid()),
                    str(theirs.fileno()),
                    *other,
                ],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                pass_fds=(theirs.fileno(),),
                cwd="/",
                env=self.made_of[-1],
            )
        except OSError:
            self._socket.close()
            raise
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            theirs.close()
        self._end = weakref.finalize(self, _end, os.getpid(), self.process, self._socket)

    def fork(self, task: bytes, log: int, lock: int) -> Forked:
        """Fork a process with an input, a log and a lock.

        The process reads `task` from standard input, and logs to `log`. Raises KrakeError if there is no server any
        more, OSError if the system has no room for another process.
        """
        ours, theirs = socket.socketpair()
        stdout = ours.detach()
        with theirs, os.fdopen(os.memfd_create("task"), "w+b", buffering=0) as stdin:
            stdin.write(task)
            stdin.seek(0)
            pid = self.ask("fork", [stdin.fileno(), theirs.fileno(), log, lock])
        if pid is not None and pid > 0:
            return Forked(self, pid, stdout)
        os.close(stdout)
        if pid is None:
            raise KrakeError(
                f"fetching processes cannot be started: {self._why_gone()}; run the task again"
            )
        raise OSError(-pid, os.strerror(-pid))

    def ask(self, order: str, descriptors: Sequence[int] = ()) -> int | None:
        """Have an order of `serve` carried out; return the answer.

        None: the server is gone.
        """
        try:
            socket.send_fds(self._socket, [order.encode()], descriptors)
            return int(self._socket.recv(_MAX_MESSAGE_BYTES))
        except (OSError, ValueError):
            return None
        except BaseException:
            self._end()  # or a process would run that is not known here
            raise

    def _why_gone(self) -> str:
        """Say why a server ended.

        The reason is the last line, or else the exit code.
        """
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(_ENDING_S)
        code = self.process.returncode
        how = "does not answer" if code is None else f"died ({ended(code)})"
        return self._end() or f"the process that forks them {how}"


def ended(code: int) -> str:
    """Say how a process ended, by `returncode`."""
    return f"signal {-code}" if code < 0 else f"exit code {code}"


def fork_server(program: str = WORKER) -> ForkServer:
    """Return this thread's server for a program.

    A server is started unless a fitting server runs.
    """
    servers: dict[str, ForkServer] = _here.__dict__.setdefault("servers", {})
    server = servers.get(program)
    if server is None or server.made_of != _surroundings() or server.process.poll() is not None:
        server = servers[program] = ForkServer(program)
    return server


def _surroundings() -> tuple[int, str, dict[str, str]]:
    """Return the surroundings as identity of a server.

    A process forked from ours must not use our server.
    """
    return os.getpid(), sys.executable, clean_environment(os.environ)


def _end(owner: int, process: subprocess.Popen[bytes], ours: socket.socket) -> str:
    """End a server of this process; return its last line.

    A server of the process from which we were forked is left alone.
    """
    ours.close()
    assert process.stderr is not None
    with process.stderr as said:
        if os.getpid() != owner:
            return ""
        process.kill()
        process.wait()
        return said.read().decode(errors="replace").rstrip().rpartition("\n")[-1]


def serve(parent: int, descriptor: int, run: Callable[[], int]) -> None:
    """Answer orders until the socket closes.

    `fork`: a process that `run`s; answered with its id, or an error number below 0. `kill <id> <signal>`. `wait <id>`:
    answered with its exit code. `parent`: the process that must be there; `run`: returns an exit code.
    """
    die_with_parent(parent)
    with socket.socket(fileno=descriptor) as task, suppress(ConnectionError):
        while True:
            order, descriptors, _, _ = socket.recv_fds(task, _MAX_MESSAGE_BYTES, _FORK_DESCRIPTORS)
            answer = 0
            match order.split():
                case [b"fork"]:
                    try:
                        answer = fork_child(partial(_be, task, descriptors, run))
                    except OSError as error:
                        answer = -(error.errno or 1)
                    for one in descriptors:
                        os.close(one)
                case [b"kill", pid, number]:
                    os.kill(int(pid), int(number))
                case [b"wait", pid]:
                    os.kill(
                        int(pid), signal.SIGKILL
                    )  # it is dead, unless it has closed its output to hide
                    answer = os.waitstatus_to_exitcode(os.waitpid(int(pid), 0)[1])
                case _:
                    return
            task.send(
                b"%d" % answer
            )  # of `fork`: only now is the new process the one that holds the lock


def _be(task: socket.socket, descriptors: Sequence[int], run: Callable[[], int]) -> int:
    """Turn into the new process.

    The process keeps the lock of the server's descriptors.
    """
    for number, descriptor in enumerate(descriptors[:3]):
        os.dup2(descriptor, number)
        os.close(descriptor)
    task.close()
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
    return run()
