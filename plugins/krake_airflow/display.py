"""The output of `make crawl`: a line for each finished stage, and below these lines the work of each node."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from crawl_lib.cli.bar import Bar
from crawl_lib.cli.figures import rounded
from crawl_lib.config import Config
from crawl_lib.states import Outcome, answers_of
from crawl_lib.storage import shown_address
from krake_airflow.watching import result_lines

PLAIN_INTERVAL_S = 5.0
_COLUMNS = {"phase": "phase", "fetched": "pages", "taken": "of", "pages_per_s": "pages/s", "queue": "queue",
            "errors": "errors"}  # fmt: skip

NOTHING = (
    "none: nothing is queued (what is known is not crawled again: `krake forget URL` makes it new),"
    " or crawl.max_pages is reached"
)
NOTHING_DUE = "none: what is queued waits for another try, and is not due yet"
HINTS: dict[str, str] = {
    Outcome.ADDRESS_REFUSED: " (addresses of an inner network; if it is yours: name it in fetch.allow_networks of the"
    " config, run `krake forget HOST --yes`, and the same command again)"
}
"""Hints for outcomes that follow from the config."""


class Display:
    """The watcher of `make crawl`.

    On a terminal the nodes' table changes in place; elsewhere each node's numbers are a line every few seconds.
    `results` and `failures` hold, by task id, the results of stages and the messages of failures. `over` is called when
    no work is left: a task has ended after a stop, or a task failed that all later tasks need. Airflow would find this
    out task by task, in a second each.
    """

    def __init__(self, console: Console, over: Callable[[], None]) -> None:
        self.stopping = False
        self._over = over
        self.results: dict[str, Mapping[str, Any]] = {}
        self.failures: dict[str, str] = {}
        self._console = console
        self._nodes: dict[str, Mapping[str, Any]] = {}
        self._task: Any = None
        self._began_s: dict[str, float] = {}
        self._last_s = float("-inf")
        self._bar = Bar()
        self._live: Live | None = _live(console) if console.is_terminal else None

    def __enter__(self) -> Display:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Remove the changing part of the screen."""
        if self._live is not None:
            self._live.stop()

    def note(self, text: str | Text) -> None:
        """Say something above the table, as it is: brackets are no style. On terminals, lines break between words."""
        self._console.print(
            text, highlight=False, soft_wrap=not self._console.is_terminal, markup=False
        )

    def started(self, task: Any) -> None:
        """Show that a stage begins."""
        self._task, self._began_s[task.task_id] = task, time.monotonic()
        self.failures.pop(task.task_id, None)
        self._bar.clear()
        self._show(task.task_id, " ...")

    def progressed(self, task: Any, progress: Mapping[str, Any]) -> None:
        """Show new numbers of a stage; numbers of a node go to the table."""
        if "node" in progress:
            self._nodes[str(progress["node"])] = dict(progress)
            self._bar.clear()
            text = "  ".join(
                f"{title} {_shown(progress.get(name))}" for name, title in _COLUMNS.items()
            )
        else:
            self._bar.take(progress)
            text = "  ".join(f"{name} {_shown(value)}" for name, value in progress.items())
        self._show(task.task_id)
        if self._live is None and time.monotonic() - self._last_s >= PLAIN_INTERVAL_S:
            self._last_s = time.monotonic()
            self.note(f"  {task.task_id:28} {text}")

    def finished(self, task: Any, result: Mapping[str, Any]) -> None:
        """Show that a stage is done: one line that stays, and a line for each refusal."""
        self.results[task.task_id] = result
        self._task = None
        self._bar.clear()
        text = f" {task.task_id:28} {time.monotonic() - self._began_s[task.task_id]:6.1f} s  {_gist(result)}"
        self.note(Text.assemble(("done", "green"), text))
        for level, line in result_lines(result, task.refusals):
            if level == logging.WARNING:
                self.note(Text.assemble(("warning", "yellow"), f" {line}"))
        self._show()

    def failed(self, task: Any, message: str, *, final: bool) -> None:
        """Show a failed stage in a line that stays."""
        self.failures[task.task_id] = message
        self._task = None
        self.note(Text.assemble(("FAILED", "red"), f" {task.task_id}: {message}"))
        if self.stopping or (final and task.run_needs_it):
            self._over()

    def stop(self) -> None:
        """Tell the running stage to stop, and later stages not to begin."""
        self.stopping = True
        if self._task is not None:
            self._task.ask_to_stop()
        else:
            self._over()

    def _show(self, task_id: str = "", text: str = "") -> None:
        """Draw the changing part below all lines that stay: the stage, its bar, and the table of the nodes."""
        if self._live is None:
            return
        table = Table(box=None, pad_edge=False)
        for title in ("node", *_COLUMNS.values()):
            table.add_column(title, justify="left" if title in ("node", "phase") else "right")
        for node, progress in sorted(self._nodes.items()):
            table.add_row(Text(node), *(Text(_shown(progress.get(name))) for name in _COLUMNS))
        self._live.update(
            Group(
                Text.assemble((task_id, "cyan"), text), self._bar, *([table] if self._nodes else [])
            )
        )


def _live(console: Console) -> Live:
    """Make the part of the screen that changes in place.

    `sys.stdout` and `sys.stderr` are left alone: otherwise Airflow's log lines would come to the screen.
    """
    return Live(console=console, refresh_per_second=4, redirect_stdout=False, redirect_stderr=False)


def _shown(value: object) -> str:
    return "" if value is None else rounded(value)


def _gist(result: Mapping[str, Any]) -> str:
    """Return the first numbers of a result, as text."""
    numbers = [
        (name, value) for name, value in result.items() if isinstance(value, int | float) and value
    ]
    return "  ".join(
        f"{name} {_shown(value)}" for name, value in numbers[:6] if name != "iteration"
    )


def _remarks(commits: Iterable[Mapping[str, Any]]) -> Iterator[tuple[str, str]]:
    """Yield the remarks of commits; for waiting URLs, only the newest commit's line."""
    waiting = ""
    for result in commits:
        for name, title in (("warning", "warning"), ("budgets", "limits reached")):
            if name in result:
                yield title, f"iteration {result['folder']}: {result[name]}"
        waiting = str(result.get("waiting", ""))
    if waiting:
        yield "waiting", waiting


def _tries(number: int, retried: int) -> str:
    """Return the number of ended URLs of an outcome, and of tries if some URLs are tried again."""
    ended = _shown(number - retried)
    if not retried:
        return ended
    return f"{_shown(number)} {'try' if number == 1 else 'tries'}, {ended} ended ({_shown(retried)} tried again later)"


def summary(
    config: Config,
    results: Mapping[str, Mapping[str, Any]],
    hints: Mapping[str, str] = MappingProxyType(HINTS),
) -> Table:
    """Sum up a run from the results of its tasks: work and places. `hints`: hints for outcomes."""
    table = Table(title="Done", title_justify="left", show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    commits = [result for task, result in results.items() if task.endswith(".commit")]
    tries, retried = Counter[str](), Counter[str]()
    for result in commits:
        tries.update(result.get("outcomes", {}))
        retried.update(result.get("retried", {}))
    ended = next((str(result["ended"]) for result in results.values() if "ended" in result), "")
    nothing = NOTHING_DUE if any(result.get("passed_over") for result in commits) else NOTHING
    if config.order.makes_lists and ended:
        nothing = f"none: {ended}"
    table.add_row("iterations", f"{_shown(len(commits))}{ended and f', then {ended}'}")
    table.add_row("pages fetched", _shown(tries.total() - retried.total()) if tries else nothing)
    for outcome, number in tries.most_common():
        table.add_row(f"  {outcome}", f"{_tries(number, retried[outcome])}{hints.get(outcome, '')}")
    for row in _remarks(commits):
        table.add_row(*row)
    if not answers_of(tries)[0]:
        table.add_row("warning", "this run fetched nothing")
    for task, names in (
        ("export", ("pages",)),
        ("linker", ("arcs",)),
        ("finalizer", ("nodes", "arcs")),
    ):
        for name in names:
            if name in results.get(task, {}):
                table.add_row(f"{task}: {name}", _shown(results[task][name]))
    table.add_section()
    root = shown_address(config)
    folders = [result["folder"] for result in commits if "folder" in result]
    table.add_row("WARC files, tables", f"{root}/{config.crawl.directory}/<iteration>/<node>/")
    table.add_row(
        "  iterations", ", ".join(folders[:2] + ["..."] * (len(folders) > 3) + folders[2:][-1:])
    )
    if "path" in results.get("export", {}):
        table.add_row("export, web graph", f"{root}/{results['export']['path']}/")
    table.add_row("queues", f"{config.queue.local_dir}/<node>/")
    return table
