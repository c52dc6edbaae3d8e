"""Tasks of two processes rename two folders to one name, and one process is stopped (SIGSTOP) in the middle of that.

Each process has a thread for each name. The tasks of the first one wait before a request of a given number, and when
all of them wait or have ended, the process stops. The second process takes over what it can. Then the first one goes
on: it sends requests that it had decided on before it was stopped.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from threading import Event, Semaphore

from crawl_lib.errors import StorageError, TargetExistsError
from crawl_lib.storage.s3 import S3Storage
from crawl_lib.storage.s3_claims import Times
from tests.contracts.kills import AT_ONCE, shown
from tests.s3 import S3Server

SECONDS = Times(renew_s=5.0, hold_s=20.0, takeover_s=25.0, patience_s=0.0)
"""Limits that pass while a test waits, and that hold on a busy machine. A server tells whole seconds."""
STOPPED_S = 1000.0
"""How far the clock of the first process goes on while the process is stopped, where the second one need not wait."""
TOGETHER = 50
"""How many names the two processes contend for at a time."""
LIMIT_S = 300.0
TRIES = 3


def files(contender: str) -> dict[str, bytes]:
    """Return what is in a contender's folder: names that both have, and one that the other has not."""
    return {
        "manifest.json": contender.encode(),
        "pages": contender.encode() * 10,
        contender: b"own",
    }


def main() -> None:
    """Be one contender; what it does is on the standard input, and how each rename ended on the standard output."""
    job = json.loads(sys.stdin.readline())
    stops, times = job["stops"], Times(**job["times"])
    waiting, go_on, slept_s = Semaphore(0), Event(), [0.0]

    def clock() -> float:
        return time.monotonic() + slept_s[0]

    def rename(number: int) -> str:
        root, left = job["roots"][number], [stops[number]]
        store = S3Server(address=job["address"]).store

        def hook(*_: object) -> None:
            left[0] -= 1
            if left[0] == -1:
                waiting.release()
                go_on.wait(LIMIT_S)

        try:
            return _rename(
                lambda **more: store(root, times, clock=clock, **more), job["contender"], hook
            )
        finally:
            if left[0] >= 0:
                waiting.release()

    with ThreadPoolExecutor(len(stops)) as threads:
        ends = [threads.submit(rename, number) for number in range(len(stops))]
        if max(stops) >= 0:
            for _ in stops:
                waiting.acquire(timeout=LIMIT_S)
            os.kill(os.getpid(), signal.SIGSTOP)
            slept_s[0] = job["slept_s"]
            go_on.set()
    sys.stdout.write(json.dumps([end.result() for end in ends]))


def _rename(store: Callable[..., S3Storage], contender: str, hook: Callable[..., object]) -> str:
    """Make a folder and rename it, more than once where that is asked for; return how that ended, "" for well."""
    source, ended = f"x/.{contender}", ""
    for name, data in files(contender).items():
        store().write_bytes(f"{source}/{name}", data)
    for _ in range(TRIES):
        try:
            store(hook=hook).rename(source, "x/t")
        except TargetExistsError:
            return "exists"
        except StorageError as error:
            ended = str(error)
        else:
            return ""
    return ended


def contend(server: S3Server, every_stop: Sequence[int], *, waits: bool = False) -> dict[str, int]:
    """Have two processes contend for names; return how many each contender won.

    `every_stop`: for each name the number of the request, from 0, before which the first contender is stopped. `waits`:
    the second contender waits for seconds before it takes over; else it takes over at once, and the clock of the first
    one goes on meanwhile. Raises AssertionError where a winner's folder is not whole, or a loser's source is not kept.
    """
    times = {"a": SECONDS, "b": SECONDS} if waits else {"a": Times(patience_s=0.0), "b": AT_ONCE}

    def started(contender: str, stops: Sequence[int]) -> subprocess.Popen[str]:
        slept_s = 0.0 if waits else STOPPED_S
        job = {
            "address": server.address,
            "contender": contender,
            "roots": roots,
            "stops": [*stops],
            "slept_s": slept_s,
        }
        return _start({**job, "times": asdict(times[contender])})

    won = {"a": 0, "b": 0}
    for first in range(0, len(every_stop), TOGETHER):
        stops = every_stop[first : first + TOGETHER]
        roots = [uuid.uuid4().hex for _ in stops]
        stopped = started("a", stops)
        try:
            _, status = os.waitpid(stopped.pid, os.WUNTRACED)
            assert os.WIFSTOPPED(status)
            ends = {"b": _end(started("b", [-1] * len(roots)))}
            stopped.send_signal(signal.SIGCONT)
            ends["a"] = _end(stopped)
        finally:
            stopped.kill()
        for number, root in enumerate(roots):
            story = (first + number, stops[number], ends["a"][number], ends["b"][number])
            winner = _winner(server, root, story)
            assert ends["ab".replace(winner, "")][number] != "", (
                story
            )  # the answer to the winner may be lost
            won[winner] += 1
    return won


def _start(job: dict[str, object]) -> subprocess.Popen[str]:
    """Start a contender in a session of its own.

    The kernel sends SIGHUP to a group with a stopped process, once the group's last parent outside has ended.
    """
    command = [sys.executable, "-m", "tests.contracts.contenders"]
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    assert process.stdin
    process.stdin.write(json.dumps(job) + "\n")
    process.stdin.flush()
    return process


def _end(process: subprocess.Popen[str]) -> list[str]:
    try:
        said, _ = process.communicate(timeout=LIMIT_S)
    finally:
        process.kill()
    ends: list[str] = json.loads(said)
    return ends


def _winner(server: S3Server, root: str, story: object) -> str:
    """Return whose folder has the name; it is whole, and the other's is where it was."""
    found = shown(server.store(root), "x/t")
    [winner] = [contender for contender in "ab" if found == files(contender)] or [None]
    assert winner, (story, found)
    loser = "ab".replace(winner, "")
    assert shown(server.store(root), f"x/.{loser}") == files(loser), story
    assert shown(server.store(root), f"x/.{winner}") is None, story
    return winner


if __name__ == "__main__":
    main()
