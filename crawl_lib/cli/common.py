"""Code that all commands share: the config, tables on standard output, progress on standard error."""

import argparse
import json
import os
import select
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import is_dataclass
from functools import partial
from threading import Event
from typing import Any, TextIO, TypeVar

from crawl_lib.cli.figures import cell_of, rounded
from crawl_lib.config import Config, ConfigPlace, load_config, short_path
from crawl_lib.errors import ConfigError, printable
from crawl_lib.stopping import Work
from crawl_lib.stores import Stores, open_stores

Report = TypeVar("Report")
PROGRESS_INTERVAL_S = 1.0


@contextmanager
def at_work(arguments: argparse.Namespace) -> Iterator[Work]:
    """Give the work of a tool: progress on standard error, and the event that stops the tool."""
    progress = ProgressLine(after_s=2.0, stop=arguments.stop)
    try:
        yield Work(stop=arguments.stop, on_progress=progress)
    finally:
        end_line()


@contextmanager
def tool_stores(arguments: argparse.Namespace, *, make: bool = False) -> Iterator[Stores]:
    """Open the stores that a tool works on.

    `make`: see `open_stores`; commands that only read make nothing.
    """
    with at_work(arguments) as work:
        yield open_stores(
            load_config(arguments.config), stop=work.stop, on_progress=work.on_progress, make=make
        )


@contextmanager
def stage_stores(arguments: argparse.Namespace) -> Iterator[Stores]:
    """Open a stage's stores.

    Progress is shown from the beginning; the stage obeys the event `stop`.
    """
    try:
        yield open_stores(
            load_config(arguments.config), stop=arguments.stop, on_progress=ProgressLine()
        )
    finally:
        end_line()


def one_node(name: str, config: Config) -> str:
    """Return a node's name if the config has the node.

    Raises ConfigError naming all nodes of the config.
    """
    if name not in config.servers:
        raise ConfigError(f"node {name!r} is not in servers: {', '.join(config.servers)}")
    return name


def print_result(arguments: argparse.Namespace, value: object, show: Callable[[], None]) -> None:
    """Print a result: JSON with `--json`, else for people.

    `show` prints for people. The last line of a dry run says so.
    """
    if getattr(arguments, "json", False):
        print_json(value)
        return
    show()
    if getattr(arguments, "dry_run", False):
        say("dry run: nothing was changed")


def print_counted(arguments: argparse.Namespace, title: str, value: object) -> int:
    """Print a result, for people as a table of its fields; return 0."""
    counts = value if isinstance(value, Mapping) else vars(value)
    print_result(arguments, value, partial(print_counts, title, counts))
    return 0


def print_json(value: object) -> None:
    """Print a result as JSON on standard output.

    A report is printed by its fields.
    """
    say(
        json.dumps(
            value,
            indent=1,
            sort_keys=True,
            default=lambda one: vars(one) if is_dataclass(one) else str(one),
        )
    )


def print_counts(title: str, counts: Mapping[str, Any]) -> None:
    """Print a title and a table of names and values.

    A mapping or list among the values gives a row for each item.
    """
    rows = []
    for name, value in counts.items():
        if isinstance(value, Mapping):
            rows += [(f"{name}.{inner}", number) for inner, number in value.items()]
        else:
            rows += [
                (name, item) for item in (value if isinstance(value, list | tuple) else [value])
            ]
    cells = [(printable(name), cell_of(item)) for name, item in rows]
    end_line()
    say(printable(title))
    if sys.stdout.isatty():
        from crawl_lib.cli.tables import show_pairs  # noqa: PLC0415 - rich, for terminals alone

        show_pairs(cells)
        return
    width = max((len(name) for name, _ in cells), default=0)
    for name, cell in cells:
        say(f"  {name:<{width}}  {cell}")


class ResultTable:
    """Results of one kind, each shown at once.

    On a terminal each result is a row of one table; elsewhere `print_counts` prints each. `columns`: names of the
    table's columns, with widths in characters. One more column has all other counts above zero; on a narrow terminal
    these counts are a line below the row. `title`: the title of the table.
    """

    def __init__(self, columns: Mapping[str, int], title: str = "") -> None:
        self._rows, self._title = None, title
        if sys.stdout.isatty():
            from crawl_lib.cli.tables import ResultRows  # noqa: PLC0415 - rich, for terminals alone

            self._rows = ResultRows(columns)

    def add(self, title: str, counts: Mapping[str, Any], **cells: object) -> None:
        """Show a result.

        `cells`: cells of the row that `counts` lacks, because `title` has the values already.
        """
        if self._rows is None:
            print_counts(title, counts)
            return
        end_line()
        if self._title:
            say(self._title)
            self._title = ""
        self._rows.add(counts, cells)


def say(text: str = "", *, end: str = "\n", file: TextIO | None = None) -> None:
    """Print lines for people.

    Commands print by this function alone, because the text of strangers may be anywhere in the lines.
    """
    print("\n".join(map(printable, text.split("\n"))), end=end, file=file or sys.stdout)


class InterruptedTool(BaseException):
    """The request to stop, raised at a point where a tool may stop.

    Not a KrakeError: a tool that reads damaged data counts many a KrakeError as damage, and goes on.
    """


class ProgressLine:
    """Progress of a stage on standard error: a bar that changes on a terminal, a line every few seconds elsewhere.

    `after_s`: shorter work shows no progress. `stop`: once the event is set, a call raises InterruptedTool.
    """

    def __init__(self, after_s: float = 0.0, stop: Event | None = None) -> None:
        self._stop = stop
        self._last_s = 0.0
        self._not_before_s = time.monotonic() + after_s
        self._bar = None
        if sys.stderr.isatty():
            from crawl_lib.cli.bar import Bar  # noqa: PLC0415 - rich, for terminals alone

            self._bar = Bar()

    def __call__(self, progress: Mapping[str, Any]) -> None:
        _interrupt(self._stop)
        now_s = time.monotonic()
        interval_s = PROGRESS_INTERVAL_S if self._bar else 5 * PROGRESS_INTERVAL_S
        if now_s < self._not_before_s or now_s - self._last_s < interval_s:
            return
        self._last_s = now_s
        if self._bar is None:
            sys.stderr.write(
                "  ".join(f"{name} {rounded(value)}" for name, value in progress.items()) + "\n"
            )
        else:
            self._bar.take(progress)
            end_line()
            self._bar.print_line()
        sys.stderr.flush()


def end_line() -> None:
    """End the line of progress, where there may be one."""
    if sys.stderr.isatty():
        sys.stderr.write("\r\x1b[K")


def waiting(arguments: argparse.Namespace) -> Callable[[str], None]:
    """Return the `on_wait` of a tool that waits for a lock.

    `on_wait` names the holder on standard error, and raises InterruptedTool on a stop.
    """

    def wait(holder: str) -> None:
        _interrupt(arguments.stop)
        say(f"waiting for {holder}", file=sys.stderr)

    return wait


def _interrupt(stop: Event | None) -> None:
    if stop is not None and stop.is_set():
        raise InterruptedTool


def name_config(arguments: argparse.Namespace) -> None:
    """Print the used config's path on standard error.

    Raises ConfigError without a config.
    """
    say(f"config: {config_file(arguments)}", file=sys.stderr)


def config_file(arguments: argparse.Namespace) -> str:
    """Return the used config's path, as typed.

    Raises ConfigError without a config.
    """
    return short_path(arguments.config or ConfigPlace.find(os.environ))


def require_yes(arguments: argparse.Namespace, what: str) -> None:
    """Ask before an irreversible command.

    `what`: a clause about the loss. The config is named first. With `--yes`, and in a dry run, nothing is
    asked. On a terminal the user types "yes"; elsewhere, and for any other answer, ConfigError is raised, and nothing
    has been done.
    """
    name_config(arguments)
    if not (arguments.yes or getattr(arguments, "dry_run", False)):
        _have_agreed(arguments, what)


def _have_agreed(arguments: argparse.Namespace, what: str) -> None:
    refused = f"nothing was done: {what}; give --yes to go on"
    if not sys.stdin.isatty():
        raise ConfigError(refused)
    if ask(arguments, f"{what}. Type yes to go on: ") != "yes":
        raise ConfigError(refused)


def looked_first(
    arguments: argparse.Namespace, act: Callable[[bool], Report], lost: Callable[[Report], str]
) -> Report:
    """Run a command dry, then ask if anything would be lost.

    `act`: does the work; `act(True)` is a dry run. `lost`: the clause for `require_yes`, or "" if nothing is lost.
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
    """Read a line from the user's terminal."""
    sys.stderr.write(question)
    sys.stderr.flush()
    while not select.select([sys.stdin], [], [], 0.2)[0]:
        _interrupt(arguments.stop)
    return sys.stdin.readline().strip()
