"""Rows of figures, and measuring a step in a process of its own."""

from __future__ import annotations

import multiprocessing
import resource
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.table import Table


@dataclass(frozen=True)
class Row:
    """One figure. `budget`: what design asks for, as text, "" if nothing."""

    what: str
    value: str
    budget: str = ""


@dataclass(frozen=True)
class Measured:
    """What a step cost: wall and CPU seconds (children included), peak memory of its largest process in MB."""

    result: Any
    wall_s: float
    cpu_s: float
    peak_mb: float


def measure(step: Callable[..., Any], *arguments: Any) -> Measured:
    """Run a step in a new process and measure it with all its children."""
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
    own = resource.getrusage(resource.RUSAGE_SELF)
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime
    sender.send(Measured(result, wall_s, cpu_s, max(own.ru_maxrss, children.ru_maxrss) / 1024))


def print_rows(rows: list[Row]) -> None:
    """The table."""
    table = Table("what", "figure", "budget")
    for row in rows:
        table.add_row(row.what, row.value, row.budget)
    Console().print(table)
