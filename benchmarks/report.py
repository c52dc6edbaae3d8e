"""Rows of figures, and measuring a step in a process of its own."""

from __future__ import annotations

import multiprocessing
import os
import platform
import resource
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

FIRST = -20
"""The priority of a step that is measured by the clock, where the kernel grants it (to root)."""


@dataclass(frozen=True)
class Row:
    """One figure. `budget`: what it must be, as text, "" if nothing is asked; `met`: whether it is, None if unknown."""

    what: str
    value: str
    budget: str = ""
    met: bool | None = None

    @property
    def verdict(self) -> str:
        """`met`, `MISSED`, `not judged` where there is a budget that this run says nothing about, or nothing."""
        if self.met is None:
            return "not judged" if self.budget else ""
        return "met" if self.met else "MISSED"


@dataclass(frozen=True)
class Measured:
    """What a step cost: wall and CPU seconds (children included), peak memory of its largest process in MB."""

    result: Any
    wall_s: float
    cpu_s: float
    peak_mb: float


def measure(step: Callable[..., Any], *arguments: Any) -> Measured:
    """Run a step in a new process and measure it with all its children.

    The process imports the step's module and nothing else, so that CPU and memory are those of the step.
    """
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_run, args=(sender, step, arguments))
    process.start()
    sender.close()
    measured: Measured = receiver.recv()
    process.join()
    return measured


def _run(sender: Any, step: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    begun_s = time.perf_counter()
    result = step(*arguments)
    wall_s = time.perf_counter() - begun_s
    _end_children()
    own = resource.getrusage(resource.RUSAGE_SELF)
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime
    sender.send(Measured(result, wall_s, cpu_s, max(own.ru_maxrss, children.ru_maxrss) / 1024))


def _end_children() -> None:
    """Wait for all children, by force: the kernel adds what one cost to its parent's only when it was waited for.

    The server that forks fetching processes stays for a while after the last take, and has the cost of them all.
    """
    for child in psutil.Process().children():
        child.kill()
        child.wait()


@contextmanager
def ahead(*pids: int) -> Iterator[bool]:
    """Let this process, what it starts, and `pids` go before all other programs; gives whether that was granted.

    For figures by the clock, which say nothing on a machine that has other work. Linux schedules sessions first
    (autogroups) and then the threads within each, so both get the priority.
    """
    notes = [Path(f"/proc/{pid}/autogroup") for pid in (os.getpid(), *pids)]
    threads = [
        int(task.name)
        for pid in (os.getpid(), *pids)
        for task in Path(f"/proc/{pid}/task").iterdir()
    ]
    before = [(thread, os.getpriority(os.PRIO_PROCESS, thread)) for thread in threads]
    groups = _autogroups(notes)
    try:
        yield _granted(before, groups)
    finally:
        with suppress(OSError):
            for note, nice in groups:
                note.write_text(nice)
        for thread, nice in before:
            with suppress(OSError):  # a thread may have ended
                os.setpriority(os.PRIO_PROCESS, thread, nice)


def _autogroups(notes: Sequence[Path]) -> list[tuple[Path, str]]:
    """The notes (`/proc/PID/autogroup`) and the priority that each tells.

    A note is empty for a process that is in no session, as all are that the first process started without one: there
    only the threads' priority counts.
    """
    words = [(note, note.read_text().split()) for note in notes if note.exists()]
    return [(note, told[-1]) for note, told in words if told]


def _granted(threads: Sequence[tuple[int, int]], groups: Sequence[tuple[Path, str]]) -> bool:
    try:
        for thread, _ in threads:
            os.setpriority(os.PRIO_PROCESS, thread, FIRST)
        for note, _ in groups:
            note.write_text(str(FIRST))
    except OSError:
        return False
    return True


def machine() -> str:
    """What the figures were measured on."""
    names = [
        line.partition(":")[2].strip()
        for line in Path("/proc/cpuinfo").read_text().splitlines()
        if "model name" in line
    ]
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / (1 << 30)
    system = f"Linux {platform.release()}, Python {platform.python_version()}"
    return f"{os.cpu_count()} cores ({names[0] if names else platform.machine()}), {memory:.0f} GiB, {system}"


def loop_ms() -> float:
    """Milliseconds of CPU that a million turns of a Python loop take.

    Two threads of one core slow each other down, so a CPU second is worth less while other programs run.
    """
    begun_s, total = time.thread_time(), 0
    for number in range(1_000_000):
        total += number
    return (time.thread_time() - begun_s) * 1000


def load() -> str:
    """How many processes ran or waited for a core: over the last 1, 5 and 15 minutes."""
    return ", ".join(f"{one:.1f}" for one in os.getloadavg())


def print_rows(rows: Sequence[Row]) -> None:
    """The table."""
    from rich.console import Console  # noqa: PLC0415 - it is no part of what is measured
    from rich.table import Table  # noqa: PLC0415

    table = Table("what", "figure", "budget", "")
    for row in rows:
        table.add_row(row.what, row.value, row.budget, row.verdict)
    Console().print(table)


def markdown(rows: Sequence[Row]) -> str:
    """The same table for a text."""
    lines = ["| what | figure | budget | |", "|---|---|---|---|"]
    return "\n".join(
        [*lines, *(f"| {row.what} | {row.value} | {row.budget} | {row.verdict} |" for row in rows)]
    )
