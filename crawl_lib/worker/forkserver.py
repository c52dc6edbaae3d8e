"""Fetching processes are forked from a process that has loaded their modules already: that costs it 0.2 s of CPU once.

Else each would load them again, and a small take, or one shared among many processes, would pay more for that than for
its pages. Forking the task itself would be cheaper still, and wrong: it has threads, whose locks a fork leaves held,
and it has secrets. The server is started by exec, with an environment of its own (`sandbox`), so its memory never held
one.

`ForkServer` is the task's side, `serve` the other process: no thread but that of an allocator, which knows of forks,
and nothing open but its socket. On that (SOCK_SEQPACKET, so a message stays whole) the task says `fork`, with four
descriptors (standard input, output, error, and the node's lock), or which process gets which signal. It hears the id of
a new process, and how one ended; only the server knows that, as their parent, and that an id is not yet somebody
else's. Each process dies with the one above it (`die_with_parent`), so none outlives the task, whatever ends that.
"""

import ctypes
import json
import os
import select
import selectors
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback
import weakref
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

from crawl_lib.worker.sandbox import clean_environment

IDLE_S = 60.0
"""A server that has nothing to do for so long ends; the next take begins another one."""
_PR_SET_PDEATHSIG = 1
_FORK_DESCRIPTORS = 4
_MAX_MESSAGE_BYTES = 1024
_HELD_BACK = (signal.SIGINT, signal.SIGTERM)
_here = threading.local()


class GoneError(Exception):
    """The server has ended, by itself or not. The text is what it said last; the next one may do better."""


def die_with_parent(parent: int) -> None:
    """Have the kernel kill this process when its parent dies (Linux), and end now if it is dead already."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def fork_child(run: Callable[[], int]) -> int:
    """Fork a process that dies with this one, and ends with what `run` returns; returns its id."""
    parent = os.getpid()
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        die_with_parent(parent)
        code = run()
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


class Forked:
    """One forked process, as its task sees it.

    `stdout`: a descriptor; its end of file means that the process is dead. `returncode`: as that of
    `subprocess.Popen`, None until it is known.
    """

    def __init__(self, server: "ForkServer", pid: int, stdout: int) -> None:
        self._server = server
        self.pid = pid
        self.stdout = stdout
        self.returncode: int | None = None

    def send_signal(self, number: int) -> None:
        """Send a signal; nothing if the process is dead."""
        with suppress(GoneError):
            self._server.tell(self.pid, number)

    def wait(self, timeout_s: float | None = None) -> int | None:
        """Wait until the process is dead, or that long; returns its `returncode`."""
        if self.returncode is None:
            try:
                self._server.hear_of(self, timeout_s)
            except GoneError:
                while os.read(self.stdout, 1 << 16):  # it dies with the server; what it still says is not needed
                    pass
                self.returncode = -signal.SIGKILL
        return self.returncode

    def close(self) -> None:
        """Give the descriptor back."""
        os.close(self.stdout)


class ForkServer:
    """A server of this thread, which dies with the thread. It gets what `environment` lets through of that of now."""

    def __init__(self) -> None:
        self._made_of = _surroundings()
        self._forked: dict[int, Forked] = {}
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._poll = select.poll()
        self._poll.register(self._socket, select.POLLIN)
        # Held back in the server for good: a Ctrl-C reaches all processes, and the task decides who stops when.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, _HELD_BACK)
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "crawl_lib.worker.process", str(os.getpid()), str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                pass_fds=(theirs.fileno(),),
                cwd="/",
                env=self._made_of[-1],
            )
        except OSError:
            self._socket.close()
            raise
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            theirs.close()
        self._end = weakref.finalize(self, _end, os.getpid(), self._process, self._socket)

    def is_of_now(self) -> bool:
        """Whether it belongs to this process, runs, and has the environment that a new one would have."""
        return self._made_of == _surroundings() and self._end.alive and self._process.poll() is None

    def end(self) -> str:
        """End it, and with it what it forked. Returns what it said last, "" if it is not known."""
        return self._end() or ""

    def fork(self, task: bytes, log: int, lock: int) -> Forked:
        """Fork a process that reads `task` from its standard input, logs to a descriptor and holds another one.

        Raises GoneError if there is no server any more, OSError if the system has no room for another process.
        """
        stdin, to_stdin = os.pipe()
        with suppress(BrokenPipeError), os.fdopen(to_stdin, "wb") as pipe:  # it may die at once, as will be seen
            stdout = self._ask(stdin, log, lock)
            pipe.write(task)
        try:
            pid = self._await_pid()
        except BaseException:
            os.close(stdout)
            raise
        forked = self._forked[pid] = Forked(self, pid, stdout)
        return forked

    def _ask(self, stdin: int, log: int, lock: int) -> int:
        """Ask for a process, whose pipes only it and we hold; returns our end of its output."""
        with os.fdopen(stdin, "rb"):
            ours, stdout = os.pipe()
            try:
                self._send({"do": "fork"}, [stdin, stdout, log, lock])
            except BaseException:
                os.close(ours)
                raise
            finally:
                os.close(stdout)
        return ours

    def tell(self, pid: int, number: int) -> None:
        """Send a signal to a forked process, if it is alive. Raises GoneError."""
        self._send({"do": "signal", "pid": pid, "number": number}, [])

    def hear_of(self, forked: Forked, timeout_s: float | None) -> None:
        """Take in what the server says until it says how that one ended, or so long. Raises GoneError."""
        end_s = None if timeout_s is None else time.monotonic() + timeout_s
        while forked.returncode is None and self._receive(end_s) is not None:
            pass

    def _await_pid(self) -> int:
        try:
            while True:
                message = self._receive(None) or {}
                if "errno" in message:
                    raise OSError(message["errno"], os.strerror(message["errno"]))
                if "begun" in message:
                    return int(message["begun"])
        except (KeyboardInterrupt, SystemExit):
            self.end()  # or a process would run that is not known here
            raise

    def _send(self, message: dict[str, Any], descriptors: list[int]) -> None:
        if not self._end.alive:
            raise GoneError
        try:
            socket.send_fds(self._socket, [json.dumps(message).encode()], descriptors)
        except ConnectionError as error:
            raise GoneError(self.end()) from error

    def _receive(self, end_s: float | None) -> dict[str, Any] | None:
        """Take in one message; None if there was none until then."""
        if not self._end.alive:
            raise GoneError
        if not self._poll.poll(None if end_s is None else max(0.0, 1000 * (end_s - time.monotonic()))):
            return None
        try:
            data = self._socket.recv(_MAX_MESSAGE_BYTES)
        except ConnectionError as error:
            raise GoneError(self.end()) from error
        if not data:
            raise GoneError(self.end())
        message: dict[str, Any] = json.loads(data)
        if "ended" in message:
            self._forked.pop(message["ended"]).returncode = message["code"]
        return message


def fork_server() -> ForkServer:
    """The server of this thread. Begins one if there is none yet, or none that would do."""
    server: ForkServer | None = getattr(_here, "server", None)
    if server is None or not server.is_of_now():
        if server is not None:
            server.end()
        server = _here.server = ForkServer()
    return server


def _surroundings() -> tuple[int, str, dict[str, str]]:
    """What makes a server another one: a process that was forked from ours must not use ours."""
    return os.getpid(), sys.executable, clean_environment(os.environ)


def _end(owner: int, process: subprocess.Popen[bytes], ours: socket.socket) -> str:
    """End a server, if it is not that of a process of which we are a fork. Returns the last line that it said."""
    ours.close()
    assert process.stderr is not None
    with process.stderr as said:
        if os.getpid() != owner:
            return ""
        process.kill()
        process.wait()
        lines = said.read().decode(errors="replace").split("\n")
    return next((line for line in reversed(lines) if line.strip()), "")


def serve(parent: int, descriptor: int, run: Callable[[], int]) -> None:
    """Fork processes that `run`, as the other end of the socket says, until it closes, or nothing happens for long.

    `parent`: the process that must be there; `run`: returns an exit code.
    """
    die_with_parent(parent)
    _Serving(socket.socket(fileno=descriptor), run).serve()


class _Serving:
    """What runs in the server's process."""

    def __init__(self, told: socket.socket, run: Callable[[], int]) -> None:
        self._told = told
        self._run = run
        self._selector = selectors.DefaultSelector()
        self._selector.register(told, selectors.EVENT_READ)
        self._alive: dict[int, int] = {}
        """Processes by their sentinels: pipes of which a process holds the other end until it is dead."""

    def serve(self) -> None:
        while ready := self._selector.select(None if self._alive else IDLE_S):
            for key, _ in ready:
                if key.fd in self._alive:
                    self._bury(key.fd)
                    continue
                data, descriptors, _, _ = socket.recv_fds(self._told, _MAX_MESSAGE_BYTES, _FORK_DESCRIPTORS)
                if not data:
                    return
                message = json.loads(data)
                if message["do"] == "fork":
                    self._fork(descriptors)
                elif message["pid"] in self._alive.values():
                    os.kill(message["pid"], message["number"])

    def _fork(self, descriptors: list[int]) -> None:
        sentinel, held = os.pipe()
        try:
            pid = fork_child(partial(self._be, descriptors))
        except OSError as error:
            os.close(sentinel)
            answer = {"errno": error.errno}
        else:
            self._selector.register(sentinel, selectors.EVENT_READ)
            self._alive[sentinel] = pid
            answer = {"begun": pid}
        for one in (held, *descriptors):
            os.close(one)
        self._say(answer)  # only now is the new process the one that holds the lock

    def _bury(self, sentinel: int) -> None:
        self._selector.unregister(sentinel)
        os.close(sentinel)
        pid, status = os.waitpid(self._alive.pop(sentinel), 0)
        self._say({"ended": pid, "code": os.waitstatus_to_exitcode(status)})

    def _say(self, message: dict[str, Any]) -> None:
        with suppress(ConnectionError):  # the task is gone, and so are we in a moment
            self._told.send(json.dumps(message).encode())

    def _be(self, descriptors: list[int]) -> int:
        """Be the new process: of what the server has open, it keeps the lock and its end of the sentinel."""
        for number, descriptor in enumerate(descriptors[:3]):
            os.dup2(descriptor, number)
            os.close(descriptor)
        self._told.close()
        self._selector.close()
        for sentinel in self._alive:
            os.close(sentinel)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
        return self._run()
