"""The parent's side of the fetching processes of one take.

A worker is a process of its own (forked by `forkserver`): a worker gets its task as a JSON line on standard input,
answers with JSON lines on standard output (progress, then a last line), and logs to a file. A worker inherits the
descriptor of the node's lock, so the lock is free only when the last writer is dead, and a worker dies with its parent.
If nodes share turns, a worker asks for turns in such lines too, and gets turns, line by line, on the same socket
(`fetch.Spans`).
"""

import json
import logging
import os
import selectors
import signal
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import field
from functools import cache
from pathlib import Path
from typing import Any, Protocol

from crawl_lib.dataclass import dataclass
from crawl_lib.errors import KrakeError, StoppedError, os_error
from crawl_lib.walls import (
    NO_FILTER_TEXT,
    NONE_TEXT,
    Forked,
    can_filter,
    ended,
    fork_server,
    landlock_abi,
)

log = logging.getLogger(__name__)
STOP_GRACE_S = 4.0
PAUSE_SIGNAL = signal.SIGUSR1
POLL_S = 0.1


MOST_UNREAD_BYTES = 1 << 20
"""The limit of a worker's unread answers."""


@dataclass(frozen=True)
class WorkerTask:
    """The task of a worker. `number` of `processes`; `seconds_left`: until no fetch begins any more.

    `node_dir`: the node's directory, with the take and the politeness stores; `spool`: where its parts
    go. `info`: the facts of the warcinfo record.
    """

    config: dict[str, Any]
    nodes: list[str]
    node: str
    node_dir: str
    spool: str
    prefix: str
    number: int
    processes: int
    seconds_left: float
    info: dict[str, str]


@dataclass(frozen=True)
class WorkerDone:
    """Fetches by outcome. `kept`: those that earlier attempts made; `bytes`: of the others."""

    outcomes: dict[str, int]
    kept: int
    bytes: int


@dataclass(frozen=True)
class WorkerEnd(WorkerDone):
    """The last line of a worker. `paused`: something is left because of a pause."""

    stopped: bool
    paused: bool
    final: bool = True


class NodeTurns(Protocol):
    """Source of turns for workers: `keys.SharedTurns`."""

    def fileno(self) -> int:
        """Return a descriptor that is readable when there may be `answers`."""

    def hear(self, who: int, message: Mapping[str, Any]) -> None:
        """Take a line with `ask` or `over` from a worker."""

    def answers(self) -> list[tuple[int, dict[str, Any]]]:
        """Return lines for workers, each with the worker's number."""


@dataclass
class _WorkerProcess:
    number: int
    process: Forked
    log: Path
    buffer: bytes = b""
    unread: bytes = b""
    progress: dict[str, Any] = field(default_factory=dict)
    told_to_pause: bool = False
    final: dict[str, Any] | None = None


def prepare_workers() -> None:
    """Start to load modules of fetching processes during other work.

    The start takes 0.2 s. `run_workers` explains an error.
    """
    with suppress(OSError):
        fork_server()


def run_workers(
    tasks: list[dict[str, Any]],
    *,
    log_dir: Path,
    lock_descriptor: int,
    stop: Callable[[], bool],
    on_progress: Callable[[list[Mapping[str, Any]]], None],
    pause: Callable[[], bool] = lambda: False,
    turns: NodeTurns | None = None,
) -> list[WorkerEnd]:
    """Run one process for each task and wait for all.

    `tasks`: JSON-able, one a worker. `log_dir`: where `worker-<n>.log` goes. `stop`: asked every 0.1 s. `on_progress`
    gets the newest progress of every worker. `pause`: asked as often; True has the workers end without beginning
    anything more. `turns`: reserves turns for workers, if nodes share turns. Returns the workers' last
    lines, with `paused` where something is left because of that.
    Raises StoppedError when stopped, also when a signal reached a worker only, StorageError when one cannot be started,
    and KrakeError with the worker's own error, or its log's name, when one died; the others are stopped then.
    """
    workers: list[_WorkerProcess] = []
    _say_if_there_are_no_walls()
    try:
        for number, task in enumerate(tasks):
            path = log_dir / f"worker-{number}.log"
            with path.open("wb") as log:
                forked = fork_server().fork(
                    json.dumps(task).encode() + b"\n", log.fileno(), lock_descriptor
                )
            workers.append(_WorkerProcess(number, forked, path))
        _wait(workers, stop, on_progress, pause, turns)
    except OSError as error:
        raise os_error(error, f"{log_dir}: fetching processes") from error
    finally:
        _end(workers)
    return [_result(worker) for worker in workers]


@cache
def _say_if_there_are_no_walls() -> None:
    """Once a process; each worker's log says it too."""
    if not landlock_abi():
        log.warning("%s", NONE_TEXT)
    if not can_filter():
        log.warning("%s", NO_FILTER_TEXT)


def _wait(
    workers: list[_WorkerProcess],
    stop: Callable[[], bool],
    on_progress: Callable[[list[Mapping[str, Any]]], None],
    pause: Callable[[], bool],
    turns: NodeTurns | None,
) -> None:
    with selectors.DefaultSelector() as selector:
        for worker in workers:
            selector.register(worker.process.stdout, selectors.EVENT_READ, worker)
        if turns is not None:
            selector.register(turns.fileno(), selectors.EVENT_READ)
        while any(isinstance(key.data, _WorkerProcess) for key in selector.get_map().values()):
            if stop():
                raise StoppedError("stopped as asked; run the task again to go on")
            if pause():
                _tell_to_pause(workers)
            for key, _ in selector.select(POLL_S):
                if key.data is not None and not _read(key.data, turns):
                    selector.unregister(key.fileobj)
                    key.data.process.wait()
                    _result(key.data)  # or what it died of is raised
            if turns is not None:
                _pass_on(turns, workers)
            on_progress([worker.progress for worker in workers])


def _tell_to_pause(workers: list[_WorkerProcess]) -> None:
    for worker in workers:
        # One that has not said a line yet would die of the signal, and is told later.
        if worker.progress and not worker.told_to_pause:
            worker.process.send_signal(PAUSE_SIGNAL)
            worker.told_to_pause = True


def _read(worker: _WorkerProcess, turns: NodeTurns | None) -> bool:
    data = worker.process.read()
    *lines, worker.buffer = (worker.buffer + data).split(b"\n")
    if len(worker.buffer) > MOST_UNREAD_BYTES:
        raise KrakeError(f"a fetching process says a line without end; see {worker.log}")
    for line in lines:
        message = _message(worker, line)
        if "error" in message:
            worker.final = message
        elif turns is not None and ("ask" in message or "over" in message):
            turns.hear(worker.number, message)
        else:
            _require_counts(worker, message)
            worker.progress = message
            worker.final = message if "final" in message else None
    return bool(data)


def _message(worker: _WorkerProcess, line: bytes) -> dict[str, Any]:
    """Read a line of a worker, whose bytes a page may have chosen."""
    try:
        message = json.loads(line)
    except (ValueError, RecursionError):
        message = None
    if not isinstance(message, dict):
        raise KrakeError(f"a fetching process says a line without a message; see {worker.log}")
    return message


def _require_counts(worker: _WorkerProcess, message: dict[str, Any]) -> None:
    """Require the counts of `WorkerDone`."""
    outcomes = message.get("outcomes")
    numbers = [message.get("kept"), message.get("bytes")]
    numbers += outcomes.values() if isinstance(outcomes, dict) else [None]
    if not all(isinstance(number, int) for number in numbers):
        raise KrakeError(f"a fetching process says a line without its counts; see {worker.log}")


def _pass_on(turns: NodeTurns, workers: list[_WorkerProcess]) -> None:
    """Send workers their turns without blocking.

    A worker that reads nothing must not block this process.
    """
    for number, answer in turns.answers():
        workers[number].unread += json.dumps(answer).encode() + b"\n"
    for worker in workers:
        if worker.unread:
            worker.unread = worker.process.write(worker.unread)
        if len(worker.unread) > MOST_UNREAD_BYTES:
            raise KrakeError(
                f"a fetching process does not read the answer to its request; see {worker.log}"
            )


def _result(worker: _WorkerProcess) -> WorkerEnd:
    final, code = worker.final, worker.process.returncode
    if final is not None and "error" in final:
        raise KrakeError(f"{final['error']}")
    if final is None or code:
        raise KrakeError(
            f"a fetching process died ({ended(code or 0)}); see {worker.log}, and run the task again"
        )
    try:
        end = WorkerEnd(**final)
    except TypeError as error:  # fields are missing, or unknown
        raise KrakeError(f"a fetching process says another last line; see {worker.log}") from error
    # A signal to the whole group may reach the worker before this process; nothing is left over yet.
    if end.stopped:
        raise StoppedError("a fetching process was stopped; run the task again to go on")
    return end


def _end(workers: list[_WorkerProcess]) -> None:
    """Stop all workers, and kill workers that do not end."""
    for worker in workers:
        worker.process.send_signal(signal.SIGTERM)
    deadline = time.monotonic() + STOP_GRACE_S
    for worker in workers:
        if worker.process.wait(max(0.0, deadline - time.monotonic())) is None:
            worker.process.send_signal(signal.SIGKILL)
            worker.process.wait()
        os.close(worker.process.stdout)
