"""What all commands share: the config, tables on standard output, progress on standard error."""

import argparse
import json
import select
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from threading import Event
from typing import Any

from rich.console import Console
from rich.table import Table

from crawl_lib.config import Config, load_config
from crawl_lib.errors import ConfigError
from crawl_lib.stopping import OnProgress
from crawl_lib.stores import Secrets, Stores, open_stores

PROGRESS_INTERVAL_S = 1.0
WIDTH_ELSEWHERE_CHARS = 1000
"""Of tables that go to a file or a pipe: wide enough that no path and no message is broken into lines."""


def config_of(arguments: argparse.Namespace) -> Config:
    """The config that the command line or the environment names. Raises ConfigError."""
    return load_config(arguments.config)


def stores_of(
    arguments: argparse.Namespace,
    *,
    make: bool = False,
    stop: Event | None = None,
    on_progress: OnProgress | None = None,
) -> Stores:
    """The opened stores of that config, as `open_stores` opens them; commands that only look make nothing."""
    return open_stores(config_of(arguments), Secrets.from_environment(), stop=stop, on_progress=on_progress, make=make)


def one_node(name: str, config: Config) -> str:
    """A node's name as the user gave it. Raises ConfigError naming the nodes there are."""
    if name not in config.servers:
        raise ConfigError(f"node {name!r} is not one of servers: {', '.join(config.servers)}")
    return name


def console() -> Console:
    """Where tables go. What stands in brackets is text, never markup: URLs and paths may have any."""
    width = None if sys.stdout.isatty() else WIDTH_ELSEWHERE_CHARS
    return Console(markup=False, emoji=False, highlight=False, width=width)


def print_json(value: object) -> None:
    """A result for programs, on standard output."""
    print(json.dumps(value, indent=1, sort_keys=True, default=str))


def print_counts(title: str, counts: Mapping[str, Any]) -> None:
    """A result for people: a title and a table of names and values; mappings and lists within are rows of their own."""
    table = Table("", "", show_header=False)
    for name, value in counts.items():
        if isinstance(value, Mapping):
            for inner, number in value.items():
                table.add_row(f"{name}.{inner}", _shown(number))
        elif isinstance(value, list | tuple):
            for item in value:
                table.add_row(name, _shown(item))
        else:
            table.add_row(name, _shown(value))
    print(plain(title))  # as the table's own title it would be broken at the table's width
    console().print(table)


def plain(text: str) -> str:
    """Text of strangers, such as a URL of an archive, without what a terminal would obey."""
    return "".join(mark if mark.isprintable() else f"\\x{ord(mark):02x}" for mark in text)


def _shown(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else plain(str(value))


class InterruptedTool(BaseException):
    """A tool is to stop, and is at a point where it may.

    Not a KrakeError: a tool that reads what is damaged takes many of those for damage, and goes on.
    """


class ProgressLine:
    """Progress of a stage on standard error: one line that changes on a terminal, a line a few seconds elsewhere.

    `after_s`: what takes no longer shows none. `stop`: once it is set, a call raises InterruptedTool.
    """

    def __init__(self, after_s: float = 0.0, stop: Event | None = None) -> None:
        self._stop = stop
        self._last_s = 0.0
        self._not_before_s = time.monotonic() + after_s
        self._live = sys.stderr.isatty()

    def __call__(self, progress: Mapping[str, Any]) -> None:
        _interrupt(self._stop)
        now_s = time.monotonic()
        interval_s = PROGRESS_INTERVAL_S if self._live else 5 * PROGRESS_INTERVAL_S
        if now_s < self._not_before_s or now_s - self._last_s < interval_s:
            return
        self._last_s = now_s
        text = "  ".join(f"{name} {_rounded(value)}" for name, value in progress.items())
        sys.stderr.write(f"\r\x1b[K{text}" if self._live else f"{text}\n")
        sys.stderr.flush()

    def close(self) -> None:
        """End the line."""
        if self._live and self._last_s:
            sys.stderr.write("\r\x1b[K")


def _rounded(value: object) -> str:
    return f"{value:,.1f}" if isinstance(value, float) else _shown(value)


@contextmanager
def tool_progress(arguments: argparse.Namespace) -> Iterator[ProgressLine]:
    """The `on_progress` of a tool: each call of it is a point where the tool may be stopped."""
    progress = ProgressLine(after_s=2.0, stop=arguments.stop)
    try:
        yield progress
    finally:
        progress.close()


@contextmanager
def tool_stores(arguments: argparse.Namespace, *, make: bool = False) -> Iterator[Stores]:
    """The stores that a tool works on, which says how far it is, and may be stopped."""
    with tool_progress(arguments) as progress:
        yield stores_of(arguments, make=make, stop=arguments.stop, on_progress=progress)


class Waiting:
    """The `on_wait` of a tool that waits for a lock: names the holder on standard error, and may be stopped."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self._stop: Event = arguments.stop

    def __call__(self, holder: str) -> None:
        _interrupt(self._stop)
        print(f"waiting for {holder}", file=sys.stderr)


def _interrupt(stop: Event | None) -> None:
    if stop is not None and stop.is_set():
        raise InterruptedTool


def print_dry_run(arguments: argparse.Namespace) -> None:
    """The last line of a command that was only to say what it would do; of one that has no dry run, nothing."""
    if getattr(arguments, "dry_run", False):
        print("dry run: nothing was changed")


def require_yes(arguments: argparse.Namespace, what: str) -> None:
    """Ask before a command does what no other command undoes. `what`: a clause that says what is lost.

    With `--yes`, and in a dry run, nothing is asked. On a terminal the user types "yes"; elsewhere, and where he types
    anything else, ConfigError is raised, and nothing has been done.
    """
    if arguments.yes or getattr(arguments, "dry_run", False):
        return
    refused = f"nothing was done: {what}; give --yes if that is meant"
    if not sys.stdin.isatty():
        raise ConfigError(refused)
    sys.stderr.write(f"{what}. Type yes to go on: ")
    sys.stderr.flush()
    while not select.select([sys.stdin], [], [], 0.2)[0]:
        _interrupt(arguments.stop)
    if sys.stdin.readline().strip() != "yes":
        raise ConfigError(refused)
