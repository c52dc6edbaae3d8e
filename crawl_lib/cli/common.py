"""What all commands share: the config, tables on standard output, progress on standard error."""

import argparse
import json
import os
import select
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import is_dataclass
from threading import Event
from typing import Any, TextIO, TypeVar

from rich.console import Console
from rich.padding import Padding
from rich.segment import Segments
from rich.table import Table
from rich.text import Text

from crawl_lib.cli.bar import Bar, rounded
from crawl_lib.config import Config, find_config_path, load_config, short_path
from crawl_lib.errors import ConfigError, printable
from crawl_lib.stopping import Work
from crawl_lib.stores import Stores, open_stores

Report = TypeVar("Report")
PROGRESS_INTERVAL_S = 1.0
WIDE_CHARS = 120
"""Of a terminal on which a column of words fits next to a table's numbers."""
WHOLE_CHARS = 12
"""A column of so short cells is never broken: numbers, and names of iterations."""
WIDTH_ELSEWHERE_CHARS = 1000
"""Of tables that go to a file or a pipe: wide enough that no path and no message is broken into lines."""


@contextmanager
def at_work(arguments: argparse.Namespace) -> Iterator[Work]:
    """The work of a tool, which says how far it is: each time it does is a point where it may be stopped."""
    progress = ProgressLine(after_s=2.0, stop=arguments.stop)
    try:
        yield Work(stop=arguments.stop, on_progress=progress)
    finally:
        end_line()


@contextmanager
def tool_stores(arguments: argparse.Namespace, *, make: bool = False) -> Iterator[Stores]:
    """The stores that a tool works on. `make`: as `open_stores` has it; commands that only look make nothing."""
    with at_work(arguments) as work:
        yield open_stores(load_config(arguments.config), stop=work.stop, on_progress=work.on_progress, make=make)


@contextmanager
def stage_stores(arguments: argparse.Namespace) -> Iterator[Stores]:
    """The stores of a stage, which says how far it is from its beginning, and stops by itself."""
    try:
        yield open_stores(load_config(arguments.config), stop=arguments.stop, on_progress=ProgressLine())
    finally:
        end_line()


def one_node(name: str, config: Config) -> str:
    """A node's name as the user gave it. Raises ConfigError naming the nodes there are."""
    if name not in config.servers:
        raise ConfigError(f"node {name!r} is not one of servers: {', '.join(config.servers)}")
    return name


def console() -> Console:
    """Where tables go. What is in brackets is text, never markup: URLs and paths may have any."""
    width = None if sys.stdout.isatty() else WIDTH_ELSEWHERE_CHARS
    return _PlainConsole(markup=False, emoji=False, highlight=False, width=width)


def print_result(arguments: argparse.Namespace, value: object, show: Callable[[], None]) -> None:
    """A result: `value` as JSON where `--json` is given, else for people, as `show` prints it.

    The last line of a command that was only to say what it would do says so.
    """
    if getattr(arguments, "json", False):
        print_json(value)
        return
    show()
    if getattr(arguments, "dry_run", False):
        say("dry run: nothing was changed")


def print_json(value: object) -> None:
    """A result for programs, on standard output; of a report its fields."""
    say(json.dumps(value, indent=1, sort_keys=True, default=lambda one: vars(one) if is_dataclass(one) else str(one)))


def print_counts(title: str, counts: Mapping[str, Any]) -> None:
    """A result for people: a title and a table of names and values; mappings and lists within are rows of their own."""
    table = Table(show_header=False)
    for _ in range(2):
        table.add_column(overflow="fold")  # a path or a URL is to be copied whole
    for name, value in counts.items():
        if isinstance(value, Mapping):
            rows = [(f"{name}.{inner}", number) for inner, number in value.items()]
        else:
            rows = [(name, item) for item in (value if isinstance(value, list | tuple) else [value])]
        for row, item in rows:
            table.add_row(row, _cell(item))
    end_line()
    say(printable(title))  # as the table's own title it would be broken at the table's width
    console().print(table)


def grid(names: Sequence[str], rows: Sequence[Sequence[object]], title: str | None = None) -> Table:
    """Make a table that cuts no cell: a long one goes on in the next line. A narrow terminal gets no lines between.

    `names`: of the columns. `rows`: the cells of each row.
    """
    narrow: dict[str, Any] = {"box": None, "pad_edge": False} if console().width < WIDE_CHARS else {}
    table = Table(title=title, title_justify="left", min_width=len(title or ""), **narrow)
    cells = [[f"{cell:,}" if isinstance(cell, int) else str(cell) for cell in row] for row in rows]
    for number, name in enumerate(names):
        longest = max(len(text) for text in (name, *(row[number] for row in cells)))
        table.add_column(name, overflow="fold", no_wrap=longest <= WHOLE_CHARS)
    for row in cells:
        table.add_row(*row)
    return table


class ResultTable:
    """Results of one kind, each shown as soon as it is there.

    On a terminal each is a row of one table; elsewhere each has a table of its own, see `print_counts`. `columns`: the
    table's names and their widths in characters. One more column has all else that is no zero; on a terminal of less
    than `WIDE_CHARS` it is a line below the row. `title`: the table's.
    """

    def __init__(self, columns: Mapping[str, int], title: str = "") -> None:
        self._columns, self._title = columns, title
        self._is_new = True

    def add(self, title: str, counts: Mapping[str, Any], **cells: object) -> None:
        """Show a result. `cells`: what a row has besides `counts`, where the title says it."""
        if not sys.stdout.isatty():
            print_counts(title, counts)
            return
        table = Table(box=None, pad_edge=False, show_header=self._is_new)
        for name, width in self._columns.items():
            is_number = isinstance(counts.get(name), int)
            justify: Any = "right" if is_number else "left"
            table.add_column(name, min_width=width, no_wrap=is_number, overflow="fold", justify=justify)
        is_wide = console().width >= WIDE_CHARS
        if is_wide:
            table.add_column("", overflow="fold")
        known, shown = {**counts, **cells}, {*self._columns, *map(str, cells.values())}
        rest = [
            _said(name, value)
            for name, value in counts.items()
            if value and name not in shown and not (isinstance(value, str) and value in shown)
        ]
        others = [printable("; ".join(rest))]
        table.add_row(*(_cell(known.get(name, "")) for name in self._columns), *(others if is_wide else []))
        end_line()
        if self._is_new and self._title:
            say(self._title)
        console().print(table)
        if others[0] and not is_wide:
            console().print(Padding(Text(others[0]), (0, 0, 0, 4)))
        self._is_new = False


def _said(name: str, value: object) -> str:
    if isinstance(value, Mapping):
        return f"{name}: {', '.join(f'{inner} {_cell(number)}' for inner, number in value.items())}"
    return f"{name} {_cell(value)}"


def say(text: str = "", *, end: str = "\n", file: TextIO | None = None) -> None:
    """Print lines for people; the only way of a command to do so, since strangers' text may be anywhere in them."""
    print("\n".join(map(printable, text.split("\n"))), end=end, file=file or sys.stdout)


class _PlainConsole(Console):
    """A console that escapes what a terminal would obey, in lines and in the cells of tables."""

    def render_str(self, text: str, **options: Any) -> Text:
        return super().render_str("\n".join(map(printable, text.split("\n"))), **options)


def _cell(value: object) -> str:
    return printable(str(value)) if isinstance(value, float) else rounded(value)


class InterruptedTool(BaseException):
    """A tool is to stop, and is at a point where it may.

    Not a KrakeError: a tool that reads what is damaged takes many of those for damage, and goes on.
    """


class ProgressLine:
    """Progress of a stage on standard error: a bar that changes on a terminal, a line every few seconds elsewhere.

    `after_s`: what takes no longer shows none. `stop`: once it is set, a call raises InterruptedTool.
    """

    def __init__(self, after_s: float = 0.0, stop: Event | None = None) -> None:
        self._stop = stop
        self._last_s = 0.0
        self._not_before_s = time.monotonic() + after_s
        self._bar = Bar() if sys.stderr.isatty() else None

    def __call__(self, progress: Mapping[str, Any]) -> None:
        _interrupt(self._stop)
        now_s = time.monotonic()
        interval_s = PROGRESS_INTERVAL_S if self._bar else 5 * PROGRESS_INTERVAL_S
        if now_s < self._not_before_s or now_s - self._last_s < interval_s:
            return
        self._last_s = now_s
        if self._bar is None:
            sys.stderr.write("  ".join(f"{name} {rounded(value)}" for name, value in progress.items()) + "\n")
        else:
            self._bar.take(progress)
            _show_on_line(self._bar)
        sys.stderr.flush()


def _show_on_line(bar: Bar) -> None:
    """Replace the terminal's last line. The cursor stays on it, so that whoever prints next can clear it."""
    end_line()
    console = Console(stderr=True)
    for line in console.render_lines(bar, pad=False)[:1]:
        console.print(Segments(line), end="")


def end_line() -> None:
    """End the line of progress, where there may be one."""
    if sys.stderr.isatty():
        sys.stderr.write("\r\x1b[K")


def waiting(arguments: argparse.Namespace) -> Callable[[str], None]:
    """The `on_wait` of a tool that waits for a lock: names the holder on standard error, and may be stopped."""

    def wait(holder: str) -> None:
        _interrupt(arguments.stop)
        say(f"waiting for {holder}", file=sys.stderr)

    return wait


def _interrupt(stop: Event | None) -> None:
    if stop is not None and stop.is_set():
        raise InterruptedTool


def name_config(arguments: argparse.Namespace) -> None:
    """Say on standard error which config is used. Raises ConfigError where there is none."""
    say(f"config: {config_file(arguments)}", file=sys.stderr)


def config_file(arguments: argparse.Namespace) -> str:
    """Return the path of the config that is used, as a person types it. Raises ConfigError where there is none."""
    return short_path(arguments.config or find_config_path(os.environ))


def require_yes(arguments: argparse.Namespace, what: str) -> None:
    """Ask before a command does what no other command undoes. `what`: a clause that says what is lost.

    The config is named first. With `--yes`, and in a dry run, nothing is asked. On a terminal the user types "yes";
    elsewhere, and for any other answer, ConfigError is raised, and nothing has been done.
    """
    name_config(arguments)
    if not (arguments.yes or getattr(arguments, "dry_run", False)):
        _have_agreed(arguments, what)


def _have_agreed(arguments: argparse.Namespace, what: str) -> None:
    refused = f"nothing was done: {what}; give --yes if that is meant"
    if not sys.stdin.isatty():
        raise ConfigError(refused)
    if ask(arguments, f"{what}. Type yes to go on: ") != "yes":
        raise ConfigError(refused)


def looked_first(arguments: argparse.Namespace, act: Callable[[bool], Report], lost: Callable[[Report], str]) -> Report:
    """Have a command look before it asks: where nothing would be lost, nothing is asked, and its report says why.

    `act`: does the work; for `True` as a dry run. `lost`: the clause for `require_yes`, "" for nothing.
    """
    name_config(arguments)
    if arguments.yes or arguments.dry_run:
        return act(arguments.dry_run)
    report = act(True)
    if not lost(report):
        return report
    _have_agreed(arguments, lost(report))
    return act(False)


def ask(arguments: argparse.Namespace, question: str) -> str:
    """A line that the user types on his terminal."""
    sys.stderr.write(question)
    sys.stderr.flush()
    while not select.select([sys.stdin], [], [], 0.2)[0]:
        _interrupt(arguments.stop)
    return sys.stdin.readline().strip()
