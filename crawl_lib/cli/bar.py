"""A line with a bar and the time left, from the reports of a piece of work (see `stopping.Work.report`)."""

import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TaskID
from rich.segment import Segments
from rich.table import Column, Table
from rich.text import Text

from crawl_lib.cli.figures import duration, rounded
from crawl_lib.errors import printable

_HALF_CHARS = 14
_BAR_CHARS = 16
_DONE = ("done", "fetched")
_TOTAL = ("total", "taken")
_PLAIN = ("stage", "node", "phase")
"""Names whose values say by themselves what they are."""
_PER_UNIT = {"bytes": (1_000_000, "MB")}


class ProgressReport(NamedTuple):
    """One report, read. `total`: None if unknown; `facts`: further numbers, as text."""

    name: str
    done: int
    total: int | None
    unit: str
    facts: str


def part_of(report: Mapping[str, Any]) -> ProgressReport:
    """Read a report's progress.

    That is its `done`, `total` and `unit`, or a node's `fetched` and `taken`.
    """
    done = next((int(report[name]) for name in _DONE if name in report), 0)
    total = next((int(report[name]) for name in _TOTAL if report.get(name)), None)
    rest = {name: value for name, value in report.items() if name not in {*_DONE, *_TOTAL, "unit"}}
    words = [
        value if name in _PLAIN else f"{name} {value}"
        for name, value in rest.items()
        if isinstance(value, str)
    ]
    facts = [
        f"{name} {rounded(value)}"
        for name, value in rest.items()
        if not isinstance(value, str) and value
    ]
    unit = report.get("unit", "URLs" if "node" in report else "")
    return ProgressReport(" ".join(words), done, total, unit, "  ".join(facts))


class Bar:
    """A line of text for a terminal; rich cuts it where the terminal ends.

    The bar begins again when another part of the work reports. `clock`: seconds, from which the time left is told.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        columns = (_Name(), BarColumn(_BAR_CHARS), _Count(), _Left(), _Facts())
        self._progress = Progress(*columns, get_time=clock, auto_refresh=False, expand=True)
        self._task: TaskID | None = None
        self._name = ""

    def take(self, report: Mapping[str, Any]) -> None:
        """Show a report from now on."""
        part = part_of(report)
        if self._task is None or part.name != self._name:
            self.clear()
            self._task, self._name = self._progress.add_task(part.name, total=part.total), part.name
        self._progress.update(
            self._task, total=part.total, completed=part.done, unit=part.unit, facts=part.facts
        )

    def clear(self) -> None:
        """Show nothing until the next report."""
        if self._task is not None:
            self._progress.remove_task(self._task)
            self._task = None

    def print_line(self) -> None:
        """Print the bar on standard error.

        The cursor stays on the line, so that the next print can clear it.
        """
        console = Console(stderr=True)
        for line in console.render_lines(self, pad=False)[:1]:
            console.print(Segments(line), end="")

    def __rich__(self) -> Table:
        return self._progress.make_tasks_table(self._progress.tasks)


class _Name(ProgressColumn):
    """The name of the part; a long one, mostly of a path, is cut in the middle."""

    def render(self, task: Task) -> Text:
        name = printable(task.description)
        return Text(
            name
            if len(name) <= 2 * _HALF_CHARS
            else f"{name[: _HALF_CHARS - 1]}…{name[-_HALF_CHARS:]}"
        )


class _Count(ProgressColumn):
    """How much is done, and of how much."""

    def render(self, task: Task) -> Text:
        done, total, unit = task.completed, task.total, task.fields.get("unit", "")
        if unit == "percent":
            return Text(f"{done:.0f} %")
        size, unit = _PER_UNIT.get(unit, (1, unit))
        numbers = [
            f"{number / size:,.{size > 1:d}f}" for number in (done, total) if number is not None
        ]
        return Text(f"{'/'.join(numbers)} {unit}" if total or done else "")


class _Left(ProgressColumn):
    """The time left, estimated from the last half minute."""

    def render(self, task: Task) -> Text:
        left = task.time_remaining
        return Text("" if left is None or task.finished else f"{duration(left)} left", no_wrap=True)


class _Facts(ProgressColumn):
    """Further numbers, cut where the line ends."""

    def get_table_column(self) -> Column:
        return Column(no_wrap=True, overflow="ellipsis", ratio=1)

    def render(self, task: Task) -> Text:
        return Text(task.fields.get("facts", ""))
