"""An attempt at a task: a process group of its own, which may be killed, and what became of it."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import signal
import time
import traceback
import types
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from crawl_lib import durable
from crawl_lib.errors import KrakeError
from tests.torture.nursery import begin_fork_server

_PR_SET_CHILD_SUBREAPER = 36
_STEPS_VARIABLE = "KRAKE_TORTURE_STEPS"
_GROUP_VARIABLE = "KRAKE_TORTURE_KILL_GROUP_AT"
LONGEST_S = 300.0
"""An attempt that takes longer hangs."""
ORPHANS_S = 120.0
"""Processes that outlive the end of their parent for longer are a finding."""


@dataclass(frozen=True)
class Kill:
    """How an attempt is to die.

    `after_s`: SIGKILL after so many seconds. `step`: by itself, right after a durable step (`name:times`). `whom`:
    `group` (all processes at once), `parent`, `server` (which forks) or `worker`: whom the SIGKILL after `after_s`
    reaches. `at_once`: at the step, too, all processes die, and not only the one that reached it.
    """

    after_s: float | None = None
    step: str = ""
    whom: str = "group"
    at_once: bool = False


@dataclass(frozen=True)
class Ended:
    """What became of an attempt. `end`: of its last process, `time.monotonic()`; `steps`: the durable steps it
    reached, in order; `unexpected`: a traceback that no task should end with, or a process that would not die."""

    result: dict[str, Any] | None
    error: str
    killed: bool
    start: float
    end: float
    steps: tuple[str, ...] = ()
    unexpected: str = ""

    def last_step(self, kill: Kill | None) -> str:
        """The step that it died after, "" if it was before the first.

        Where `kill` asked for a step that was reached, it is that one, whatever other processes did until they ended.
        """
        name, _, times = kill.step.partition(":") if kill else ("", "", "")
        if name and self.steps.count(name) >= int(times or 1):
            return name
        return self.steps[-1] if self.steps else ""


def adopt_orphans() -> None:
    """Have processes whose parent was killed become children of this one, which can wait for their end."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1)


class Attempt:
    """A running attempt. `call`: what it does, in the child; `prepare`: runs first there.

    `directory`: where it may log. `fork_server`: its fork server is forked, too, and not started.
    """

    number = 0

    def __init__(
        self,
        call: Callable[[], dict[str, Any]],
        directory: Path,
        kill: Kill | None = None,
        *,
        prepare: Callable[[], None] = lambda: None,
        fork_server: bool = True,
    ) -> None:
        Attempt.number += 1
        self.kill = kill or Kill()
        self._steps_path = directory / f"steps-{Attempt.number}"
        self._log = directory / "stderr"
        self._answer, answer = os.pipe()
        self.start = time.monotonic()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(self._answer)
            self._be_the_child(call, prepare, answer, fork_server)
        os.close(answer)
        with contextlib.suppress(PermissionError, ProcessLookupError):  # it did so itself
            os.setpgid(self.pid, self.pid)
        self._pidfd = os.pidfd_open(self.pid)

    def _be_the_child(
        self,
        call: Callable[[], dict[str, Any]],
        prepare: Callable[[], None],
        answer: int,
        fork_server: bool,
    ) -> None:
        value: dict[str, Any] = {}
        try:
            os.setpgid(0, 0)
            os.set_inheritable(answer, False)
            log = os.open(self._log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            os.dup2(log, 1)
            os.dup2(log, 2)
            if self.kill.step:
                os.environ[_GROUP_VARIABLE if self.kill.at_once else durable.KILL_VARIABLE] = (
                    self.kill.step
                )
            os.environ[_STEPS_VARIABLE] = str(self._steps_path)
            note_steps()
            prepare()
            if fork_server:
                begin_fork_server()
            value = {"result": call()}
        except KrakeError as error:
            value = {"error": f"{type(error).__name__}: {error}"}
        except BaseException:
            value = {"unexpected": traceback.format_exc()}
        finally:
            with contextlib.suppress(BaseException):
                os.write(answer, json.dumps(value, default=str).encode())
            os._exit(0 if "result" in value else 1)

    def wait(self) -> Ended:
        """Kill it when its time has come, wait until all its processes are gone, and say what became of it."""
        status, late = self._status()
        orphan = self._reap()
        end = time.monotonic()
        with os.fdopen(self._answer, "rb") as answer:
            data = answer.read()
        os.close(self._pidfd)
        said = json.loads(data) if data and not (os.WIFSIGNALED(status)) else {}
        steps = self._steps_path.read_text().split() if self._steps_path.exists() else []
        self._steps_path.unlink(missing_ok=True)
        error = said.get("error", "")
        killed = (
            os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
        ) or "died (signal 9)" in error
        unexpected = said.get("unexpected", "") or late or orphan
        if os.WIFSIGNALED(status) and not killed:
            unexpected = unexpected or f"ended by signal {os.WTERMSIG(status)}"
        return Ended(said.get("result"), error, killed, self.start, end, tuple(steps), unexpected)

    def _status(self) -> tuple[int, str]:
        wait_s = LONGEST_S if self.kill.after_s is None else self.kill.after_s
        late = ""
        if not select.select([self._pidfd], [], [], wait_s)[0]:
            if self.kill.after_s is None:
                late = f"still running after {LONGEST_S:.0f} s"
                os.killpg(self.pid, signal.SIGKILL)
            else:
                self._strike()
                if not select.select([self._pidfd], [], [], LONGEST_S)[0]:
                    late = f"still running {LONGEST_S:.0f} s after a kill"
                    os.killpg(self.pid, signal.SIGKILL)
        return os.waitpid(self.pid, 0)[1], late

    def _strike(self) -> None:
        if self.kill.whom == "group":
            os.killpg(self.pid, signal.SIGKILL)
        elif self.kill.whom == "parent":
            os.kill(self.pid, signal.SIGKILL)
        else:
            struck = servers = children_of(self.pid)
            if self.kill.whom == "worker":
                struck = [worker for server in servers for worker in children_of(server)]
            for pid in struck[:1]:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    def _reap(self) -> str:
        """Wait for processes of the group that lost their parent: they must end by themselves."""
        deadline = time.monotonic() + ORPHANS_S
        late = ""
        while True:
            try:
                pid, _ = os.waitpid(-self.pid, os.WNOHANG)
            except ChildProcessError:
                return late
            if pid == 0:
                if time.monotonic() > deadline:
                    late = f"a fetching process outlived its parent by {ORPHANS_S:.0f} s"
                    os.killpg(self.pid, signal.SIGKILL)
                time.sleep(0.001)


def children_of(pid: int) -> list[int]:
    """Ids of the processes that `pid` started and that run, in the order of their start."""
    try:
        tasks = list(Path(f"/proc/{pid}/task").iterdir())
        return [int(child) for task in tasks for child in (task / "children").read_text().split()]
    except OSError:
        return []


def _noting(step: str) -> None:
    """What `durable.reached` does in an attempt: it notes the step in a file, then does what it always does."""
    descriptor = os.open(
        os.environ["KRAKE_TORTURE_STEPS"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666
    )
    os.write(descriptor, step.encode() + b"\n")
    os.close(descriptor)
    name, _, count = os.environ.get("KRAKE_TORTURE_KILL_GROUP_AT", "").partition(":")
    if name == step:
        _times[step] += 1  # type: ignore[name-defined]  # noqa: F821
        if _times[step] == int(count or 1):  # type: ignore[name-defined]  # noqa: F821
            os.killpg(0, signal.SIGKILL)
    _reached(step)  # type: ignore[name-defined]  # noqa: F821 - put into the module by note_steps


def note_steps() -> None:
    """Have every module that imported `reached` note its steps."""
    if not hasattr(durable, "_reached"):
        durable._reached = types.FunctionType(durable.reached.__code__, durable.__dict__)  # type: ignore[attr-defined]
        durable.reached.__code__ = _noting.__code__
    durable._times.clear()
